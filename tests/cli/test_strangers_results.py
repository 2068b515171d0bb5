"""A stranger's result folder: regular files of this machine are read, and nothing else."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uniproto import Selection
from uniproto.cli import main
from uniproto.cli.recorded_inputs import recorded_problem
from uniproto.errors import InputFileError, UniprotoError
from uniproto.selection.storage import load_manifest

K, ROWS = 3, 20


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A sound result beside its inputs, in a folder of their own."""
    home = tmp_path / "home"
    home.mkdir()
    draw = np.random.default_rng(0)
    table = pa.table({"name": [f"row {row}" for row in range(ROWS)], "x": draw.normal(size=ROWS)})
    pq.write_table(
        table.append_column("y", pa.array(draw.normal(size=ROWS))), home / "pool.parquet"
    )
    asked = ["select", str(home / "pool.parquet"), "-k", str(K), "--id", "name", "--certify"]
    asked += ["--method", "greedy"]
    assert main([*asked, "-o", str(home / "out"), "--quiet"]) == 0
    return home / "out"


def change(folder: Path, **changes: Any) -> None:
    """Change the record of the source: its path, or where it lies."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    for name, value in changes.items():
        part = manifest["inputs" if name == "path" else "places"]["source"]
        part[name] = value
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("beta", [1e308, -1e308])
@pytest.mark.parametrize("command", ["verify", "report", "certify"])
def test_gains_too_large_to_add_up(
    command: str, beta: float, result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = result / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "beta": beta}))
    assert main([command, str(result)]) == 2
    assert "It is damaged (its gains are not finite" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["verify", "report", "certify"])
def test_inputs_that_were_moved_along_are_found(command: str, result: Path, tmp_path: Path) -> None:
    shutil.move(result.parent, tmp_path / "elsewhere")
    assert main([command, str(tmp_path / "elsewhere" / "out")]) == 0


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin", "pipe"])
@pytest.mark.parametrize("command", ["verify", "report", "certify"])
def test_only_regular_files_are_read(
    command: str, path: str, result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if path == "pipe":
        path = str(result.parent / "pipe.parquet")
        os.mkfifo(path)
    change(result, path=path, relative=None)
    assert main([command, str(result)]) == 2
    assert "must be a regular file" in capsys.readouterr().err


def test_a_person_s_word_counts_and_the_digest_still_does(result: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.parquet"
    (result.parent / "pool.parquet").rename(moved)
    manifest = load_manifest(result)
    with pytest.raises(InputFileError, match="there is no such file"):
        recorded_problem(result, manifest)
    problem, _ = recorded_problem(result, manifest, [str(moved)])
    assert problem.m == ROWS
    pq.write_table(pq.read_table(moved).slice(1), moved)
    with pytest.raises(InputFileError, match="has changed since"):
        recorded_problem(result, manifest, [str(moved)])


@pytest.mark.parametrize("path", ["s3://bucket/pool.parquet", "gs://bucket/*.parquet"])
def test_nothing_is_fetched_on_a_record_s_word(
    path: str, result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(result, path=path)
    assert main(["verify", str(result)]) == 2
    assert "only where a person names it" in capsys.readouterr().err


def test_a_record_does_not_say_how_much_memory_may_be_taken(
    result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = result / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["arguments"]["compute"] = {"kind": "Compute", "memory": "1000TB"}
    path.write_text(json.dumps(manifest))
    asked = []
    monkeypatch.setattr(
        "uniproto.data.tables.memory_budget", lambda memory: asked.append(memory) or 2**30
    )
    assert main(["verify", str(result)]) == 0
    assert set(asked) == {None}


@pytest.mark.parametrize("name", ["manifest.json", "selection.parquet", "plan.npz"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_files_of_the_result_are_regular_files(name: str, kind: str, result: Path) -> None:
    (result / name).unlink()
    if kind == "pipe":
        os.mkfifo(result / name)
    else:
        (result / name).symlink_to("/dev/zero")
    with pytest.raises(UniprotoError, match="must be a regular file"):
        Selection.load(result)
    assert main(["verify", str(result)]) in (1, 2)


def test_files_of_other_folders_belong_to_no_result(
    result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = result / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"]["../pool.parquet"] = hashlib.sha256(
        (result.parent / "pool.parquet").read_bytes()
    ).hexdigest()
    path.write_text(json.dumps(manifest))
    assert main(["verify", str(result)]) == 1
    assert "no   the files of the result have not changed (../pool.parquet)" in (
        capsys.readouterr().out
    )


@pytest.mark.parametrize("command", ["select", "compare", "path", "embed"])
def test_an_address_in_a_store_needs_ray(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    k = {"path": ["--ks", "1,2"], "embed": ["--text", "t"]}.get(command, ["-k", "2"])
    out = str(tmp_path / ("out.parquet" if command == "embed" else "out"))
    for address in ("s3://bucket/pool/*.parquet", "gs://bucket/pool.csv"):
        assert main([command, address, *k, "-o", out]) == 2
        error = capsys.readouterr().err
        assert f"uniproto: error: {address} is not a file of this machine." in error
        assert "--engine ray" in error


def test_an_address_in_a_store_in_python() -> None:
    import uniproto

    with pytest.raises(InputFileError, match=r"^s3://bucket/pool\.npy is .*uniproto\.scale"):
        uniproto.select(Path("s3://bucket/pool.npy"), 2)


NUMBERS = {
    "cost": lambda record: record,
    "bandwidth": lambda record: record,
    "beta": lambda record: record,
    "pick": lambda record: record["timings"],
    "lower_bound": lambda record: record["certificate"],
    "gap": lambda record: record["certificate"],
    "seconds": lambda record: record["certificate"],
    "steps": lambda record: record["certificate"],
    "proof": lambda record: record["certificate"],
}


@pytest.mark.parametrize("value", [10**400, float("nan"), [], True, "1"], ids=repr)
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("command", ["verify", "report"])
def test_forged_numbers_are_damage(
    command: str, name: str, value: Any, result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most of these once ended in a traceback."""
    if name == "proof" and value == "1":
        return  # a text, which is compared with the proof itself
    path = result / "manifest.json"
    record = json.loads(path.read_text())
    NUMBERS[name](record)[name] = value
    path.write_text(json.dumps(record))
    assert main([command, str(result)]) == 2
    error = capsys.readouterr().err
    assert "It is damaged (its record says" in error
    assert len(error) < 500


