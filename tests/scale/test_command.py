"""`uniproto select --engine ray` writes the files of one machine; verify and report read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import uniproto
from uniproto.cli import main

pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("local_ray")


def command(pool: str, out: Path, *options: str) -> list[str]:
    columns = ("--column", "vector", "--id", "name")
    return ["select", pool, "-k", "8", *columns, "--engine", "ray", "-o", str(out), *options]


@pytest.mark.slow
def test_the_files_are_those_of_one_machine(
    pool: str, aim: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, alone = tmp_path / "out", tmp_path / "alone"
    options = ("--target", aim, "--target-weights", "weight", "--per-part", "60", "--certify")
    assert main(command(pool, out, *options)) == 0
    said = capsys.readouterr().out
    assert "4 shards sent 240 rows" in said
    assert "no choice can be below" in said
    assert main(["verify", str(out)]) == 0
    assert main(["certify", str(out), "--quiet"]) == 0  # one machine raises the bound further
    assert main(["verify", str(out)]) == 0
    assert main(["report", str(out), "--quiet"]) == 0
    assert not (out / ".uniproto").exists()

    # Every row is sent, so the answer is one machine's, and so is every file.
    same = command(pool, alone, *options[:4])
    same[same.index("ray")] = "local"
    assert main([*same, "--quiet"]) == 0
    for name in ("selection.parquet", "prototypes.parquet"):
        assert pq.read_table(out / name).equals(pq.read_table(alone / name))
    mine, theirs = (json.loads((f / "manifest.json").read_text()) for f in (out, alone))
    for name in ("inputs", "cost", "shape", "k", "metric", "beta", "id", "options"):
        assert mine[name] == theirs[name]
    with np.load(out / "plan.npz") as left, np.load(alone / "plan.npz") as right:
        assert left["target_ids"].tolist() == right["target_ids"].tolist()
    rounds = mine["notes"]["rounds"]
    assert [part["round"] for part in rounds[:3]] == ["target", 1, 2]
    assert rounds[1]["rows"] == 240
    assert rounds[1]["bytes_read"] > 0


def test_shards_of_the_user_in_a_folder_called_parts_stay(
    write_shards: Callable[..., str], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    pattern = write_shards(data / "parts")
    before = {path: path.read_bytes() for path in (data / "parts").iterdir()}
    main([*command(pattern, data), "--quiet"])  # whether or not it accepts such an output folder
    assert {path: path.read_bytes() for path in (data / "parts").iterdir()} == before


@pytest.mark.parametrize(
    ("options", "columns"),
    [
        (["--columns", "b,a"], ["b", "a"]),
        (["--ignore", "name,note,score"], ["a", "b"]),  # score: the target's alone
    ],
)
def test_features_by_name(
    options: list[str], columns: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw, tables = np.random.default_rng(2), []
    for place in range(3):
        rows = [f"row {place} {row}" for row in range(20)]
        a, b = draw.normal(size=(2, 20))
        tables.append(pa.table({"name": rows, "a": a, "note": ["x"] * 20, "b": b}))
        pq.write_table(tables[-1], tmp_path / f"pool-{place}.parquet")
    a, b = draw.normal(size=(2, 30))
    pq.write_table(pa.table({"b": b, "score": b, "a": a}), tmp_path / "aim.parquet")
    pool, aim, out = (str(tmp_path / name) for name in ("pool-*.parquet", "aim.parquet", "out"))
    asked = ["select", pool, "-k", "4", "--target", aim, "--engine", "ray", "--per-part", "20"]
    assert main([*asked, *options, "--certify", "9", "--quiet", "-o", out]) == 0
    source = pa.concat_tables(tables).select(columns).to_pandas().to_numpy()
    target = pq.read_table(aim).select(columns).to_pandas().to_numpy()
    found = uniproto.Selection.load(out)
    assert found.indices.tolist() == uniproto.select(source, 4, target).indices.tolist()
    assert found.certificate is not None
    assert main(["verify", out]) == 0
    assert main([*asked, options[0], "notte", "-o", out]) == 2
    assert f"{options[0]} must be one of " in capsys.readouterr().err


def test_a_sample_of_the_pool_itself_is_verified(pool: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--target-sample", "100", "--seed", "7", "--exclude", "3,200", "--certify")
    assert main(command(pool, out, *options, "--quiet")) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["inputs"]["target"]["sample"] == {"rows": 100, "seed": 7}
    assert manifest["shape"] == [240, 100]
    assert main(["verify", str(out)]) == 0
    assert main(["report", str(out), "--quiet"]) == 0


@pytest.mark.parametrize("what", ["*.parquet", "", "part-1.parquet"])
def test_a_store_is_read_where_a_person_names_it(
    what: str, pool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's file system behind another name stands for a store."""
    from pyarrow import fs

    from uniproto.cli.recorded_inputs import recorded_problem
    from uniproto.selection.storage import load_manifest

    class Store:
        @staticmethod
        def from_uri(address: str) -> tuple[Any, str]:
            assert address.startswith("store://")
            return fs.LocalFileSystem(), address.removeprefix("store://")

    place, address = str(Path(pool).parent / what), f"file://{Path(pool).parent / what}"
    assert main(command(address, tmp_path / "out", "--quiet")) == 0
    manifest = load_manifest(tmp_path / "out")
    manifest["inputs"]["source"]["path"] = store = f"store://{place}"
    monkeypatch.setattr(fs, "FileSystem", Store)
    with pytest.raises(uniproto.InputFileError, match="only where a person names it"):
        recorded_problem(tmp_path / "out", manifest)
    problem, _ = recorded_problem(tmp_path / "out", manifest, [store])
    assert problem.given.inputs[0].sha256 == manifest["inputs"]["source"]["sha256"]
    assert problem.m == manifest["shape"][0]
