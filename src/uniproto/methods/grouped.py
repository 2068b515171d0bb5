"""The picks of a method for a whole problem: at once, or inside each group."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import Method, Picks
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


def pick(
    problem: Problem, method: Method, progress: Progress
) -> tuple[Picks, dict[Hashable, NDArray[np.intp]] | None]:
    """The picks, and where there are groups the rows picked in each, numbered inside it."""
    if problem.groups:
        return _pick_in_groups(problem, method, progress)
    return method.pick(problem, progress), None


def _pick_in_groups(
    problem: Problem, method: Method, progress: Progress
) -> tuple[Picks, dict[Hashable, NDArray[np.intp]]]:
    """One selection inside each group, joined; given prototypes come first, then group by group."""
    parts: list[Picks] = []
    taken: list[int] = problem.initial.tolist()
    for group in problem.groups:
        part = _without_twins(group.problem, group.source_rows, problem, taken)
        parts.append(method.pick(part, progress))
        taken.extend(group.source_rows[parts[-1].rows].tolist())
    return _joined(problem, parts)


def improve_in_groups(
    problem: Problem,
    found: Mapping[Hashable, NDArray[np.intp]],
    seconds: float,
    progress: Progress,
) -> tuple[Picks, dict[Hashable, NDArray[np.intp]]]:
    """Exchange rows inside each group, which share the seconds."""
    from uniproto.methods.greedy import Greedy
    from uniproto.methods.search.search import search

    parts: list[Picks] = []
    rows = {group.label: group.source_rows[found[group.label]] for group in problem.groups}
    for group in problem.groups:
        others = [row for label, of in rows.items() if label != group.label for row in of.tolist()]
        part = _without_twins(group.problem, group.source_rows, problem, others)
        begun = found[group.label].astype(np.intp)
        parts.append(search(part, Greedy(), seconds / len(problem.groups), progress, begun))
        rows[group.label] = group.source_rows[parts[-1].rows]
    return _joined(problem, parts)


def _joined(problem: Problem, parts: list[Picks]) -> tuple[Picks, dict[Hashable, NDArray[np.intp]]]:
    rows, gains, weights, notes = [], [], [], {}
    local_rows: dict[Hashable, NDArray[np.intp]] = {}
    served = sum(group.mass for group in problem.groups)
    for group, picks in zip(problem.groups, parts, strict=True):
        local_rows[group.label] = picks.rows
        rows.append(group.source_rows[picks.rows])
        gains.append(picks.gains)
        proven = {} if picks.proof is None else {"proof": picks.proof.why}
        notes[str(group.label)] = {**picks.notes, **proven}
        weights.append(
            np.full(group.problem.k, 1 / problem.k)
            if picks.weights is None
            else picks.weights * (group.mass / served)
        )
    joined, joined_gains = np.concatenate(rows), np.concatenate(gains)
    place = {int(row): position for position, row in enumerate(joined)}
    first = [place[int(row)] for row in problem.initial]
    given = set(first)
    order = np.array(first + [p for p in range(len(joined)) if p not in given], np.intp)
    joined_weights = np.concatenate(weights)
    picks = Picks(joined[order], joined_gains[order], joined_weights[order], notes=notes)
    return picks, local_rows


def _without_twins(
    part: Problem, source_rows: NDArray[np.intp], whole: Problem, taken: list[int]
) -> Problem:
    """The group's problem without near-duplicates of rows taken elsewhere."""
    if whole.twin_distance is None:
        return part
    barred = np.zeros(whole.m, bool)
    for row in set(taken).difference(source_rows[part.initial].tolist()):
        barred |= whole.costs.twins(row, whole.twin_distance)
    free = part.candidates[~barred[source_rows[part.candidates]]]
    if len(part.initial) + len(free) < part.k:
        raise part.too_few_distinct(len(part.initial) + len(free))
    return part.changed(candidates=free)
