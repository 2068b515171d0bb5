"""The report: one HTML file with the verdict, a map and every prototype."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.errors import require_int
from uniproto.runs.publish import write_page

if TYPE_CHECKING:
    from uniproto.features.compared_rows import Given
    from uniproto.problem.problem import Problem
    from uniproto.report.examples import Examples
    from uniproto.selection.selection import Selection

PAGE = "report.html"  # in a folder of results; removed when they are replaced


def write_report(
    selection: Selection,
    path: str | os.PathLike[str],
    source: Examples,
    target: Examples,
    *,
    problem: Problem | None,
    random: int | None = None,
    **options: Any,
) -> Path:
    """Write the page atomically and return its path; `options` are those of `Content`."""
    from uniproto.report.content import Content
    from uniproto.report.page import render

    if random is not None:
        require_int("random", random, least=0)
    content = Content(selection, source, target, problem=problem, random=random, **options)
    write_page(Path(path), render(content))
    return Path(path)


def report_selection(
    selection: Selection,
    path: str | os.PathLike[str],
    problem: Problem | None,
    known: Mapping[str, tuple[Any, Any]],
    *,
    title: str | None,
    random: int | None,
) -> Path:
    """The page of a selection in Python; `known` are pairs of sequences: source, target."""
    from uniproto.data.arrays import is_table
    from uniproto.report.examples import examples
    from uniproto.report.targets import is_one_set

    m, n = selection.details.shape
    of_source = {name: first for name, (first, _) in known.items()}
    of_target = {name: second for name, (_, second) in known.items()}
    source = examples(m, **of_source)
    if is_one_set(problem, selection.details.shape):
        other = examples(n, **of_target)
        given = {name: getattr(other, name) for name in vars(other) if name != "count"}
        target = replace(source, **{name: one for name, one in given.items() if one is not None})
    else:
        target = examples(n, **of_target)
    if problem is not None and (
        source.text is source.pictures is None or is_table(problem.given.source)
    ):
        source, target = _with_tables(problem.given, source, target)
    if problem is not None and problem._group_labels is not None and source.groups is None:
        labels, others = problem._group_labels
        source, target = replace(source, groups=labels), replace(target, groups=others)
    commands = [("This page", f"selection.report({os.fspath(path)!r})")]
    return write_report(
        selection,
        path,
        source,
        target,
        problem=problem,
        title=title,
        commands=commands,
        random=random,
    )


def _with_tables(given: Given, source: Examples, target: Examples) -> tuple[Examples, Examples]:
    """Examples with the columns of the given tables."""
    from uniproto.report.columns import shown_table

    first = shown_table(given.source)
    second = first if given.target is given.source else shown_table(given.target)
    return replace(source, table=first), replace(target, table=second)
