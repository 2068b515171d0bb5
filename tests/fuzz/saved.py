"""Saved results: sound ones, and copies of them that somebody or something has changed."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from hypothesis import strategies as st

import uniproto
from uniproto.cli import main
from uniproto.runs.checkpoint import Checkpoint, SavedPicks

from .files import DAMAGES
from .places import new_folder

MANIFEST, SELECTION, PLAN, CERTIFICATE = (
    "manifest.json",
    "selection.parquet",
    "plan.npz",
    "certificate.npz",
)


@dataclass(frozen=True)
class Change:
    """A copy of a sound result, and what is different in it."""

    sound: Path
    folder: Path
    what: str

    def __repr__(self) -> str:
        return f"Change({self.sound.name}: {self.what})"


@cache
def sound_results() -> tuple[Path, ...]:
    """One saved from Python, and two of the command line's: a bare array, and a table."""
    place, random = new_folder(), np.random.default_rng(0)
    points = random.normal(size=(14, 3))
    uniproto.select(points, 4, metric="euclidean", certify=True).save(place / "python")
    np.save(place / "pool.npy", points)
    columns = {
        "name": [f"row {number}" for number in range(14)],
        "side": ["left", "right"] * 7,
        "weight": random.random(14),
        **dict(zip("xyz", points.T, strict=True)),
    }
    pq.write_table(pa.table(columns), place / "pool.parquet")
    table = "--id name --groups side --target-weights weight --metric l1 --include 1 --exclude 0,2"
    with contextlib.redirect_stdout(io.StringIO()):
        for pool, options in (("pool.npy", "--certify"), ("pool.parquet", table)):
            out = place / pool.partition(".")[2]
            command = ["select", str(place / pool), "-k", "4", "-o", str(out), "--quiet"]
            assert main([*command, *options.split()]) == 0
    return place / "python", place / "npy", place / "parquet"


_VALUES: list[Any] = [
    *(None, True, 0, 1, -1, 3, 2.5, 10**30, math.nan, math.inf, "", "cosine", "../x", "\x00"),
    *([], [1], [[1]], {}, {"a": 1}, "1", 1e308, [None], "uniproto", 14, 4, [4, 14], [14, 14]),
]


def _changed_manifest(draw: st.DrawFn, folder: Path) -> str:
    """Somewhere in the record, something else."""
    manifest = json.loads((folder / MANIFEST).read_text())
    place, path = manifest, []
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        path.append(str(key))
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner) or draw(st.integers(0, 2)) == 0:
            break
        place = inner
    if draw(st.integers(0, 3)) == 0:
        del place[key]
        done = "deleted"
    else:
        place[key] = draw(st.sampled_from(_VALUES))
        done = repr(place[key])
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return f"{MANIFEST}: {'.'.join(path)} = {done}"


def _damaged_file(draw: st.DrawFn, folder: Path) -> str:
    file = folder / draw(st.sampled_from(sorted(path.name for path in folder.iterdir())))
    damage = draw(st.sampled_from(sorted(DAMAGES)))
    file.write_bytes(DAMAGES[damage](draw, file.read_bytes()))
    return f"{file.name}, {damage}"


def _missing_file(draw: st.DrawFn, folder: Path) -> str:
    file = folder / draw(st.sampled_from(sorted(path.name for path in folder.iterdir())))
    file.unlink()
    if draw(st.booleans()):
        file.mkdir()
    return f"{file.name} gone"


def _file_of_another(draw: st.DrawFn, folder: Path) -> str:
    other = draw(st.sampled_from(sound_results()))
    file = draw(st.sampled_from(sorted(path.name for path in other.iterdir())))
    shutil.copy(other / file, folder / file)
    return f"{file} of {other.name}"


_NUMBERS: list[Any] = [-1, 0, 2, 14, 2**40, -(2**63), 0.25, 0.5, 1e308, -1e-9, math.nan, math.inf]


