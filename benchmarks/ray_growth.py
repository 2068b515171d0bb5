"""Ray: the same answer on 1, 2 and 4 workers as on one machine; what a second worker brings."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import Report, mnist, timed

TITLE = "selection on a local Ray, MNIST in 8 shards, cosine, target = source"
_SHARDS = 8
_WORKERS = (1, 2, 4)
REACH = 0.01


def run(report: Report, quick: bool) -> None:
    import uniproto
    import uniproto.scale

    n, k = (6_000, 60) if quick else (60_000, 600)
    rows = mnist(n).astype(np.uint8)
    with tempfile.TemporaryDirectory(prefix="uniproto-ray-") as place:
        pattern = write_shards(rows, Path(place), _SHARDS)
        alone_seconds, alone = timed(_one_machine, rows, k)
        report.row("one machine", cost=alone.cost, seconds=alone_seconds)
        found: dict[int, Any] = {}
        for workers in _WORKERS:
            seconds, found[workers] = timed(
                lambda workers=workers: uniproto.scale.select(
                    pattern,
                    k,
                    features=uniproto.Columns(use=["vector"]),
                    num_cpus=workers,
                    progress=False,
                )
            )
            record = found[workers].details.notes["rounds"]
            report.row(
                f"{workers} worker(s)",
                cost=found[workers].cost,
                beside_one_machine=found[workers].cost / alone.cost - 1,
                seconds=seconds,
                target_seconds=record[0]["seconds"],
                parts_seconds=record[1]["seconds"],
                union_seconds=record[2]["seconds"],
                slowest_part_seconds=max(record[1]["seconds_per_part"]),
                bytes_returned=record[1]["bytes_returned"],
                same_picks=bool(np.array_equal(found[workers].indices, found[1].indices)),
            )
        certified_seconds, certified = timed(
            lambda: uniproto.scale.select(
                pattern,
                k,
                features=uniproto.Columns(use=["vector"]),
                num_cpus=2,
                certify=True,
                progress=False,
            )
        )
        passes = [
            r for r in certified.details.notes["rounds"] if str(r["round"]).startswith("cert")
        ]
        report.row(
            "certified, 2 workers",
            cost=certified.cost,
            lower_bound=certified.certificate.lower_bound,
            gap=certified.certificate.gap,
            seconds=certified_seconds,
            certificate_seconds=certified.certificate.seconds,
            passes=passes,
        )
    worse = found[1].cost / alone.cost - 1
    report.figure("cost above one machine's, at most", worse, f"≤ {REACH}", worse <= REACH)
    same = all(np.array_equal(found[1].indices, sel.indices) for sel in found.values())
    report.figure("the same picks on 1, 2 and 4 workers", float(same), "1", same)
    parts = {w: sel.details.notes["rounds"][1]["seconds"] for w, sel in found.items()}
    report.figure("round one, 1 worker relative to 2", parts[1] / parts[2], None, None)


def write_shards(rows: NDArray[Any], folder: Path, count: int) -> str:
    """Rows as Parquet files of about equal size; returns their pattern."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for place, part in enumerate(np.array_split(rows, count)):
        flat = pa.array(part.ravel())
        vectors = pa.FixedSizeListArray.from_arrays(flat, part.shape[1])
        pq.write_table(pa.table({"vector": vectors}), folder / f"part-{place:03}.parquet")
    return str(folder / "*.parquet")


def _one_machine(rows: NDArray[Any], k: int) -> Any:
    import uniproto

    selection = uniproto.select(rows, k, compute=uniproto.Compute(device="cpu"), progress=False)
    _ = selection.cost
    return selection
