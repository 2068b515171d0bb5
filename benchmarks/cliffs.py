"""No cliffs: one row more or less, rows on disk and the memory allowed change little.

Around every size at which the search goes another way, the same rows of a mixture are chosen from
with a few rows more or less: costs per target, and processor seconds (the least of several calls).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import Report, mixture

TITLE = "the default around the sizes at which its stages begin"
REACH_PERCENT, REACH_TIMES = 0.3, 2.0
_MEMORY = (200_000_000, 8_000_000_000)  # bytes


class _Edge(NamedTuple):
    """What begins at a number of rows, and the problem it is tried on."""

    what: str
    sizes: tuple[int, ...]
    width: int
    k: int


_EDGES = (
    _Edge("compiled cells", (244, 245, 246), 4, 10),
    _Edge("rows drawn for greedy picks", (4_999, 5_000, 5_001), 8, 20),
    _Edge("a sample first", (7_999, 8_000, 8_001), 8, 20),
    _Edge("where a sample began before", (15_999, 16_000, 16_001), 8, 20),
    _Edge("a switch of before", (19_999, 20_000, 20_001), 5, 50),
    _Edge("another switch of before", (39_999, 40_000, 40_001), 10, 20),
    _Edge("blocks, as cells are large", (63_245, 63_246), 5, 20),
    _Edge("blocks, as k · n is above 5 million", (50_000, 50_001), 5, 100),
    _Edge("k · n is 15 million", (37_499, 37_500, 37_501), 8, 400),
)
_PROTOTYPES = (6_000, 8, (300, 301))  # beyond 300, plans are those of greedy picks


def run(report: Report, quick: bool) -> None:
    import uniproto

    uniproto.select(mixture(300, 3, 5, 0), 5)  # compiled before the clock runs
    uniproto.select(mixture(12_000, 3, 5, 0), 5)
    calls = 1 if quick else 2
    for edge in _EDGES[: 1 if quick else None]:
        rows = mixture(max(edge.sizes), edge.width, 30, seed=17)
        _compare(
            report,
            f"{edge.what}, × {edge.width}, k = {edge.k}",
            {f"{size:,} rows": _chosen(rows[:size], edge.k) for size in edge.sizes},
            calls,
        )
    if not quick:
        n, width, counts = _PROTOTYPES
        rows = mixture(n, width, 30, seed=17)
        what = f"plans of greedy picks, {n:,} × {width}"
        _compare(report, what, {f"k = {k}": _chosen(rows, k) for k in counts}, calls)
    for what, calls_by_way in _ways(quick):
        _compare(report, what, calls_by_way, calls)


def _ways(quick: bool) -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
    """The same rows in memory, on disk, and with much and little memory."""
    from uniproto import Compute

    for n, width, k in ((2_000, 4, 10),) if quick else ((20_000, 8, 20), (60_000, 8, 250)):
        rows = mixture(n, width, 30, seed=18)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.npy"
            np.save(file, rows)
            ways = {}
            for where, given in (("in memory", rows), ("on disk", file)):
                for memory in _MEMORY:
                    compute = Compute(memory=memory)
                    name = f"{where}, {memory // 1_000_000:,} MB"
                    ways[name] = _chosen(given, k, compute=compute)
            yield f"{n:,} × {width}, k = {k}", ways


def _chosen(rows: Any, k: int, **options: Any) -> Callable[[], Any]:
    import uniproto

    return lambda: uniproto.select(rows, k, metric="euclidean", seed=0, progress=False, **options)


def _compare(report: Report, what: str, ways: dict[str, Callable[[], Any]], calls: int) -> None:
    costs, seconds = {}, {}
    for _ in range(calls):  # in turn, so that all wait for the same other work
        for name, choose in ways.items():
            begin = time.process_time()
            costs[name] = choose().cost
            taken = time.process_time() - begin
            seconds[name] = min(taken, seconds.get(name, taken))
    for name in ways:
        report.row(f"{what}: {name}", cost=costs[name], seconds=seconds[name])
    wider = 100 * (max(costs.values()) / min(costs.values()) - 1)
    times = max(seconds.values()) / min(seconds.values())
    reach = f"≤ {REACH_PERCENT}"
    report.figure(f"per cent between costs, {what}", wider, reach, wider <= REACH_PERCENT)
    reach = f"≤ {REACH_TIMES:g}"
    report.figure(f"times the seconds, {what}", times, reach, times <= REACH_TIMES)
