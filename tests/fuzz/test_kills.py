"""Commands killed at any call that changes a disk: the old result or the new one, and no other."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import uniproto
from uniproto.cli import main

from .cases import cases
from .commands import run_command
from .outcomes import attempt
from .places import new_folder

# Runs a command, and kills itself at the N-th call that changes a disk, once it has begun to write.
KILLED = """
import os, signal, sys
from uniproto.cli import main

left = int(sys.argv[1])
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is off in the background

def counted(change):
    def changed(*arguments, **options):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return change(*arguments, **options)
    return changed

for name in ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir", "open"):
    setattr(os, name, counted(getattr(os, name)))
sys.exit(main(sys.argv[2:]))
"""
COMMANDS = {
    "another selection": ["select", "pool.npy", "-k", "5", "-o", "out"],
    "with a checkpoint": ["select", "pool.npy", "-k", "5", "--checkpoint", "-o", "out"],
    "a certificate": ["certify", "out"],
    "a page": ["report", "out", "--random", "0"],
}


def killed(folder: Path, words: list[str], call: int) -> bool:
    """Run a command that is killed at a call; False where it ended before that."""
    run = [sys.executable, "-c", KILLED, str(call), *words, "--quiet"]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


@cache
def sound_result() -> Path:
    """A result of three rows beside its input, and a file of the user's in it."""
    folder = new_folder()
    np.save(folder / "pool.npy", np.random.default_rng(0).normal(size=(30, 3)))
    out = folder / "out"
    assert main(["select", str(folder / "pool.npy"), "-k", "3", "-o", str(out), "--quiet"]) == 0
    (out / "notes.txt").write_text("of the user")
    return folder


def a_result(folder: Path) -> Path:
    shutil.copytree(sound_result(), folder, dirs_exist_ok=True)
    return folder / "out"


@cases(2)
@given(command=st.sampled_from(sorted(COMMANDS)), call=st.integers(1, 90))
def test_a_result_survives_a_kill(command: str, call: int) -> None:
    folder = new_folder()
    out = a_result(folder)
    old = uniproto.Selection.load(out)
    was_killed = killed(folder, COMMANDS[command], call)
    found = uniproto.Selection.load(out)
    new_k = 5 if COMMANDS[command][0] == "select" else 3
    assert found.k in (old.k, new_k)
    assert found.k == new_k or was_killed
    if found.k == old.k:
        assert found.indices.tolist() == old.indices.tolist()
    assert (out / "notes.txt").read_text() == "of the user"
    assert main(["select", str(folder / "pool.npy"), "-k", "5", "-o", str(out), "--quiet"]) == 0
    assert uniproto.Selection.load(out).k == 5
    left = {path.name for path in out.iterdir()} - {".uniproto"}
    assert left == {"selection.parquet", "plan.npz", "manifest.json", "notes.txt"}
    assert not list(out.rglob(".uniproto-*"))  # what was half written


@pytest.mark.slow
@cases(4)
@example(command="a page", call=4, number=signal.SIGINT)  # between the page's name and the end
@given(
    command=st.sampled_from(sorted(COMMANDS)),
    call=st.integers(1, 90),
    number=st.sampled_from([signal.SIGINT, signal.SIGTERM]),
)
def test_what_is_said_after_a_signal_is_so(command: str, call: int, number: signal.Signals) -> None:
    folder = new_folder()
    out = a_result(folder)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    code = KILLED.replace("signal.SIGKILL", f"signal.{number.name}")
    words = [sys.executable, "-c", code, str(call), *COMMANDS[command], "--quiet"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 128 + number), done.stderr
    after = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    complete = "the result is complete in out" in done.stderr or done.returncode == 0
    assert (after != before) == complete, done.stderr
    assert uniproto.Selection.load(out).k in (3, 5)
    if "goes on" in done.stderr:
        assert list(out.glob(".uniproto/checkpoint*.npz"))
    assert not list(out.rglob(".uniproto-*"))


NAMES = [
    "manifest.json",
    "plan.npz",
    "notes.txt",
    "selection.parquet",
    "report.html",
    "../pool.npy",
]


@st.composite
def planted_sets(draw: st.DrawFn) -> dict[str, Any]:
    """A staged set of files, as somebody who means ill could leave it: its name and its files."""
    files = draw(st.dictionaries(st.sampled_from(NAMES[:5]), st.sampled_from(["theirs", "x"])))
    named = draw(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["theirs", "x", "y"])))
    digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in named.items()}
    if draw(st.integers(0, 3)):
        files["manifest.json"] = json.dumps({"uniproto": "0.1.0", "format": 1, "files": digests})
    stages = ["manifest.json.new", "manifest.json.part", "notes.txt.new", ".new", "comparison.new"]
    return {"stage": draw(st.sampled_from(stages)), "files": files}


@cases(30)
@given(planted=planted_sets(), command=st.sampled_from(["verify", *sorted(COMMANDS)]))
def test_planted_sets_cost_nobody_a_file(planted: dict[str, Any], command: str) -> None:
    folder = new_folder()
    out = a_result(folder)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    pool = (folder / "pool.npy").read_bytes()
    stage = out / ".uniproto" / planted["stage"]
    stage.mkdir(parents=True)
    for name, content in planted["files"].items():
        (stage / name).write_text(content)
    words = COMMANDS.get(command, ["verify", "out"])
    words = [str(folder / word) if word in ("out", "pool.npy") else word for word in words]
    status, _, _ = attempt(planted, lambda: run_command(*words))
    assert status in (0, 1, 2)
    assert (folder / "pool.npy").read_bytes() == pool
    assert (out / "notes.txt").read_text() == "of the user"
    after = {path.name: path.read_bytes() for path in out.iterdir() if path.is_file()}
    if command in ("verify", "a page"):
        assert {**after, "report.html": b""} == {**before, "report.html": b""}
