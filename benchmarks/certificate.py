"""How near the best possible: the default, more seconds, and the bound on any other choice.

The clock runs from the call of `select` to the finished certificate: picks, exact cost and bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report, mnist, timed

TITLE = "certificate, MNIST 2000 source × 1500 target, k = 50 and 100"
REACH_GAP, REACH_SECONDS = 0.015, 20.0


def run(report: Report, quick: bool) -> None:
    m, n, longer = (500, 400, 2.0) if quick else (2000, 1500, 15.0)
    rows = mnist(m + n)  # the first m are the source, the next n the target
    source, target = rows[:m], rows[m:]
    certified(source, target, 30, 1.0, time_limit=1.0)
    for k in (20,) if quick else (50, 100):
        for searched in (None, longer):
            seconds, sel = timed(certified, source, target, k, searched)
            certificate = sel.certificate
            report.row(
                f"k = {k}" + (f", seconds = {longer:g}" if searched else ""),
                cost=certificate.cost,
                lower_bound=certificate.lower_bound,
                gap_percent=100 * certificate.gap,
                seconds=seconds,
                pick_seconds=sel.details.timings["pick"],
                certificate_seconds=certificate.seconds,
                converged=certificate.converged,
            )
            if searched:
                report.figure(
                    f"gap in per cent, k = {k}, seconds = {longer:g}",
                    100 * certificate.gap,
                    f"≤ {100 * REACH_GAP:g}",
                    certificate.gap <= REACH_GAP,
                )
                report.figure(
                    f"search and certificate, seconds, k = {k}",
                    seconds,
                    f"≤ {REACH_SECONDS:g}",
                    seconds <= REACH_SECONDS,
                )


def certified(
    source: NDArray[np.float32],
    target: NDArray[np.float32],
    k: int,
    search: float | None,
    time_limit: float | None = None,
):
    import uniproto

    method = uniproto.UniProto(seconds=search)
    sel = uniproto.select(
        source, k, target, method=method, compute=uniproto.Compute(device="cpu"), progress=False
    )
    sel.certify(seconds=time_limit, progress=False)
    return sel
