"""Training data for a task: rows of a large pool, chosen for a small target."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from itertools import compress
from typing import Any

import numpy as np

from uniproto.data.columns import message_text
from uniproto.errors import InputFileError, invalid, require_int, require_name
from uniproto.features.embedded import Embedded, usable_rows
from uniproto.features.text import embed_text, what_is_wrong
from uniproto.lm.curation.overlap import repeated_in_itself, repeated_rows
from uniproto.lm.features.example_tokens import NO_ANSWER, what_is_wrong_with
from uniproto.lm.features.language import as_example, example_columns, is_plain_text
from uniproto.lm.features.language_features import gradients, hidden_states
from uniproto.methods import Method, as_method
from uniproto.methods.rehearsal import rehearse, require_enough
from uniproto.problem.near import near_targets, require_distance, rows_near
from uniproto.problem.problem import Problem, ProblemOptions
from uniproto.problem.values import Limits
from uniproto.select import run_method
from uniproto.selection.selection import Selection

FEATURES = ("gradients", "hidden", "text")
_OF_GRADIENTS = {"adapter", "lora", "adam", "layer", "width"}  # who passes one, wants them


def curate(
    pool: Any,
    target: Any,
    k: int,
    *,
    model: str | None = None,
    features: str | None = None,
    text: str | tuple[str, ...] | None = None,
    source: str | None = None,
    at_most: int | Mapping[Hashable, int] | None = None,
    at_least: int | Mapping[Hashable, int] | None = None,
    distinct: bool | float = True,
    decontaminate: Any = None,
    exclude_near: tuple[Any, float] | None = None,
    method: str | Method = "uniproto",
    seed: int = 0,
    progress: bool | None = None,
    **embedding: Any,
) -> Selection:
    """Choose the k rows of a pool to train on, for the task that the rows of a target show.

    Args:
        pool, target: a `datasets.Dataset`, a data frame, an Arrow table or a list of mappings.
        k: how many rows to choose.
        model: the language model that will be trained; for `features="text"` a sentence model.
        features: how rows are compared: `gradients` of the model, its `hidden` states, or `text`,
            by sentence embeddings. By default gradients, hidden states where rows are plain
            texts without a prompt, and sentence embeddings where `text` names columns.
        text: for sentence embeddings, the column or columns to embed.
        source: the column of the pool that says where a row comes from, for `at_most` and
            `at_least`: a number for every source, or a mapping from label to count.
        distinct: drop rows that repeat the words of the target or of an earlier row, and rows at
            most this far from a chosen row or from the target: True, a hundredth of the median
            distance; a distance; or False, drop nothing.
        decontaminate: rows of a benchmark: no row that repeats a prompt or a long answer of them is
            chosen (see `uniproto.lm.curation.overlap`).
        exclude_near: rows of a benchmark, and the distance up to which a row is too near to one.
        method, seed, progress: as for `uniproto.select`.
        embedding: further arguments of `uniproto.lm.gradients`, `hidden_states` or
            `embed_text`, such as `prompt`, `answer`, `template`, `device` or `batch_size`. A target
            without the pool's columns is read by its own, where they have the usual names.

    Returns:
        A `Selection` whose `indices` are rows of the pool: `dataset.select(selection.indices)`.
        `notes["dropped"]` lists the rows that repeat or are near the target or a benchmark.
    """
    if features is not None:
        require_name("features", features, FEATURES)
    chosen = as_method(method)
    rows, wanted = _rows(pool, "pool"), _rows(target, "target")
    k = require_int("k", k)
    if k > len(rows):
        raise invalid("k", f"must not exceed the {len(rows)} rows of the pool", k, "Lower it.")
    columns = tuple(embedding.pop(name, None) for name in ("prompt", "answer", "messages"))
    if features is None:
        features = _usual_features(rows[0], text, columns, embedding)
    if features != "text" and model is None:
        raise invalid("model", f"must be given for {features}", "None", "Name a model.")
    benchmark, nearest = _checked_benchmark(exclude_near)
    tested = [] if decontaminate is None else _rows(decontaminate, "decontaminate")
    like = () if features == "text" else example_columns(list(rows[0]), *columns)
    items, aims, others, tests = (
        _items(these, features, text, columns, like) for these in (rows, wanted, benchmark, tested)
    )
    on_error = embedding.get("on_error", "fail")
    targets = sum(_usable_rows(aims, "target", features, on_error))
    _usable_rows(others, "exclude_near", features, on_error)
    usable = _usable_rows(items, "pool", features, on_error)
    copies = None if distinct is False else "distinct=False"
    require_enough(k, compress(items, usable), aims, len(rows), copies=copies)
    sources = _sources(rows, source, at_most, at_least)
    min_distance = "auto" if distinct is True else None if distinct is False else distinct

    def conditions(labels: Any) -> ProblemOptions:
        limits = None if sources is None else Limits(list(labels), at_most, at_least)
        return {"limits": limits, "min_distance": min_distance, "seed": seed}

    rehearse(chosen, k, sum(usable), targets, **conditions(compress(sources or (), usable)))

    def embed(these: list[Any]) -> Embedded:
        return _embedded(these, features, model, {**embedding, "progress": progress})

    of_target = embed(aims)  # first: it shows what is wrong
    of_others = None if nearest is None else embed(others)
    of_pool = embed(items)
    limited = () if sources is None else (sources[row] for row in of_pool.rows)
    problem = Problem(of_pool.vectors, of_target.vectors, **conditions(limited))
    dropped: set[int] = set()
    if problem.twin_distance is not None:
        dropped.update(near_targets(problem.costs, problem.twin_distance).rows.tolist())
    if of_others is not None and nearest is not None:
        dropped.update(
            rows_near(of_pool.vectors, of_others.vectors, nearest, metric="cosine").rows.tolist()
        )
    repeated = [repeated_rows(items, tests)] if tests else []
    if distinct is not False:
        repeated += [repeated_rows(items, aims), repeated_in_itself(items)]
    for found in repeated:
        dropped.update(found.only(of_pool.rows).rows.tolist())
    problem = problem.excluding(np.array(sorted(dropped), np.intp)).with_k(k)
    selection = run_method(problem, chosen, progress=progress)
    selection.notes["dropped"] = of_pool.rows[sorted(dropped)].tolist()
    if not (of_pool.left_out or of_target.left_out):
        return selection
    return selection.renumbered(of_pool.rows, of_target.rows, (len(rows), len(wanted)))


def _rows(values: Any, parameter: str) -> list[dict[str, Any]]:
    """The rows of a data set as mappings."""
    if hasattr(values, "to_pylist"):
        values = values.to_pylist()
    elif hasattr(values, "to_dict") and hasattr(values, "iloc"):
        values = values.to_dict("records")
    elif hasattr(values, "to_dicts"):
        values = values.to_dicts()
    rows = list(values) if hasattr(values, "__iter__") and not isinstance(values, str) else []
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise invalid(
            parameter,
            "must hold rows with named columns",
            "none" if not rows else f"rows of type {type(rows[0]).__name__}",
            "Pass a datasets.Dataset, a data frame or a list of mappings.",
        )
    return rows


def _checked_benchmark(
    exclude_near: tuple[Any, float] | None,
) -> tuple[list[dict[str, Any]], float | None]:
    """The rows of a benchmark, and the distance; no rows where none is given."""
    if exclude_near is None:
        return [], None
    if not (isinstance(exclude_near, tuple | list) and len(exclude_near) == 2):
        raise invalid(
            "exclude_near",
            "must be the rows of a benchmark and a distance",
            f"a {type(exclude_near).__name__}",
            "Pass for example exclude_near=(rows, 0.05).",
        )
    require_distance(exclude_near[1], "exclude_near")
    return _rows(exclude_near[0], "exclude_near"), exclude_near[1]


def _sources(
    rows: list[dict[str, Any]], source: str | None, at_most: Any, at_least: Any
) -> list[Any] | None:
    """Where each row comes from, if that is limited."""
    limits = "at_most" if at_most is not None else "at_least" if at_least is not None else None
    if source is None and limits is not None:
        raise invalid(limits, "needs 'source' as well", "none", "Name the column of sources.")
    if source is None:
        return None
    if limits is None:
        raise invalid("source", "needs 'at_most' or 'at_least'", repr(source), "Leave it out.")
    if any(source not in row for row in rows):
        raise InputFileError(f"pool: every row must have the column {source!r}. Name another.")
    return [row[source] for row in rows]


def _usual_features(
    row: Mapping[str, Any],
    text: str | tuple[str, ...] | None,
    columns: tuple[str | None, ...],
    embedding: Mapping[str, Any],
) -> str:
    """How rows are compared where nobody says it."""
    if text is not None:
        return "text"
    plain = is_plain_text(example_columns(list(row), *columns))
    return "hidden" if plain and not _OF_GRADIENTS & embedding.keys() else "gradients"


def _items(
    rows: list[dict[str, Any]],
    features: str,
    text: str | tuple[str, ...] | None,
    columns: tuple[str | None, ...],
    like: tuple[str, ...],
) -> list[Any]:
    """What a model looks at: the examples or the texts of rows."""
    if not rows:
        return []
    if features != "text":
        if text is not None:
            raise invalid("text", "needs features='text'", repr(text), "Use prompt= and answer=.")
        named = example_columns(list(rows[0]), *columns, like=like)
        return [as_example(row, named) for row in rows]
    parts = (text,) if isinstance(text, str) else tuple(text or ())
    missing = [name for name in parts if name not in rows[0]]
    if missing or not parts:
        raise invalid(
            "text",
            f"must name columns of text ({', '.join(map(str, rows[0]))})",
            ", ".join(missing) or "none",
            "Pass for example text=('instruction', 'output').",
        )
    said = ([message_text(row.get(name)) for name in parts] for row in rows)
    return [
        each[0] if len(each) == 1 else None if None in each else "\n\n".join(map(str, each))
        for each in said
    ]


def _usable_rows(items: list[Any], name: str, features: str, on_error: str) -> list[bool]:
    """Which items a model can look at; others are refused, unless they may be skipped."""
    if not items:
        return []
    if features == "text":
        return usable_rows(list(map(what_is_wrong, items)), "texts", name, on_error)
    reasons = list(map(what_is_wrong_with, items))
    return usable_rows(reasons, "examples", name, on_error, expected=NO_ANSWER)


def _embedded(
    items: list[Any], features: str, model: str | None, options: dict[str, Any]
) -> Embedded:
    if model is not None:
        options = {**options, "model": model}
    looks: dict[str, Callable[..., Embedded]] = {
        "gradients": gradients, "hidden": hidden_states, "text": embed_text
    }  # fmt: skip
    return looks[features](items, **options)
