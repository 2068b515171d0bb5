"""Features, no matrix: greedy picks on MNIST, and the bare product X Yᵀ that they need.

Both run in one process on unit rows in single precision, in turn. The product is written tile
after tile into one buffer and thrown away: nothing is looked at. Memory is that of a fresh process
which only loads the data and selects.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report, in_fresh_process, median, mnist, peak_bytes, timed, unit_rows

TITLE = "greedy picks, MNIST features 60,000 × 784, k = 600"
REACH_RATIO, REACH_BYTES = 2.5, 2e9
_TILE_ROWS = 2048


def run(report: Report, quick: bool) -> None:
    n, k, repetitions = (10_000, 100, 2) if quick else (60_000, 600, 3)
    rows = mnist(n)
    ready = unit_rows(rows)
    select(rows[:4000], 40)
    bare_product(ready[:4000])
    product, picks, totals = [], [], []
    for _ in range(repetitions):
        product.append(timed(bare_product, ready)[0])
        total, sel = timed(select, rows, k)
        picks.append(sel.details.timings["pick"])
        totals.append(total)
    report.row(
        f"bare product, tiles of {_TILE_ROWS} rows", seconds=median(product), all_seconds=product
    )
    report.row(
        "picks", seconds=median(picks), ratio=median(picks) / median(product), all_seconds=picks
    )
    report.row(
        "whole call of select",
        seconds=median(totals),
        ratio=median(totals) / median(product),
        all_seconds=totals,
    )
    del ready
    own = in_fresh_process(select_in_fresh_process, n, k)
    report.row("fresh process: data loaded", peak_gb=own["loaded"] / 1e9)
    report.row("fresh process: selected", seconds=own["seconds"], peak_gb=own["selected"] / 1e9)
    report.row(
        "fresh process: exact cost as well",
        seconds=own["cost_seconds"],
        peak_gb=own["solved"] / 1e9,
        ot_cost=own["cost"],
        exact=own["exact"],
    )
    ratio = median(picks) / median(product)
    report.figure(
        "picks relative to the bare product", ratio, f"≤ {REACH_RATIO}", ratio <= REACH_RATIO
    )
    peak = own["selected"]
    report.figure("peak memory, GB", peak / 1e9, f"≤ {REACH_BYTES / 1e9:g}", peak <= REACH_BYTES)


def select(rows: NDArray[np.float32], k: int) -> Any:
    import uniproto

    return uniproto.select(
        rows,
        k,
        metric="cosine",
        method="greedy",
        compute=uniproto.Compute(device="cpu"),
        progress=False,
    )


def bare_product(rows: NDArray[np.float32]) -> None:
    tile = np.empty((_TILE_ROWS, len(rows)), np.float32)
    for start in range(0, len(rows), _TILE_ROWS):
        part = rows[start : start + _TILE_ROWS]
        np.matmul(part, rows.T, out=tile[: len(part)])


def select_in_fresh_process(n: int, k: int) -> dict[str, Any]:
    """Peak memory after loading, after the picks, and after the exact cost."""
    rows = mnist(n)
    select(rows[:2000], 20)  # compiled loops are loaded with the library, not with the work
    loaded = peak_bytes()
    seconds, sel = timed(select, rows, k)
    selected = peak_bytes()
    cost_seconds, cost = timed(lambda: sel.cost)
    return {
        "loaded": loaded,
        "seconds": seconds,
        "selected": selected,
        "cost_seconds": cost_seconds,
        "cost": cost,
        "exact": sel.cost_is_exact,
        "solved": peak_bytes(),
    }
