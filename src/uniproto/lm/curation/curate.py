"""Training data for a task: rows of a large pool, chosen for a small target."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress, islice
from typing import Any

import numpy as np

from uniproto.data.examples import is_plain_text
from uniproto.data.tables import Input
from uniproto.errors import (
    InfeasibleError,
    InputFileError,
    InvalidInputError,
    asking,
    known_keywords,
    quoted,
    require_int,
    require_name,
    warn_of_data,
)
from uniproto.features.embedded import usable_rows
from uniproto.features.files import Items
from uniproto.features.model_features import ModelFeatures
from uniproto.features.text import what_is_wrong
from uniproto.lm.curation.meaning import Embed, same_meaning, sentence_vectors
from uniproto.lm.curation.overlap import Repeat
from uniproto.lm.curation.repeats import repeats
from uniproto.lm.curation.rows import read_rows
from uniproto.lm.features.example_values import Gradients, HiddenStates
from uniproto.lm.features.language import NO_ANSWER, what_is_wrong_with
from uniproto.methods import Method, as_method
from uniproto.methods.dsir import DSIR
from uniproto.problem.checks import require_distance
from uniproto.problem.near import NearRows, near_targets, vectors_near
from uniproto.problem.problem import Problem, ProblemOptions
from uniproto.problem.values import Compute, Limits, NamedColumns
from uniproto.select import run_method
from uniproto.selection.selection import Selection

_MANY_DROPPED = 0.05  # of the pool's rows: people are warned
DECONTAMINATE = ("words", "words+meaning")


@known_keywords
def curate(
    pool: Any,
    target: Any,
    k: int,
    *,
    model: Any = None,
    tokenizer: Any = None,
    features: ModelFeatures | None = None,
    limits: Limits | None = None,
    min_distance: float | str | None = "auto",
    benchmarks: Any = None,
    decontaminate: str = "words",
    exclude_near: tuple[Any, float] | None = None,
    method: str | Method = "uniproto",
    compute: Compute | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Selection:
    """Choose the k rows of a pool to train on, for the task that the rows of a target show.

    It is `uniproto.select(pool, k, target, features=…)` without the rows that repeat the target,
    an earlier row or a benchmark.

    Args:
        pool, target: a path or name on the Hugging Face hub, a `datasets.Dataset`, one split of a
            `DatasetDict`, an `IterableDataset`, a data frame, an Arrow table or a list of mappings.
            A target without the pool's columns is read by its own, where they have the usual names.
        k: how many rows to choose.
        model: the language model that will be trained, by its name or folder, or as loaded by
            transformers. Rows are compared by its gradients, plain texts by its hidden states.
        tokenizer: that of a loaded model.
        features: how rows are compared, in place of `model`: `lm.Gradients(model, …)`,
            `lm.HiddenStates(model, …)`, `Text("question")` or `Images("path")`.
        limits: how many rows each source may or must give: `Limits("source", at_most=500)`, by a
            column of the pool or by one label per row.
        min_distance: drop rows that repeat the words of the target or of an earlier row, and rows
            at most this far from a chosen row or from the target: "auto", a hundredth of the median
            distance; a distance; or None, drop nothing.
        benchmarks: rows of benchmarks, in any of the forms of a pool, or the paths of several. No
            row that repeats a question or a long answer of them is chosen (see
            `uniproto.lm.curation.overlap`).
        decontaminate: how repeated questions of `benchmarks` are found: `words`, or
            `words+meaning`, which finds paraphrases, too, by embeddings of the sentences that are a
            row's own (see `uniproto.lm.curation.meaning`).
        exclude_near: rows of a benchmark, and the distance up to which a row is too near to one.
        method, compute, seed, progress: as for `uniproto.select` and `uniproto.Problem`.

    Returns:
        A `Selection` whose `indices` are rows of the pool: `dataset.select(selection.indices)`.
        `details.notes["dropped"]` holds every dropped row with the rule, the data and the row that
        it repeats or is near to, and the words that both have.

    >>> import uniproto
    >>> pool = [{"text": text} for text in ("cats purr", "dogs bark", "tax law")]
    >>> wanted = [{"text": "cats and dogs are pets"}]
    >>> by_text = uniproto.Text("text", cache=False)
    >>> found = uniproto.lm.curate(pool, wanted, 2, features=by_text, progress=False)
    >>> sorted(pool[row]["text"] for row in found.indices)
    ['cats purr', 'dogs bark']
    """
    if hasattr(model, "save_pretrained"):
        return _by_loaded_model(model, tokenizer, {**locals()})
    if tokenizer is not None:
        raise InvalidInputError("is for a loaded model only. Leave it out.", parameter="tokenizer")
    require_name("decontaminate", decontaminate, DECONTAMINATE)
    tests = _every(benchmarks)
    if decontaminate != DECONTAMINATE[0] and not tests:
        raise InvalidInputError(
            f"{decontaminate!r} needs {quoted('benchmarks')}. Pass their rows.",
            parameter="decontaminate",
        )
    chosen, k = as_method(method), require_int("k", k)
    looked = _features(model, features, progress)
    source = read_rows(pool, "pool", looked)
    items = looked.items(source)
    if features is None and is_plain_text(items.columns):
        looked = HiddenStates(model, progress=progress)
        items = looked.items(source)
    aim = read_rows(target, "target", looked)
    aims = looked.items(aim, items)
    if not len(aims):
        raise InputFileError(
            f"{aim.name}: the target is empty. Put in a hundred examples of what you want, or "
            "as many as you have."
        )
    others, nearest = None, 0.0
    if exclude_near is not None:
        nearest = require_distance(exclude_near[1], "exclude_near")
        others = looked.items(read_rows(exclude_near[0], "exclude_near", looked), items)
        usable(others, looked.on_error)
    asked: ProblemOptions = {
        "limits": limits, "min_distance": min_distance, "compute": compute, "seed": seed
    }  # fmt: skip
    _require_choosable(k, items, aims, chosen, looked.on_error, asked)
    compared = {} if min_distance is None else {str(aim.name): aims, str(source.name): items}
    read = [read_rows(each, "benchmarks", looked) for each in tests]
    tested = {str(each.name): looked.items(each, items) for each in read}
    embed = partial(
        sentence_vectors, device=looked.device, cache=looked.cache, progress=looked.progress
    )
    meaning = {} if decontaminate == DECONTAMINATE[0] else dict.fromkeys(tested, embed)
    found = word_rules(k, items, {**compared, **tested}, meaning)
    of_others = None if others is None else looked.embed(others)
    given = [each.content if each.path is None else each for each in (source, aim)]
    options: ProblemOptions = {**asked, "features": looked}
    problem = Problem(*given, **options)
    of_pool, of_target = (each.embedded for each in problem.given.inputs)
    every = [(name, near.only(of_pool.rows)) for name, near in found.items()]
    if problem.twin_distance is not None:
        near = near_targets(problem.costs, problem.twin_distance)
        # A row without a vector has that of another.
        place = np.searchsorted(of_target.rows, near.nearest, side="right") - 1
        near = replace(near, nearest=of_target.rows[np.maximum(place, 0)])
        every.append((str(aim.name), near.only(of_pool.rows)))
    if others is not None and of_others is not None:
        every.append((str(others.path), vectors_near(of_pool, of_others, nearest)))
    for name, near in every:
        problem = problem.excluding(name, near)
    selection = run_method(problem.with_k(k), chosen, progress=progress)
    dropped = {row: reason for name, near in every for row, reason in near.reasons(name)}
    selection.details.notes["dropped"] = dict(sorted(dropped.items()))
    return selection


def _every(benchmarks: Any) -> list[Any]:
    """The benchmarks: none, one in any form, or the paths of several."""
    several = benchmarks if isinstance(benchmarks, list | tuple) else None
    if several is not None and all(isinstance(each, str | os.PathLike) for each in several):
        return list(several)
    return [] if benchmarks is None else [benchmarks]


def _features(model: Any, features: Any, progress: bool | None) -> ModelFeatures:
    """How rows are compared; by a model's gradients, if nothing else is known."""
    if (model is None) == (features is None):
        raise InvalidInputError(
            "must be given, or how rows are compared: features=Text('question')."
            if model is None
            else "excludes 'features', which name a model themselves. Drop one of the two.",
            parameter="model",
        )
    if features is None:
        return Gradients(os.fspath(model), progress=progress)
    if not isinstance(features, ModelFeatures):
        raise InvalidInputError(
            "must be lm.Gradients(model), lm.HiddenStates(model), Text(column) or "
            f"Images(column), not {features!r}.",
            parameter="features",
        )
    return features if progress is None else replace(features, progress=progress)


