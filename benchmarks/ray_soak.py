"""Soak: millions of rows in Parquet on disk, selected from on a local Ray; memory of every process.

What is written is deleted afterwards: 1.3 GB for the full size.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from pathlib import Path
from typing import Any

from benchmarks.common import Report, clustered, timed
from benchmarks.ray_growth import write_shards

TITLE = "5 million vectors of width 64 in 20 Parquet files on a local Ray with 2 workers, k = 1,000"
_SHARDS = 20
_WIDTH = 64
_MEMORY = 2**30  # of a task, in addition to its shard and the target
_SLACK = 2**30  # Python, libraries and Ray itself
_EVERY = 0.25  # seconds between looks


def run(report: Report, quick: bool) -> None:
    soak(report, *((100_000, 100, 2_000) if quick else (5_000_000, 1_000, 50_000)))


def soak(report: Report, rows: int, k: int, sample: int) -> None:
    """One selection of k rows, against a sample of the rows."""
    import uniproto.scale

    per_shard = rows // _SHARDS
    with tempfile.TemporaryDirectory(prefix="uniproto-soak-") as place:
        for shard in range(_SHARDS):  # one at a time: the benchmark itself stays small
            part = clustered(per_shard, _WIDTH, clusters=500, seed=shard)
            folder = Path(place) / f"{shard:03}"
            folder.mkdir()
            write_shards(part, folder, 1)
        with Processes() as processes:
            seconds, selection = timed(
                lambda: uniproto.scale.select(
                    str(Path(place) / "*" / "*.parquet"),
                    k,
                    features=uniproto.Columns(use=["vector"]),
                    compute=uniproto.Compute(memory=_MEMORY),
                    target_sample=sample,
                    num_cpus=2,
                    progress=False,
                )
            )
    record = selection.details.notes["rounds"]
    report.row(
        "all",
        rows=rows,
        k=k,
        target=sample,
        seconds=seconds,
        target_seconds=record[0]["seconds"],
        parts_seconds=record[1]["seconds"],
        union_seconds=record[2]["seconds"],
        cost=selection.cost,
        bytes_read=record[1]["bytes_read"],
        bytes_returned=record[1]["bytes_returned"],
        seconds_per_part=record[1]["seconds_per_part"],
    )
    for name, (peak, looks) in sorted(processes.peaks.items(), key=lambda item: -item[1][0]):
        report.row(name, peak_mib=peak / 2**20, looks=looks)
    shard_bytes = 4 * _WIDTH * per_shard
    target_bytes = 4 * _WIDTH * sample
    # A shard is held as Arrow's columns, as rows, and as rows ready for the metric.
    allowed = _MEMORY + 4 * shard_bytes + 2 * target_bytes + _SLACK
    workers = [peak for name, (peak, _) in processes.peaks.items() if name.startswith("worker")]
    most, limit = max(workers) / 2**20, allowed / 2**20
    report.figure("a worker's own memory, MiB, at most", most, f"≤ {limit:.0f}", most <= limit)


class Processes:
    """The most memory each process below this one has held for itself, by kind of process.

    What is shared (the object store is mapped by every process) is counted once, in the row of
    the largest sharer; everything else is the process's own.
    """

    def __init__(self) -> None:
        self.peaks: dict[str, tuple[int, int]] = {}
        self._done = threading.Event()

    def __enter__(self) -> Processes:
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._done.wait(_EVERY):
            shared = 0
            for pid in {os.getpid(), *_below(os.getpid())}:
                with contextlib.suppress(OSError, ValueError, IndexError):  # it may have ended
                    held, common = _memory(pid)
                    shared = max(shared, common)
                    self._note(_kind(pid), held)
            self._note("shared by all: object store and libraries", shared)

    def _note(self, name: str, held: int) -> None:
        peak, looks = self.peaks.get(name, (0, 0))
        self.peaks[name] = (max(peak, held), looks + 1)


def _memory(pid: int) -> tuple[int, int]:
    """Bytes a process holds for itself, and those it shares."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    page = os.sysconf("SC_PAGE_SIZE")
    return (int(fields[1]) - int(fields[2])) * page, int(fields[2]) * page


def _kind(pid: int) -> str:
    """What a process is: the driver, a task by its name, or a part of Ray."""
    if pid == os.getpid():
        return "driver"
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().replace("\0", " ").split()
    if words[0].startswith("ray::"):
        return f"worker {words[0]}"
    return Path(next((word for word in words if word.endswith(".py")), words[0])).name


def _below(pid: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                status = (entry / "stat").read_text()
                parents[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}
