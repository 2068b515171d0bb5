"""Choosing k: costs, lower bounds and costs of random rows over k."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from uniproto.comparing.compare import method_label, small_problem, warms_up
from uniproto.comparing.results import KPath, as_seeds
from uniproto.errors import InfeasibleError, InvalidInputError, as_index, finite_number
from uniproto.methods import Method, Random, as_method
from uniproto.problem.problem import (
    Problem,
    ProblemOptions,
    Unpack,
    as_problem,
    takes_problem_options,
)
from uniproto.report.words import mean_and_spread
from uniproto.runtime.progress import Progress
from uniproto.select import run_method
from uniproto.selection.selection import Selection, as_time_limit

_DEFAULT_COUNT = 8
_DEFAULT_LARGEST = 500


@takes_problem_options
def path(
    source: Any,
    ks: Iterable[int] | None = None,
    target: Any = None,
    *,
    method: str | Method = "uniproto",
    max_cost: float | None = None,
    certify: bool | float = True,
    seeds: int | Iterable[int] = 5,
    progress: bool | None = None,
    **problem: Unpack[ProblemOptions],
) -> KPath:
    """Select for several k, and show how the cost falls.

    Each k is a separate run: the first 15 picks of k=60 are not the picks of k=15, and cost more.
    Each comes with a lower bound on the cost of any k rows, and with the cost of random rows.

    Args:
        source: the pool, or a `Problem`, as for `select`.
        ks: the numbers of prototypes to try. Default: about eight, evenly spaced in log k, up to
            half of the source or 500.
        target: what the chosen rows must represent. Default: the source itself.
        method: the method whose costs are computed.
        max_cost: also find the smallest k whose cost is at most this, by bisection below the
            first of `ks` that reaches it. Costs fall as k grows, but not at every step (four
            prototypes may fit four clusters better than five): the k before the one found costs
            more than `max_cost`, but a still smaller one that happens to reach it may be missed.
        certify: whether to prove the lower bounds; a number is the time limit of each in seconds.
        seeds: how many random choices each k is compared with (0 for none), or their seeds.
        progress: True or False to force or forbid progress bars.
        problem: as for `Problem`.

    Returns:
        A `KPath`: `rows`, `knee`, `chosen`, `selection`, `table()`, `save(folder)`.

    >>> import uniproto
    >>> points = [[0.0], [0.1], [1.0], [1.1], [5.0], [5.1], [9.0], [9.1]]
    >>> found = uniproto.path(points, ks=[1, 2, 4, 8], max_cost=0.1, metric="euclidean")
    >>> [row["k"] for row in found.rows], found.chosen
    ([1, 2, 4, 8], 4)
    """
    question = as_problem("path", source, target, problem)
    chosen = as_method(method)
    if not isinstance(question._budgets, str):
        raise InvalidInputError(
            "must not be counts for each group, which fit one k only. Use 'balanced'.",
            parameter="budgets",
        )
    if max_cost is not None and not finite_number(max_cost) >= 0:
        raise InvalidInputError(
            f"must be a cost of at least 0, not {max_cost!r}.", parameter="max_cost"
        )
    certified, limit = as_time_limit(certify)
    no_random = isinstance(seeds, int) and seeds == 0
    drawn = [] if no_random else as_seeds(seeds)
    given, free = len(question.initial), len(question.candidates)
    smallest = max(1, given)
    listed = _default_ks(smallest, given + free) if ks is None else _checked_ks(ks)
    largest = question.with_k(listed[-1])  # raises before any work if it is too large

    def run(k: int) -> Selection:
        return run_method(question.with_k(k), chosen, progress=False)

    bars = Progress(progress)
    rows: list[dict[str, Any]] = []
    found: Selection | None = None
    searched: dict[int, float] = {}
    with bars.stage("path", len(listed)) as advance:
        warms_up(small_problem(largest), chosen)  # else the first k would include loading code
        for k in listed:
            selection = run(k)
            if certified:
                selection.certify(seconds=limit, progress=False)
            rows.append(_row(selection, _random_costs(question.with_k(k), drawn)))
            if max_cost is not None and found is None and selection.cost <= max_cost:
                found = selection
            advance(1)
    if max_cost is not None:
        if found is None:
            raise _unreached(max_cost, rows)
        below = max([smallest - 1, *(k for k in listed if k < found.k)])
        found = _bisect(run, below, found, float(max_cost), searched, bars)
    return KPath(
        rows=rows,
        method=method_label(chosen),
        shape=question.costs.shape,
        metric=question.costs.metric,
        bandwidth=question.costs.bandwidth,
        knee=knee_of([row["k"] for row in rows], [row["cost"] for row in rows]),
        max_cost=None if max_cost is None else float(max_cost),
        chosen=None if found is None else found.k,
        selection=found,
        searched=searched,
    )


def knee_of(ks: Sequence[int], costs: Sequence[float]) -> int | None:
    """The k whose cost is farthest below the line from the first to the last point.

    Distances are over log k, with both axes scaled to their range, so that neither the unit of cost
    nor the length of the path matters. None with fewer than three points, or if no cost is below
    that line. The knee depends on the ks that were tried.

    >>> knee_of([10, 20, 40, 80], [1.0, 0.4, 0.3, 0.25])
    20
    """
    if len(ks) < 3:
        return None
    across = np.log(np.asarray(ks, float))
    across = (across - across[0]) / (across[-1] - across[0])
    height = np.asarray(costs, float)
    fall = height[0] - height[-1]
    if fall <= 0:
        return None
    below = (1 - across) - (height - height[-1]) / fall
    deepest = int(np.argmax(below))
    return int(ks[deepest]) if below[deepest] > 1e-9 else None


def _row(selection: Selection, random: Sequence[float]) -> dict[str, Any]:
    mean, spread = mean_and_spread(random)
    certificate = selection.certificate
    return {
        "k": selection.k,
        "cost": selection.cost,
        "cost_is_exact": selection.cost_is_exact,
        "lower_bound": None if certificate is None else certificate.lower_bound,
        "random_cost": mean,
        "random_spread": spread,
        "seconds": selection.details.timings["pick"],
    }


def _random_costs(problem: Problem, seeds: Sequence[int]) -> list[float]:
    return [run_method(problem.with_seed(seed), Random(), progress=False).cost for seed in seeds]


def _unreached(max_cost: float, rows: Sequence[dict[str, Any]]) -> InfeasibleError:
    best = min(rows, key=lambda row: row["cost"])
    return InfeasibleError(
        f"must be at least {best['cost']:.6g}, the lowest cost of these 'ks', at k={best['k']} "
        f"(got {max_cost:g}). Raise it, or add larger values to 'ks'.",
        parameter="max_cost",
    )


def _bisect(
    run: Callable[[int], Selection],
    below: int,
    reached: Selection,
    max_cost: float,
    searched: dict[int, float],
    bars: Progress,
) -> Selection:
    """The smallest k above `below` that reaches the cost, if costs fall as k grows."""
    with bars.stage("search", max(1, math.ceil(math.log2(reached.k - below)))) as advance:
        while reached.k - below > 1:
            trial = run((below + reached.k) // 2)
            searched[trial.k] = trial.cost
            if trial.cost <= max_cost:
                reached = trial
            else:
                below = trial.k
            advance(1)
    return reached


def _default_ks(smallest: int, available: int) -> list[int]:
    largest = max(smallest, min(available // 2, _DEFAULT_LARGEST))
    start = min(max(smallest, 2), largest)
    spaced = np.geomspace(start, largest, _DEFAULT_COUNT)
    return np.unique(np.rint(spaced).astype(int)).tolist()


def _checked_ks(ks: Iterable[int]) -> list[int]:
    try:
        listed = sorted({as_index(k) for k in ks})
    except TypeError:
        listed = []
    if not listed or listed[0] < 1:
        raise InvalidInputError(f"must be whole numbers of at least 1, not {ks!r}.", parameter="ks")
    return listed
