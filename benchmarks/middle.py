"""The middle: 500 to 20,000 rows, the default, FasterPAM, k-means and balanced k-means.

Every contender's rows are judged by `uniproto.cost`, so each prototype has the same weight. Seconds
are those of the processor. Contenders that draw random numbers are judged by their best of several
seeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np

from benchmarks.common import Report, Rows, mixture, mnist
from benchmarks.few_contenders import nearest_distinct_rows

TITLE = "the default and its peers, 500 to 20,000 rows"
REACH_PERCENT, REACH_SECONDS = 0.3, {5_000: 3.0, 20_000: 8.0}
_MOST_PAIRS = 30_000_000  # of rows, for FasterPAM, which holds them all
_MOST_PLANS = 100_000  # rows times clusters, for balanced k-means, which solves a plan every step
_HAS_BALANCED = find_spec("k_means_constrained") is not None


def run(report: Report, quick: bool) -> None:
    if not _HAS_BALANCED:
        report.row("balanced k-means", unavailable="pip install k-means-constrained")
    for name, rows, metric, k in _problems(quick):
        _compare(report, f"{name}, k = {k}", rows, metric, k, seeds=2 if quick else 10)


def _compare(report: Report, what: str, rows: Rows, metric: str, k: int, seeds: int) -> None:
    import uniproto

    uniproto.select(rows[:300], 5, metric=metric)  # compiled before the clock runs
    begin = time.process_time()
    found = uniproto.select(rows, k, metric=metric, seed=0, progress=False)
    seconds = time.process_time() - begin
    peers = {
        name: min(uniproto.cost(rows, choose(seed), metric=metric) for seed in range(count))
        for name, choose, count in _peers(rows, metric, k, seeds)
    }
    best = min(peers.values())
    above = 100 * (found.cost / best - 1)
    report.row(what, rows=len(rows), cost=found.cost, seconds=seconds, **peers)
    report.figure(
        f"per cent above the best peer, {what}", above, f"≤ {REACH_PERCENT}", above <= REACH_PERCENT
    )
    limit = next((most for size, most in REACH_SECONDS.items() if len(rows) <= size), np.inf)
    report.figure(f"processor seconds, {what}", seconds, f"≤ {limit:g}", seconds <= limit)


def _peers(
    rows: Rows, metric: str, k: int, seeds: int
) -> Iterator[tuple[str, Callable[[int], Rows], int]]:
    import uniproto

    def by(method: object) -> Callable[[int], Rows]:
        return lambda seed: (
            uniproto.select(
                rows, k, metric=metric, method=method, seed=seed, progress=False
            ).indices
        )

    yield "greedy", by("greedy"), 1
    yield "kmeans", by("kmeans"), seeds
    if len(rows) ** 2 <= _MOST_PAIRS:
        yield "fasterpam", by("fasterpam"), seeds
    if _HAS_BALANCED and len(rows) * k <= _MOST_PLANS and metric == "euclidean":
        yield "balanced_kmeans", lambda seed: _balanced(rows, k, seed), 1


def _balanced(rows: Rows, k: int, seed: int) -> Rows:
    """The rows nearest to the centres of clusters of equal size."""
    from k_means_constrained import KMeansConstrained

    least, most = len(rows) // k, -(-len(rows) // k)
    clusters = KMeansConstrained(k, size_min=least, size_max=most, n_init=1, random_state=seed)
    return nearest_distinct_rows(rows, clusters.fit(rows).cluster_centers_)


def _problems(quick: bool) -> Iterator[tuple[str, Rows, str, int]]:
    from sklearn.datasets import load_breast_cancer, load_digits

    cells = load_breast_cancer().data
    cells = (cells - cells.mean(axis=0)) / cells.std(axis=0)
    digits = load_digits().data
    yield "breast cancer 569 × 30", cells, "euclidean", 5
    if quick:
        return
    yield "breast cancer 569 × 30", cells, "euclidean", 30
    for k in (20, 50, 200):
        yield "digits 1,797 × 64", digits, "euclidean", k
    yield "digits, cosine", digits, "cosine", 50
    for k in (20, 100):
        yield "mixture 2,960 × 5", mixture(2_960, 5, 30, 1), "euclidean", k
    for k in (20, 100):
        yield "MNIST 5,000 × 784", mnist(5_000), "cosine", k
    yield "mixture 9,000 × 8", mixture(9_000, 8, 60, 2, decaying=True), "euclidean", 150
    for k in (20, 200):
        yield "mixture 20,000 × 5", mixture(20_000, 5, 30, 1), "euclidean", k
