"""Mini-batch selection: what choosing 64 of 128 examples adds to a training step."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.common import Report, clustered, median

TITLE = "choosing 64 of a pool of 128, on the CPU, warm"
POOL, KEEP, WIDTH, SOURCES = 128, 64, 512, 14
REACH_MATRIX, REACH_FEATURES, REACH_SOURCES = 0.5, 1.5, 3.0  # milliseconds
OTHERS = ("greedy", "colm", "greats", "gradnorm", "maxloss", "sbert", "kmedoids", "random")
PUBLISHED = "the released code of the paper's authors took 5.8 s per pool when it was measured"


def run(report: Report, quick: bool) -> None:
    from uniproto.lm import BatchSelector

    calls = 50 if quick else 1000
    random = np.random.default_rng(0)
    features = clustered(POOL, WIDTH, 20, seed=0)
    products = features @ features.T
    costs = products.max() - products
    # As uneven as instruction data: the largest source has a third, the smallest a hundredth.
    shares = np.geomspace(1, 0.03, SOURCES)
    numbers = np.arange(SOURCES)  # each is there once, at least
    drawn = random.choice(SOURCES, POOL - SOURCES, p=shares / shares.sum())
    sources = np.array([f"source {number}" for number in np.concatenate([numbers, drawn])])
    given = {
        "sources": sources,
        "losses": random.random(POOL),
        "validation_features": clustered(8, WIDTH, 20, seed=1),
    }
    report.note(published=PUBLISHED)

    def measure(what: str, selector: BatchSelector, pool: Any, **rest: Any) -> float:
        seconds = _each_call(lambda: selector(pool, **rest), calls)
        middle, lowest = 1000 * median(seconds), 1000 * min(seconds)
        ninth = 1000 * float(np.quantile(seconds, 0.9))
        report.row(what, median_ms=middle, lowest_ms=lowest, ninth_decile_ms=ninth, calls=calls)
        return middle

    by_matrix = BatchSelector("uniproto", "batch", KEEP, metric="precomputed")
    figures = (
        ("given a 128 × 128 cost matrix", by_matrix, costs, REACH_MATRIX),
        ("given 128 × 512 features", BatchSelector(keep=KEEP), features, REACH_FEATURES),
        (
            f"per source, {SOURCES} sources",
            BatchSelector("uniproto", "source", KEEP),
            features,
            REACH_SOURCES,
        ),
    )
    for what, selector, pool, reach in figures:
        reached = measure(f"uniproto {what}", selector, pool, **given)
        report.figure(f"uniproto {what}, ms per pool", reached, f"≤ {reach:g}", reached <= reach)
    equal = {**given, "sources": np.array([f"source {row % SOURCES}" for row in range(POOL)])}
    per_source = BatchSelector("uniproto", "source", KEEP)
    reached = measure(
        f"uniproto per source, {SOURCES} of equal size", per_source, features, **equal
    )
    figure = f"uniproto per source, {SOURCES} of equal size, ms per pool"
    report.figure(figure, reached, f"≤ {REACH_SOURCES:g}", reached <= REACH_SOURCES)
    for method in OTHERS:
        for mode in ("batch", "source"):
            measure(f"{method} per {mode}", BatchSelector(method, mode, KEEP), features, **given)


def _each_call(work: Callable[[], Any], calls: int) -> list[float]:
    """Seconds of every call, once the compiled loops are loaded."""
    for _ in range(5):
        work()
    seconds = []
    for _ in range(calls):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds
