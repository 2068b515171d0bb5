"""Parts of an experiment side by side: all done, some failed, stopped by the clock, gone on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.runs import Setup
from support.side_by_side import run_parts, run_side_by_side
from uniproto.cli import main
from uniproto.cli.experiment import load_script
from uniproto.errors import UniprotoError

SCRIPT = """
import os, time
from support.joined import publish_joined
from support.runs import Runs
PARTS = ["a", "b", "c", "d", "slow"]
TITLE = "a trial"
def run(setup):
    rows = []
    for name in setup.parts(PARTS):
        if setup.finished_only and not (setup.out / f"{name}.jsonl").exists():
            continue
        runs = Runs(setup.out, name, {})
        if not runs.done(part=name) and not setup.finished_only:
            work(setup, name)
            runs.add({"part": name}, [{"process": os.getpid(), "cores": cores()}])
        rows += runs.rows
    if not setup.waits_for_others(setup.parts(PARTS)):
        print("joined", *(row["part"] for row in rows))
def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
def work(setup, name):
    if name == "slow" and not (setup.out / "hurry").exists():
        time.sleep(60)
    if name == "b" and (setup.out / "broken").exists():
        raise ValueError("b is broken")
    if name == "c" and (setup.out / "deadly").exists():
        os._exit(7)
    if name == "d" and (setup.out / "full").exists():
        with open(setup.out / "full", "a") as file:
            file.write("x")
        if (setup.out / "full").stat().st_size < 3 or (setup.out / "never").exists():
            raise OutOfMemoryError("CUDA out of memory.")
class OutOfMemoryError(RuntimeError):
    pass
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "experiments" / "trial.py"
    path.parent.mkdir()
    path.write_text(SCRIPT)
    return path


def asked(tmp_path: Path, *notes: str) -> Setup:
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    for note in notes:
        (out / note).touch()
    return Setup(None, out)


def test_all_parts_run_in_other_processes_and_are_joined(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = asked(tmp_path, "hurry")
    run_side_by_side(load_script(script).run, setup, ["a", "b", "c", "d", "slow"], 2, None)
    told = capsys.readouterr().out
    assert "5 parts done, 0 failed, 0 left." in told
    assert told.splitlines()[-1] == "joined a b c d slow"
    processes = {path.read_text().split('"process": ')[1] for path in setup.out.glob("*.jsonl")}
    assert f"{os.getpid()}" not in {text.split(",")[0] for text in processes}


def test_a_part_that_fails_stops_no_other(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = asked(tmp_path, "hurry", "broken", "deadly")
    run = load_script(script).run
    with pytest.raises(UniprotoError, match=r"2 of 5 parts failed \(b, c\)"):
        run_side_by_side(run, setup, ["a", "b", "c", "d", "slow"], 1, None)
    told = capsys.readouterr()
    assert "ValueError: b is broken" in told.err
    assert "its process ended with exit code 7" in told.err
    assert told.out.splitlines()[-1] == "joined a d slow"
    for name in ("broken", "deadly"):
        (setup.out / name).unlink()
    run_side_by_side(run, setup, ["a", "b", "c", "d", "slow"], 1, None)
    assert capsys.readouterr().out.splitlines()[-1] == "joined a b c d slow"


@pytest.mark.slow
def test_a_part_that_found_the_card_full_comes_again(script: Path, tmp_path: Path) -> None:
    setup = asked(tmp_path, "full")
    outcome = run_parts(script, setup, ["d", "a", "b"], 1)
    assert outcome.done == ["a", "b", "d"]
    assert outcome.failed == {}
    (setup.out / "d.jsonl").unlink()
    outcome = run_parts(script, asked(tmp_path, "never"), ["d"], 1)
    assert list(outcome.failed) == ["d"]
    assert (setup.out / "full").read_text() == "x" * (3 + 3)


@pytest.mark.slow
def test_the_clock_stops_parts_and_the_same_command_goes_on(script: Path, tmp_path: Path) -> None:
    setup = asked(tmp_path)
    first = run_parts(script, setup, ["slow"], 1, seconds=1)
    assert (first.done, first.left) == ([], ["slow"])
    (setup.out / "hurry").touch()
    assert run_parts(script, setup, ["slow"], 1).done == ["slow"]


def test_processes_share_the_cores(script: Path, tmp_path: Path) -> None:
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two cores")
    setup = asked(tmp_path)
    before = os.sched_getaffinity(0)
    run_parts(script, setup, ["a", "b"], 2)
    assert os.sched_getaffinity(0) == before
    for name in ("a", "b"):
        assert f'"cores": {-(-len(before) // 2)}' in (setup.out / f"{name}.jsonl").read_text()


def test_only_experiments_in_parts_run_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--quick", "--out", str(tmp_path)]
    assert main(["experiment", "weights", "--side-by-side", "2", *out]) == 2
    assert "--side-by-side needs an experiment in parts" in capsys.readouterr().err
    assert main(["experiment", "finetuning", "--until", "9", *out]) == 2
    assert "--until needs --side-by-side" in capsys.readouterr().err


def test_a_whole_name_asks_for_that_part_alone() -> None:
    names = ["mawps_2000_1", "mawps_2000_10"]
    assert Setup(None, Path("out"), part="mawps_2000_1").parts(names) == ["mawps_2000_1"]
    assert Setup(None, Path("out"), part="mawps").parts(names) == names
