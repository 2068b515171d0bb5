"""A stranger's result folder: what its record names is followed only where that is bounded."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from uniproto import Selection
from uniproto.cli import main
from uniproto.cli.inputs import Inputs
from uniproto.cli.recorded_inputs import recorded_inputs
from uniproto.cli.recorded_paths import require_few_entries
from uniproto.data import sizes
from uniproto.errors import InputFileError, UniprotoError
from uniproto.runtime.memory import PeakMemory
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
    asked += ["--search", "greedy"]
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


def replace(folder: Path, name: str, content: bytes) -> None:
    """Replace a file of the result, and sign it."""
    (folder / name).write_bytes(content)
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    path.write_text(json.dumps(manifest))


def test_a_sound_result_is_verified(result: Path) -> None:
    assert main(["verify", str(result)]) == 0
    place = json.loads((result / "manifest.json").read_text())["places"]["source"]
    assert place["relative"] == "../pool.parquet"
    assert place["bytes"] == (result.parent / "pool.parquet").stat().st_size


@pytest.mark.parametrize("command", ["verify", "report", "certify"])
def test_inputs_that_were_moved_along_are_found(command: str, result: Path, tmp_path: Path) -> None:
    shutil.move(result.parent, tmp_path / "elsewhere")
    assert main([command, str(tmp_path / "elsewhere" / "out")]) == 0


def test_inputs_that_stayed_are_found(result: Path, tmp_path: Path) -> None:
    shutil.move(result, tmp_path / "deep")
    assert main(["verify", str(tmp_path / "deep")]) == 0


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin", "/proc/self/mem", "pipe"])
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


@pytest.mark.parametrize(
    "path", ["/**/*.parquet", "/**", "/*/*/*/*/*", "/", "/usr/../", "/proc", "/sys/*"]
)
def test_a_record_may_not_name_all_of_the_disk(
    path: str, result: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uniproto.cli.recorded_paths._MOST_ENTRIES", 1000)
    change(result, path=path, relative=None)
    assert main(["verify", str(result)]) == 2
    error = capsys.readouterr().err
    assert "at most 1,000 entries" in error
    assert "--input" in error


def test_entries_are_counted_where_a_pattern_leads(tmp_path: Path) -> None:
    for name in ("a", "b"):
        for inner in ("x", "y"):
            (tmp_path / name / inner).mkdir(parents=True)
            (tmp_path / name / inner / "1.parquet").touch()
    require_few_entries(tmp_path / "a" / "*.parquet", 2)  # x and y
    require_few_entries(tmp_path / "a" / "x*" / "*.parquet", 3)  # and what is in x
    require_few_entries(tmp_path / "*" / "x" / "*.parquet", 8)  # a, b; x, y twice; a file twice
    for path, count in (
        (tmp_path / "a" / "*.parquet", 2),
        (tmp_path / "a" / "x*" / "*.parquet", 3),
        (tmp_path / "*" / "x" / "*.parquet", 8),
        (tmp_path / "**" / "*.parquet", 10),
        (tmp_path / "**", 10),
        (tmp_path, 10),
    ):
        require_few_entries(path, count)
        with pytest.raises(InputFileError, match=f"at most {count - 1} entries"):
            require_few_entries(path, count - 1)


def test_a_file_of_another_size_is_not_read(
    result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = tmp_path / "large.parquet"
    with large.open("wb") as file:
        file.truncate(2**43)  # nothing but a hole, which would take a day to read
    change(result, path=str(large), relative=None)
    assert main(["verify", str(result)]) == 1
    assert "8796093022208 bytes" in capsys.readouterr().out


def test_a_person_s_word_counts_and_the_digest_still_does(result: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved.parquet"
    (result.parent / "pool.parquet").rename(moved)
    manifest = load_manifest(result)
    with pytest.raises(InputFileError, match="there is no such file"):
        recorded_inputs(result, manifest)
    inputs = recorded_inputs(result, manifest, [str(moved)])
    assert isinstance(inputs, Inputs)
    assert len(inputs.pool.features) == ROWS
    pq.write_table(pq.read_table(moved).slice(1), moved)
    with pytest.raises(InputFileError, match="another digest"):
        recorded_inputs(result, manifest, [str(moved)])


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
    manifest["arguments"]["memory"] = "1000TB"
    path.write_text(json.dumps(manifest))
    asked = []
    monkeypatch.setattr(
        "uniproto.data.tables.memory_budget", lambda memory: asked.append(memory) or 2**30
    )
    assert main(["verify", str(result)]) == 0
    assert set(asked) == {None}


def _bomb(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _plan_bomb(folder: Path) -> None:
    with np.load(folder / "plan.npz") as archive:
        arrays = dict(archive)
    replace(folder, "plan.npz", _bomb(**{**arrays, "data": np.zeros(20_000_000)}))


def _price_bomb(folder: Path) -> None:
    replace(folder, "certificate.npz", _bomb(prices=np.zeros(20_000_000)))


def _table_bomb(folder: Path) -> None:
    table = pq.read_table(folder / "selection.parquet")
    buffer = io.BytesIO()
    pq.write_table(table.select(["rank", "gain"]).take(np.zeros(20_000_000, np.int64)), buffer)
    replace(folder, "selection.parquet", buffer.getvalue())


@pytest.mark.parametrize("pack", [_plan_bomb, _price_bomb, _table_bomb])
def test_packed_zeros_are_not_unpacked(
    pack: Callable[[Path], None], result: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "free_bytes", lambda: 2**26)
    pack(result)
    with PeakMemory() as peak, pytest.raises(InputFileError, match="damaged"):
        Selection.load(result)
    assert peak.bytes is None or peak.bytes < 60 * 2**20
    assert main(["verify", str(result)]) in (1, 2)


def test_packed_rows_are_not_unpacked(result: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = pq.read_table(result / "prototypes.parquet")
    buffer = io.BytesIO()
    pq.write_table(table.take(np.zeros(8_000_000, np.int64)), buffer)
    replace(result, "prototypes.parquet", buffer.getvalue())
    with PeakMemory() as peak:
        assert main(["verify", str(result)]) == 2
    assert peak.bytes is None or peak.bytes < 150 * 2**20
    assert "of different selections" in capsys.readouterr().err


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


def test_a_list_of_moves_that_is_a_pipe(result: Path) -> None:
    (result / ".uniproto").mkdir(exist_ok=True)
    os.mkfifo(result / ".uniproto" / "publish.json")
    assert main(["verify", str(result)]) == 0


def test_a_manifest_without_end(result: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uniproto.selection.storage._MOST_BYTES_OF_RECORD", 100)
    with pytest.raises(InputFileError, match="larger than any"):
        Selection.load(result)


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
        assert f"uniproto: error: {address}: the input must be a file of this machine." in error
        assert "--engine ray" in error


def test_an_address_in_a_store_in_python() -> None:
    import uniproto

    with pytest.raises(InputFileError, match=r"^s3://bucket/pool\.npy: .*uniproto\.scale\.select"):
        uniproto.select(Path("s3://bucket/pool.npy"), 2)
