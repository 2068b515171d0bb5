"""Finished parts: saved in a folder of our own, checked when they are read, removed alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uniproto.errors import InputFileError, OutputError
from uniproto.runs.lock import PRIVATE
from uniproto.scale.parts import FinishedParts, ShardResult, remove_finished_parts
from uniproto.scale.shards import Shard

NOTHING = np.empty(0, np.int64)
SHARD = Shard("a", "", rows=9, first=0, stamp="1")
PART = ShardResult(
    np.array([1, 4, 5]),
    np.ones((3, 2), np.float32),
    0.0,
    2.0,
    "0f" * 32,
    1.5,
    np.zeros(3, np.int64),
)


def store(out: Path, **identity: Any) -> FinishedParts:
    return FinishedParts(out, {"k": 3, **identity})


def saved_file(out: Path) -> Path:
    (file,) = (out / PRIVATE).glob("parts-*.npz")
    return file


def test_a_part_comes_back_for_the_same_selection_and_shard_only(tmp_path: Path) -> None:
    store(tmp_path).write(SHARD, NOTHING, PART)
    again = store(tmp_path).read(SHARD, NOTHING)
    assert again is not None
    np.testing.assert_array_equal(again.features, PART.features)
    assert again.rows.tolist() == [1, 4, 5]
    assert (again.digest, again.shift, again.reach) == (PART.digest, 0.0, 2.0)
    assert store(tmp_path, k=4).read(SHARD, NOTHING) is None
    assert store(tmp_path).read(Shard("a", "", 9, 0, stamp="2"), NOTHING) is None
    assert store(tmp_path).read(SHARD, np.array([7])) is None


@pytest.mark.parametrize("change", [lambda whole: whole[:-40], lambda whole: whole + b"x"])
def test_a_damaged_part_is_refused(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    store(tmp_path).write(SHARD, NOTHING, PART)
    file = saved_file(tmp_path)
    file.write_bytes(change(file.read_bytes()))
    with pytest.raises(InputFileError, match=r"is damaged\. Delete it"):
        store(tmp_path).read(SHARD, NOTHING)


def test_only_our_own_files_are_removed(tmp_path: Path) -> None:
    store(tmp_path).write(SHARD, NOTHING, PART)
    folder = tmp_path / PRIVATE
    (folder / "notes.npz").write_text("of the user")
    remove_finished_parts(tmp_path)
    assert [path.name for path in folder.iterdir()] == ["notes.npz"]
    (folder / "notes.npz").unlink()
    store(tmp_path).write(SHARD, NOTHING, PART)
    remove_finished_parts(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    store(elsewhere).write(SHARD, NOTHING, PART)
    out = tmp_path / "out"
    out.mkdir()
    (out / PRIVATE).symlink_to(elsewhere / PRIVATE)
    with pytest.raises(OutputError, match="is a link"):
        store(out)
