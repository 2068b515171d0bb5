"""Training data for a task: rows of a large pool chosen for 100 examples of what is wanted.

A source is left out of the pool (or only its target and held-out rows are), 100 of its rows are the
target, and k rows of the pool are chosen by every method on the same features. The model is then
trained on the chosen rows, alone or with the target's rows as half of every batch, for equal steps.
Measured: log-perplexity of held-out rows of the target's source, and the time of choosing. Beside
the methods stand random rows, the whole pool, and the target's rows alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from support.joined import publish_joined
from support.runs import Runs, Setup, command_line
from support.statistics import by, difference
from uniproto.comparing.results import aligned
from uniproto.report.words import mean_and_spread
from uniproto.runtime.progress import Progress

TITLE = "training data for a task, chosen from a large pool by a small target"

# Target → (collection, the source that shows what is wanted).
TARGETS = {
    "mawps": ("math", "data/CoT/mawps.json"),
    "MATH": ("math", "data/CoT/MATH_train.json"),
    "calculus": ("math", "data/DM/calculus.json"),
    "theorems": ("math", "data/CoT/TheoremQA.json"),
    "politics": ("english", "bbc_news/politics"),
    "addresses": ("english", "state_of_the_union"),
}
QUICK_TARGETS = {"minus": ("sums", "minus")}
PARTS = FULL_PARTS = [*TARGETS]
WANTED, HELD_OUT, QUICK_ROWS = 100, 500, 8
WAYS = (
    *product(("uniproto", "nearest_to_any", "nearest_on_average", "tsds"),
             ("gradients", "hidden", "sentences")),
    ("less", "checkpoints"), ("dsir", "n-grams"), ("random", "none"), ("pool", "none"),
)  # fmt: skip
QUICK_WAYS = (("uniproto", "gradients"), ("tsds", "hidden"), ("less", "checkpoints"),
              ("dsir", "n-grams"), ("random", "none"), ("pool", "none"))  # fmt: skip
ALONE, TOGETHER = "alone", "with target"
CHECKPOINTS, WARM_UP_SHARE = 4, 0.05


@dataclass(frozen=True)
class Question:
    """One target with its pool, and what is held out to measure by."""

    pool: list[dict[str, Any]]
    wanted: list[dict[str, Any]]
    held_out: list[dict[str, Any]]


def run(setup: Setup) -> None:
    """Every target asked for; without --part the rows of all of them are joined."""
    targets = QUICK_TARGETS if setup.quick else {name: TARGETS[name] for name in setup.parts(PARTS)}
    rows = []
    for target in targets:
        rows += run_target(setup, target, *targets[target])
    if not setup.waits_for_others(targets):
        publish_joined(setup, "curation", rows, tables, _chart)


def run_target(setup: Setup, target: str, collection: str, source: str) -> list[dict[str, Any]]:
    """All runs of one target; each of them is saved when it is done."""
    recipe = _recipe(setup, collection)
    sizes = (8,) if setup.quick else (500, 2000, 8000) if setup.full else (2000,)
    seeds = range(3) if setup.full else range(1)
    pools = ("apart", "among") if setup.full else ("apart",)
    ways = QUICK_WAYS if setup.quick else WAYS
    runs = Runs(setup.out, f"curation-{target}", {"recipe": str(recipe), "quick": setup.quick})
    units = list(product(pools, sizes, seeds, ways))
    with Progress(setup.progress).stage(f"choices for {target}", len(units)) as advance:
        for pool, k, seed, (method, features) in units:
            question = partial(_question, setup, collection, source, pool, seed)
            key = {"target": target, "pool": pool, "k": k, "seed": seed,
                   "method": method, "features": features}  # fmt: skip
            if not runs.done(**key):
                runs.add(key, measure(setup, recipe, question(), k, seed, method, features))
            advance(1)
        for pool, seed in product(pools, seeds):  # the target's rows alone, as a yardstick
            key = {"target": target, "pool": pool, "k": 0, "seed": seed,
                   "method": "target", "features": "none"}  # fmt: skip
            if not runs.done(**key):
                question = partial(_question, setup, collection, source, pool, seed)
                runs.add(key, _trained(recipe, question(), [], seed, (TOGETHER,), {}))
    return [{"run": _name(row), **row} for row in runs.rows]


def _name(row: Mapping[str, Any]) -> str:
    return "-".join(
        str(row[part]) for part in ("target", "pool", "k", "seed", "method", "features")
    )


def measure(
    setup: Setup,
    recipe: Any,
    question: Question,
    k: int,
    seed: int,
    method: str,
    features: str,
) -> list[dict[str, Any]]:
    """Choose, train on what was chosen in both settings, and measure."""
    begin = time.perf_counter()
    source, target, options = _vectors(setup, recipe, question, features, seed)
    embedded = time.perf_counter() - begin
    begin = time.perf_counter()
    rows = _chosen(question, source, target, k, seed, method, options)
    seconds = {"embedding_seconds": embedded, "choosing_seconds": time.perf_counter() - begin}
    return _trained(recipe, question, rows, seed, (ALONE, TOGETHER), seconds)


def _chosen(
    question: Question, source: Any, target: Any, k: int, seed: int, method: str, options: Any
) -> Sequence[int]:
    import uniproto

    if method == "pool":
        return range(len(question.pool))
    if method == "random":
        return np.random.default_rng(seed).permutation(len(question.pool))[:k].tolist()
    how = uniproto.LESS(**options) if method == "less" else method
    return uniproto.select(
        source, k, target, method=how, seed=seed, progress=False
    ).indices.tolist()


def _trained(
    recipe: Any,
    question: Question,
    rows: Sequence[int],
    seed: int,
    settings: Sequence[str],
    seconds: Mapping[str, float],
) -> list[dict[str, Any]]:
    from support.curation import train

    chosen = _instructions([question.pool[row] for row in rows])
    wanted, held_out = _instructions(question.wanted), _instructions(question.held_out)
    found = []
    for setting in settings:
        beside = wanted if setting == TOGETHER else []
        result = train(recipe, chosen or wanted, beside if chosen else [], held_out, seed)
        found.append({"setting": setting, **result, **seconds})
    return found


def _instructions(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    from uniproto.training.finetune.data import InstructionRow

    return [InstructionRow(row["source"], row["instruction"], row["output"]) for row in rows]


# --- data ----------------------------------------------------------------------------------------


def _question(setup: Setup, collection: str, source: str, pool: str, seed: int) -> Question:
    """The draw of a seed: 100 rows of the source are wanted, others are held out."""
    rows = _collection(setup, collection)
    own = [place for place, row in enumerate(rows) if row["source"] == source]
    order = np.random.default_rng(seed).permutation(own).tolist()
    most = QUICK_ROWS if setup.quick else WANTED
    wanted, rest = order[:most], order[most:]
    held_out = rest[: min(QUICK_ROWS if setup.quick else HELD_OUT, len(rest) // 2)]
    aside = set(order) if pool == "apart" else {*wanted, *held_out}
    return Question(
        [row for place, row in enumerate(rows) if place not in aside],
        [rows[place] for place in wanted],
        [rows[place] for place in held_out],
    )


def _collection(setup: Setup, name: str) -> list[dict[str, Any]]:
    import pyarrow as pa

    from support.finetuning import data_file, sums

    if name == "sums":
        with open(sums(setup.out / "data"), encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    place = {"math": ("math", "math_train.jsonl.zst"), "english": ("text", "english_mix.jsonl.zst")}
    with pa.input_stream(str(data_file(setup, *place[name])), compression="zstd") as stream:
        rows = [json.loads(line) for line in stream.read().decode("utf-8").split("\n") if line]
    if name == "math":
        return rows
    return [{"source": row["source"], "instruction": "", "output": row["text"]} for row in rows]


def _recipe(setup: Setup, collection: str) -> Any:
    from support.curation import Recipe
    from support.finetuning import pretrained, tiny_model
    from uniproto.features.language import TEMPLATE

    if setup.quick:
        model = tiny_model(setup.out / "model")
        return Recipe(model, "Q {instruction} A ", steps=4, batch=4, max_length=64, rank=2)
    template = TEMPLATE if collection == "math" else "{instruction}"
    return Recipe(pretrained(setup), template, steps=64, batch=64, max_length=256)


# --- features ------------------------------------------------------------------------------------


def _vectors(
    setup: Setup, recipe: Any, question: Question, features: str, seed: int
) -> tuple[Any, Any, dict[str, Any]]:
    """Source and target rows as the features that a method compares; cached by content."""
    from uniproto.features import embed_text, gradients, hashed_ngrams, hidden_states

    texts = [_texts(rows) for rows in (question.pool, question.wanted)]
    examples = [_pairs(rows) for rows in (question.pool, question.wanted)]
    options = {
        "model": recipe.model,
        "template": recipe.template,
        "max_length": recipe.max_length,
        "progress": False,
        "cache": setup.out / "vectors",
    }
    if features == "none":
        return None, None, {}
    if features == "n-grams":
        return hashed_ngrams(texts[0]), hashed_ngrams(texts[1]), {}
    if features == "sentences":
        found = [embed_text(each, progress=False, cache=options["cache"]) for each in texts]
    elif features == "hidden":
        found = [hidden_states(each, **options) for each in examples]
    elif features == "gradients":
        found = [gradients(each, **options) for each in examples]
    else:
        return _at_checkpoints(setup, recipe, question, examples, options, seed)
    return found[0].vectors, found[1].vectors, {}


def _at_checkpoints(
    setup: Setup, recipe: Any, question: Question, examples: Any, options: Any, seed: int
) -> tuple[Any, Any, dict[str, Any]]:
    """LESS: gradients at the checkpoints of a warm-up run on a few random rows of the pool."""
    from support.curation import warm_up
    from uniproto.features import gradients

    count = max(recipe.batch, int(WARM_UP_SHARE * len(question.pool)))
    drawn = np.random.default_rng(seed).permutation(len(question.pool))[:count]
    rows = _instructions([question.pool[place] for place in drawn])
    name = f"{len(question.pool)}-{question.wanted[0]['source'].replace('/', '_')}-{seed}"
    saved = warm_up(recipe, rows, setup.out / "warm-up" / name, CHECKPOINTS, seed)
    sides = []
    for side, adam in zip(examples, (True, False), strict=True):
        parts = [gradients(side, lora=True, adapter=at, adam=adam, **options) for at in saved]
        sides.append(np.concatenate([part.vectors for part in parts], axis=1))
    return sides[0], sides[1], {"checkpoints": len(saved)}


def _texts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"{row['instruction']}\n\n{row['output']}".strip() for row in rows]


def _pairs(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    return [(row["instruction"], row["output"]) for row in rows]


# --- what came out -------------------------------------------------------------------------------


def tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """Log-perplexity after training, by target; then UniPROT beside random, seed by seed."""
    texts = []
    for (pool, k, setting), found in by(
        [row for row in rows if row["k"]], "pool", "k", "setting"
    ).items():
        texts.append(_table(found, f"pool {pool}, k = {k:,}, {setting}"))
    alone = [row for row in rows if row["method"] == "target"]
    texts.append(_table(alone, "the target's rows alone"))
    return "\n\n".join([*texts, _beside_random(rows)])


def _table(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    targets = list(dict.fromkeys(row["target"] for row in rows))
    ways = list(dict.fromkeys((row["method"], row["features"]) for row in rows))
    shown: dict[str, list[str]] = {title: [_way(*way) for way in ways]}
    for target in targets:
        of_target = [row for row in rows if row["target"] == target]
        cells = []
        for way in ways:
            values = [r["after"] for r in of_target if (r["method"], r["features"]) == way]
            mean, spread = mean_and_spread(values)
            told = "–" if mean is None else f"{mean:.3f}"
            cells.append(told if spread is None else f"{told} ± {spread / len(values) ** 0.5:.3f}")
        before = np.mean([row["before"] for row in of_target])
        shown[f"{target} (before {before:.3f})"] = cells
    if "choosing_seconds" in rows[0]:
        seconds = by(rows, "method", "features")
        shown["choosing, s"] = [
            f"{np.mean([row['choosing_seconds'] for row in seconds[way]]):.1f}" for way in ways
        ]
    return aligned(shown)


def _way(method: str, features: str) -> str:
    return method if features == "none" else f"{method}, {features}"


def _beside_random(rows: Sequence[Mapping[str, Any]]) -> str:
    """UniPROT on gradients less random rows, over all draws of a target and setting."""
    lines = []
    for (target, setting), found in by([r for r in rows if r["k"]], "target", "setting").items():
        draws = by(found, "method", "features")
        ours, theirs = draws.get(("uniproto", "gradients"), []), draws.get(("random", "none"), [])
        if not ours or len(ours) != len(theirs):
            continue
        pairs = [(r["pool"], r["k"], r["seed"]) for r in ours]
        other = {(r["pool"], r["k"], r["seed"]): r["after"] for r in theirs}
        apart = difference([r["after"] for r in ours], [other[pair] for pair in pairs])
        lines.append(
            f"  {target}, {setting}: {apart.mean:+.3f} ({apart.draws} draws, {apart.verdict})"
        )
    return "uniproto on gradients − random, log-perplexity:\n" + "\n".join(lines)


def _chart(rows: Sequence[Mapping[str, Any]]) -> Any:
    import altair as alt

    from support.charts import dots_and_means
    from uniproto.report.charts import BLUE, GREY, loose_scale, small_multiples, styled

    shown = [{**row, "way": _way(row["method"], row["features"])} for row in rows]
    panels = [
        dots_and_means(
            found,
            x=alt.X("after:Q", title="log-perplexity", scale=loose_scale(alt)),
            y=alt.Y("way:N", title=None, sort=list(dict.fromkeys(row["way"] for row in found)),
                    axis=alt.Axis(ticks=False)),
            series="way",
            colours={row["way"]: BLUE if row["method"] == "uniproto" else GREY for row in found},
            title=f"{target}, {setting}",
        )
        for (target, setting), found in by(shown, "target", "setting").items()
    ]  # fmt: skip
    return styled(
        small_multiples(panels, columns=2),
        "Held-out rows of the target's source, after training on what was chosen",
        "circles: draws, diamonds: their mean",
    )


if __name__ == "__main__":
    command_line(run, TITLE)
