"""Files that take more memory than is allowed stay on disk, or are refused before they are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import uniproto
from uniproto.cli import main
from uniproto.data import disk as sizes
from uniproto.data.disk import LargeTable
from uniproto.data.tables import read_content
from uniproto.errors import InfeasibleError
from uniproto.runtime.memory import PeakMemory


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a test are small: what is always allowed is smaller here."""
    monkeypatch.setattr(sizes, "_SMALL", 2**20)


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
