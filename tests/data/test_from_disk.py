"""What takes more memory than is allowed stays on disk, with the same answer, or is refused."""

from __future__ import annotations

import io
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.reading import read_input

import uniproto
from uniproto.cli import main
from uniproto.data.disk import LargeTable, parquet_files
from uniproto.data.tables import read_content
from uniproto.errors import InfeasibleError
from uniproto.runtime.memory import PeakMemory

# The search that also runs where memory is short.
select_greedily = partial(uniproto.select, method=uniproto.Greedy())


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(900, 6)).astype(np.float32)


@pytest.fixture
def folder(vectors: np.ndarray, tmp_path: Path) -> Path:
    """Three files, whose names sort in the order of their rows."""
    place = tmp_path / "pool"
    place.mkdir()
    for part in range(3):
        rows = range(300 * part, 300 * (part + 1))
        table = pa.table({"id": [f"row {row}" for row in rows], "vector": list(vectors[rows])})
        pq.write_table(table, place / f"part-{part}.parquet", row_group_size=64)
    return place


@pytest.fixture
def _no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file is too large to be read whole."""
    monkeypatch.setattr("uniproto.data.tables.memory_budget", lambda memory: 64)


@pytest.mark.usefixtures("_no_memory")
def test_data_set_larger_than_memory(vectors: np.ndarray, folder: Path) -> None:
    data = read_input(folder, "vector", ["id"])
    assert isinstance(data.table, LargeTable)
    assert isinstance(data.features, np.memmap)
    np.testing.assert_array_equal(data.features, vectors)
    assert data.column("id", "--id")[899] == "row 899"
    assert data.table.take(np.array([500, 3])).column("id").to_pylist() == ["row 500", "row 3"]


@pytest.mark.usefixtures("_no_memory")
def test_command_on_a_data_set_larger_than_memory(
    vectors: np.ndarray, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["-k", "9", "--column", "vector", "--id", "id", "--quiet", "-o", str(out)]
    options += ["--method", "greedy"]
    assert main(["select", str(folder), *options]) == 0
    expected = select_greedily(vectors, 9).indices.tolist()
    assert pq.read_table(out / "selection.parquet").column("index").to_pylist() == expected
    chosen = pq.read_table(out / "prototypes.parquet").column("id").to_pylist()
    assert chosen == [f"row {row}" for row in expected]
    assert main(["verify", str(out)]) == 0
    (folder / "part-1.parquet").unlink()  # another data set from now on
    assert main(["verify", str(out)]) == 1


@pytest.mark.usefixtures("_no_memory")
@pytest.mark.parametrize("metric", ["cosine", "euclidean", "l1", "dot"])
def test_array_larger_than_memory(metric: str, vectors: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "pool.npy", vectors)
    sel = select_greedily(
        tmp_path / "pool.npy", 9, metric=metric, compute=uniproto.Compute(memory="2MB")
    )
    expected = select_greedily(vectors, 9, metric=metric)
    assert sel.indices.tolist() == expected.indices.tolist()
    assert sel.cost == pytest.approx(expected.cost, rel=1e-6)


def test_full_temporary_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def write(self, content: object) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **options: Full())
    with pytest.raises(uniproto.OutputError, match=r"No space left.*Set TMPDIR"):
        LargeTable(parquet_files(folder)).features(["vector"], "pool")


def test_lists_of_different_lengths_in_different_files(tmp_path: Path) -> None:
    for name, width in (("a", 2), ("b", 3)):
        pq.write_table(pa.table({"vector": [[1.0] * width]}), tmp_path / f"{name}.parquet")
    with pytest.raises(uniproto.InputFileError, match="of one length"):
        LargeTable(parquet_files(tmp_path)).features(["vector"], "pool")


# How much a file takes


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a test are small: what is always allowed is smaller here."""
    monkeypatch.setattr("uniproto.data.disk._SMALL", 2**20)


def _repeated(path: Path, column: pa.Array) -> Path:
    pq.write_table(pa.table({"x": column}), path, row_group_size=len(column))
    assert path.stat().st_size < 200_000
    return path


@pytest.mark.parametrize(
    "column",
    [
        pa.array(np.ones(4_000_000)),
        pa.array([np.ones(40_000)] * 100),
        pa.array([b"x" * 8] * 4_000_000, pa.binary(8)),
    ],
    ids=["numbers", "lists", "fixed"],
)
def test_a_value_that_is_stored_once_counts_as_often_as_it_stands(
    column: pa.Array, tmp_path: Path
) -> None:
    path = _repeated(tmp_path / "pool.parquet", column)
    _, content = read_content(path, memory="20MB")
    assert isinstance(content, LargeTable)
    _, content = read_content(path, memory="1GB")
    assert isinstance(content, pa.Table)


def test_texts_are_counted_while_they_are_read(tmp_path: Path) -> None:
    path = _repeated(tmp_path / "pool.parquet", pa.array(["long " * 200] * 100_000))
    with PeakMemory() as peak:
        _, content = read_content(path, memory="20MB")
    assert isinstance(content, LargeTable)
    assert peak.bytes is None or peak.bytes < 80 * 2**20
    _, content = read_content(path, memory="1GB")
    assert isinstance(content, pa.Table)
    assert content.num_rows == 100_000


def test_tables_with_texts_are_what_they_were(tmp_path: Path) -> None:
    """Read in parts or at once: the same table, categories and pandas' notes included."""
    rows = 40_000
    table = pa.table(
        {
            "name": [f"row {place}" for place in range(rows)],
            "kind": pa.array([f"k{place % 7}" for place in range(rows)]).dictionary_encode(),
            "x": np.arange(rows, dtype=np.float32),
            "none": pa.nulls(rows),
        }
    ).replace_schema_metadata({"note": "kept"})
    pq.write_table(table, tmp_path / "pool.parquet", row_group_size=15_000)
    _, content = read_content(tmp_path / "pool.parquet")
    assert content.schema.equals(pq.read_table(tmp_path / "pool.parquet").schema, True)
    assert content.equals(table.cast(content.schema))
    chosen = pa.array([39_999, 5, 20_000])
    assert content.take(chosen).equals(pq.read_table(tmp_path / "pool.parquet").take(chosen))


def test_an_empty_table_with_texts(tmp_path: Path) -> None:
    pq.write_table(pa.table({"t": pa.array([], pa.string())}), tmp_path / "pool.parquet")
    _, content = read_content(tmp_path / "pool.parquet")
    assert content.num_rows == 0


@pytest.mark.parametrize("name", ["pool.csv", "pool.jsonl", "pool.npz"])
@pytest.mark.parametrize("command", ["select", "compare", "path"])
def test_what_is_read_whole_must_fit(
    command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if name.endswith(".npz"):
        np.savez(path, pool=np.zeros((300_000, 2)))
    else:
        path.write_text("a,b\n" + "1,2\n" * 10**6)
    k = ["--ks", "1,2"] if command == "path" else ["-k", "2"]
    assert main([command, str(path), *k, "--memory", "2MB", "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"uniproto: error: Not enough memory: {path} is read whole")
    assert "--memory" in error
    assert not (tmp_path / "out").exists()
    with pytest.raises(InfeasibleError, match="is read whole"):
        uniproto.Problem(np.eye(2), path, compute=uniproto.Compute(memory="2MB"))