def _by_loaded_model(model: Any, tokenizer: Any, question: dict[str, Any]) -> Selection:
    """Save a loaded model and curate by it: vectors are cached by what its files hold."""
    if tokenizer is None:
        raise InvalidInputError(
            "must be given with a loaded model. Pass that of the model.", parameter="tokenizer"
        )
    with tempfile.TemporaryDirectory() as folder:
        for each in (model, tokenizer):
            each.save_pretrained(folder)
        found: Selection = curate(**{**question, "model": folder, "tokenizer": None})
    found.details.asked = {}  # that folder is gone: no record could be checked
    return found


def _require_choosable(
    k: int, pool: Items, target: Items, method: Method, on_error: str, asked: ProblemOptions
) -> None:
    """Refuse, before a model looks, a k and conditions that the usable rows cannot meet."""
    targets, known = sum(usable(target, on_error)), usable(pool, on_error)
    if pool.kind != "images":
        with_copies = asked["min_distance"] is None
        require_enough(k, compress(pool, known), target, len(pool), with_copies=with_copies)
    if (limits := asked["limits"]) is not None:
        named = NamedColumns(Input(pool.table, pool.path))
        limits = replace(limits, labels=named.of_source(limits.labels, "limits"))
    unusable = np.flatnonzero(~np.array(known, bool))
    rehearsed: ProblemOptions = {
        **asked, "limits": limits, "metric": "cosine", "exclude": unusable
    }  # fmt: skip
    rehearse(method, k, len(pool), targets, **rehearsed)


