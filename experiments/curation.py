"""Training data for a task: rows of a large pool chosen for 100 examples of what is wanted.

A source is left out of the pool (or only its target and held-out rows are), 100 of its rows are the
target, and k rows of the pool are chosen by every method on the same features. The model is then
trained on the chosen rows, alone or with the target's rows as half of every batch, for equal steps,
one pass over what was chosen. Measured: log-perplexity of held-out rows of the target's source, how
many of them the model answers exactly right, and the time of choosing. The methods are
compared with random rows, and with the target's rows alone.

What two cores get through in an hour or two: two targets, about 5,600 short rows of mathematics to
choose k = 320 from, 20 steps of 16 rows, adapters in the last 6 of 30 blocks, 200 held-out rows,
three seeds. (Random rows are then what the whole pool gives in equal steps.)

--full is for a GPU: seven targets of five kinds and all of the data, k = 2,000 with 32 steps of 64
rows and 500 held-out rows; five of the targets first. After that the other k in equal steps, pools
with rows of the target's own kind, RDS+, variants of TSDS and UniPROT on mawps and calculus, and
LESS, which is warmed up once for a collection, on sources that are no targets (its gradients serve
all targets and seeds).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.curation_report import chart, tables
from support.joined import publish_joined
from support.picks import described, thinned
from support.runs import Runs, Setup, command_line, rounded, run_name
from uniproto.runs.atomic import write_json
from uniproto.runtime.progress import Progress

TITLE = "training data for a task, chosen from a large pool by a small target"

TRAINS = True

# Target → (collection, the source that shows what is wanted). All seeds of the first come first.
SMALL_TARGETS = {
    "mawps": ("short", "data/CoT/mawps.json"),
    "MATH": ("short", "data/CoT/MATH_train.json"),
}
FIRST_TARGETS = {
    "mawps": ("instructions", "data/CoT/mawps.json"),
    "calculus": ("instructions", "data/DM/calculus.json"),
    "MATH": ("instructions", "data/CoT/MATH_train.json"),
    "cb": ("instructions", "cb"),
    "politics": ("english", "bbc_news/politics"),
}
OTHER_TARGETS = {
    "theorems": ("instructions", "data/CoT/TheoremQA.json"),
    "addresses": ("english", "state_of_the_union"),
}
QUICK_TARGETS = {"minus": ("sums", "minus")}
SEEDS = (0, 1, 2)
WANTED, QUICK_ROWS = 100, 8
K, STEPS, HELD_OUT = 320, 20, 200
FULL_K, FULL_STEPS, FULL_HELD_OUT = 2000, 32, 500
OTHER_KS = (500, 8000)
LESS, CHECKPOINTS = ("less", "checkpoints"), 2
DISTINCT = "uniproto_distinct"  # without near-duplicates, as `uniproto curate` runs
THINNED, TIMES = "uniproto_thinned", 5  # of 5 k rows drawn by 1/density
FLAT = "tsds_flat"  # TSDS where a row in a crowd counts as much as any other
SMALL_WAYS = (
    ("uniproto", "gradients"), ("random", "none"), ("target", "none"),
    ("nearest_to_any", "gradients"), ("tsds", "gradients"), ("nearest_on_average", "gradients"),
    ("dsir", "n-grams"), ("uniproto", "n-grams"),
)  # fmt: skip
SMALL_OTHER_WAYS = (("uniproto", "hidden"), ("uniproto", "sentences"))
ALONE_OR_ANY = (("target", "none"), ("random", "none"))
FEW_WAYS = (
    ("uniproto", "gradients"), ("random", "none"), ("tsds", "gradients"), ("dsir", "n-grams"),
)  # fmt: skip
FIRST_WAYS = (
    ("uniproto", "gradients"), ("random", "none"), ("target", "none"), ("uniproto", "hidden"),
    ("uniproto", "n-grams"), ("nearest_to_any", "gradients"), ("tsds", "gradients"),
    ("dsir", "n-grams"),
)  # fmt: skip
MORE_WAYS = (
    (DISTINCT, "gradients"), ("nearest_on_average", "gradients"), ("uniproto", "sentences"),
)  # fmt: skip
LESS_WAYS = (LESS, ("uniproto", "checkpoints"))
RDS_WAYS = (("nearest_in_turn", "position-hidden"), ("uniproto", "position-hidden"))
# Why is TSDS ahead on mawps? Its density, or near rows in equal shares?
CROWD_TARGETS = ("mawps", "calculus")
CROWD_WAYS = (
    ("nearest_on_average", "gradients"), (FLAT, "gradients"), (THINNED, "gradients"),
    ("nearest_in_turn", "gradients"),
)  # fmt: skip
LAST_WAYS = (
    ("pool", "none"), *product(("nearest_to_any", "nearest_on_average", "tsds"),
                               ("hidden", "sentences")),
)  # fmt: skip
QUICK_WAYS = (("uniproto", "gradients"), ("tsds", "hidden"), ("dsir", "n-grams"),
              ("random", "none"), ("pool", "none"), ("target", "none"), LESS, *RDS_WAYS,
              (THINNED, "gradients"), (FLAT, "gradients"))  # fmt: skip
ALONE, TOGETHER = "alone", "with target"
VECTORS = "vectors"  # the parts that compute features, for all others


@dataclass(frozen=True)
class Unit:
    """One choice: for whom, from what, how many, and how."""

    target: str
    pool: str
    k: int
    seed: int
    method: str
    features: str

    @property
    def name(self) -> str:
        method = self.method.replace("_", "-")
        return run_name(self.target, self.pool, self.k, self.seed, method, self.features)

    @property
    def key(self) -> dict[str, Any]:
        return {"target": self.target, "pool": self.pool, "k": self.k, "seed": self.seed,
                "method": self.method, "features": self.features}  # fmt: skip


@dataclass(frozen=True)
class Question:
    """Row numbers of a collection: one target with its pool, and what is held out to measure by."""

    rows: list[dict[str, Any]]
    pool: NDArray[np.int64]
    wanted: NDArray[np.int64]
    held_out: NDArray[np.int64]


def targets_of(setup: Setup) -> dict[str, tuple[str, str]]:
    if setup.quick:
        return QUICK_TARGETS
    return {**FIRST_TARGETS, **OTHER_TARGETS} if setup.full else SMALL_TARGETS


def units(setup: Setup) -> list[Unit]:
    """All choices, in the order they are worth making: balanced wherever time runs out."""
    asked = setup.training.seeds
    seeds = asked or (SEEDS[:1] if setup.quick else SEEDS)
    rounds: list[tuple[str, int, Mapping[str, Any], Sequence[tuple[str, str]]]]
    if setup.quick:
        rounds = [("apart", 8, QUICK_TARGETS, QUICK_WAYS)]
    elif setup.full:
        every_way = (*FIRST_WAYS, *MORE_WAYS, *RDS_WAYS, *LESS_WAYS, *LAST_WAYS)
        crowd = {name: FIRST_TARGETS[name] for name in CROWD_TARGETS}
        rounds = [
            # These compare nothing: side by side, they are made while features are computed.
            *(("apart", k, FIRST_TARGETS, (("random", "none"),)) for k in (FULL_K, *OTHER_KS)),
            *((pool, FULL_K, FIRST_TARGETS, ALONE_OR_ANY) for pool in ("apart", "among")),
            ("apart", FULL_K, FIRST_TARGETS, FIRST_WAYS),
            ("apart", FULL_K, FIRST_TARGETS, MORE_WAYS),
            *(("apart", k, FIRST_TARGETS, FEW_WAYS) for k in OTHER_KS),
            ("apart", FULL_K, FIRST_TARGETS, RDS_WAYS),
            ("apart", FULL_K, FIRST_TARGETS, LESS_WAYS),
            ("apart", FULL_K, crowd, CROWD_WAYS),
            ("among", FULL_K, FIRST_TARGETS, FEW_WAYS),
            ("among", FULL_K, FIRST_TARGETS, FIRST_WAYS),
            *(("apart", k, FIRST_TARGETS, FIRST_WAYS) for k in OTHER_KS),
            *(
                (pool, k, targets_of(setup), every_way)
                for pool, k in product(("apart", "among"), (FULL_K, *OTHER_KS))
            ),
        ]
    else:
        first, *others = ({name: at} for name, at in SMALL_TARGETS.items())
        rounds = [
            ("apart", K, first, SMALL_WAYS),
            ("apart", K, first, SMALL_OTHER_WAYS),
            ("among", K, first, FEW_WAYS),
            *(("apart", K, other, SMALL_WAYS) for other in others),
        ]
    found = [
        Unit(target, pool, k, seed, *way)
        for pool, k, targets, ways in rounds
        for seed in seeds
        for target in targets
        for way in ways
    ]
    return list(dict.fromkeys(found))


def parts(setup: Setup) -> list[str]:
    """The names of all parts: features of collections stand before all choices."""
    chosen = units(setup)
    # LESS looks at the pool at several checkpoints: the others do not wait for that.
    order = sorted(chosen, key=lambda unit: unit.features == LESS[1])
    vectors = dict.fromkeys(name for unit in order for name in _needed(setup, unit))
    return [*vectors, *(unit.name for unit in chosen)]


def _needed(setup: Setup, unit: Unit) -> Iterator[str]:
    """The parts that compute the features of a choice."""
    collection, _ = targets_of(setup)[unit.target]
    if unit.features == LESS[1]:
        for number in range(1, CHECKPOINTS + 1):
            yield run_name(VECTORS, collection, f"checkpoint{number}")
    elif unit.features != "none":
        yield run_name(VECTORS, collection, unit.features)


def run(setup: Setup) -> None:
    """Every part asked for; without --part the rows of all of them are joined."""
    by_name = {unit.name: unit for unit in units(setup)}
    names = setup.parts(parts(setup))
    rows = []
    with Progress(setup.progress).stage("choices", len(names)) as advance:
        for name in names:
            if name in by_name:
                rows += [rounded(row) for row in run_unit(setup, by_name[name])]
            elif not setup.finished_only:
                _, collection, features = name.split("_")
                _vectors(setup, collection, features)
            advance(1)
    if not setup.waits_for_others(names):
        publish_joined(setup, "curation", rows, tables, chart)


def run_unit(setup: Setup, unit: Unit) -> list[dict[str, Any]]:
    """The rows of one choice, saved when it is done."""
    folder = setup.out / "choices"
    if setup.finished_only and not (folder / f"{unit.name}.jsonl").exists():
        return []
    collection, _ = targets_of(setup)[unit.target]
    recipe = _recipe(setup, collection)
    shown = replace(recipe, model=Path(recipe.model).name)  # the same wherever it lies
    runs = Runs(folder, unit.name, {"recipe": str(shown), "quick": setup.quick})
    if not (runs.done(**unit.key) or setup.finished_only):
        runs.add(unit.key, measure(setup, recipe, unit))
    return [{"run": unit.name, **row} for row in runs.rows]


def measure(setup: Setup, recipe: Any, unit: Unit) -> list[dict[str, Any]]:
    """Choose, train on what was chosen in both settings, and measure."""
    from support.collected import as_instructions, clock, seconds_of
    from support.curation import train

    collection, _ = targets_of(setup)[unit.target]
    question = _question(setup, unit)
    compared = _compared(setup, recipe, unit, question)
    begin = clock()
    chosen = _chosen(recipe, unit, question, *compared)
    seconds = {
        "embedding_seconds": seconds_of(setup, collection, unit.features),
        "choosing_seconds": clock() - begin,
    }
    _save_picks(setup, unit, question, chosen, *compared)

    def instructions(places: Sequence[int]) -> list[Any]:
        return as_instructions([question.rows[place] for place in places])

    wanted, held_out = instructions(question.wanted), instructions(question.held_out)
    if unit.method == "target":
        result = train(recipe, wanted, [], held_out, unit.seed)
        return [{"setting": TOGETHER, **result, **seconds}]
    found = []
    for setting, alongside in ((ALONE, []), (TOGETHER, wanted)):
        result = train(recipe, instructions(chosen), alongside, held_out, unit.seed)
        found.append({"setting": setting, **result, **seconds})
    return found


def _compared(setup: Setup, recipe: Any, unit: Unit, question: Question) -> tuple[Any, Any]:
    """The features of the pool and of the target; None where nothing is compared."""
    if unit.features == "none":
        return None, None
    if unit.features == LESS[1]:
        return _at_checkpoints(setup, recipe, unit, question)
    vectors = _vectors(setup, targets_of(setup)[unit.target][0], unit.features)
    return vectors[question.pool], vectors[question.wanted]


def _chosen(recipe: Any, unit: Unit, question: Question, source: Any, target: Any) -> Sequence[int]:
    """The chosen rows of the collection."""
    import uniproto

    if unit.method == "target":
        return []
    if source is None:
        drawn = np.random.default_rng(unit.seed).permutation(question.pool)
        # Of the whole pool, no more rows than the steps get through.
        most = recipe.steps * recipe.batch if unit.method == "pool" else unit.k
        return [int(place) for place in drawn[:most]]
    of_ours = {DISTINCT: "uniproto", THINNED: "uniproto", FLAT: uniproto.TSDS(bandwidth=1e-3),
               "less": uniproto.LESS(checkpoints=CHECKPOINTS)}  # fmt: skip
    how: Any = of_ours.get(unit.method, unit.method)
    usable = np.flatnonzero(_any(source))  # a row of zeros is one without a vector
    if unit.method == THINNED:
        usable = usable[thinned(source[usable], TIMES * unit.k, unit.seed)]
    picked = uniproto.select(
        source[usable],
        unit.k,
        target[np.flatnonzero(_any(target))],
        method=how,
        min_distance="auto" if unit.method == DISTINCT else None,
        seed=unit.seed,
        progress=False,
    ).indices
    return [int(place) for place in question.pool[usable[picked]]]


def _save_picks(
    setup: Setup, unit: Unit, question: Question, chosen: Sequence[int], source: Any, target: Any
) -> None:
    """The chosen rows and, where rows are compared by one gradient, where those lie."""
    about: dict[str, Any] = {**unit.key, "rows": list(chosen)}
    if unit.features == "gradients":
        names = [question.rows[place]["source"] for place in question.pool]
        picks = np.searchsorted(question.pool, chosen)
        about["sources"] = described(names, picks, source, target)
    folder = setup.out / "picks"
    folder.mkdir(exist_ok=True)
    write_json(folder / f"{unit.name}.json", about)


def _any(vectors: Any) -> Any:
    """Which rows are not all zeros."""
    return np.asarray(abs(vectors).sum(axis=1)).ravel() > 0


# --- data and features ---------------------------------------------------------------------------


def _question(setup: Setup, unit: Unit) -> Question:
    """The draw of a seed: 100 rows of the source are wanted, others are held out."""
    from support.collected import rows_of

    collection, source = targets_of(setup)[unit.target]
    rows = rows_of(setup.data, setup.out, collection)
    own = [place for place, row in enumerate(rows) if row["source"] == source]
    order = np.random.default_rng(unit.seed).permutation(own)
    most = QUICK_ROWS if setup.quick else WANTED
    wanted, rest = order[:most], order[most:]
    apart = unit.pool == "apart"
    spare = len(rest) if apart else len(rest) // 2
    rows_held_out = QUICK_ROWS if setup.quick else FULL_HELD_OUT if setup.full else HELD_OUT
    held_out = rest[: min(rows_held_out, spare)]
    aside = order if apart else np.concatenate([wanted, held_out])
    pool = np.setdiff1d(np.arange(len(rows)), aside)
    return Question(rows, pool, wanted, held_out)


def _recipe(setup: Setup, collection: str) -> Any:
    from support.collected import recipe_of

    return recipe_of(setup, collection, FULL_STEPS if setup.full else STEPS)


def _vectors(setup: Setup, collection: str, features: str) -> Any:
    from support.collected import vectors_of

    return vectors_of(setup, _recipe(setup, collection), collection, features, _warm_up(setup))


def _warm_up(setup: Setup) -> Any:
    from support.collected import WarmUp

    return WarmUp(CHECKPOINTS, tuple(source for _, source in targets_of(setup).values()))


def _at_checkpoints(setup: Setup, recipe: Any, unit: Unit, question: Question) -> tuple[Any, Any]:
    """LESS: steps of Adam for the pool, plain gradients for the target, at every checkpoint."""
    from support.collected import checkpoints, embedded

    collection, _ = targets_of(setup)[unit.target]
    wanted = [question.rows[place] for place in question.wanted]
    pool, target = [], []
    saved = checkpoints(setup, recipe, collection, _warm_up(setup))
    for number, at in enumerate(saved, start=1):
        pool.append(_vectors(setup, collection, f"checkpoint{number}")[question.pool])
        target.append(embedded(setup, recipe, wanted, "plain", layer="lora", adapter=at))
    return np.concatenate(pool, axis=1), np.concatenate(target, axis=1)


PARTS = parts(Setup(None, Path()))
FULL_PARTS = parts(Setup(None, Path(), full=True))


if __name__ == "__main__":
    command_line(run, TITLE)
