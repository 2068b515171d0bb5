"""The experiments: every script runs, rows survive a kill, and other settings are refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tests.refusals import refused

from support.runs import Runs, as_setup
from uniproto.cli import build_parser, main
from uniproto.cli.experiment import find_scripts, load_script
from uniproto.errors import InputFileError, InvalidInputError
from uniproto.runs.publish import Noted, noting

SCRIPTS = find_scripts()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "gains" else pytest.mark.slow) for name in SCRIPTS],
)
def test_every_experiment_runs_without_data(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("UNIPROTO_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    assert main(["experiment", name, "--quick", "--quiet"]) == 0
    folder = tmp_path / "out" / "experiments" / f"{name}-quick"
    first = capsys.readouterr().out
    assert str(folder.relative_to(tmp_path)) in first
    tables = sorted(folder.glob("*.csv"))
    assert tables
    for table in tables:
        stem = table.stem
        columns = pyarrow.csv.read_csv(table)
        assert columns.num_rows > 0
        assert columns.column_names == pq.read_table(folder / f"{stem}.parquet").column_names
        assert json.loads((folder / f"{stem}.json").read_text(encoding="utf-8"))["versions"]
    for chart in folder.glob("*.png"):
        assert chart.stat().st_size > 5_000
        assert chart.with_suffix(".svg").exists()
        assert chart.with_suffix(".html").exists()
    assert list(folder.glob(f"{name}*.png"))
    assert not list(folder.glob(".uniproto-*"))
    # Again: everything is there already, and the same is said of the same rows.
    monkeypatch.setattr("support.charts.save_chart_files", lambda *chart: None)
    rows = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}
    assert main(["experiment", name, "--quick", "--quiet"]) == 0
    assert capsys.readouterr().out == first
    assert rows == {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}


def test_the_list_names_every_experiment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment"]) == 0
    told = capsys.readouterr().out
    assert {"weights", "gains", "synthetic"} <= set(SCRIPTS)
    for name, path in SCRIPTS.items():
        assert name in told
        assert load_script(path).TITLE in told


def test_a_misspelt_name_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "weigths"]) == 2
    assert "Did you mean 'weights'?" in capsys.readouterr().err


@pytest.mark.slow
def test_a_script_runs_alone(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS["weights"]), "--quick", "--quiet", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "Claim:" in done.stdout
    assert (tmp_path / "weights.png").exists()


def test_missing_data_is_said_with_a_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--data", str(tmp_path), "--out", str(tmp_path / "out"), "--quiet"]
    assert main(["experiment", "weights", *asked]) == 2
    assert "cifar10" in capsys.readouterr().err


def test_rows_are_kept_in_order_with_their_keys(tmp_path: Path) -> None:
    runs = Runs(tmp_path, "trial", {"k": 3})
    assert not runs.done(seed=0, method="a")
    runs.add({"seed": 0, "method": "a"}, [{"cost": 0.5}, {"cost": 0.25, "note": "x"}])
    runs.add({"seed": 1, "method": "a"}, [])
    expected = [
        {"seed": 0, "method": "a", "cost": 0.5},
        {"seed": 0, "method": "a", "cost": 0.25, "note": "x"},
    ]
    assert runs.rows == expected
    del runs
    again = Runs(tmp_path, "trial", {"k": 3})
    assert again.rows == expected
    assert again.done(method="a", seed=0)
    assert again.done(method="a", seed=1)
    assert not again.done(seed=0)


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    Runs(tmp_path, "trial", {"k": 3, "metric": "cosine"})
    with pytest.raises(InvalidInputError, match=r"k = 3 in the folder, 4 now.*--out.*--fresh"):
        Runs(tmp_path, "trial", {"k": 4, "metric": "cosine"})


def test_fresh_forgets_our_rows_and_nothing_else(tmp_path: Path) -> None:
    Runs(tmp_path, "trial", {"k": 3}).add({"seed": 0}, [{"cost": 1.0}])
    other = tmp_path / "mine.jsonl"
    other.write_text('{"text": "not ours"}\n')
    options = build_parser().parse_args(["experiment", "trial", "--fresh", "--out", str(tmp_path)])
    as_setup(options, "trial")
    assert other.exists()
    assert Runs(tmp_path, "trial", {"k": 4}).rows == []


@pytest.mark.parametrize(
    "content", ['{"text": "my own file"}\n', '{"text": "my own file"}', '{"a": 1}\n{"a": 2}']
)
def test_a_file_of_something_else_is_left_alone(tmp_path: Path, content: str) -> None:
    path = tmp_path / "trial.jsonl"
    path.write_text(content)
    with pytest.raises(InputFileError, match="--out"):
        Runs(tmp_path, "trial", {})
    assert path.read_text() == content


def test_rows_must_be_tidy(tmp_path: Path) -> None:
    with refused("rows", InvalidInputError):
        Runs(tmp_path, "trial", {}).add({"seed": 0}, [{"indices": [1, 2]}])


def test_a_chart_that_fails_leaves_no_half_of_the_results(tmp_path: Path) -> None:
    class Broken:
        def to_dict(self) -> None:
            raise RuntimeError("no drawing today")

    runs = Runs(tmp_path, "trial", {})
    runs.add({"seed": 0}, [{"cost": 1.0}])
    with pytest.raises(RuntimeError, match="no drawing"):
        runs.publish({"trial": Broken()})
    assert [path.name for path in tmp_path.iterdir()] == ["trial.jsonl"]


def test_only_what_was_cut_down_has_a_full_size(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["experiment", "weights", "--full", "--out", str(tmp_path)]) == 2
    assert "--full needs an experiment that was cut down" in capsys.readouterr().err


def test_only_what_is_saved_is_promised(tmp_path: Path) -> None:
    noted = Noted()
    with noting(noted):
        runs = Runs(tmp_path, "trial", {"k": 3})
        assert noted.saved == ""
        runs.add({"seed": 0}, [{"cost": 0.5}])
        assert noted.saved == "the parts that are done"
