"""`uniproto pretrain`: from a corpus to curves, killed and gone on, and told what is wrong."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.lm.pretraining.tiny import WORDS, words
from tests.refusals import refused

from uniproto.cli import main
from uniproto.errors import InvalidInputError, OutputError
from uniproto.lm.pretraining import pretrain as pretraining
from uniproto.lm.pretraining import train as training_loop
from uniproto.lm.pretraining.checkpoints import CHECKPOINTS, Checkpoints
from uniproto.lm.pretraining.pretrain import (
    PretrainSettings,
    pretrain,
    remove_run,
)
from uniproto.lm.pretraining.tokens import (
    TRAIN,
    batch_numbers,
    load_tokens,
)
from uniproto.runs.journal import MetricsFile, read_metrics
from uniproto.runs.lock import locked
from uniproto.runtime.settings import described


def without_seconds(out):
    return [{k: v for k, v in row.items() if k != "seconds"} for row in read_metrics(out)]


def saved_arrays(out):
    """Every array of the last checkpoint, read without knowing the model."""
    import orbax.checkpoint as ocp

    last = max(int(p.name) for p in (out / CHECKPOINTS).iterdir() if p.name.isdigit())
    with ocp.StandardCheckpointer() as reader:
        tree = reader.restore((out / CHECKPOINTS / str(last) / "state").resolve())
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def assert_same_end(one, other):
    assert without_seconds(one) == without_seconds(other)
    a, b = saved_arrays(one), saved_arrays(other)
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_array_equal(np.asarray(a[name]), np.asarray(b[name]), err_msg=name)


@pytest.fixture
def no_curves(monkeypatch):
    """Drawing takes longer than training does here."""
    monkeypatch.setattr(pretraining, "save_curves", lambda *given: None)


def error_of(capsys, arguments):
    try:
        status = main(arguments)
    except SystemExit as stopped:  # an option that is refused before the command runs
        status = stopped.code
    assert status == 2
    return capsys.readouterr().err


def test_a_run_ends_with_curves_metrics_and_checkpoints(tokens, whole):
    rows = read_metrics(whole)
    assert [row["step"] for row in rows] == [0, 2, 3, 4, 6, 8, 9, 10, 12]
    validated = [row["step"] for row in rows if row["val_loss"] is not None]
    assert validated == [0, 3, 6, 9, 12]
    assert rows[0]["train_loss"] is None
    assert rows[-1]["val_loss"] < rows[0]["val_loss"]
    assert [row["tokens"] for row in rows] == [row["step"] * 4 * 16 for row in rows]
    assert [row["seconds"] for row in rows] == sorted(row["seconds"] for row in rows)
    assert all(row["selection_cost"] > 0 and row["kept"] == 4 for row in rows[1:])
    for ending in ("csv", "png"):
        assert (whole / f"curves.{ending}").stat().st_size > 0
    kept = sorted(int(p.name) for p in (whole / CHECKPOINTS).iterdir() if p.name.isdigit())
    assert kept == [10, 12]
    result = json.loads((whole / "result.json").read_text())
    assert result["last"] == rows[-1]
    assert main(words(tokens, whole, "--steps", "12")) == 0  # nothing is left to do
    assert read_metrics(whole) == rows


def test_every_setting_is_an_option_with_help_and_nothing_else_is(capsys):
    with pytest.raises(SystemExit):
        main(["pretrain", "--help"])
    shown = capsys.readouterr().out
    assert shown.count("\n") <= 100
    assert shown.index("--data") < shown.index("more options") < shown.index("--eval-steps")
    options = {each.name.replace("_", "-") for each in described(PretrainSettings)}
    found = set(re.findall(r"^  (?:-\w(?: \w+)?, )?--([\w-]+)", shown, re.MULTILINE))
    assert found == options | {"help", "fresh", "prepare-only", "export"}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
def test_killed_and_run_again_gives_the_same_as_one_run(tokens, whole, tmp_path, no_curves):
    out = tmp_path / "killed"
    # Rows and checkpoints fall on different steps, so the kill leaves both behind each other.
    arguments = words(tokens, out, "--steps", "12", "--save-steps", "5")
    running = subprocess.Popen([sys.executable, "-m", "uniproto", *arguments])
    deadline = time.monotonic() + 200
    while not any(p.name == "5" for p in (out / CHECKPOINTS).glob("*")):
        assert time.monotonic() < deadline
        if running.poll() is not None:
            break
        time.sleep(0.002)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    assert not (out / "result.json").exists()
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "train_lo')
    assert main(arguments) == 0
    assert_same_end(out, whole)
    lines = (out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 2, 3, 4, 6, 8, 9, 10, 12]


@pytest.mark.slow
def test_stopped_then_ended_then_given_more_steps(
    tokens, whole, tmp_path, capsys, monkeypatch, no_curves
):
    real = training_loop.read_ahead

    def interrupting(sequences, steps, *given):
        for step, batch in zip(steps, real(sequences, steps, *given), strict=True):
            if step == 6 and steps.start == 0:
                signal.raise_signal(signal.SIGINT)
            yield batch

    monkeypatch.setattr(training_loop, "read_ahead", interrupting)
    arguments = words(tokens, tmp_path, "--steps", "9", "--save-steps", "100")
    arguments.remove("--quiet")
    assert main(arguments) == 130
    said = capsys.readouterr()
    assert "uniproto: interrupted; the same command goes on from the last checkpoint." in said.err
    for part in ("parameters", "9 steps"):
        assert part in said.out
    assert (tmp_path / CHECKPOINTS / "6").is_dir()
    assert main(arguments) == 0
    assert "3 steps after 6" in capsys.readouterr().out
    assert main(words(tokens, tmp_path, "--steps", "12")) == 0
    assert_same_end(tmp_path, whole)
    assert "steps = 12 in the folder, 6 now" in error_of(
        capsys, words(tokens, tmp_path, "--steps", "6")
    )


def test_another_configuration_is_refused_with_the_difference(tokens, whole, capsys):
    before = without_seconds(whole)
    told = error_of(capsys, words(tokens, whole, "--steps", "12", "--keep", "2", "--seed", "1"))
    assert "keep = 4 in the folder, 2 now; seed = 0 in the folder, 1 now" in told
    assert "--fresh" in told
    (whole / "result.json").rename(whole / "hidden.json")  # now only the checkpoint can tell
    try:
        told = error_of(capsys, words(tokens, whole, "--steps", "12", "--keep", "2"))
        assert "keep = 4 in the folder, 2 now" in told
    finally:
        (whole / "hidden.json").rename(whole / "result.json")
    assert without_seconds(whole) == before


@pytest.mark.slow
def test_nan_stops_with_the_step_and_keeps_the_pool(tokens, tmp_path, capsys, monkeypatch):
    real = training_loop.make_step

    def poisoned(*given):
        step = real(*given)

        def with_nan(state, pool):
            at = int(state.step)
            state, report = step(state, pool)
            if at == 4:  # the fifth step, between two rows and after a checkpoint
                report = report._replace(
                    loss=report.loss * np.nan, finite=jax.numpy.zeros((), bool)
                )
            return state, report

        return with_nan

    monkeypatch.setattr(training_loop, "make_step", poisoned)
    told = error_of(capsys, words(tokens, tmp_path))
    assert "Step 5 has loss nan" in told
    assert "nan_batch.npz" in told
    with np.load(tmp_path / "nan_batch.npz") as kept:
        assert kept["step"] == 5
        sequences = load_tokens(tokens).sequences(TRAIN, 16)
        expected = sequences.read(batch_numbers(4, 8, len(sequences), 0))
        np.testing.assert_array_equal(kept["tokens"], expected)
        assert kept["picks"].shape == (4,)
    assert [row["step"] for row in read_metrics(tmp_path)] == [0, 2, 3, 4]
    assert max(int(p.name) for p in (tmp_path / CHECKPOINTS).iterdir()) == 4
    assert not (tmp_path / "result.json").exists()

    def no_room(*given, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training_loop.np, "savez", no_room)
    told = error_of(capsys, words(tokens, tmp_path))  # from the last checkpoint
    assert "Step 5 has loss nan" in told
    assert "could not be written" in told


@pytest.mark.slow
def test_two_devices_train_the_same_model(tokens, tmp_path, no_curves):
    # Adam's first steps turn rounding into whole steps where a gradient is almost 0: keep them
    # small.
    asked = ("--method", "full", "--steps", "4", "--learning-rate", "1e-4")
    assert main(words(tokens, tmp_path / "one", *asked)) == 0
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=2"
    environment = {**os.environ, "XLA_FLAGS": flags}
    arguments = words(tokens, tmp_path / "two", *asked, "--devices", "2")
    subprocess.run(
        [sys.executable, "-m", "uniproto", *arguments], env=environment, check=True, timeout=300
    )
    one, two = read_metrics(tmp_path / "one"), read_metrics(tmp_path / "two")
    assert one[-1]["kept"] == two[-1]["kept"] == 8
    for name in ("train_loss", "val_loss"):
        a, b = ([row[name] for row in rows if row[name] is not None] for rows in (one, two))
        np.testing.assert_allclose(a, b, rtol=1e-4)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--keep", "9"], "--keep must not exceed pool=8"),
        (["--pool", "7000"], "must hold 7000 training sequences"),
        (["--length", "4000", "--pool", "1", "--keep", "1"], "4000 + 1"),
        (["--steps", "0"], "--steps must be at least 1"),
        (["--plan", "entropy"], "Did you mean 'entropic'?"),
        (["--devices", "3"], "--pool must be a multiple of the 3 devices"),
        (["--devices", "4"], "--devices must not exceed"),
        (["--vocab-size", "999"], "in the folder, 999 now"),
        (["--seed", str(2**32)], "--seed must be from 0 to 2^32 - 1"),
    ],
)
def test_bad_options_are_told_before_anything_is_written(tokens, tmp_path, capsys, more, told):
    assert told in error_of(capsys, words(tokens, tmp_path / "run", *more))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_other_bad_input(corpus, tmp_path):
    with refused("data", InvalidInputError):
        PretrainSettings(out=str(tmp_path))
    with refused("size", InvalidInputError):
        pretrain(PretrainSettings(out=str(tmp_path), data=str(corpus), size="60M", quiet=True))
    short = tmp_path / "texts" / "short.txt"
    short.parent.mkdir()
    short.write_text("not much")
    with refused("data", InvalidInputError):
        pretrain(
            PretrainSettings(out=str(tmp_path / "a"), data=str(short), size="tiny", quiet=True)
        )
    long = tmp_path / "one.jsonl"  # whole documents are held out, and here is but one
    long.write_text(json.dumps({"text": " ".join(WORDS * 2000)}))
    with refused("validation", InvalidInputError):
        pretrain(PretrainSettings(out=str(tmp_path / "c"), data=str(long), length=8, quiet=True))
    with refused("validation", InvalidInputError):
        pretrain(
            PretrainSettings(
                out=str(tmp_path / "b"), data=str(corpus), size="tiny", validation=0.9, quiet=True
            )
        )


@pytest.mark.slow
# Threads of Orbax may still be reading when the damage has ended the reading.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_damaged_checkpoint_is_told(tokens, whole, tmp_path, capsys, no_curves):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    (tmp_path / "result.json").unlink()
    for part in ("run/metadata", "state/manifest.ocdbt"):
        damaged = tmp_path / CHECKPOINTS / "12" / part
        content = damaged.read_bytes()
        damaged.write_bytes(b"{")
        told = error_of(capsys, words(tokens, tmp_path, "--steps", "12"))
        assert "checkpoints/12: the checkpoint could not be read" in told
        assert "Move this folder away" in told
        damaged.write_bytes(content)
    shutil.rmtree(tmp_path / CHECKPOINTS / "12")  # as told
    assert main(words(tokens, tmp_path, "--steps", "12")) == 0
    assert_same_end(tmp_path, whole)


def test_a_run_without_its_checkpoints_is_kept_or_forgotten(tokens, whole, tmp_path, capsys):
    out = tmp_path / "run"
    shutil.copytree(whole, out, ignore=shutil.ignore_patterns(CHECKPOINTS))
    before = read_metrics(out)
    told = error_of(capsys, words(tokens, out, "--steps", "14"))
    assert "the last checkpoint is gone" in told
    assert read_metrics(out) == before
    assert (out / "result.json").exists()
    remove_run(out)
    assert {path.name for path in out.iterdir()} <= {".lock", CHECKPOINTS}


@pytest.mark.parametrize("more", [[], ["--fresh"]])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metrics.jsonl", '{"step": 1, "loss": 2.0}\n'),
        ("metrics.jsonl", "notes\n"),
        ("result.json", '{"mine": true}'),
        ("curves.csv", "a,b\n"),
    ],
)
def test_files_of_somebody_else_are_not_touched(tokens, tmp_path, capsys, more, name, content):
    (tmp_path / name).write_text(content)
    told = error_of(capsys, words(tokens, tmp_path, *more))
    assert f"holds {name}, which uniproto did not write" in told
    assert (tmp_path / name).read_text() == content


def test_starting_over_removes_only_the_files_of_the_run(whole, tmp_path):
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    mine = [
        *(tmp_path / name for name in ("curves.txt", "notes.md")),
        *(tmp_path / CHECKPOINTS / name for name in ("notes.md", "7/model.bin", "8")),
    ]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    remove_run(tmp_path)
    left = {path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"}
    assert left == set(mine)


def test_two_runs_in_one_folder_are_refused(tokens, tmp_path, capsys):
    pytest.importorskip("fcntl")
    with locked(tmp_path):
        assert "another run is writing" in error_of(capsys, words(tokens, tmp_path))
    assert not (tmp_path / "metrics.jsonl").exists()


def test_a_checkpoint_without_room_is_told_once(tmp_path, capfd):
    resource = pytest.importorskip("resource")
    checkpoints = Checkpoints(tmp_path)
    kept, lost = ({"n": jax.numpy.arange(size) ** 2} for size in (8, 300_000))
    checkpoints.save(1, kept, {"configuration": {}})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(OutputError, match=r"Writing failed \(File too large\)"):
            checkpoints.save(2, lost, {"configuration": {}})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    checkpoints.close()
    assert "Traceback" not in capfd.readouterr().err
    again = Checkpoints(tmp_path)
    assert again.latest().step == 1
    again.close()
    assert [path.name for path in (tmp_path / CHECKPOINTS).iterdir()] == ["1"]


def test_metrics_drop_what_is_made_again(tmp_path):
    metrics = MetricsFile(tmp_path, None)
    for step in range(4):
        metrics.add({"step": step, "train_loss": float("nan")})
    assert read_metrics(tmp_path)[0]["train_loss"] is None
    assert [row["step"] for row in MetricsFile(tmp_path, 2).rows] == [0, 1, 2]
    assert MetricsFile(tmp_path, None).rows == []
    assert Path(tmp_path / "metrics.jsonl").read_text() == ""
