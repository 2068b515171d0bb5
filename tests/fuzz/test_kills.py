"""Commands killed at any call that changes a disk: the old result or the new one, and no other."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import uniproto
from uniproto.cli import main

from .cases import cases
from .places import new_folder

# Runs a command, and kills itself at the N-th call that changes a disk, once it has begun to write.
KILLED = """
import os, signal, sys
from uniproto.cli import main

left = int(sys.argv[1])

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


@pytest.mark.slow
@cases(4)
@given(command=st.sampled_from(sorted(COMMANDS)), call=st.integers(1, 90))
def test_a_result_survives_a_kill(command: str, call: int) -> None:
    folder = new_folder()
    np.save(folder / "pool.npy", np.random.default_rng(0).normal(size=(30, 3)))
    out = folder / "out"
    assert main(["select", str(folder / "pool.npy"), "-k", "3", "-o", str(out), "--quiet"]) == 0
    (out / "notes.txt").write_text("of the user")
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
