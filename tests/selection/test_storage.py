"""A saved selection comes back whole, or not at all; nothing is ever pickled."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import uniproto
from uniproto.errors import InputFileError, OutputError
from uniproto.runs.atomic import require_writable
from uniproto.selection.selection import Selection
from uniproto.selection.storage import Ids, save_selection

M, K = 40, 6
X = np.random.default_rng(3).normal(size=(M, 3))
LABELS = np.array(["grün", "青"] * (M // 2))
FILES = {"selection.parquet", "plan.npz", "manifest.json"}


@pytest.fixture(scope="module")
def selection() -> Selection:
    return uniproto.select(X, K, groups=LABELS, metric="euclidean", seed=5)


@pytest.fixture
def folder(selection: Selection, tmp_path: Path) -> Path:
    return selection.save(tmp_path / "result")


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def assert_same(found: Selection, expected: Selection) -> None:
    np.testing.assert_array_equal(found.details.gains, expected.details.gains)
    for name in ("indices", "weights"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.indices.dtype == np.int64
    assert (found.plan != expected.plan).nnz == 0
    for name in ("k", "cost", "cost_is_exact", "group_costs"):
        assert getattr(found, name) == getattr(expected, name), name
    for name in ("shape", "metric", "method", "beta", "options", "seed", "timings"):
        assert getattr(found.details, name) == getattr(expected.details, name), name
    unproven = ("why", "least")  # nothing in a folder could be compared with them
    notes = {name: of for name, of in expected.details.notes.items() if name not in unproven}
    assert found.details.notes == notes


def test_round_trip(selection: Selection, folder: Path) -> None:
    found = Selection.load(folder)
    assert_same(found, selection)
    assert found.group_costs.keys() == {"grün", "青"}
    # The median, and random rows to compare with, can only be had where the data are.
    words = re.sub("a typical row is .*", "MEAN", selection.summary())
    assert re.sub("the mean distance of a row .*", "MEAN", found.summary()) == words
    assert repr(found) == repr(selection)


@pytest.mark.parametrize(
    "labels",
    [np.arange(M) % 3, np.arange(M) % 2 == 0, (np.arange(M) % 2) / 2],
    ids=["int", "bool", "float"],
)
def test_labels_keep_their_kind(labels: np.ndarray, tmp_path: Path) -> None:
    selection = uniproto.select(X, K, groups=labels)
    found = Selection.load(selection.save(tmp_path / "result"))
    assert found.group_costs == selection.group_costs
    assert set(map(type, found.group_costs)) == set(map(type, labels.tolist()))


def test_labels_without_a_json_form_become_text(tmp_path: Path) -> None:
    days = np.array(["2020-01-01", "2021-01-01"], "datetime64[D]")[np.arange(M) % 2]
    selection = uniproto.select(X, K, groups=days)
    found = Selection.load(selection.save(tmp_path / "result"))
    assert list(found.group_costs) == ["2020-01-01", "2021-01-01"]


def test_a_loaded_selection_can_be_saved_again(folder: Path, tmp_path: Path) -> None:
    first = Selection.load(folder)
    assert_same(Selection.load(first.save(tmp_path / "again")), first)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([f"д{i}" for i in range(M)], object),
        np.array([f"d{i}" for i in range(M)]),
        np.arange(M) * 10**15,
        np.arange(M).astype("datetime64[D]"),
    ],
    ids=["text objects", "text", "integers", "dates"],
)
def test_ids_in_every_file_and_no_pickle(
    selection: Selection, tmp_path: Path, ids: np.ndarray
) -> None:
    save_selection(selection, tmp_path / "result", ids=Ids("name", ids, ids))
    chosen = ids[selection.indices]
    table = pq.read_table(tmp_path / "result" / "selection.parquet")
    assert table.column_names == ["name", "rank", "index", "gain", "mass"]
    assert table["name"].to_numpy(zero_copy_only=False).tolist() == chosen.tolist()
    with np.load(tmp_path / "result" / "plan.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype != object for name in arrays.files)
        assert arrays["prototype_ids"].tolist() == chosen.tolist()
        assert arrays["target_ids"].tolist() == ids.tolist()
    manifest = json.loads((tmp_path / "result" / "manifest.json").read_text("utf-8"))
    assert manifest["id"]["column"] == "name"
    assert list(map(str, manifest["id"]["prototypes"])) == list(map(str, chosen))
    assert_same(Selection.load(tmp_path / "result"), selection)


def test_saving_twice_replaces_everything(selection: Selection, tmp_path: Path) -> None:
    folder = tmp_path / "result"
    save_selection(selection, folder, prototypes=pa.table({"x": selection.indices}))
    (folder / "notes.txt").write_text("mine")
    other = uniproto.select(X, 3)
    other.save(folder)
    assert names(folder) == FILES | {"notes.txt"}  # without the old prototypes.parquet
    assert_same(Selection.load(folder), other)
    assert names(tmp_path) == {"result"}


# Damage


def test_no_folder_or_not_a_result(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "nowhere", tmp_path / "empty", folder / "plan.npz"):
        with pytest.raises(InputFileError, match=r"holds no saved selection"):
            Selection.load(path)


MANIFESTS = {
    "empty": "",
    "list": "[]",
    "other": '{"name": "somebody else\'s"}',
    "other format": '{"format": 99}',
    "bare": '{"format": 1}',
    "not UTF-8": b"\xff\xfe",
    "too deep": "[" * 100_000,
    "nothing asked": '{"format": 1, "arguments": 5}',
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_foreign_manifests(folder: Path, kind: str) -> None:
    content = MANIFESTS[kind]
    content = content if isinstance(content, bytes) else content.encode()
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(InputFileError, match="It is damaged"):
        Selection.load(folder)


def test_a_record_of_a_certificate(tmp_path: Path) -> None:
    """One of a later version is read; one that does not say what its gap is, is damaged."""
    found = uniproto.select(X, 3, certify=True)
    found.save(tmp_path / "result")
    path = tmp_path / "result" / "manifest.json"
    manifest = json.loads(path.read_text("utf-8"))
    manifest["certificate"]["of a later version"] = 1
    path.write_text(json.dumps(manifest))
    assert Selection.load(path.parent).certificate.gap == found.certificate.gap
    del manifest["certificate"]["relative"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(InputFileError, match="It is damaged"):
        Selection.load(path.parent)


def test_a_summary_of_a_stranger_s_record_is_plain_text(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
    manifest["notes"] = {"interrupted": "\x1b[2J", "why": "\x1b]0;", "proof": "\x1b[31m"}
    manifest["method"] = "\x1b[1m"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    summary = Selection.load(folder).summary()
    assert summary.replace("\n", "").isprintable()
    assert r"\x1b[31m" in summary
    assert r"\x1b]0;" not in summary  # which nothing proves


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "text", "folder"])
def test_damaged_files(folder: Path, name: str, damage: str) -> None:
    path = folder / name
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        path.write_bytes({"empty": b"", "cut": content[: len(content) // 2]}.get(damage, b"hello"))
    with pytest.raises(InputFileError, match=r"Run the selection again|no saved selection"):
        Selection.load(folder)


# Writing that fails


def full_disk(*args: object, **kwargs: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize(
    "writer", ["pyarrow.parquet.write_table", "numpy.savez_compressed", "pathlib.Path.write_text"]
)
def test_a_full_disk_loses_nothing(
    selection: Selection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    writer: str,
    exists: bool,
) -> None:
    folder = tmp_path / "result"
    old = uniproto.select(X, 2)
    if exists:
        old.save(folder)
    with monkeypatch.context() as patch:
        patch.setattr(writer, full_disk)
        with pytest.raises(OutputError, match=r"result.*No space left on device.*free some space"):
            selection.save(folder)
    if exists:
        assert names(folder) == FILES
        assert_same(Selection.load(folder), old)
    else:
        assert names(tmp_path) == set()


def test_places_that_cannot_be_written(selection: Selection, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    places = [tmp_path / "file", tmp_path / "file" / "deeper", Path("/proc/nowhere")]
    places.append(tmp_path / ("x" * 300))
    for place in places:
        with pytest.raises(OutputError, match="folder that can be written"):
            selection.save(place)
        with pytest.raises(OutputError, match="folder that can be written"):
            require_writable(place)
    assert names(tmp_path) == {"file"}
    assert (tmp_path / "file").read_text() == "mine"
