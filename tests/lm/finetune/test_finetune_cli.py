"""`uniproto finetune`: from a file to curves, killed and gone on, and told what is wrong."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import types
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from tests.lm.torchrun import run_twice
from tests.refusals import refused

from support.finetuning import tiny_model, validations
from uniproto.cli import main
from uniproto.cli.finetune import read_config
from uniproto.errors import InputFileError, InvalidInputError
from uniproto.lm.batches.methods import BATCH_METHODS
from uniproto.lm.features.tokens import SourcedExample, tokenise
from uniproto.lm.finetune.data import read_rows, split_places
from uniproto.lm.finetune.folder import claimed, last_checkpoint
from uniproto.lm.finetune.lora import lora_targets
from uniproto.lm.finetune.settings import FinetuneSettings, preset
from uniproto.lm.models import load_model
from uniproto.runs.journal import read_metrics


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return Path(tiny_model(tmp_path_factory.mktemp("model"), positions=64))


@pytest.fixture(autouse=True)
def _seldom_drawn(request, monkeypatch):
    """Drawing curves takes longer than training does here, and two tests look at them."""
    if request.function not in (
        test_run_ends_with_curves_metrics_and_a_model,
        test_last_step_is_validated_and_written_again_after_a_late_kill,
    ):
        monkeypatch.setattr("uniproto.lm.finetune.run.save_curves", lambda *curves: None)


def rows(count=80):
    draw = np.random.default_rng(0)
    found = []
    for _ in range(count):
        source = str(draw.choice(["add", "sub", "rare"], p=[0.6, 0.3, 0.1]))
        a, b = draw.integers(1, 50, 2)
        answer = {"add": a + b, "sub": a - b, "rare": "why?\u2028 because"}[source]
        found.append({"source": source, "instruction": f"{a} ? {b}", "output": str(answer)})
    return found


def write_rows(path, listed):
    path.write_text("".join(json.dumps(row) + "\n" for row in listed), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_rows(tmp_path_factory.mktemp("data") / "train.jsonl", rows())


def words(model_folder, data, out, *more):
    return [
        "finetune",
        *("--model", str(model_folder), "--data", str(data), "--out", str(out)),
        *("--pool", "12", "--keep", "4", "--steps", "4", "--lora-r", "4", "--lora-alpha", "8"),
        *("--learning-rate", "1e-2", "--max-length", "32", "--template", "Q {instruction} A"),
        *("--eval-steps", "2", "--save-steps", "2", "--device", "cpu", "--quiet"),
        *more,
    ]


def error_of(capsys, arguments):
    assert main(arguments) == 2
    return capsys.readouterr().err


def test_run_ends_with_curves_metrics_and_a_model(model_folder, data, tmp_path, capsys):
    out = tmp_path / "run"
    arguments = words(model_folder, data, out)
    arguments.remove("--quiet")
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "uniproto, per source: 4 of 12 examples, 4 steps" in said
    assert "before → after" in said
    steps = read_metrics(out)
    assert [row["step"] for row in steps] == [0, 1, 2, 3, 4]
    assert steps[0]["train_loss"] is None
    assert all(row["train_loss"] > 0 for row in steps[1:])
    assert [row["val_loss"] is not None for row in steps] == [True, False, True, False, True]
    assert set(steps[0]["val_loss_by_source"]) == {"add", "sub", "rare"}
    for row in steps[1:]:
        assert sum(row["selected"].values()) == row["kept"] == 4
        assert row["selection_cost"] <= row["selection_random_cost"] * 1.5
        assert 0 < row["selection_share"] <= 1
    assert [row["seconds"] for row in steps] == sorted(row["seconds"] for row in steps)
    for ending in ("csv", "png"):
        assert (out / f"curves.{ending}").stat().st_size > 0
    assert (out / "model" / "adapter_model.safetensors").exists()
    result = json.loads((out / "result.json").read_text())
    assert result["last"]["val_loss"] == steps[-1]["val_loss"]
    assert sum(result["train_rows"].values()) + sum(result["validation_rows"].values()) == 80
    assert main(arguments) == 0  # nothing is left to do
    assert read_metrics(out) == steps


@pytest.mark.slow
@pytest.mark.parametrize("method", ["colm", "full", "sbert"])
def test_methods_of_a_batch(model_folder, data, tmp_path, method, monkeypatch):
    if method == "sbert":  # the vectors of a real model are the business of test_features.py
        from uniproto import features

        class Found:
            def __init__(self, texts):
                self.vectors = np.random.default_rng(0).normal(size=(len(texts), 5))

        monkeypatch.setattr(features, "embed_text", lambda texts, **_: Found(texts), raising=False)
    out = tmp_path / "run"
    more = ("--method", method, "--mode", "batch", "--steps", "2", "--validation", "0")
    assert main(words(model_folder, data, out, *more)) == 0
    kept = [row["kept"] for row in read_metrics(out)]
    assert kept == ([12, 12] if method == "full" else [4, 4])


@pytest.mark.slow
def test_killed_and_run_again_gives_the_same_as_one_run(model_folder, data, tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    more = ("--steps", "24", "--method", "uniproto")
    assert main(words(model_folder, data, whole, *more)) == 0
    running = subprocess.Popen(
        [sys.executable, "-m", "uniproto", *words(model_folder, data, killed, *more)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    deadline = time.monotonic() + 200
    while last_checkpoint(killed) is None and time.monotonic() < deadline:
        assert running.poll() is None, running.stderr.read()
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    running.stderr.close()
    assert not (killed / "result.json").exists()
    stopped_at = last_checkpoint(killed)
    assert stopped_at is not None
    torn = killed / "checkpoint-23"  # as a kill amid saving would leave it
    torn.mkdir(exist_ok=True)
    with (killed / "metrics.jsonl").open("a") as file:
        file.write('{"step": 23, "train_lo')
    assert main(words(model_folder, data, killed, *more)) == 0
    first, second = read_metrics(whole), read_metrics(killed)
    assert [row["step"] for row in first] == [row["step"] for row in second] == list(range(25))
    for name in ("train_loss", "val_loss", "selected", "val_loss_by_source"):
        assert [row.get(name) for row in first] == [row.get(name) for row in second], name


@pytest.mark.slow
def test_two_processes_train_one_model_and_leave_together(model_folder, data, tmp_path):
    """The processes must find one another: two first ones would lock each other out."""
    out = tmp_path / "run"
    run_twice("-m", "uniproto", *words(model_folder, data, out, "--device", "auto"))
    assert [row["kept"] for row in read_metrics(out)[1:]] == [8] * 4  # 2 processes × 4
    assert json.loads((out / "result.json").read_text())["last"]["step"] == 4


CHAT = (
    "{% for m in messages %}{{ m['role'][0] + ':' + m['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'a:' }}{% endif %}"
)


@pytest.fixture(scope="module")
def chat_folder(model_folder, tmp_path_factory):
    """The same model, whose tokenizer has a chat template."""
    folder = tmp_path_factory.mktemp("chat") / "model"
    shutil.copytree(model_folder, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


def test_chats_are_laid_out_by_the_tokenizer_and_all_answers_are_learned(chat_folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(chat_folder)
    turns = [*talk("1+1", "2"), *talk("2+2", "4")]
    found, _ = tokenise(
        [SourcedExample("s", turns), SourcedExample("s", turns[:2])],
        tokenizer,
        max_length=40,
        too_long="truncate",
        template="Q{instruction}A",
    )
    text = [tokenizer.decode([token]) for token in found[0]["input_ids"]]
    assert "".join(text) == "u:1+1\na:2\nu:2+2\na:4\n"
    learned = [each for each, label in zip(text, found[0]["labels"], strict=True) if label != -100]
    assert learned == ["2", "\n", "4", "\n"]
    by_template, _ = tokenise(
        [SourcedExample("s", ("1+1", "2"))], tokenizer, 40, "truncate", "chat"
    )
    assert by_template[0] == found[1]
    assert found.texts[1] == "1+1\n\n2"


@pytest.mark.slow
def test_messages_several_files_and_validation_data(chat_folder, tmp_path):
    listed = [
        {"source": row["source"], "messages": talk(row["instruction"], row["output"])}
        for row in rows()
    ]
    first = write_rows(tmp_path / "first.jsonl", listed[:40])
    second = write_rows(tmp_path / "second.jsonl", listed[40:70])
    held = write_rows(tmp_path / "held.jsonl", listed[70:])
    out = tmp_path / "run"
    more = ("--data", str(second), "--messages", "messages", "--validation-data", str(held))
    assert main(words(chat_folder, first, out, *more, "--steps", "2")) == 0
    result = json.loads((out / "result.json").read_text())
    assert sum(result["train_rows"].values()) == 70
    assert sum(result["validation_rows"].values()) == 10
    assert result["settings"]["data"] == [str(first), str(second)]
    write_rows(held, listed[69:])  # other data are another run
    assert main(words(chat_folder, first, out, *more, "--steps", "2")) == 2


def test_a_config_file_holds_options_and_those_given_win(model_folder, data, tmp_path, capsys):
    out = tmp_path / "run"
    config = tmp_path / "run.yaml"
    config.write_text(
        f"model: {model_folder}\ndata: [{data}]\nout: {out}\npool: 12\nkeep: 4\nsteps: 9\n"
        "lora-r: 4\nlearning-rate: 1e-2\nmax-length: 32\ntemplate: Q {instruction} A\n"
        "device: cpu\nquiet: true\nmerge: true\nkeep-small: [rare]\n"
    )
    assert main(["finetune", "--config", str(config), "--steps", "2"]) == 0
    settings = json.loads((out / "result.json").read_text())["settings"]
    assert (settings["steps"], settings["learning_rate"], settings["lora_alpha"]) == (2, 0.01, None)
    # merged: a whole model, without adapters, that loads as it is
    assert not (out / "model" / "adapter_model.safetensors").exists()
    merged, _ = load_model(str(out / "model"))
    plain, _ = load_model(str(model_folder))
    moved = [
        name
        for (name, ours), theirs in zip(merged.named_parameters(), plain.parameters(), strict=True)
        if not torch.equal(ours, theirs)
    ]
    assert moved
    assert all("_proj" in name for name in moved)
    config.write_text("stepz: 3\n")
    assert "Did you mean 'steps'" in error_of(capsys, ["finetune", "--config", str(config)])
    config.write_text("just words")
    assert "must hold options in YAML" in error_of(capsys, ["finetune", "--config", str(config)])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bf16: 'false'", "--bf16: must be true or false, not 'false'"),
        ("adam-aligned: 'no'", "--adam-aligned: must be true or false, not 'no'"),
        ("device: gpu", "--device must be one of auto, cpu"),
        ("max-length: many", "--max-length: must be a whole number, not 'many'"),
        ("learning-rate: [1, 2]", "--learning-rate: must be a number, not '1,2'"),
        ("template: 7", "--template must hold {instruction}"),
        ("lora-targets: [q_proj, nowhere]", "has no nowhere"),
        ("keep-small: logic,law", "have no logic, law"),
        ("keep-small: 1", "must lie between 0 and 1"),
        ("data: 5", "5: the file name must end in one of"),
        ("model: 5", "5: the model must be a model's folder"),
        ("report-to: [a]", "--report-to"),
    ],
)
def test_a_config_file_is_read_as_the_command_line_is(
    model_folder, data, tmp_path, capsys, line, said
):
    config = tmp_path / "run.yaml"
    base = {"model": model_folder, "data": data, "pool": 12, "keep": 4, "max-length": 32}
    name = line.partition(":")[0]
    kept = [f"{key}: {value}" for key, value in base.items() if key != name]
    config.write_text("\n".join([*kept, line]))
    arguments = ["finetune", "--config", str(config), "--out", str(tmp_path / "run")]
    assert said in error_of(capsys, arguments)


def test_an_option_without_a_value_in_a_config_file_is_not_given(tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("learning-rate:\nsource:\nkeep-small: rare\nadam-aligned: no\nmerge: no\n")
    assert read_config(str(config)) == {
        "source": None,
        "keep_small": ("rare",),
        "adam_aligned": False,
        "merge": False,
    }


@pytest.mark.slow
def test_data_sets_on_the_hub_are_read_by_name(model_folder, tmp_path, monkeypatch, capsys):
    asked = []

    class Found:
        _fingerprint = "f00"

        def to_parquet(self, path):
            pq.write_table(pa.Table.from_pylist(rows()), path)

    def load_dataset(name, configuration, split):
        asked.append((name, split))
        if name == "nobody/nothing":
            raise FileNotFoundError("Dataset 'nobody/nothing' doesn't exist on the Hub")
        return Found()

    monkeypatch.setenv("UNIPROTO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    out = tmp_path / "run"
    arguments = words(model_folder, "somebody/sums:test", out, "--steps", "1")
    assert main(arguments) == 0
    assert asked == [("somebody/sums", "test")]
    assert "doesn't exist" in error_of(
        capsys, words(model_folder, "nobody/nothing", tmp_path / "b")
    )
    monkeypatch.setitem(sys.modules, "datasets", None)
    said = error_of(capsys, words(model_folder, "somebody/sums", tmp_path / "b"))
    assert "pip install datasets" in said


@pytest.mark.slow
def test_small_sources_are_kept_whole(model_folder, data, tmp_path):
    """`rare` is a tenth of the data: all of its examples are trained on, whatever the method."""
    out = tmp_path / "run"
    more = ("--method", "random", "--keep-small", "0.2", "--keep", "20", "--steps", "3")
    assert main(words(model_folder, data, out, *more, "--pool", "60")) == 0
    rare = json.loads((out / "result.json").read_text())["train_rows"]["rare"]
    first = read_metrics(out)[1]  # a pool of nearly all rows
    assert rare - 8 <= first["selected"]["rare"] <= rare
    assert first["selected"]["rare"] > rare / 2  # its share of 20 would be a third of it
    assert sum(first["selected"].values()) == 20


@pytest.mark.slow
def test_the_scale_of_adapters_follows_their_rank(model_folder, data, tmp_path, monkeypatch):
    from uniproto.lm.finetune import run

    found = []
    monkeypatch.setattr(run, "finetune", lambda settings, fresh: found.append(settings) or {})
    for more in (
        ("--lora-r", "8"),
        ("--preset", "superglue", "--lora-r", "8"),
        ("--lora-r", "128"),
    ):
        arguments = ["finetune", "--model", str(model_folder), "--data", str(data)]
        assert main([*arguments, "--out", str(tmp_path / "run"), *more]) == 0
    assert [settings.usual_lora_alpha for settings in found] == [32, 32, 512]


@pytest.mark.slow
def test_other_settings_are_refused_until_fresh(model_folder, data, tmp_path, capsys):
    out = tmp_path / "run"
    short = ("--steps", "1", "--method", "random", "--validation", "0")
    assert main(words(model_folder, data, out, *short)) == 0
    capsys.readouterr()
    said = error_of(capsys, words(model_folder, data, out, *short, "--seed", "5"))
    assert "seed = 0 in the folder, 5 now" in said
    assert "--fresh" in said
    assert main(words(model_folder, data, out, *short, "--seed", "5", "--fresh")) == 0
    assert json.loads((out / "result.json").read_text())["settings"]["seed"] == 5


@pytest.mark.slow
def test_last_step_is_validated_and_written_again_after_a_late_kill(model_folder, data, tmp_path):
    out = tmp_path / "run"
    arguments = words(model_folder, data, out, "--steps", "3", "--eval-steps", "2")
    assert main(arguments) == 0
    steps = read_metrics(out)
    assert [row["val_loss"] is not None for row in steps] == [True, False, True, True]
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 4
    result = json.loads((out / "result.json").read_text())
    for path in (out / "result.json", *out.glob("curves.*")):  # as if killed before these
        path.unlink()
    assert main(arguments) == 0
    assert json.loads((out / "result.json").read_text()) == result
    assert (out / "curves.png").exists()


@pytest.mark.slow
def test_full_fine_tuning_without_lora_or_sources(model_folder, tmp_path):
    plain = [{"q": row["instruction"], "a": row["output"]} for row in rows()]
    path = write_rows(tmp_path / "plain.jsonl", plain)
    out = tmp_path / "run"
    more = ("--lora-r", "0", "--no-source", "--prompt", "q", "--answer", "a", "--steps", "2")
    assert main(words(model_folder, path, out, *more, "--accumulate", "2", "--bf16")) == 0
    assert (out / "model" / "model.safetensors").exists()
    assert [row["kept"] for row in read_metrics(out)[1:]] == [8, 8]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["uniproto", "greats"])
def test_short_memory(model_folder, data, tmp_path, method):
    """bfloat16 weights under LoRA, checkpointing, few examples at a time."""
    out = tmp_path / "run"
    more = ("--bf16", "--gradient-checkpointing", "--micro-batch", "3", "--score-batch-size", "5")
    assert main(words(model_folder, data, out, "--method", method, *more, "--steps", "3")) == 0
    assert [row["kept"] for row in read_metrics(out)[1:]] == [4, 4, 4]
    assert read_metrics(out)[-1]["val_loss"] < read_metrics(out)[0]["val_loss"]


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--pool", "3", "--keep", "4"), "--keep must not exceed pool=3"),
        (("--pool", "500"), "--pool 500 must not exceed the"),
        (
            ("--source", "origin"),
            "--source must be one of instruction, output",
        ),
        (("--answer", "reply"), "Name them: --prompt and --answer"),
        (("--max-length", "8", "--too-long", "refuse"), "choose --too-long truncate or skip"),
        (("--max-length", "900"), "model's context of 64 tokens"),
        (("--template", "nothing"), "--template must hold {instruction}"),
        (("--layer", "nowhere"), "must name one linear layer"),
        (("--lora-targets", "w_q"), "the model, which has no w_q"),
        (("--model", "/nowhere/at/all"), "There is no such folder or file"),
        (("--steps", "0"), "--steps must be at least 1"),
        (("--lora-r", "-1"), "--lora-r must be at least 0"),
        (("--lora-dropout", "2"), "--lora-dropout 2.0 must be from 0 to below 1"),
        (("--learning-rate", "nan"), "--learning-rate"),
        (("--seed", "4294967296"), "--seed 4294967296 must be from 0"),
        (("--report-to", "paper"), "that is installed, not 'paper'"),
        (("--report-to", "wandb"), "pip install wandb"),
        (("--quantize", "4bit"), "pip install bitsandbytes"),
        (("--lora-r", "0", "--merge"), "--merge needs adapters"),
        (("--template", "chat"), "no chat template of its own"),
        (("--messages", "chat"), "Name them: --prompt"),
        (("--scheduler", "cosine_with_min_lr"), "training arguments"),
        (("--validation", "1.5"), "--validation must lie between"),
        (("--scheduler", "zigzag"), "training arguments"),
        (("--data", "/nowhere.jsonl"), "there is no such file"),
        (("--data", "table.txt"), "must end in one of .csv, .json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_errors_say_what_to_do(model_folder, data, tmp_path, capsys, more, said):
    message = error_of(capsys, words(model_folder, data, tmp_path / "run", *more))
    assert message.startswith("uniproto: error: ")
    assert said in message
    assert "Traceback" not in message
    assert not (tmp_path / "run").exists()  # a refused command leaves nothing


def test_a_refused_command_forgets_no_earlier_run(model_folder, data, tmp_path, capsys):
    out = tmp_path / "run"
    short = ("--steps", "1", "--method", "random", "--validation", "0")
    assert main(words(model_folder, data, out, *short)) == 0
    there = {path.name for path in out.iterdir()}
    for wrong in (("--model", "/nowhere/at/all"), ("--answer", "reply"), ("--pool", "500")):
        assert main(words(model_folder, data, out, *short, *wrong, "--fresh")) == 2
    assert {path.name for path in out.iterdir()} == there


def test_two_runs_in_one_folder_are_refused(model_folder, data, tmp_path, capsys):
    pytest.importorskip("fcntl")
    asked = FinetuneSettings(model=str(model_folder), data=str(data), out=str(tmp_path))
    with claimed(tmp_path, asked, fresh=False):
        assert "another run is writing" in error_of(capsys, words(model_folder, data, tmp_path))
    assert not (tmp_path / "metrics.jsonl").exists()


def test_results_of_something_else_are_left_alone(model_folder, data, tmp_path, capsys):
    """Not taken for a run that is done, nor gone on with."""
    done, begun = tmp_path / "done", tmp_path / "begun"
    for place in (done, begun / "checkpoint-2"):
        place.mkdir(parents=True)
    (done / "result.json").write_text("{}")
    (begun / "checkpoint-2" / "trainer_state.json").write_text('{"global_step": 2}')
    for out in (done, begun):
        for more in ((), ("--fresh",)):
            said = error_of(capsys, words(model_folder, data, out, *more))
            assert "which uniproto did not write there" in said
        assert not (out / "finetune.json").exists()
    assert (done / "result.json").read_text() == "{}"


@pytest.mark.slow
def test_a_run_that_diverged_says_so(model_folder, data, tmp_path, capsys):
    """Of a method that scores nothing: the others stop."""
    out = tmp_path / "run"
    more = ("--method", "random", "--learning-rate", "1e30", "--lora-r", "0", "--steps", "2")
    arguments = words(model_folder, data, out, *more)
    arguments.remove("--quiet")
    assert main(arguments) == 0
    assert "→ NaN" in capsys.readouterr().out
    result, metrics = json.loads((out / "result.json").read_text()), read_metrics(out)
    assert [row["train_loss"] is None for row in metrics] == [True, False, True]
    assert result["train_loss"] is None
    assert (result["last"]["step"], result["last"]["val_loss"]) == (2, None)
    first, last = validations("run", result, metrics)
    assert np.isfinite(first["overall"])
    assert np.isnan([last["overall"], last["of_sources"], last["of_smallest"]]).all()


@pytest.mark.parametrize("length", [0, 0.5, -1])
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_truncated_model_is_one_clear_error(model_folder, data, tmp_path, capsys, name, length):
    broken = tmp_path / "model"
    shutil.copytree(model_folder, broken)
    truncate(broken / name, length if name != "config.json" or length != -1 else -2)
    said = error_of(capsys, words(broken, data, tmp_path / "run"))
    assert said.startswith(f"uniproto: error: {broken}: the model must be")
    assert "could not be loaded" in said
    assert "Copy or download it again" in said
    assert not (tmp_path / "run").exists()


def test_a_model_without_some_of_its_weights_is_refused(model_folder, data, tmp_path, capsys):
    """Random numbers would take their place."""
    from safetensors.torch import load_file, save_file

    part = tmp_path / "model"
    shutil.copytree(model_folder, part)
    weights = load_file(part / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, part / "model.safetensors", {"format": "pt"})
    said = error_of(capsys, words(part, data, tmp_path / "run"))
    assert "must have all its weights. 1 of them are missing" in said
    assert "'model.layers.1.mlp.up_proj.weight'" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_adapter_is_not_a_model(model_folder, data, tmp_path, capsys):
    """What it had learned would be forgotten when the next adapter takes its place."""
    out = tmp_path / "run"
    assert main(words(model_folder, data, out)) == 0
    said = error_of(capsys, words(out / "model", data, tmp_path / "next"))
    assert "this is an adapter, not a whole model" in said
    assert not (tmp_path / "next").exists()


@pytest.mark.parametrize("chats", [False, True])
def test_half_a_character_is_told(chat_folder, tmp_path, capsys, chats):
    """JSON can hold it; no tokenizer takes it."""
    path, half = tmp_path / "half.jsonl", "1 + \ud83d"
    row = {"source": "a", "instruction": half, "output": "2", "messages": talk(half, "2")}
    write_rows(path, [row])
    more = ["--messages", "messages"] if chats else []
    said = error_of(capsys, words(chat_folder, path, tmp_path / "run", *more))
    assert "half.jsonl could not be read" in said


def test_an_output_folder_with_the_validation_data_in_it_is_refused(
    model_folder, data, tmp_path, capsys
):
    out = tmp_path / "run"
    out.mkdir()
    held = shutil.copy(data, out / "held.jsonl")
    said = error_of(capsys, words(model_folder, data, out, "--validation-data", str(held)))
    assert "is or contains" in said
    assert os.listdir(out) == ["held.jsonl"]


def test_no_code_of_a_model_is_run(model_folder, tmp_path, monkeypatch):
    """Nor is anybody asked whether to run it."""
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    strange = tmp_path / "model"
    shutil.copytree(model_folder, strange)
    config = json.loads((strange / "config.json").read_text())
    config |= {
        "model_type": "strange",
        "auto_map": {
            "AutoConfig": "strange.StrangeConfig",
            "AutoModelForCausalLM": "strange.StrangeModel",
        },
    }
    (strange / "config.json").write_text(json.dumps(config))
    (strange / "strange.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(InputFileError, match="custom code"):
        load_model(str(strange))
    assert not (tmp_path / "ran").exists()


@pytest.mark.slow
def test_a_damaged_checkpoint_is_one_clear_error(model_folder, data, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(words(model_folder, data, out)) == 0
    (out / "result.json").unlink()
    shutil.rmtree(out / "checkpoint-4")
    checkpoint = out / "checkpoint-2"
    for name in ("adapter_model.safetensors", "optimizer.pt", "rng_state.pth"):
        whole = (checkpoint / name).read_bytes()
        truncate(checkpoint / name, 0.5)
        said = error_of(capsys, words(model_folder, data, out))
        assert said.startswith(f"uniproto: error: {checkpoint}: the run must resume")
        assert "could not be loaded" in said
        assert "--fresh" in said
        (checkpoint / name).unlink()  # without it the Trainer would begin it anew
        said = error_of(capsys, words(model_folder, data, out))
        assert said.startswith(f"uniproto: error: {checkpoint}: the ")
        (checkpoint / name).write_bytes(whole)
    assert main(words(model_folder, data, out)) == 0


@pytest.mark.slow
def test_files_of_a_run_that_hold_something_else_are_told(model_folder, data, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(words(model_folder, data, out)) == 0
    (out / "result.json").unlink()
    whole = (out / "finetune.json").read_bytes()
    (out / "finetune.json").write_text("[]")
    assert "the folder must hold a run of the same" in error_of(
        capsys, words(model_folder, data, out)
    )
    for name in ("finetune.json", "result.json"):
        (out / name).write_bytes(whole[:-9])
        said = error_of(capsys, words(model_folder, data, out))
        assert f"{out / name}: the file of an earlier run is damaged" in said
        (out / name).write_bytes(whole)
    # no state of a trainer: the checkpoint before it serves
    (out / "checkpoint-4" / "trainer_state.json").write_text("[]")
    assert last_checkpoint(out) == out / "checkpoint-2"


def truncate(path, length):
    """Cut a file off: after so many bytes, at a share of it, or before its last bytes."""
    content = path.read_bytes()
    path.write_bytes(content[: int(length * len(content)) if 0 < length < 1 else length])


def test_model_is_needed(data, tmp_path, capsys):
    arguments = ["finetune", "--data", str(data), "--out", str(tmp_path / "run")]
    assert "--model must be given" in error_of(capsys, arguments)


# --- the parts -----------------------------------------------------------------------------------


def test_only_answer_tokens_have_labels(model_folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)
    given = [SourcedExample("s", ("12", "34")), SourcedExample("s", ("5" * 20, "6"))], tokenizer, 8
    found, too_long = tokenise(*given, "truncate", "Q{instruction}A")
    first, second = found[0], found[1]
    text = tokenizer.decode(first["input_ids"]).replace(" ", "")
    assert text == "Q12A34</s>"
    assert first["labels"][:4] == [-100] * 4
    assert first["labels"][4:] == first["input_ids"][4:]
    assert len(second["input_ids"]) == 8
    assert second["labels"][-1] == second["input_ids"][-1]  # an answer token stays
    assert too_long == 1
    skipped, left_out = tokenise(*given, "skip", "Q{instruction}A")
    assert (len(skipped), left_out) == (1, 1)
    with pytest.raises(InvalidInputError, match=r"more\.jsonl holds no example of at most 3"):
        tokenise(given[0], tokenizer, 3, "skip", "Q{instruction}A", "more.jsonl")


def test_files_of_all_kinds_hold_the_same_rows(data, tmp_path):

    with pa.output_stream(str(tmp_path / "train.jsonl.zst"), compression="zstd") as stream:
        stream.write(Path(data).read_bytes())
    pq.write_table(pa.Table.from_pylist(rows()), tmp_path / "train.parquet")
    pa_csv.write_csv(pa.Table.from_pylist(rows()), tmp_path / "train.csv")
    (tmp_path / "train.json").write_text(json.dumps(rows(), indent=1))
    plain = read_rows(data, source="source")
    assert len(plain) == 80
    for ending in ("jsonl.zst", "parquet", "csv", "json"):
        assert read_rows(tmp_path / f"train.{ending}", source="source") == plain


def talk(question, answer):
    said = (("user", question), ("assistant", answer))
    return [{"role": role, "content": text} for role, text in said]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("prompt", "completion"), SourcedExample("s", ("1+1", "2"))),
        (("question", "answer"), SourcedExample("s", ("1+1", "2"))),
        (("instruction", "output"), SourcedExample("s", ("1+1", "2"))),
        (("messages",), SourcedExample("s", talk("1+1", "2"))),
        (("text",), SourcedExample("s", "1+1")),
    ],
)
def test_columns_with_usual_names_are_known(names, expected, tmp_path):
    values = [talk("1+1", "2")] if names == ("messages",) else ["1+1", "2"]
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps(dict(zip(names, values, strict=False))) + "\n")
    assert read_rows(path, source="source", may_lack_source=True) == [expected]
    with refused("source", InputFileError):
        read_rows(path, source="topic")


def test_split_is_seeded_and_every_source_is_in_both():
    sources = [row["source"] for row in rows(200)]
    train, held = split_places(sources, 0.05, 3, seed=1)
    assert split_places(sources, 0.05, 3, seed=1) == (train, held)
    assert split_places(sources, 0.05, 3, seed=2) != (train, held)
    assert {sources[place] for place in train} == {sources[place] for place in held}
    assert sorted(train + held) == list(range(200))


def test_what_is_left_out_as_too_long_is_held_out_of_no_source(model_folder, tmp_path, capsys):
    """Of a source with few short rows, half of those is held out, and not of the long ones."""
    short = [{"source": "short", "instruction": "1", "output": "2"}] * 40
    mixed = [
        {"source": "mixed", "instruction": "1" * (1 if n % 10 == 0 else 60), "output": "2"}
        for n in range(40)
    ]
    path = write_rows(tmp_path / "mixed.jsonl", short + mixed)
    out = tmp_path / "run"
    arguments = words(model_folder, path, out, "--too-long", "skip", "--steps", "1")
    arguments.remove("--quiet")
    assert main(arguments) == 0
    assert "36 of more than 32 tokens, skipped" in capsys.readouterr().out
    result = json.loads((out / "result.json").read_text())
    assert result["train_rows"] == {"short": 36, "mixed": 2}
    assert result["validation_rows"] == {"short": 4, "mixed": 2}
    assert result["too_long"] == 36
    assert set(result["last"]["val_loss_by_source"]) == {"short", "mixed"}


def test_an_example_that_is_refused_has_its_row_in_the_file(model_folder, tmp_path, capsys):
    long = [
        {"source": "s", "instruction": "1" * (60 if n == 50 else 1), "output": "2"}
        for n in range(60)
    ]
    path = write_rows(tmp_path / "long.jsonl", long)
    arguments = words(model_folder, path, tmp_path / "run", "--too-long", "refuse")
    assert "Row 50 (s) has" in error_of(capsys, arguments)


def test_help_fits_on_two_screens_and_needs_no_torch():
    program = """
