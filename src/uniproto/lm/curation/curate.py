"""Training data for a task: rows of a large pool, chosen for a small target."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.data.columns import arrow_table
from uniproto.data.disk import local_data
from uniproto.data.examples import example_columns, is_plain_text
from uniproto.data.files import possible_path
from uniproto.data.tables import require_column
from uniproto.errors import (
    InfeasibleError,
    InvalidInputError,
    known_keywords,
    require_int,
    require_name,
    warn_of_data,
)
from uniproto.features.cache import cache_folder
from uniproto.features.embedded import Embedded, usable_rows
from uniproto.features.files import Items, read_table
from uniproto.features.text import what_is_wrong
from uniproto.lm.curation.meaning import Embed, same_meaning, sentence_vectors
from uniproto.lm.curation.overlap import Repeat
from uniproto.lm.curation.repeats import repeats
from uniproto.lm.features.examples import LanguageExamples
from uniproto.lm.features.language import NO_ANSWER, what_is_wrong_with
from uniproto.lm.features.language_features import OPTIONS, gradients, hidden_states
from uniproto.methods import Method, as_method
from uniproto.methods.dsir import DSIR
from uniproto.problem.near import NearRows, near_targets, require_distance, rows_near
from uniproto.problem.problem import Problem, ProblemOptions
from uniproto.problem.values import Limits
from uniproto.select import run_method
from uniproto.selection.selection import Selection

_STREAMED_AT_ONCE = 10_000  # rows
_MANY_DROPPED = 0.05  # of the pool's rows: people are warned
FEATURES = ("gradients", "hidden", "text")
COLUMNS = ("text", "prompt", "answer", "messages")  # that are looked at, by what they hold
_OF_MODELS = ("adapter", "layer", "width", "pooling", "template", "max_length", "bf16")
DECONTAMINATE = ("words", "words+meaning")
EMBEDDING = (*COLUMNS, *_OF_MODELS, *OPTIONS)
_OF_SENTENCES = ("device", "cache")  # and of the model of sentences that compares meanings
_OF_GRADIENTS = {"adapter", "layer", "width"}  # who passes one, wants them


@partial(known_keywords, also=EMBEDDING)
def curate(
    pool: Any,
    target: Any,
    k: int,
    *,
    model: Any = None,
    tokenizer: Any = None,
    features: str | None = None,
    limits: Limits | None = None,
    min_distance: float | str | None = "auto",
    benchmarks: Any = None,
    decontaminate: str = "words",
    exclude_near: tuple[Any, float] | None = None,
    method: str | Method = "uniproto",
    seed: int = 0,
    progress: bool | None = None,
    **embedding: Any,
) -> Selection:
    """Choose the k rows of a pool to train on, for the task that the rows of a target show.

    Args:
        pool, target: a path or name on the Hugging Face hub, a `datasets.Dataset`, an
            `IterableDataset`, a data frame, an Arrow table or a list of mappings.
        k: how many rows to choose.
        model: the language model that will be trained, by its name or folder, or as loaded by
            transformers; for `features="text"` a sentence model.
        tokenizer: that of a loaded model.
        features: how rows are compared: `gradients` of the model, its `hidden` states, or `text`,
            by sentence embeddings of the columns that `text` names. By default gradients, hidden
            states where rows are plain texts without a prompt, and sentence embeddings where there
            is a `text`.
        limits: how many rows each source may or must give: `Limits("source", at_most=500)`, by a
            column of the pool or by one label per row.
        min_distance: drop rows that repeat the words of the target or of an earlier row, and rows
            at most this far from a chosen row or from the target: "auto", a hundredth of the median
            distance; a distance; or None, drop nothing.
        benchmarks: rows of benchmarks: no row that repeats a question or a long answer of them is
            chosen (see `uniproto.lm.curation.overlap`).
        decontaminate: how repeated questions of `benchmarks` are found: by `words`, or by
            `words+meaning`, paraphrases too, by embeddings of the sentences that are a row's own
            (see `uniproto.lm.curation.meaning`).
        exclude_near: rows of a benchmark, and the distance up to which a row is too near to one.
        method, seed, progress: as for `uniproto.select`.
        embedding: further arguments of `uniproto.lm.gradients`, `hidden_states` or
            `embed_text`, such as `prompt`, `answer`, `text` (a column, or several), `template`,
            `layer`, `device` or `batch_size`. A target without the pool's columns is read by its
            own, where they have the usual names.

    Returns:
        A `Selection` whose `indices` are rows of the pool: `dataset.select(selection.indices)`.
        `details.notes["dropped"]` holds every dropped row with the rule, the data and the row that
        it repeats or is near to, and the words that both have.
    """
    if hasattr(model, "save_pretrained"):
        question: dict[str, Any] = {**locals(), **embedding}
        for name in ("embedding", "model", "tokenizer"):
            del question[name]
        return _with_saved(model, tokenizer, question)
    if features is not None:
        require_name("features", features, FEATURES)
    require_name("decontaminate", decontaminate, DECONTAMINATE)
    if decontaminate != DECONTAMINATE[0] and benchmarks is None:
        raise InvalidInputError(
            f"{decontaminate!r} needs benchmarks. Pass their rows.", parameter="decontaminate"
        )
    chosen = as_method(method)
    text, *named = (embedding.pop(name, None) for name in COLUMNS)
    columns = tuple(named)
    table, wanted = _table(pool, "pool"), _table(target, "target")
    k = require_int("k", k)
    if k > len(table):
        raise InvalidInputError(f"k={k} must not exceed the {len(table)} rows of the pool.")
    if features is None:
        features = _usual_features(table.column_names, text, columns, embedding)
    if features != "text" and model is None:
        raise InvalidInputError(f"features={features!r} needs a model. Name one.")
    items = _items(table, "pool", features, text, columns)
    read = partial(_items, features=features, text=text, columns=columns, like=items.columns)
    aims = read(wanted, "target")
    others, nearest = None, None
    if exclude_near is not None:
        rows, nearest = exclude_near
        require_distance(nearest, "exclude_near")
        others = read(_table(rows, "exclude_near"), "exclude_near")
    tests = None
    if benchmarks is not None:
        tests = read(_table(benchmarks, "benchmarks"), "benchmarks")
    on_error = embedding.get("on_error", "fail")
    if others is not None:
        usable(others, on_error)
    sources = _sources(table, limits)

    def conditions(rows: Any) -> ProblemOptions:
        kept = limits and replace(limits, labels=sources[rows])
        asked: ProblemOptions = {"limits": kept, "min_distance": min_distance, "seed": seed}
        return {"metric": "cosine", **asked}

    copies = None if min_distance is None else "min_distance=None"
    require_choosable(k, items, aims, chosen, on_error, conditions, copies=copies)

    def embed(these: Items) -> Embedded:
        options = {**embedding, "progress": progress}
        return _embedded(these, features, model, options)

    others_in_words = {} if tests is None else {"benchmarks": tests}
    if min_distance is not None:
        others_in_words = {"target": aims, "pool": items, **others_in_words}
    meaning: Embed | None = None
    if decontaminate == DECONTAMINATE[1] and benchmarks is not None:
        own = {name: embedding[name] for name in _OF_SENTENCES if name in embedding}
        meaning = partial(sentence_vectors, progress=progress, **own)
    remedy = copies or "benchmarks=None"
    found = word_rules(k, items, others_in_words, remedy, {"benchmarks": meaning})
    of_target = embed(aims)  # first: it shows what is wrong
    of_others = None if others is None else embed(others)
    of_pool = embed(items)
    problem = Problem(of_pool.vectors, of_target.vectors, **conditions(of_pool.rows))
    near = {name: one.only(of_pool.rows) for name, one in found.items()}
    if problem.twin_distance is not None:
        near["target "] = near_targets(problem.costs, problem.twin_distance)
    if of_others is not None and nearest is not None:
        near["exclude_near"] = rows_near(
            of_pool.vectors, of_others.vectors, nearest, metric="cosine"
        )
    dropped = {
        int(of_pool.rows[row]): reason
        for name, those in near.items()
        for row, reason in those.reasons(name.strip())
    }
    rows = np.searchsorted(of_pool.rows, sorted(dropped))
    problem = problem.excluding(rows.astype(np.intp)).with_k(k)
    selection = run_method(problem, chosen, progress=progress)
    selection.details.notes["dropped"] = dict(sorted(dropped.items()))
    if not (of_pool.left_out or of_target.left_out):
        return selection
    return selection.renumbered(of_pool.rows, of_target.rows, (len(table), len(wanted)))


def _with_saved(model: Any, tokenizer: Any, question: dict[str, Any]) -> Selection:
    """Curate by a loaded model, which is saved first: vectors are cached by what its files hold."""
    if tokenizer is None:
        raise InvalidInputError(
            "must be given with a loaded model. Pass that of the model.", parameter="tokenizer"
        )
    with tempfile.TemporaryDirectory() as folder:
        for each in (model, tokenizer):
            each.save_pretrained(folder)
        found: Selection = curate(**question, model=folder)
    return found


def require_choosable(
    k: int,
    pool: Items,
    target: Items,
    method: Method,
    on_error: str,
    conditions: Callable[[list[bool]], ProblemOptions],
    *,
    copies: str | None,
) -> None:
    """Refuse, before a model looks, a k and conditions that the usable rows cannot meet.

    `conditions` are those of a problem of these rows; `copies` says how to keep copies, if they
    are dropped.
    """
    targets, known = sum(usable(target, on_error)), usable(pool, on_error)
    if pool.kind != "images":
        require_enough(k, compress(pool, known), target, len(pool), copies=copies)
    rehearse(method, k, sum(known), targets, **conditions(known))


def word_rules(
    k: int,
    pool: Items,
    others: Mapping[str, Items],
    remedy: str,
    meaning: Mapping[str, Embed | None] | None = None,
) -> dict[str, NearRows]:
    """The rows of a pool that repeat others, or earlier ones of it; no language model looks.

    `others` by name, the pool itself among them where its copies are dropped; `meaning` has a model
    of sentences for those that must not be repeated in other words, either; `remedy` says how to
    keep what is dropped. Refuses a k that these rules leave too few rows for.
    """
    if pool.kind == "images":
        return {}
    names = [name for name, data in others.items() if data is not pool]
    itself = [name for name, data in others.items() if data is pool]
    listed = repeats(pool, [others[name] for name in names], itself=bool(itself))
    found = dict(zip([*names, *itself], listed, strict=True))
    for name, embed in (meaning or {}).items():
        if embed is not None and name in found:
            by_words = {one.row for one in found[name]}
            found[name] += same_meaning(pool, others[name], embed, but=by_words)
    dropped = {one.row for those in found.values() for one in those}
    share, left = len(dropped) / max(1, len(pool)), len(pool) - len(dropped)
    name, those = max(found.items(), key=lambda each: len(each[1]), default=("", []))
    if left < k:
        rule = Counter(one.rule for one in those).most_common(1)[0][0]
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


def _table(values: Any, parameter: str) -> pa.Table:
    """The rows of a file, a data set, a table or a list of mappings as an Arrow table."""
    if isinstance(values, str | os.PathLike):
        kept = cache_folder() / "datasets"
        return read_table(possible_path(local_data(os.fspath(values), kept)))[1]
    if isinstance(values, Mapping) and all(hasattr(one, "with_format") for one in values.values()):
        if len(values) != 1:  # a datasets.DatasetDict
            raise InvalidInputError(
                f"has the splits {', '.join(map(str, values))}. Pass one of them.",
                parameter=parameter,
            )
        (values,) = values.values()
    if hasattr(values, "with_format") and hasattr(values, "__getitem__"):
        values = values.with_format("arrow")[:]  # a datasets.Dataset, which is one already
    if isinstance(values, pa.Table) or hasattr(values, "columns"):
        table = arrow_table(values, parameter)
        rows: list[Any] = [{}] * min(1, len(table))
    elif hasattr(values, "__len__"):
        rows, table = list(values), None
    else:
        return _streamed(values, parameter)
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidInputError(
            "must be a file, a data set of 'datasets', a data frame or a list of mappings.",
            parameter=parameter,
        )
    return _table_of(rows, parameter) if table is None else table


def _table_of(rows: list[Any], parameter: str) -> pa.Table:
    names = dict.fromkeys(itertools.chain.from_iterable(rows))
    columns = {str(name): [row.get(name) for row in rows] for name in names}
    return arrow_table(columns, parameter)


def _streamed(values: Iterable[Any], parameter: str) -> pa.Table:
    """The rows of a stream, which is read once, in files that are mapped into memory."""
    remaining = iter(values)
    parts: list[pa.Table] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        while rows := list(islice(remaining, _STREAMED_AT_ONCE)):
            part = Path(folder, str(len(parts)))
            table = _table(rows, parameter)
            with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
                file.write_table(table)
            parts.append(pa.ipc.open_file(pa.memory_map(str(part))).read_all())
    if not parts:
        return _table([], parameter)
    return pa.concat_tables(parts, promote_options="permissive")


def _numbers_as_texts(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """The table with whole numbers of some columns as texts: an answer may be one."""
    for name in columns:
        if pa.types.is_integer(table.schema.field(name).type):
            place = table.column_names.index(name)
            table = table.set_column(place, name, table.column(name).cast(pa.string()))
    return table


def _sources(table: pa.Table, limits: Limits | None) -> NDArray[Any]:
    """Where each row comes from, if that is limited."""
    labels: Any = () if limits is None else limits.labels
    if isinstance(labels, str):
        require_column(table, labels, "limits", Path("pool"))
        labels = table.column(labels).to_pylist()
    if limits is not None and len(labels) != len(table):
        raise InvalidInputError(
            f"limits must have a column's name or {len(table):,} labels, one for each row of the "
            f"pool, not {len(labels):,}."
        )
    return np.array(labels, object)


def _usual_features(
    present: Sequence[str],
    text: str | tuple[str, ...] | None,
    columns: tuple[str | None, ...],
    embedding: Mapping[str, Any],
) -> str:
    """How rows are compared where nobody says it."""
    if text is not None:
        return "text"
    plain = is_plain_text(example_columns(present, *columns))
    return "hidden" if plain and not _OF_GRADIENTS & embedding.keys() else "gradients"


def _items(
    table: pa.Table,
    name: str,
    features: str,
    text: str | tuple[str, ...] | None,
    columns: tuple[str | None, ...],
    like: Sequence[str] = (),
) -> Items:
    """What a model looks at: the examples or the texts of rows."""
    if features != "text":
        if text is not None:
            raise InvalidInputError("text needs features='text'. Use prompt= and answer=.")
        named = example_columns(table.column_names, *columns, like=like, where=name)
        table = _numbers_as_texts(table, named)
        return LanguageExamples(Path(name), "", table, "language", ",".join(named), columns=named)
    parts = (text,) if isinstance(text, str) else tuple(text or ())
    missing = [part for part in parts if part not in table.column_names]
    if missing or not parts:
        raise InvalidInputError(
            f"text: the pool has no {', '.join(missing) or 'text'}, but "
            f"{', '.join(table.column_names)}. Pass for example text=('instruction', 'output')."
        )
    return Items(Path(name), "", table, "text", ",".join(parts), columns=parts)


def usable(data: Items, on_error: str) -> list[bool]:
    """Which rows a model can look at; others are refused, unless they may be skipped."""
    if data.kind == "images":  # whether a picture can be read shows when it is
        return [True] * len(data)
    if data.kind == "text":
        return usable_rows(list(map(what_is_wrong, data.texts)), "texts", data.path, on_error)
    reasons = list(map(what_is_wrong_with, data))
    return usable_rows(reasons, "examples", data.path, on_error, expected=NO_ANSWER)


def _embedded(items: Items, features: str, model: str | None, options: dict[str, Any]) -> Embedded:
    if features == "text":
        return items.embed(model, **options)
    look = gradients if features == "gradients" else hidden_states
    return look(items, model=str(model), **options)


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
    k: int, usable: Iterable[Any], target: Iterable[Any], of: int, *, copies: str | None
) -> None:
    """Refuse a k that unusable rows and exact copies leave too few of the pool's rows for.

    `usable` are the contents of the pool's `of` rows that can be embedded; `copies` says how to
    allow copies of each other and of the target, None that they are allowed.
    """
    if copies is None:
        which, left = "can be embedded", sum(1 for _ in islice(usable, k))
        remedy = "Lower k, or bring more rows."
    else:
        which = "can be embedded and are no copies of each other or of the target"
        left, seen = 0, set(map(repr, target))
        for each in filter(lambda said: said not in seen, map(repr, usable)):
            seen.add(each)
            if (left := left + 1) == k:  # enough: no more need be kept in memory
                break
        remedy = f"Lower k, bring more rows, or allow copies: {copies}."
    if left < k:
        raise InfeasibleError(
            f"must not exceed the rows of the pool that {which}, {left:,} of {of:,} (got {k}). "
            f"{remedy}",
            parameter="k",
        )
