"""`select` on input files that are damaged or forged, from Python and on the command line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import uniproto
from uniproto import Selection, UniprotoError

from .cases import cases
from .commands import run_command
from .files import MARKER, Damaged, damaged_files
from .outcomes import assert_adds_up, attempt
from .places import new_folder

# What NumPy and Python say of headers that old versions may have written.
_HEADERS = r"Data type alias|Reading `\.npy`|invalid|.*deprecated"


def _written(file: Damaged) -> Path:
    path = new_folder() / f"pool{file.ending}"
    path.write_bytes(file.content)
    return path


def _select(path: Path, metric: str) -> Selection:
    selection = uniproto.select(path, 2, metric=metric, progress=False)
    assert np.isfinite(selection.cost)
    return selection


@given(damaged_files(), st.sampled_from(["cosine", "euclidean", "l1"]))
@cases(120)
def test_from_python(file: Damaged, metric: str) -> None:
    path = _written(file)
    answer = attempt(file, lambda: _select(path, metric), _HEADERS)
    assert not MARKER.exists(), "a pickle was executed"
    if not isinstance(answer, UniprotoError):
        assert_adds_up(answer)


@given(damaged_files(), st.sampled_from(["euclidean", "l1", "precomputed"]), st.booleans())
@cases(25)
def test_from_the_command_line(file: Damaged, metric: str, as_target: bool) -> None:
    path = _written(file)
    out = path.parent / "out"
    arguments = ["select", str(path), "-k", "2", "--metric", metric, "-o", str(out), "--quiet"]
    if as_target and metric != "precomputed":
        sound = path.parent / "sound.npy"
        np.save(sound, np.random.default_rng(0).normal(size=(6, 3)))
        arguments[1:2] = [str(sound), "--target", str(path)]
    status, _, errors = attempt(file, lambda: run_command(*arguments), _HEADERS)
    assert not MARKER.exists(), "a pickle was executed"
    if status == 0:
        assert_adds_up(Selection.load(out))
    else:
        assert status == 2, errors
        assert errors.startswith("uniproto: error: "), errors
        assert errors.count("\n") == 1, errors
        assert not out.exists(), "a result was left behind"
