"""Killed runs go on where they were, with the same answer; wrong checkpoints are refused."""

from __future__ import annotations

import hashlib
import io
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import uniproto
from uniproto import Greedy
from uniproto.cli import main
from uniproto.errors import InputFileError
from uniproto.problem.problem import Problem
from uniproto.runs.checkpoint import Checkpoint, SavedPicks
from uniproto.select import run_method

METHODS = {
    "extend": uniproto.Greedy(),
    "resolve": uniproto.Greedy(plan="resolve"),
    "entropic": uniproto.Greedy(plan=uniproto.Entropic(reg=0.05, iterations=50)),
    "exact": uniproto.Greedy(gains="exact"),
    "stochastic": uniproto.Greedy(sample=0.5),
    "stochastic resolve": uniproto.Greedy(plan="resolve", sample=0.5),
}


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(120, 5))


def _stop_after(picks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write after every pick, and raise once so many are safe: a crash at a chosen moment."""
    write = Checkpoint.write

    def write_then_stop(self: Checkpoint, progressed: SavedPicks, *, now: bool = False) -> None:
        write(self, progressed, now=True)
        if len(progressed.rows) >= picks:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoint, "write", write_then_stop)
    monkeypatch.setattr("uniproto.methods.greedy_plans._PICKS_AT_ONCE", 1)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("distinct", [None, 0.02])
def test_resumed_picks_are_those_of_an_uninterrupted_run(
    name: str,
    distinct: bool | float,
    rows: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Problem(rows, include=[7, 2], min_distance=distinct).with_k(15)
    whole = run_method(problem, METHODS[name])
    saved = problem.with_checkpoint(Checkpoint(tmp_path / "checkpoint.npz", {"run": 1}))
    with monkeypatch.context() as patch:
        _stop_after(6, patch)
        with pytest.raises(KeyboardInterrupt):
            run_method(saved, METHODS[name])
    resumed = run_method(saved, METHODS[name])
    assert resumed.details.notes["resumed_from_pick"] == 6
    assert resumed.indices.tolist() == whole.indices.tolist()
    np.testing.assert_array_equal(resumed.details.gains, whole.details.gains)
    assert resumed.cost == whole.cost


def test_groups_resume_each_on_its_own(
    rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(rows, groups=["a", "b", "c"] * 40).with_k(12)
    whole = run_method(problem, uniproto.Greedy())
    checkpoint = Checkpoint(tmp_path / "checkpoint.npz", {"run": 1})
    saved = problem.with_checkpoint(checkpoint)
    with monkeypatch.context() as patch:
        _stop_after(3, patch)
        with pytest.raises(KeyboardInterrupt):
            run_method(saved, uniproto.Greedy())
    resumed = run_method(saved, uniproto.Greedy())
    assert resumed.indices.tolist() == whole.indices.tolist()
    assert resumed.details.notes["a"]["resumed_from_pick"] == 3
    checkpoint.remove()
    assert not list(tmp_path.iterdir())


def _some_checkpoint(path: Path, identity: dict[str, object]) -> None:
    Checkpoint(path, identity).write(SavedPicks(np.arange(2), np.zeros(2), None), now=True)


def test_foreign_and_damaged_checkpoints_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    _some_checkpoint(path, {"inputs": "these"})
    assert Checkpoint(path, {"inputs": "these"}).read() is not None
    with pytest.raises(uniproto.InputFileError, match="belongs to other inputs"):
        Checkpoint(path, {"inputs": "others"}).read()
    whole = path.read_bytes()
    for damaged in (whole[:-7], whole[:40], b"", whole[:100] + b"x" + whole[101:]):
        path.write_bytes(damaged)
        with pytest.raises(uniproto.InputFileError, match=r"is damaged.*Delete it"):
            Checkpoint(path, {"inputs": "these"}).read()


def _forge(path: Path, name: str, change: Callable[[np.ndarray], object]) -> None:
    """Change one array of a checkpoint, and give it the digest that fits."""
    with np.load(io.BytesIO(path.read_bytes().partition(b"\n")[2])) as loaded:
        arrays = dict(loaded)
    arrays[name] = np.asarray(change(arrays[name].copy()))
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    payload = buffer.getvalue()
    path.write_bytes(hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)


def _first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: np.concatenate([[value], values[1:]]).astype(type(value))


HUGE = 2**40
FORGERIES: dict[str, tuple[str, Callable[[np.ndarray], object]]] = {
    "row out of range": ("rows", _first(HUGE)),
    "row below 0": ("rows", _first(-5)),
    "row of 64 unsigned bits": ("rows", lambda rows: np.array([2**64 - 1, rows[1]], np.uint64)),
    "row that was given": ("rows", _first(7)),
    "row that is excluded": ("rows", _first(11)),
    "fractional rows": ("rows", lambda rows: rows + 0.5),
    "more rows than costs": ("rows", lambda rows: np.arange(20, 60)),
    "column out of range": ("indices", _first(HUGE)),
    "column below 0": ("indices", _first(-1)),
    "start out of range": ("indptr", lambda starts: [0, HUGE, starts[2]]),
    "starts that go back": ("indptr", lambda starts: [0, starts[2], starts[1]]),
    "no starts": ("indptr", lambda starts: starts[:0]),
    "masses that are fractions": ("data", lambda masses: masses / 2),
    "negative mass": ("data", _first(-1)),
    "mass that is not needed": ("data", _first(2)),
    "mass that is not there": ("indices", lambda columns: np.full_like(columns, columns[0])),
    "other number of targets": ("shape", lambda shape: [shape[0], HUGE]),
    "negative shape": ("shape", lambda shape: [shape[0], -1]),
    "three dimensions": ("shape", lambda shape: [*shape, 1]),
}


@pytest.mark.parametrize("forgery", [None, *FORGERIES])
def test_picks_that_the_problem_cannot_have_led_to_are_refused(
    forgery: str | None, rows: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.npz", {"run": 1})
    problem = Problem(rows, include=[7], exclude=[11]).with_k(15).with_checkpoint(checkpoint)
    with monkeypatch.context() as patch:
        _stop_after(2, patch)
        with pytest.raises(KeyboardInterrupt):
            run_method(problem, uniproto.Greedy())
    if forgery is None:  # what was written is accepted
        assert run_method(problem, uniproto.Greedy()).details.notes["resumed_from_pick"] == 2
        return
    _forge(checkpoint.path, *FORGERIES[forgery])
    with pytest.raises(uniproto.InputFileError, match=r"cannot be used.*Delete it"):
        run_method(problem, uniproto.Greedy())


def test_more_picks_than_wanted_are_refused(rows: np.ndarray, tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "checkpoint.npz", {"run": 1})
    checkpoint.write(SavedPicks(np.arange(20), np.zeros(20), None), now=True)
    problem = Problem(rows).with_k(15).with_checkpoint(checkpoint)
    with pytest.raises(uniproto.InputFileError, match="more picks than the 15 wanted"):
        run_method(problem, uniproto.Greedy())


def test_full_disk_keeps_the_last_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint.npz"
    _some_checkpoint(path, {})
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("uniproto.runs.atomic.os.fsync", full)
    with pytest.raises(uniproto.OutputError, match="No space left"):
        _some_checkpoint(path, {})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_another_input_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool, out = tmp_path / "pool.npy", tmp_path / "out"
    command = ["select", str(pool), "-k", "5", "--checkpoint", "--method", "greedy", "--quiet"]
    command += ["-o", str(out)]
    np.save(pool, np.random.default_rng(0).normal(size=(50, 3)))
    path = out / ".uniproto" / "checkpoint.npz"
    path.parent.mkdir(parents=True)
    _some_checkpoint(path, {"inputs": "of another run"})
    assert main(command) == 2
    assert "belongs to other inputs or options" in capsys.readouterr().err
    path.unlink()
    assert main(command) == 0
    assert json.loads((out / "manifest.json").read_text())["resumed_from_pick"] == 0
    assert not path.parent.exists()


def test_other_methods_have_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = tmp_path / "pool.npy"
    np.save(pool, np.eye(4))
    command = ["select", str(pool), "-k", "2", "--checkpoint", "-o", str(tmp_path / "out")]
    assert main([*command, "--method", "random"]) == 2
    assert "needs --method uniproto" in capsys.readouterr().err


def test_killed_process_goes_on(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).normal(size=(3000, 32)).astype(np.float32)
    pool = tmp_path / "pool.parquet"
    pq.write_table(pa.table({"vector": list(vectors)}), pool)
    command = ["select", str(pool), "-k", "750", "--quiet", "--method", "greedy"]
    assert main([*command, "-o", str(tmp_path / "whole")]) == 0
    out = tmp_path / "out"
    checkpoint = out / ".uniproto" / "checkpoint.npz"
    for _ in range(20):  # kill as soon as there is something to go on from
        program = [sys.executable, "-m", "uniproto", *command]
        process = subprocess.Popen([*program, "--checkpoint", "-o", str(out)])
        while process.poll() is None and not checkpoint.exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if process.returncode == -signal.SIGKILL:
            break
    assert main([*command, "--checkpoint", "-o", str(out)]) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["resumed_from_pick"] > 0
    whole, resumed = (
        pq.read_table(folder / "selection.parquet").column("index").to_pylist()
        for folder in (tmp_path / "whole", out)
    )
    assert resumed == whole


def test_lists_are_saved_while_they_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill before the first pick loses only the last piece of the lists."""
    from uniproto.fills.lazy_fills import LazyFills

    monkeypatch.setattr("uniproto.runs.checkpoint._SECONDS_BETWEEN_LISTS", 0.0)
    rng = np.random.default_rng(0)
    problem = Problem(rng.normal(size=(1500, 4)), include=[3]).with_k(20)
    whole = run_method(problem, Greedy())

    def resumable() -> Problem:
        return problem.with_checkpoint(Checkpoint(tmp_path / "checkpoint.npz", {"run": 1}))

    compute, computed = LazyFills._compute, []

    class Killed(Exception):
        pass

    def killed(fills: Any, rows: np.ndarray, *further: Any) -> None:
        computed.append(len(rows))
        if len(computed) == 4:
            raise Killed
        compute(fills, rows, *further)

    monkeypatch.setattr(LazyFills, "_compute", killed)
    with pytest.raises(Killed):
        run_method(resumable(), Greedy())
    saved = sorted(path.name for path in tmp_path.iterdir())
    assert saved == [f"checkpoint-lists-{first}.npz" for first in (0, 256, 512)]
    computed.clear()

    def noting(fills: Any, rows: np.ndarray, *further: Any) -> None:
        computed.append(int(rows[0]))
        compute(fills, rows, *further)

    monkeypatch.setattr(LazyFills, "_compute", noting)
    resumed = run_method(resumable(), Greedy())
    assert computed[0] == 768
    assert resumed.indices.tolist() == whole.indices.tolist()
    assert resumed.cost == whole.cost

    (tmp_path / "checkpoint.npz").unlink()
    files = sorted(tmp_path.glob("*lists*"))
    files[1].write_bytes(files[1].read_bytes()[:-9])
    with pytest.raises(InputFileError, match="damaged"):
        run_method(resumable(), Greedy())
    checkpoint = resumable().checkpoint
    assert checkpoint is not None
    checkpoint.remove()
    assert not list(tmp_path.iterdir())


def test_lists_of_another_width_are_refused(tmp_path: Path) -> None:
    from uniproto.runs.checkpoint import SavedLists

    checkpoint = Checkpoint(tmp_path / "checkpoint.npz", {"run": 1})
    like = {
        "costs": np.zeros((4, 3), np.float32),
        "columns": np.zeros((4, 3), np.int32),
        "prefix": np.zeros(4, np.int64),
        "rest": np.zeros(4, np.int64),
        "stop": np.full(4, 3),
        "tail": np.zeros(4),
    }
    saved = SavedLists(checkpoint)
    saved.write(0, like)
    assert [first for first, _ in saved.read(like)] == [0]
    saved.write(0, {**like, "costs": np.zeros((4, 2), np.float32)})
    with pytest.raises(InputFileError, match="another problem"):
        list(saved.read(like))
