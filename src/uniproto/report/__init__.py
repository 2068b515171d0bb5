"""The page a person looks at: one HTML file with the verdict, the map and every prototype."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uniproto.errors import require_int
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.runs.publish import write_page

if TYPE_CHECKING:
    from uniproto.features.compared_rows import Given
    from uniproto.problem.problem import Problem
    from uniproto.report.examples import Examples
    from uniproto.selection.selection import Selection

PAGE = "report.html"  # in a folder of results; it goes when they are replaced


def write_report(
    selection: Selection,
    path: str | os.PathLike[str],
    source: Examples,
    target: Examples,
    *,
    problem: Problem | None,
    title: str | None = None,
    commands: Sequence[tuple[str, str]] = (),
    random: int | None = None,
    comparison: Mapping[str, Any] | None = None,
    certifier: str | None = None,
) -> Path:
    """Write the page in one step and return its path.

    `certifier` is what proves a lower bound where there is none yet: by default the method of the
    selection, which one that no longer holds its data must have called before it was saved.
    """
    from uniproto.report.content import Content
    from uniproto.report.page import render

    if random is not None:
        require_int("random", random, least=0)
    path = Path(path)
    in_python = "'selection.certify()'" + (" before saving" if problem is None else "")
    page = render(
        Content(
            selection,
            source,
            target,
            problem=problem,
            same_set=is_one_set(problem, selection.shape),
            title=title or "Prototypes",
            commands=commands,
            random=random,
            comparison=comparison,
            certifier=certifier or in_python,
        )
    )
    write_page(path, page)
    return path


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
    from uniproto.report.examples import examples

    m, n = selection.shape
    of_source = {name: first for name, (first, _) in known.items()}
    of_target = {name: second for name, (_, second) in known.items()}
    source = examples(m, **of_source)
    if is_one_set(problem, selection.shape):
        other = examples(n, **of_target)
        given = {name: getattr(other, name) for name in vars(other) if name != "count"}
        target = replace(source, **{name: one for name, one in given.items() if one is not None})
    else:
        target = examples(n, **of_target)
    if problem is not None and problem.given is not None and source.text is source.pictures is None:
        source, target = _with_tables(problem.given, source, target)
    if problem is not None and problem.groups and source.groups is None:
        source, target = _with_groups(problem, source, target)
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
    """The rows' own columns, for people to look at."""
    from uniproto.report.columns import shown_table

    first = shown_table(given.source)
    second = first if given.target is given.source else shown_table(given.target)
    return replace(source, table=first), replace(target, table=second)


def is_one_set(problem: Problem | None, shape: tuple[int, int]) -> bool:
    """Whether the target is the source."""
    if problem is not None and isinstance(problem.costs, FeatureCosts):
        return problem.costs.source is problem.costs.target
    return shape[0] == shape[1]


def _with_groups(problem: Problem, source: Examples, target: Examples) -> tuple[Examples, Examples]:
    """The groups that the problem was split into; rows of none are called so."""
    sides = []
    for examples, rows_of in ((source, "source_rows"), (target, "target_rows")):
        labels = np.full(examples.count, "(no prototypes)", object)
        for group in problem.groups:
            labels[getattr(group, rows_of)] = group.label
        sides.append(replace(examples, groups=labels))
    return sides[0], sides[1]