import sys
from uniproto.cli import main
try:
    main(["finetune", "--help"])
finally:
    assert not {"torch", "transformers", "numba"} & set(sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) <= 100
    assert done.stdout.index("--steps") < done.stdout.index("more options")
    for name in [each.name.replace("_", "-") for each in fields(FinetuneSettings)]:
        assert re.search(rf"--{name}[ ,\n]", done.stdout), name
    assert all(method in done.stdout for method in BATCH_METHODS)


def test_presets_are_the_paper_s():
    phi = preset("mathinstruct-phi")
    wanted = {"lora_r": 128, "lora_alpha": 512, "lora_dropout": 0.05, "learning_rate": 2e-5}
    wanted |= {"pool": 128, "keep": 64, "steps": 2048, "max_length": 512, "warmup": 0.03}
    assert wanted.items() <= phi.items()
    assert (preset("superglue")["pool"], preset("superglue")["keep"]) == (32, 8)
    with refused("preset", InvalidInputError):
        preset("superglu")


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [
        ("PhiConfig", {}, ["q_proj", "k_proj", "v_proj", "fc1", "fc2"]),
        ("Phi3Config", {}, ["qkv_proj", "gate_up_proj", "down_proj"]),
        ("StableLmConfig", {}, ["q_proj", "k_proj", "v_proj", "o_proj"]),
        ("LlamaConfig", {}, ["q_proj", "k_proj", "v_proj", "o_proj"]),
    ],
)
def test_lora_targets_by_architecture(kind, settings, expected):
    config = getattr(transformers, kind)(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=0,
        **settings,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    asked = "phi" if kind.startswith("Phi") else None
    assert lora_targets(model, asked) == expected


@pytest.mark.slow
def test_epochs_and_rows_mixed_in(model_folder, data, tmp_path, capsys):
    held, mixed = rows()[:6], rows(9)
    for row in (*held, *mixed):
        del row["source"]  # files beside the training data need none
    write_rows(tmp_path / "held.jsonl", held)
    write_rows(tmp_path / "mixed.jsonl", mixed)
    more = ("--epochs", "0.5", "--mix", str(tmp_path / "mixed.jsonl"))
    more += ("--validation-data", str(tmp_path / "held.jsonl"))
    assert main(words(model_folder, data, tmp_path / "run", *more)) == 0
    result = json.loads((tmp_path / "run" / "result.json").read_text("utf-8"))
    assert result["train_rows"]["mixed"] == 81  # nine rows nine times: about half of 161
    assert result["validation_rows"] == {"held": 6}
    assert result["last"]["step"] == 7  # half of 161 rows, 12 at a time
    longer = words(model_folder, data, tmp_path / "long", "--epochs", "11", "--steps", "1")
    longer.remove("--quiet")
    longer[longer.index("--pool") + 1] = "66"
    assert main(longer) == 0
    assert "--epochs" in capsys.readouterr().err


def test_a_question_that_is_held_out_is_held_out_everywhere():
    questions = [str(place // 2) for place in range(100)]
    train, held = split_places(["one"] * 100, 0.02, 2, 0, questions)
    assert len(held) > 2
    assert not {questions[place] for place in train} & {questions[place] for place in held}
