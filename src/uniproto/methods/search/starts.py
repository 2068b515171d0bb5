"""Where the search starts: greedy picks and free centres, on a sample where rows are many."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import TooFewApartError
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.contract import Method, Picks
from uniproto.methods.search.assigner import Assigned, Assigner, targets_are_rows
from uniproto.methods.search.centres import (
    as_points,
    have_centres,
    move_centres,
    snapped,
)
from uniproto.methods.search.exact_plan import Rows
from uniproto.methods.search.stage import PICKED_FROM
from uniproto.problem.problem import Problem, some_of
from uniproto.runtime.budget import Check
from uniproto.runtime.progress import Progress

_PAIRS = 25_000_000  # of rows and targets, up to which they are chosen from more
_STEPS = 30  # of free centres
_MOST_NUMBERS = 25_000_000  # of a sample's rows


def sampled(
    problem: Problem, size: int, random: np.random.Generator, keep: Rows
) -> tuple[Problem, Rows]:
    """The problem among so many random rows and targets, in memory; and which rows they are.

    Where targets are fewer, rows are more, as it is their pairs that take time; but not so many
    that they take much memory. Where source and target are one set, so are the samples, unless most
    rows may not be chosen. Given rows are always in it, and so are those to `keep`, and enough of
    every source that must give some. Targets are drawn as often as their weight says.
    """
    candidates = problem.candidates
    if size * size >= len(candidates) * problem.n:
        return problem, np.arange(problem.m)
    always = np.union1d(np.union1d(problem.initial, keep), _owed(problem, random))
    few = min(size, problem.n)
    targets, share = np.arange(problem.n), problem.target_weights
    if few < problem.n:
        targets, share = problem.drawn_targets(few, random)
    if targets_are_rows(problem) and share is None:
        rows = targets = np.union1d(targets, always)
    else:
        width = problem.costs.source.shape[1] if isinstance(problem.costs, FeatureCosts) else few
        most = max(size, min(size * size // few, _MOST_NUMBERS // width))
        rows = np.union1d(candidates[some_of(len(candidates), most, random)], always)
    part = problem.among(rows, targets, share)
    if isinstance(part.costs, FeatureCosts) and part.costs.on_disk:
        part = part.changed(costs=part.costs.read(np.arange(part.m), np.arange(part.n)))
    return part, rows


def _owed(problem: Problem, random: np.random.Generator) -> Rows:
    """Random rows of each source that must give some, twice as many as it must."""
    found = [np.empty(0, np.intp)]
    for rule in filter(None, (problem.limits, problem.keep)):
        for source in np.flatnonzero(rule.least):
            own = problem.candidates[rule.source_of_row[problem.candidates] == source]
            found.append(random.permutation(own)[: 2 * int(rule.least[source])])
    return np.concatenate(found)


def greedy_picks(
    problem: Problem, greedy: Method, random: np.random.Generator, *, again: bool = False
) -> Picks:
    """The picks of the greedy algorithm for all targets, among some rows where they are many.

    What exchanges make of them is as good as with all rows, which take several times as long.
    `again`: other picks than before.
    """
    alone, rows = problem.changed(checkpoint=None), problem.candidates
    count = max(PICKED_FROM * problem.k, _PAIRS // problem.n)
    if again:
        count = min(PICKED_FROM * problem.k, (problem.k + len(rows)) // 2)
    if count < len(rows):
        some = np.union1d(rows[some_of(len(rows), count, random)], _owed(problem, random))
        with suppress(TooFewApartError):  # among these, but perhaps not among all
            return greedy.pick(alone.changed(candidates=some), Progress(False))
    return greedy.pick(alone, Progress(False))


def near_centres(assigner: Assigner, rows: Rows, goes_on: Check) -> Rows:
    """The rows nearest to free centres that start at these rows."""
    found = centres_from(assigner, rows, assigner.assign(rows), goes_on)
    return snapped(assigner, found.prototypes[assigner.given :])


def centres_from(assigner: Assigner, rows: Rows, found: Assigned, goes_on: Check) -> Assigned:
    """Free centres that start at these rows, `found`, and move until they hardly do any more."""
    points: NDArray[Any] = as_points(assigner, rows)
    return move_centres(assigner, replace(found, prototypes=points), _STEPS, goes_on)


def centres_pay(problem: Problem, work: float) -> bool:
    """Whether free centres are to be had for so much work."""
    return have_centres(problem.costs) and work_of_centres(problem) <= work


def work_of_centres(problem: Problem) -> float:
    """About how much work it is to move free centres until they stay put."""
    costs: Any = problem.costs
    return _STEPS / 2 * problem.n * problem.k * (10 + costs.source.shape[1] / 10)