def word_rules(
    k: int,
    pool: Items,
    others: Mapping[str, Items],
    meaning: Mapping[str, Embed] | None = None,
) -> dict[str, NearRows]:
    """The rows of a pool that repeat others, or earlier ones of it; no language model looks.

    `others` by name, the pool itself among them where its copies are dropped; `meaning` has a model
    of sentences for those that must not be repeated in other words, either. Refuses a k that these
    rules leave too few rows for.
    """
    if pool.kind == "images":
        return {}
    names = [name for name, data in others.items() if data is not pool]
    itself = [name for name, data in others.items() if data is pool]
    listed = repeats(pool, [others[name] for name in names], itself=bool(itself))
    found = dict(zip([*names, *itself], listed, strict=True))
    for name, embed in (meaning or {}).items():
        by_words = {one.row for one in found[name]}
        found[name] += same_meaning(pool, others[name], embed, but=by_words)
    dropped = {one.row for those in found.values() for one in those}
    share, left = len(dropped) / max(1, len(pool)), len(pool) - len(dropped)
    name, those = max(found.items(), key=lambda each: len(each[1]), default=("", []))
    if left < k:
        rule = Counter(one.rule for one in those).most_common(1)[0][0]
        remedy = _keeping_copies() if itself else f"leave out {quoted('benchmarks')}"
        raise InfeasibleError(
            f"must not exceed the {left:,} of {len(pool):,} rows that may be chosen (got {k}): "
            f"{len(those):,} repeat {name} ({rule}, such as row {those[0].row}: "
            f"{those[0].words!r}). Lower k, bring other rows, or keep them: {remedy}.",
            parameter="k",
        )
    if share > _MANY_DROPPED:
        every = Counter(one.words for those in found.values() for one in those)
        shared, times = every.most_common(1)[0]
        warn_of_data(
            f"{share:.0%} of the pool's rows repeat others and are dropped, most of them "
            f"({len(those):,}) for {name}. {times:,} share {shared!r}."
        )
    return {name: as_near_rows(those) for name, those in found.items()}


def _keeping_copies() -> str:
    return asking("min_distance=None", "keep_duplicates")


def as_near_rows(found: Sequence[Repeat]) -> NearRows:
    """Rows that repeat others, for what drops rows near to others."""
    rows, of = np.array([(one.row, one.of) for one in found], np.intp).reshape(-1, 2).T
    return NearRows(
        0.0,
        rows,
        of,
        distances=np.full(len(found), np.nan),
        rules=tuple(one.rule for one in found),
        words=tuple(one.words for one in found),
    )


def usable(data: Items, on_error: str) -> list[bool]:
    """Which rows a model can look at; others are refused, unless they may be skipped."""
    if data.kind == "images":  # whether a picture can be read shows when it is
        return [True] * len(data)
    if data.kind == "text":
        return usable_rows(list(map(what_is_wrong, data.texts)), "texts", data.path, on_error)
    reasons = list(map(what_is_wrong_with, data))
    return usable_rows(reasons, "examples", data.path, on_error, expected=NO_ANSWER)


# --- a question asked before its vectors are computed, which may take hours -----------------------


def rehearse(method: Method, k: int, rows: int, targets: int, **conditions: Any) -> None:
    """Refuse what no vectors of these rows would answer; `conditions` are those of a `Problem`.

    >>> from uniproto.methods import Random
    >>> rehearse(Random(), 2, rows=3, targets=1, exclude=[0])
    """
    if isinstance(method, DSIR):
        raise InvalidInputError(
            "dsir counts words. Pass uniproto.features.hashed_ngrams of both to uniproto.select.",
            parameter="method",
        )
    pool = np.ones((rows, 2), np.float32)  # as models make vectors: memory depends on it
    problem = Problem(pool, -pool[:1].repeat(targets, axis=0), **conditions).with_k(k)
    if (check := getattr(method, "check", None)) is not None:
        check(problem)


def require_enough(
    k: int, usable: Iterable[Any], target: Iterable[Any], of: int, *, with_copies: bool
) -> None:
    """Refuse a k that unusable rows and exact copies leave too few of the pool's rows for.

    `usable` are the contents of the pool's `of` rows that can be embedded; copies of each other and
    of the target count only `with_copies`.
    """
    if with_copies:
        which, left = "can be embedded", sum(1 for _ in islice(usable, k))
        remedy = "Lower k, or bring more rows."
    else:
        which = "can be embedded and are no copies of each other or of the target"
        left, seen = 0, set(map(repr, target))
        for each in filter(lambda content: content not in seen, map(repr, usable)):
            seen.add(each)
            if (left := left + 1) == k:  # enough: no more need be kept in memory
                break
        remedy = f"Lower k, bring more rows, or allow copies: {_keeping_copies()}."
    if left < k:
        raise InfeasibleError(
            f"must not exceed the rows of the pool that {which}, {left:,} of {of:,} (got {k}). "
            f"{remedy}",
            parameter="k",
        )