def _changed_column(draw: st.DrawFn, folder: Path) -> str:
    """A number of selection.parquet, or the kind of a column, or its length."""
    table = pq.read_table(folder / SELECTION)
    name = draw(st.sampled_from(table.column_names))
    values = table.column(name).to_pylist()
    kind = draw(st.sampled_from(["value", "value", "gap", "texts", "dropped", "longer", "lists"]))
    if kind == "value":
        place = draw(st.integers(0, len(values) - 1))
        values[place] = draw(st.sampled_from([*_NUMBERS, values[0]]))
    elif kind == "gap":
        values[0] = None
    elif kind == "texts":
        values = [str(value) for value in values]
    elif kind == "lists":
        values = [[value] for value in values]
    try:
        column = pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError):
        column = pa.array([str(value) for value in values])
    table = table.set_column(table.column_names.index(name), name, column)
    if kind == "dropped":
        table = table.drop_columns([name])
    if kind == "longer":
        table = pa.concat_tables([table, table])
    pq.write_table(table, folder / SELECTION)
    return _signed(draw, folder, SELECTION, f"{name}: {kind} {values}")


def _changed_array(draw: st.DrawFn, folder: Path) -> str:
    """A number of the plan or of the prices, or their kind or shape."""
    file = CERTIFICATE if (folder / CERTIFICATE).exists() and draw(st.booleans()) else PLAN
    with np.load(folder / file) as archive:
        arrays = dict(archive)
    name = draw(st.sampled_from(sorted(arrays)))
    array = arrays[name]
    kind = draw(st.sampled_from(["value", "value", "value", "type", "shape", "gone", "empty"]))
    shown = ""
    with np.errstate(all="ignore"):
        if kind == "value" and array.dtype.kind in "fi" and array.size:
            place = draw(st.integers(0, array.size - 1))
            number = draw(st.sampled_from(_NUMBERS))
            if array.dtype.kind == "i":
                limits = np.iinfo(array.dtype)
                whole = int(number) if math.isfinite(number) else limits.max
                number = min(max(whole, limits.min), limits.max)
            array = array.copy()
            array.ravel()[place] = number
            shown = f" [{place}] = {number}"
        elif kind == "type":
            wanted = draw(st.sampled_from(["f4", "i8", "c16", "U5", "?"]))
            array = array.astype(wanted) if array.dtype.kind in "fi" else array
            shown = f" {wanted}"
        elif kind == "shape":
            array = array[None]
        elif kind == "empty":
            array = array.ravel()[:0]
    arrays[name] = array
    if kind == "gone":
        del arrays[name]
    np.savez(folder / file, **arrays)
    return _signed(draw, folder, file, f"{name}: {kind}{shown}")


def _signed(draw: st.DrawFn, folder: Path, file: str, what: str) -> str:
    """Perhaps with the digest of the changed file, as somebody who forges would write it."""
    if not draw(st.booleans()):
        return f"{file}, {what}"
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["files"][file] = hashlib.sha256((folder / file).read_bytes()).hexdigest()
    (folder / MANIFEST).write_text(json.dumps(manifest))
    return f"{file}, {what}, signed"


_CHANGES: list[Callable[[st.DrawFn, Path], str]] = [
    *(_changed_manifest, _changed_manifest, _changed_manifest),
    *(_damaged_file, _missing_file, _file_of_another, _changed_column, _changed_array),
]


@cache
def _sound_checkpoint() -> bytes:
    path = new_folder() / "checkpoint.npz"
    plan = sp.csr_array(np.array([[2, 1, 0], [0, 0, 3]]))
    picks = SavedPicks(np.array([4, 2]), np.array([0.5, 0.25]), plan)
    Checkpoint(path, CHECKPOINT_IDENTITY).write(picks, now=True)
    return path.read_bytes()


CHECKPOINT_IDENTITY = {"pool": "abc"}


@st.composite
def changed_checkpoints(draw: st.DrawFn) -> Path:
    """A checkpoint that is damaged, perhaps with a digest that fits the damage."""
    digest, _, payload = _sound_checkpoint().partition(b"\n")
    damage = DAMAGES[draw(st.sampled_from(sorted(DAMAGES)))]
    if draw(st.integers(0, 3)):
        payload = damage(draw, payload)
        digest = hashlib.sha256(payload).hexdigest().encode()
        content = digest + b"\n" + payload
    else:
        content = damage(draw, digest + b"\n" + payload)
    path = new_folder() / "checkpoint.npz"
    path.write_bytes(content)
    return path


@st.composite
def changed_results(draw: st.DrawFn) -> Change:
    """A saved result with one change, which may be none."""
    sound = draw(st.sampled_from(sound_results()))
    folder = new_folder() / "out"
    shutil.copytree(sound, folder)
    return Change(sound, folder, draw(st.sampled_from(_CHANGES))(draw, folder))
