"""Patterns stand for many files on one machine too: sorted, numbered across, checked as one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.reading import read_input

import uniproto
from uniproto.cli import main
from uniproto.data.arrays import sampled_rows
from uniproto.data.disk import is_pattern, names_inside, parquet_files


@pytest.fixture
def vectors() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(90, 4)).astype(np.float32)


@pytest.fixture
def folder(vectors: np.ndarray, tmp_path: Path) -> Path:
    """Three files, written in another order than that of their names."""
    place = tmp_path / "pool"
    place.mkdir()
    for part in (2, 0, 1):
        rows = range(30 * part, 30 * (part + 1))
        table = pa.table({"id": [f"row {row}" for row in rows], "vector": list(vectors[rows])})
        pq.write_table(table, place / f"part-{part}.parquet")
    return place


def test_patterns_of_folders(folder: Path, tmp_path: Path) -> None:
    deeper = folder / "more"
    deeper.mkdir()
    pq.write_table(pa.table({"x": [1.0]}), deeper / "x.parquet")
    assert len(parquet_files(folder / "*.parquet")) == 3
    found = parquet_files(folder / "**" / "*.parquet")
    assert len(found) == 4
    assert names_inside(folder / "**" / "*.parquet", found)[0] == "more/x.parquet"
    assert parquet_files(tmp_path / "po*" / "m*" / "x.parquet") == [deeper / "x.parquet"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    odd = tmp_path / "a[1].parquet"
    pq.write_table(pa.table({"x": [1.0, 2.0]}), odd)
    assert not is_pattern(odd)
    assert len(read_input(odd).features) == 2


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("place", ["*.parquet", ""])
def test_a_file_with_damaged_rows_is_named(
    place: str, in_memory: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not in_memory:
        monkeypatch.setattr("uniproto.data.tables.memory_budget", lambda _: 1)
    damaged = folder / "part-1.parquet"
    content = bytearray(damaged.read_bytes())
    content[16:400] = b"\xff" * 384  # its rows; the description at its end stays
    damaged.write_bytes(content)
    with pytest.raises(uniproto.InputFileError, match=r"part-1\.parquet could not be read"):
        assert read_input(folder / place, "vector", ["id"]).features is None


def test_a_file_with_other_columns_is_named(folder: Path) -> None:
    pq.write_table(pa.table({"vector": ["text"]}), folder / "part-9.parquet")
    with pytest.raises(uniproto.InputFileError, match=r"part-9\.parquet must have the same"):
        read_input(folder / "*.parquet", "vector")


def test_select_verify_and_a_file_that_joins_later(
    vectors: np.ndarray, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    pattern = str(folder / "*.parquet")
    options = ["-k", "7", "--column", "vector", "--id", "id", "--quiet", "-o", str(out)]
    assert main(["select", pattern, *options]) == 0
    expected = uniproto.select(vectors, 7).indices.tolist()
    assert pq.read_table(out / "selection.parquet").column("index").to_pylist() == expected
    assert main(["verify", str(out)]) == 0
    pq.write_table(pq.read_table(folder / "part-0.parquet"), folder / "part-3.parquet")
    assert main(["verify", str(out)]) == 1


def test_a_sample_of_the_target_is_drawn_with_the_seed_and_verified(
    vectors: np.ndarray, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ["--column", "vector", "--id", "id", "--quiet", "-o", str(out)]
    asked = ["-k", "5", "--target-sample", "40", "--seed", "3", "--certify"]
    assert main(["select", str(folder), *asked, *options]) == 0
    rows = sampled_rows(90, 40, 3, "target_sample")
    expected = uniproto.select(vectors, 5, vectors[rows], seed=3).indices.tolist()
    assert pq.read_table(out / "selection.parquet").column("index").to_pylist() == expected
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["inputs"]["target"]["sample"] == {"rows": 40, "seed": 3}
    assert main(["verify", str(out)]) == 0
    assert main(["report", str(out), "--quiet"]) == 0


@pytest.mark.parametrize("size", ["0", "90", "1000"])
def test_a_sample_must_be_smaller_than_the_target(
    size: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    command = ["select", str(folder), "-k", "5", "--column", "vector", "--id", "id", "-o", out]
    assert main([*command, "--target-sample", size]) == 2
    assert "from 1 to 89" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", [["--address", "auto"], ["--num-cpus", "2"], ["--per-part", "3"]]
)
def test_options_of_ray_need_its_engine(
    option: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["select", str(folder), "-k", "5", "--column", "vector", "-o", str(tmp_path / "out")]
    assert main([*command, *option]) == 2
    assert "needs --engine ray" in capsys.readouterr().err
