"""Curation: 2,000 of a million vectors on disk for 1,000 targets, near-duplicates apart or not."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Report, in_fresh_process, peak_bytes

TITLE = "curation: vectors of width 1,024 on disk, 1,000 targets, k = 2,000, distinct 0.05 or not"
MEMORY = "2GB"
REACH, MORE_FOR_DISTINCT = 60.0, 1.2
_SIZES, _QUICK_SIZES = (100_000, 1_000_000), (20_000,)
_WIDTH, _TARGETS, _CLUSTERS, _K = 1024, 1000, 500, 2000
_ROWS_AT_ONCE = 20_000


def run(report: Report, quick: bool) -> None:
    seconds: dict[tuple[int, bool], float] = {}
    for size in _QUICK_SIZES if quick else _SIZES:
        with tempfile.TemporaryDirectory(prefix="uniproto-curation-") as folder:
            _write(Path(folder), size)
            for distinct in (False, True):
                found = in_fresh_process(_select, folder, distinct)
                seconds[size, distinct] = found["cpu_seconds"]
                report.row(f"m = {size:,}, {'distinct 0.05' if distinct else 'plain'}", **found)
    largest = max(size for size, _ in seconds)
    report.figure(
        f"processor seconds for {largest:,} rows",
        seconds[largest, False],
        f"≤ {REACH:.0f} on each of 2 cores",
        seconds[largest, False] <= 2 * REACH,
    )
    share = seconds[largest, True] / seconds[largest, False]
    report.figure("time with distinct", share, f"≤ {MORE_FOR_DISTINCT}", share <= MORE_FOR_DISTINCT)


def _write(folder: Path, size: int) -> None:
    """Clustered rows with near-duplicates, written block by block; targets from a few clusters."""
    random = np.random.default_rng(0)
    centres = random.standard_normal((_CLUSTERS, _WIDTH), np.float32)
    rows = np.lib.format.open_memmap(
        folder / "pool.npy", mode="w+", dtype=np.float32, shape=(size, _WIDTH)
    )
    for first in range(0, size, _ROWS_AT_ONCE):
        count = min(_ROWS_AT_ONCE, size - first)
        block = centres[random.integers(0, _CLUSTERS, count)]
        block += random.standard_normal(block.shape, np.float32)
        copies = count // 10  # every tenth row says nearly what another of its block says
        block[:copies] = block[copies : 2 * copies] + 0.05 * block[2 * copies : 3 * copies]
        rows[first : first + count] = block
    rows.flush()
    some = centres[random.integers(0, _CLUSTERS // 10, _TARGETS)]
    np.save(folder / "target.npy", some + random.standard_normal(some.shape, np.float32))


def _select(folder: str, distinct: bool) -> dict[str, Any]:
    import uniproto

    pool = np.load(Path(folder, "pool.npy"), mmap_mode="r")
    target = np.load(Path(folder, "target.npy"))

    def select(pool: Any, k: int, target: Any) -> uniproto.Selection:
        return uniproto.select(
            pool,
            k,
            target,
            min_distance=0.05 if distinct else None,
            compute=uniproto.Compute(memory=MEMORY, device="cpu"),
            progress=False,
        )

    select(pool[:2000], 20, target[:50])
    before, cpu = time.perf_counter(), time.process_time()
    selection = select(pool, _K, target)
    return {
        "seconds": time.perf_counter() - before,
        "cpu_seconds": time.process_time() - cpu,
        "prepare_seconds": selection.details.timings["prepare"],
        "pick_seconds": selection.details.timings["pick"],
        "peak_bytes": peak_bytes(),
    }
