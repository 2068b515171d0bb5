"""Growth: time of greedy picks per element of the matrix that is never formed, as m = n doubles."""

from __future__ import annotations

from benchmarks.common import Report, clustered, median

TITLE = "growth of greedy picks, clustered vectors of width 64, m = n, k = n / 100, on the CPU"
REACH = 1.3
_SIZES, _QUICK_SIZES = (15_000, 30_000, 60_000, 120_000, 240_000), (2_000, 4_000)
_REPEATED_UP_TO = 60_000  # the larger ones take minutes each


def run(report: Report, quick: bool) -> None:
    import uniproto

    def select(n: int) -> uniproto.Selection:
        rows = clustered(n, width=64, clusters=200, seed=n)
        return uniproto.select(
            rows,
            n // 100,
            method="greedy",
            compute=uniproto.Compute(device="cpu"),
            progress=False,
        )

    select(5000)
    per_element = {}
    sizes = _QUICK_SIZES if quick else _SIZES
    for n in sizes:
        repetitions = 3 if n <= _REPEATED_UP_TO else 1
        found = [select(n) for _ in range(repetitions)]
        seconds = [sel.details.timings["pick"] for sel in found]
        per_element[n] = median(seconds) / n**2
        report.row(
            f"m = n = {n:,}",
            k=n // 100,
            pick_seconds=median(seconds),
            ns_per_element=1e9 * per_element[n],
            beside_smallest=per_element[n] / per_element[sizes[0]],
            recomputed_rows=found[-1].details.notes.get("recomputed_rows"),
            repetitions=repetitions,
            all_seconds=seconds,
        )
    growth = max(per_element.values()) / per_element[sizes[0]]
    report.figure(
        "time per element relative to the smallest size, at most",
        growth,
        f"≤ {REACH}",
        growth <= REACH,
    )
