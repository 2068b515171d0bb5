"""Real processes: workers and drivers are killed, and the answer is the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.processes import command_line, descendants, running

from uniproto.scale.cluster import Cluster

pytest.importorskip("ray")
pytestmark = pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")

_PATIENCE = 240.0


@pytest.fixture(scope="module")
def slow_pool(tmp_path_factory: pytest.TempPathFactory, write_shards: Callable[..., str]) -> str:
    """Shards that take a second or more each."""
    return write_shards(tmp_path_factory.mktemp("slow") / "pool", rows=800, shards=4)


def command(pool: str, out: Path, cpus: int) -> list[str]:
    return [
        *(sys.executable, "-m", "uniproto", "select", pool, "-k", "40", "--column", "vector"),
        *("--method", "greedy", "--plan", "resolve", "--id", "name"),
        *("--engine", "ray", "--num-cpus", str(cpus)),
        *("-o", str(out), "--quiet"),
    ]


TWO_PARTS = """
import signal, sys
from uniproto.cli import main
from uniproto.scale.parts import FinishedParts

write, written = FinishedParts.write, []

def write_two(self, *arguments):
    write(self, *arguments)
    written.append(arguments)
    if len(written) == 2:
        signal.pause()  # until it is killed

FinishedParts.write = write_two
main(sys.argv[1:])
"""


@contextmanager
def started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(found: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if result := found():
            return result
        if process is not None and process.poll() is not None:
            pytest.fail(f"the run ended early: {process.communicate()[0]}")
        time.sleep(0.05)
    pytest.fail("waited too long")


def finished_parts(out: Path) -> list[Path]:
    return sorted(out.glob(".uniproto/parts-*.npz"))


def picks(out: Path) -> tuple[list[int], float]:
    table = pq.read_table(out / "selection.parquet")
    return table.column("index").to_pylist(), json.loads((out / "manifest.json").read_text())[
        "cost"
    ]


@pytest.fixture(scope="module")
def undisturbed(
    slow_pool: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[list[int], float]:
    """The answer of one worker; nothing of Ray is left behind, and nothing of it is printed."""
    out = tmp_path_factory.mktemp("undisturbed") / "out"
    with started(command(slow_pool, out, cpus=1)) as process:
        until(lambda: finished_parts(out), process)
        below = descendants(process.pid)
        assert below
        said, _ = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 0, said
    assert said == ""
    until(lambda: not running(below))
    assert not (out / ".uniproto").exists()
    return picks(out)


@pytest.mark.slow
def test_a_killed_copy_of_a_model_is_started_again(local_ray: None) -> None:
    class Copy:
        def __init__(self, model: str) -> None:
            self.model = model

        def answer(self) -> tuple[str, int]:
            return self.model, os.getpid()

    with Cluster() as cluster:
        worker, _ = cluster.start_workers(Copy, "tiny")
        _, first = cluster.get(worker.answer.remote())
        os.kill(first, signal.SIGKILL)
        until(lambda: not running([first]))
        model, second = cluster.get(worker.answer.remote())
    assert (model, second != first) == ("tiny", True)


@pytest.mark.slow
def test_a_killed_driver_and_a_killed_worker_change_nothing(
    slow_pool: str, undisturbed: tuple[list[int], float], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    program, _, _, *arguments = command(slow_pool, out, cpus=2)
    with started([program, "-c", TWO_PARTS, *arguments]) as process:
        until(lambda: len(finished_parts(out)) == 2, process)
        # Ray's two agents of a node notice only after a minute that their raylet has gone.
        below = [p for p in descendants(process.pid) if "Agent" not in command_line(p)]
        process.send_signal(signal.SIGKILL)
        process.wait()
    finished = {file: file.stat().st_mtime_ns for file in finished_parts(out)}
    assert len(finished) == 2
    until(lambda: not running(below))  # Ray looks after its own processes

    def working() -> list[int]:
        return [p for p in descendants(process.pid) if "ray::pick_part" in command_line(p)]

    with started(command(slow_pool, out, cpus=1)) as process:  # goes on with the other parts
        os.kill(until(working, process)[0], signal.SIGKILL)
        said, _ = process.communicate(timeout=_PATIENCE)
    assert process.returncode == 0, said
    assert picks(out) == undisturbed
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["notes"]["resumed_parts"] == len(finished)
    assert not (out / ".uniproto").exists()