@pytest.mark.parametrize("command", ["verify", "report", "certify"])
def test_arguments_that_no_command_line_says_are_damage(
    command: str, result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = result / "manifest.json"
    record = json.loads(path.read_text())
    record["excluded"] = {"near": 5, "rows": [1]}
    path.write_text(json.dumps(record))
    assert main([command, str(result)]) == 2
    assert "It is damaged" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["verify", "report", "certify"])
@pytest.mark.parametrize("argument", ["target", "exclude_near"])
def test_no_file_is_opened_without_a_digest(
    argument: str, command: str, result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The names of a local file's columns were once part of the error."""
    secret = result.parent / "secret.csv"
    secret.write_text("password,pin\na,1\nb,2\n")
    path = result / "manifest.json"
    record = json.loads(path.read_text())
    named = str(secret)
    if argument == "target":
        record["arguments"]["target"] = named
    else:
        record["excluded"] = {"near": [[named, 0.1]]}
    path.write_text(json.dumps(record))
    assert main([command, str(result)]) == 2
    found = capsys.readouterr()
    assert "It is damaged (its record of the" in found.err
    assert "password" not in found.out + found.err


@pytest.mark.parametrize("pattern", ["/**/*", "/*/*/*.parquet", "/**/*.parquet", "/*"])
def test_a_recorded_path_is_a_name(
    pattern: str, result: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pattern over the whole disk once kept `verify` busy."""
    searched: list[str] = []
    for module in ("uniproto.cli.recorded_inputs", "uniproto.data.disk"):
        for name in ("glob", "iglob"):
            monkeypatch.setattr(
                f"{module}.glob.{name}", lambda text, **_: searched.append(text) or []
            )
    change(result, path=pattern, relative=None)
    assert main(["verify", str(result)]) == 2
    assert "there is no such file" in capsys.readouterr().err
    assert searched == []


def test_a_folder_around_the_result_is_not_searched(result: Path) -> None:
    change(result, path=str(result.parent), relative=None)
    with pytest.raises(InputFileError, match="there is no such file"):
        recorded_problem(result, load_manifest(result))


@pytest.mark.parametrize("note", ["least", "why"])
def test_what_nothing_proves_is_not_shown(note: str, result: Path) -> None:
    path = result / "manifest.json"
    record = json.loads(path.read_text())
    assert note not in record["notes"]
    record["notes"] |= {note: "a lie"}
    record["arguments"]["source"] = "a lie"
    path.write_text(json.dumps(record))
    selection = Selection.load(result)
    assert "a lie" not in selection.summary()
    assert main(["report", str(result), "--quiet"]) == 0
    page = (result / "report.html").read_text()
    assert "a lie" not in page
    assert "pool.parquet -k 3" in page
