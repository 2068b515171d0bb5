"""Many prototypes: the default beside greedy picks from all rows, and what a minute finds.

Everything runs in one process, in turn. The clock covers the whole call of `select`, and apart from
it the exact cost of the default's rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks.common import MissingDataError, Report, Rows, measured, mixture, mnist, unit_rows

TITLE = "many prototypes: the default beside greedy picks and what 60 seconds find"
REACH_TIMES, REACH_PERCENT, SECONDS = 2.0, 0.5, 60.0


class _Many(NamedTuple):
    """k of the rows of a mixture, or of MNIST, where there is no width."""

    n: int
    width: int
    k: int

    def __str__(self) -> str:
        return f"{self.n:,} × {self.width or 784}, k = {self.k:,}"

    def rows(self) -> Rows:
        if self.width:
            return mixture(self.n, self.width, 30, seed=21)
        return unit_rows(mnist(self.n))


_PROBLEMS = (
    _Many(30_000, 8, 600),
    _Many(6_000, 16, 2_400),
    _Many(150_000, 8, 310),
    _Many(60_000, 0, 600),
)


def run(report: Report, quick: bool) -> None:
    for small in (mixture(2_000, 8, 30, 0), mixture(2_000, 64, 30, 0)):  # compiled first
        _ = _choose(small, 310).cost
    seconds = 1.0 if quick else SECONDS
    for problem in (_Many(2_000, 8, 310),) if quick else _PROBLEMS:
        try:
            _compare(report, problem, seconds)
        except MissingDataError as missing:
            report.row(str(problem), unavailable=str(missing))


def _compare(report: Report, problem: _Many, seconds: float) -> None:
    rows, k = problem.rows(), problem.k
    metric = "euclidean" if problem.width else "cosine"
    ours, found = measured(_choose, rows, k, metric)
    plan, cost = measured(lambda: found.cost)
    greedy, picks = measured(lambda: _choose(rows, k, metric, method="greedy"))
    longer = _choose(rows, k, metric, seconds=seconds)
    report.row(
        str(problem),
        seconds=ours.processor_seconds,
        cost=cost,
        seconds_of_cost=plan.processor_seconds,
        greedy_seconds=greedy.processor_seconds,
        greedy_cost=picks.cost,
        cost_in_60_seconds=longer.cost,
    )
    times = ours.processor_seconds / greedy.processor_seconds
    percent = 100 * (cost / longer.cost - 1)
    reach = f"≤ {REACH_TIMES:g}"
    report.figure(f"{problem}: times greedy picks", times, reach, times <= REACH_TIMES)
    reach = f"≤ {REACH_PERCENT:g}"
    what = f"{problem}: per cent above what {seconds:g} seconds find"
    report.figure(what, percent, reach, percent <= REACH_PERCENT)


def _choose(rows: Rows, k: int, metric: str = "euclidean", **options: Any) -> Any:
    import uniproto

    compute = uniproto.Compute(device="cpu")
    return uniproto.select(rows, k, metric=metric, compute=compute, progress=False, **options)
