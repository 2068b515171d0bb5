"""What `experiments/curation.py` chooses from: collections of rows, and what models make of them.

The features of a collection are computed once, for all targets, seeds and pools, by whichever
process needs them first; the others wait for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from support.curation import Recipe, warm_up
from support.finetuning import data_file, pretrained, sums, tiny_model
from support.once import once
from support.published import first_of_each, read_json_lines
from support.runs import Setup
from uniproto.features import embed_text, hashed_ngrams
from uniproto.lm import gradients, hidden_states
from uniproto.lm.features.language import TEMPLATE
from uniproto.lm.features.tokens import SourcedExample
from uniproto.runs.atomic import atomic_write, write_json

Row = Mapping[str, Any]


@dataclass(frozen=True)
class WarmUp:
    """LESS: how many checkpoints its run leaves, and which sources, all targets, it never sees."""

    checkpoints: int
    apart: tuple[str, ...]
    share: float = 0.05  # of the other rows


BY_POSITION = "position-hidden"  # hidden states weighted by position, as RDS+ takes them
TASKS = {
    "sst2": 3000,
    "multirc": 3000,
    "cb": None,
}  # rows in addition to the mathematics; None: all
DOCUMENTS = 400  # of every source of English
CHARACTERS = 1500  # of a document, more than the model reads
SHORT, OF_EACH = 240, 300  # characters of a row, rows of every source: what two cores get through
SHORT_RATE = 5e-4
SHORT_TEMPLATE = "Question: {instruction}\nAnswer: "
_AT_ONCE, _LORA_AT_ONCE = 128, 64  # rows, on a card that others use, too


@lru_cache(maxsize=2)
def rows_of(data: Path | None, out: Path, name: str) -> list[dict[str, Any]]:
    """The rows of a collection: source, instruction, output.

    `instructions` are mathematics of 22 sources with rows of SST-2, MultiRC and CB among them,
    `short` at most 300 short rows of each of these 22, `english` the beginnings of at most 400
    documents of each source, `sums` for quick runs.
    """
    setup = Setup(data, out)
    if name == "sums":
        with open(sums(out / "data"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    if name == "english":
        read = read_json_lines(data_file(setup, "text", "english_mix.jsonl.zst"))
        return [
            {"source": row["source"], "instruction": "", "output": row["text"][:CHARACTERS]}
            for row in first_of_each(read, DOCUMENTS)
            if row["text"].strip()
        ]
    from uniproto.lm.judging import superglue_rows

    rows = read_json_lines(data_file(setup, "math", "math_train.jsonl.zst"))
    if name == "short":
        drawn = np.random.default_rng(0).permutation(len(rows))
        few = [rows[place] for place in drawn if rows[place]["output"].strip()]
        short = [row for row in few if len(row["instruction"]) + len(row["output"]) <= SHORT]
        return [dict(row) for row in first_of_each(short, OF_EACH)]
    assert data is not None
    for task, count in TASKS.items():
        rows += superglue_rows(task, "train", data, examples=count, seed=0)
    rows += superglue_rows("cb", "validation", data)
    return [row for row in rows if row["output"].strip()]


def fast_in_half() -> bool:
    """Whether bfloat16 arithmetic is the fast one here: a GPU, or a processor's matrix unit."""
    import torch

    return torch.cuda.is_available() or torch.cpu._is_amx_tile_supported()


def recipe_of(setup: Setup, collection: str, steps: int) -> Recipe:
    """How a model is trained on rows of a collection."""
    asked = setup.training
    rate = asked.learning_rate or Recipe.rate
    if setup.quick:
        model = tiny_model(setup.out / "model")
        return Recipe(model, "Q {instruction} A ", 4, 4, max_length=64, rate=rate, rank=2)
    model, steps, half = asked.model or pretrained(setup), asked.steps or steps, fast_in_half()
    if collection == "short":
        rate = asked.learning_rate or SHORT_RATE
        return Recipe(
            model, SHORT_TEMPLATE, steps, 16, 192, rate, 32, 128, 1024, half=half, blocks=6
        )
    template = "{instruction}" if collection == "english" else TEMPLATE
    return Recipe(model, template, steps, 64, 256, rate, tokens_at_once=6144, half=half)


def as_instructions(rows: Sequence[Row]) -> list[SourcedExample]:
    return [SourcedExample(row["source"], (row["instruction"], row["output"])) for row in rows]


# --- features ------------------------------------------------------------------------------------


