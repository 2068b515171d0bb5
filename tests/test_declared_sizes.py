"""Small files that would take gigabytes are refused, or stay on disk, before they are read."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import uniproto
from uniproto.cli import main
from uniproto.data import sizes
from uniproto.data.disk import LargeTable
from uniproto.data.tables import read_content, read_input
from uniproto.errors import InfeasibleError, InputFileError
from uniproto.runtime.memory import PeakMemory


@pytest.fixture(autouse=True)
def _little_is_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a test are small: what is always allowed is smaller here."""
    monkeypatch.setattr(sizes, "_SMALL", 2**20)


def _csv(path: Path, columns: int, rows: int = 2) -> Path:
    names = ",".join(f"c{place}" for place in range(columns))
    path.write_text(names + "\n" + (",".join("1" * columns) + "\n") * rows)
    return path


@pytest.mark.parametrize("spoiled", ["", '"a\nb",', "\n\n"], ids=["plain", "quoted", "blank"])
def test_a_million_columns_are_refused_at_once(spoiled: str, tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(spoiled + "x," * 10**6 + "x\n" + "1," * 10**6 + "1\n")
    with PeakMemory() as peak, pytest.raises(InputFileError, match=r"at most 100,000 columns. Got"):
        uniproto.select(path, 1)
    assert peak.bytes is None or peak.bytes < 100 * 2**20


def test_wide_tables_are_measured_by_their_columns(tmp_path: Path) -> None:
    path = _csv(tmp_path / "wide.csv", 2000)
    with pytest.raises(InfeasibleError, match=r"3 rows of 2,000 columns.*31.3.* MiB.*\.parquet"):
        read_input(path, memory="8MB")
    assert read_input(path, memory="64MB").features.shape == (2, 2000)
    assert read_input(path).features.shape == (2, 2000)


def test_a_comma_in_a_name_is_no_column(tmp_path: Path) -> None:
    path = tmp_path / "pool.csv"
    path.write_text('"net, EUR","gross, ""EUR"", all"\n1,2\n3,4\n')
    assert sizes._csv_columns(path) == 2
    assert read_input(path).features.shape == (2, 2)


def test_long_tables_are_measured_by_their_lines(tmp_path: Path) -> None:
    path = _csv(tmp_path / "long.csv", 3, rows=200_000)
    with pytest.raises(InfeasibleError, match=r"200,00\d rows of 3 columns"):
        read_input(path, memory="8MB")
    assert read_input(path, memory="16MB").features.shape == (200_000, 3)


def _keys(rows: int, keys: int) -> str:
    return "".join(json.dumps({f"k{row % keys}": row}) + "\n" for row in range(rows))


@pytest.mark.parametrize(
    "text",
    [_keys(3000, 3000), '{"x": 1}\n' * 300_000 + _keys(1000, 1000)],
    ids=["every line another", "hidden among many"],
)
def test_keys_that_multiply_with_lines(text: str, tmp_path: Path) -> None:
    path = tmp_path / "pool.jsonl"
    path.write_text(text)
    with pytest.raises(InfeasibleError, match=r"rows of [13],00\d columns.*--memory"):
        read_input(path, memory="100MB")


def test_keys_are_counted_whole_before_lines_are_refused(tmp_path: Path) -> None:
    """A sample that met a rare key overstates how many there are: that alone refuses nothing."""
    path = tmp_path / "pool.jsonl"
    path.write_text('{"x": 1, "y": 2}\n' * 200_000 + '{"x": 1, "y": 2, "note": 3}\n' * 20)
    assert sizes._jsonl_shape(path, 1.0) == (200_020, 3)
    for _ in range(5):
        sizes.require_jsonl_fits(path, "16MB")


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
    assert sizes.parquet_bytes(pq.read_metadata(path)) >= 32_000_000
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


def test_a_column_larger_than_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _repeated(tmp_path / "pool.parquet", pa.array(["long " * 200] * 100_000))
    _, content = read_content(path, memory="20MB")
    monkeypatch.setattr(sizes, "free_bytes", lambda: 40 * 2**20)
    with pytest.raises(InfeasibleError, match=r"pool\.parquet holds a long column 'x'"):
        content.column("x")


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


def test_an_archive_is_measured_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "pool.npz"
    np.savez_compressed(path, pool=np.zeros((2_000_000, 2)), small=np.eye(3))
    message = r"an array of shape \(2000000, 2\) and needs 30.52 MiB.*np\.save.*--memory"
    with PeakMemory() as peak, pytest.raises(InfeasibleError, match=message):
        read_input(path, "pool", memory="20MB")
    assert peak.bytes is None or peak.bytes < 10 * 2**20
    assert read_input(path, "small", memory="20MB").features.shape == (3, 3)
    assert read_input(path, "pool", memory="1GB").features.shape == (2_000_000, 2)


def _header(shape: str, version: int = 1) -> bytes:
    text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("ending", [".npy", ".npz"])
def test_a_header_that_promises_more_than_there_is(
    ending: str, version: int, tmp_path: Path
) -> None:
    path = tmp_path / f"pool{ending}"
    content = _header("(400000000, 2)", version) + bytes(96)
    if ending == ".npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("pool.npy", content)
    with PeakMemory() as peak, pytest.raises(InputFileError, match="promises 6,400,000,000 bytes"):
        read_input(path)
    assert peak.bytes is None or peak.bytes < 10 * 2**20


@pytest.mark.parametrize("version", [1, 2, 3])
def test_honest_headers_pass(version: int, tmp_path: Path) -> None:
    values = np.arange(12.0).reshape(6, 2)
    with (tmp_path / "pool.npy").open("wb") as file:
        np.lib.format.write_array(file, values, (version, 0))
    np.testing.assert_array_equal(read_input(tmp_path / "pool.npy").features, values)


def _bomb(path: Path) -> Path:
    np.savez_compressed(path, pool=np.zeros((2_000_000, 2)))
    return path


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("wide.csv", lambda path: _csv(path, 3000)),
        ("pool.npz", _bomb),
        ("pool.jsonl", lambda path: path.write_text(_keys(3000, 3000)) and path),
    ],
)
@pytest.mark.parametrize("command", ["select", "compare", "path"])
def test_commands_honour_memory(
    command: str,
    name: str,
    make: Callable[[Path], Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make(tmp_path / name)
    k = ["--ks", "1,2"] if command == "path" else ["-k", "2"]
    arguments = [command, str(tmp_path / name), *k, "--memory", "20MB", "-o", str(tmp_path / "out")]
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("uniproto: error: Not enough memory: ")
    assert "--memory" in error
    assert not (tmp_path / "out").exists()


def test_python_honours_memory(tmp_path: Path) -> None:
    path = _bomb(tmp_path / "pool.npz")
    with pytest.raises(InfeasibleError, match=r"pool\.npz holds an array of shape"):
        uniproto.select(path, 2, compute=uniproto.Compute(memory="20MB"))
    with pytest.raises(InfeasibleError, match=r"pool\.npz holds an array of shape"):
        uniproto.Problem(np.eye(2), path, compute=uniproto.Compute(memory="20MB"))
