"""A selection in a notebook: the verdict, a small map and the first prototypes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from uniproto.features.preparation import words_of
from uniproto.problem.problem import Problem
from uniproto.report.page import template_environment
from uniproto.report.targets import drawn_targets, project
from uniproto.report.words import LONGEST_NAME, counted, cut, figure

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection

_WIDTH, _HEIGHT, _ROOM = 300, 220, 10
_MOST_DRAWN = 600
_MOST_ROWS, _MOST_COLUMNS = 8, 8


def card(selection: Selection, problem: Problem | None, table: pa.Table) -> str:
    """HTML for a notebook, with nothing to load and nothing to run; `table` are the prototypes."""
    first = table.slice(0, _MOST_ROWS).to_pylist()
    names = table.column_names[:_MOST_COLUMNS]
    prepared = selection.preparation
    certificate = selection.certificate
    n = selection.shape[1]
    points, diamonds = ([], []) if problem is None else _map(selection, problem)
    template = template_environment("uniproto.report").get_template("card.html.j2")
    rendered = template.render(
        headline=f"{counted(selection.k, 'prototype')} of {selection.shape[0]:,} rows for {n:,}"
        f" ({selection.method}, {selection.metric})",
        words=selection.in_words(),
        bound=""
        if certificate is None or selection.proof is not None  # the words say that
        else f"no choice can be below {figure(certificate.lower_bound)}",
        names=[cut(name, LONGEST_NAME) for name in names],
        rows=[[cut(row[name], LONGEST_NAME) for name in names] for row in first],
        more=max(0, selection.k - _MOST_ROWS),
        columns=[] if prepared is None else prepared.rows,
        became="" if prepared is None else words_of(prepared.rows),
        points=points,
        diamonds=diamonds,
        width=_WIDTH,
        height=_HEIGHT,
    )
    return str(rendered)


def _map(selection: Selection, problem: Problem) -> tuple[list[Any], list[Any]]:
    """Places of some targets and of all prototypes, in pixels."""
    plan = selection.plan
    weights = np.asarray(plan.sum(axis=0)).ravel()
    drawn = drawn_targets(plan, weights, np.empty(0, np.intp))
    if len(drawn) > _MOST_DRAWN:
        drawn = np.sort(np.random.default_rng(0).choice(drawn, _MOST_DRAWN, replace=False))
    found = project(problem.costs, plan, selection.indices, drawn)
    both = np.vstack([found.targets, found.prototypes])
    low, high = both.min(axis=0), both.max(axis=0)
    size = np.array([_WIDTH, _HEIGHT]) - 2 * _ROOM
    places = (both - low) / np.where(high > low, high - low, 1.0)
    places[:, 1] = 1 - places[:, 1]
    pixels = (_ROOM + places * size).round(1).tolist()
    return pixels[: len(drawn)], pixels[len(drawn) :]
