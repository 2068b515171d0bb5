"""Training data for a task: rows of a large pool, chosen for a small target."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from uniproto.errors import InputFileError, invalid, require_int, require_name
from uniproto.features import Embedded, embed_text, gradients, hidden_states
from uniproto.features.language import message_text
from uniproto.methods import Method, as_method
from uniproto.problem.near import near_targets, rows_near
from uniproto.problem.problem import Problem
from uniproto.select import run_method
from uniproto.selection.selection import Selection

FEATURES = ("gradients", "hidden", "text")


def curate(
    pool: Any,
    target: Any,
    k: int,
    *,
    model: str | None = None,
    features: str = "gradients",
    text: str | tuple[str, ...] | None = None,
    source: str | None = None,
    at_most: int | Mapping[Hashable, int] | None = None,
    at_least: int | Mapping[Hashable, int] | None = None,
    distinct: bool | float = True,
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
            by sentence embeddings.
        text: with `features="text"`, the column or columns to embed.
        source: the column of the pool that says where a row comes from, for `at_most` and
            `at_least`: a number for every source, or a mapping from label to count.
        distinct: drop rows at most this far from a chosen row or from the target: True, a
            hundredth of the median distance; a distance; or False, drop nothing.
        exclude_near: rows of a benchmark, and the distance up to which a row is too near to one.
        method, seed, progress: as for `uniproto.select`.
        embedding: further arguments of `uniproto.features.gradients`, `hidden_states` or
            `embed_text`, such as `prompt`, `answer`, `template`, `device` or `batch_size`.

    Returns:
        A `Selection` whose `indices` are rows of the pool: `dataset.select(selection.indices)`.
        `notes["dropped"]` lists the rows that copy the target or are near a benchmark.
    """
    require_name("features", features, FEATURES)
    chosen = as_method(method)
    rows, wanted = _rows(pool, "pool"), _rows(target, "target")
    k = require_int("k", k)
    if k > len(rows):
        raise invalid("k", f"must not exceed the {len(rows)} rows of the pool", k, "Lower it.")
    sources = None
    if source is not None:
        if any(source not in row for row in rows):
            raise InputFileError(f"pool: every row must have the column {source!r}. Name another.")
        sources = [row[source] for row in rows]

    def embed(these: list[dict[str, Any]]) -> Embedded:
        return _embedded(these, features, model, text, {**embedding, "progress": progress})

    benchmark = None if exclude_near is None else _rows(exclude_near[0], "exclude_near")
    of_target, of_pool = embed(wanted), embed(rows)  # the target first: it shows what is wrong
    limited = None if sources is None else [sources[row] for row in of_pool.rows]
    problem = Problem(
        of_pool.vectors,
        of_target.vectors,
        sources=limited,
        at_most=at_most,
        at_least=at_least,
        distinct=distinct,
        seed=seed,
    )
    dropped: set[int] = set()
    if problem.twin_distance is not None:
        dropped.update(near_targets(problem.costs, problem.twin_distance).rows.tolist())
    if exclude_near is not None and benchmark is not None:
        near = rows_near(of_pool.vectors, embed(benchmark).vectors, exclude_near[1])
        dropped.update(near.rows.tolist())
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


def _embedded(
    rows: list[dict[str, Any]],
    features: str,
    model: str | None,
    text: str | tuple[str, ...] | None,
    options: dict[str, Any],
) -> Embedded:
    if features != "text":
        if text is not None:
            raise invalid("text", "needs features='text'", repr(text), "Use prompt= and answer=.")
        if model is None:
            raise invalid("model", f"must be given for {features}", "None", "Name a model.")
        look = gradients if features == "gradients" else hidden_states
        return look(rows, model=model, **options)
    columns = (text,) if isinstance(text, str) else tuple(text or ())
    missing = [name for name in columns if name not in rows[0]]
    if missing or not columns:
        raise invalid(
            "text",
            f"must name columns of text ({', '.join(map(str, rows[0]))})",
            ", ".join(missing) or "none",
            "Pass for example text=('instruction', 'output').",
        )
    parts = ([message_text(row[name]) for name in columns] for row in rows)
    texts = [
        each[0] if len(each) == 1 else None if None in each else "\n\n".join(map(str, each))
        for each in parts
    ]
    if model is not None:
        options["model"] = model
    return embed_text(texts, **options)