def vectors_of(setup: Setup, recipe: Recipe, collection: str, features: str, warm: WarmUp) -> Any:
    """The features of every row of a collection, computed once and kept in a file.

    Rows that a model has no vector for are zeros.
    """
    import scipy.sparse as sp

    rows = rows_of(setup.data, setup.out, collection)
    if features == "n-grams":
        path = setup.out / "vectors" / f"{collection}-n-grams.npz"
        with once(path) as missing:
            if missing is not None:
                begin = clock()
                with atomic_write(path) as file:
                    sp.save_npz(file, hashed_ngrams(texts_of(rows)))
                _note_seconds(path, begin)
        return sp.load_npz(path).tocsr()
    if features.startswith("checkpoint"):
        saved = checkpoints(setup, recipe, collection, warm)
        at = saved[int(features.removeprefix("checkpoint")) - 1]
        return _dense(setup, recipe, collection, features, rows, layer="adam", adapter=at)
    return _dense(setup, recipe, collection, features, rows)


def _dense(
    setup: Setup, recipe: Recipe, collection: str, features: str, rows: Sequence[Row], **how: Any
) -> Any:
    path = setup.out / "vectors" / f"{collection}-{features}.npy"
    with once(path) as missing:
        if missing is not None:
            begin = clock()
            found = embedded(setup, recipe, rows, features, **how)
            with atomic_write(path) as file:
                np.save(file, found)
            _note_seconds(path, begin)
    return np.load(path, mmap_mode="r")


def embedded(setup: Setup, recipe: Recipe, rows: Sequence[Row], features: str, **how: Any) -> Any:
    """Vectors of these rows, one for each; zeros for one that the model has no vector for."""
    import torch

    options: dict[str, Any] = {
        "progress": setup.progress,
        "cache": setup.out / "vectors",
        "on_error": "skip",
    }
    if features == "sentences":
        found = embed_text(texts_of(rows), **options)
    else:
        options |= {
            "model": recipe.model,
            "template": recipe.template,
            "max_length": recipe.max_length,
            "bf16": recipe.half,
        }
        if torch.cuda.is_available():
            options["batch_size"] = _LORA_AT_ONCE if how else _AT_ONCE
            torch.set_float32_matmul_precision("high")  # adapters are in float32
        compute = hidden_states if features in ("hidden", BY_POSITION) else gradients
        if features == BY_POSITION:
            options["pooling"] = "position"
        pairs = [(row["instruction"], row["output"]) for row in rows]
        found = compute(pairs, **how, **options)
    vectors = np.zeros((len(rows), found.vectors.shape[1]), np.float32)
    vectors[found.rows] = found.vectors
    return vectors


def checkpoints(setup: Setup, recipe: Recipe, collection: str, warm: WarmUp) -> list[str]:
    """LESS: checkpoints of a run on a few random rows of sources that are no targets."""
    folder = setup.out / "warm-up" / collection
    every = rows_of(setup.data, setup.out, collection)
    rows = [row for row in every if row["source"] not in warm.apart]
    count = min(len(rows), max(recipe.batch, int(warm.share * len(rows))))
    drawn = np.random.default_rng(0).permutation(len(rows))[:count]
    with once(folder / "done.txt") as begin:
        if begin is not None:
            examples = as_instructions([rows[place] for place in drawn])
            warm_up(recipe, examples, folder, warm.checkpoints, seed=0)
            (folder / "done.txt").write_text("complete\n", encoding="utf-8")
    return [str(folder / f"checkpoint-{number}") for number in range(1, warm.checkpoints + 1)]


def seconds_of(setup: Setup, collection: str, features: str) -> float:
    """How long it took to compute the features of a collection (without a GPU: processor time)."""
    each = "checkpoint*" if features == "checkpoints" else features
    found = (setup.out / "vectors").glob(f"{collection}-{each}.json")
    return float(sum(json.loads(path.read_text())["seconds"] for path in found))


def texts_of(rows: Sequence[Row]) -> list[str]:
    return [f"{row['instruction']}\n\n{row['output']}".strip() for row in rows]


def clock() -> float:
    """Seconds: of the processor where it does the work, which others who use it do not lengthen."""
    import torch

    return time.perf_counter() if torch.cuda.is_available() else time.process_time()


def _note_seconds(path: Path, begin: float) -> None:
    write_json(path.with_suffix(".json"), {"seconds": clock() - begin})
