"""`uniproto select --engine ray` writes the files of one machine; verify and report read them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import uniproto
from uniproto.cli import main
from uniproto.data.tables import read_input

pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("local_ray")


def command(pool: str, out: Path, *options: str) -> list[str]:
    columns = ("--column", "vector", "--id", "name")
    return ["select", pool, "-k", "8", *columns, "--engine", "ray", "-o", str(out), *options]


def test_the_files_are_those_of_one_machine(
    pool: str, aim: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, alone = tmp_path / "out", tmp_path / "alone"
    options = ("--target", aim, "--weights", "weight", "--per-part", "60", "--certify")
    assert main(command(pool, out, *options)) == 0
    said = capsys.readouterr().out
    assert "4 shards sent 240 rows" in said
    assert "no choice can be below" in said
    assert main(["verify", str(out)]) == 0
    assert main(["certify", str(out), "--quiet"]) == 0  # one machine raises the bound further
    assert main(["verify", str(out)]) == 0
    assert main(["report", str(out), "--quiet"]) == 0
    assert not (out / "parts").exists()

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


def test_a_sample_of_the_pool_itself_is_verified(pool: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    options = ("--target-sample", "100", "--seed", "7", "--exclude", "3,200", "--certify")
    assert main(command(pool, out, *options, "--quiet")) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["inputs"]["target"]["sample"] == {"rows": 100, "seed": 7}
    assert manifest["shape"] == [240, 100]
    assert main(["verify", str(out)]) == 0
    assert main(["report", str(out), "--quiet"]) == 0


def test_folders_and_single_files_have_their_own_digest(pool: str, tmp_path: Path) -> None:
    for place, source in enumerate((Path(pool).parent, Path(pool).parent / "part-1.parquet")):
        out = tmp_path / str(place)
        assert main(command(str(source), out, "--quiet")) == 0
        recorded = json.loads((out / "manifest.json").read_text())["inputs"]["source"]
        assert recorded == read_input(source.resolve(), "vector", ["name"]).identity()
        assert main(["verify", str(out)]) == 0


def test_what_lies_in_a_store_is_read_there_and_not_by_this_machine_s_commands(
    pool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(command(f"file://{pool}", out, "--quiet")) == 0
    chosen = pq.read_table(out / "selection.parquet").column("index").to_pylist()
    assert main(command(pool, tmp_path / "local", "--quiet")) == 0
    assert uniproto.Selection.load(tmp_path / "local").indices.tolist() == chosen
    assert main(["verify", str(out)]) == 2
    assert "must be a file of this machine" in capsys.readouterr().err
