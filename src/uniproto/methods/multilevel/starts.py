"""Where the search starts: greedy picks, free centres, and rows apart from each other.

Where rows are many, both begin on a sample: centres become the nearest rows of the whole pool, and
on all targets each prototype gives way to the best row of its cell. A pass over all rows then
costs k · n, never m · n.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import Method
from uniproto.methods.multilevel.best_rows import (
    as_points,
    have_centres,
    move_centres,
    settle,
    snapped,
)
from uniproto.methods.multilevel.level import Assigned, Level, sampled
from uniproto.methods.multilevel.local_search import Candidates
from uniproto.methods.picking import Pool
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress

_GREEDY_ROWS, _GREEDY_ROWS_EACH = 5_000, 20  # in all, or for each prototype
_CENTRE_ROWS, _CENTRE_ROWS_EACH = 20_000, 200
_STEPS = 30  # of the centres
_ROUNDS = 4  # of settling on all rows, where they are many

Rows = NDArray[np.intp]


def first_rows(problem: Problem, greedy: Method, work: float, progress: Progress) -> list[Rows]:
    """Rows to start from, the likeliest first and greedy picks last.

    `work` is what may be spent on each of them.
    """
    random = np.random.default_rng(problem.seed)
    size = max(_CENTRE_ROWS, _CENTRE_ROWS_EACH * problem.k)
    part, rows = (
        (problem, np.arange(problem.m)) if problem.limits else sampled(problem, size, random)
    )
    level = Level(part)
    with progress.stage("starting", 2) as advance:
        picked = _picked(level, greedy, random)
        advance(1)
        if part is not problem:
            starts = [_from_sample(problem, level, rows, picked)]
        elif centres_pay(problem, work):
            starts = [near_centres(level, picked), picked]
        else:
            starts = [picked]
        advance(1)
    return starts


def centres_pay(problem: Problem, work: float) -> bool:
    """Whether free centres are to be had on all rows, for so much work."""
    if problem.limits is not None or not have_centres(problem.costs):
        return False
    return work_of_centres(problem) <= work


def work_of_centres(problem: Problem) -> float:
    """About how much work it is to move free centres until they stay put."""
    costs: Any = problem.costs
    return _STEPS / 2 * problem.n * problem.k * (10 + costs.source.shape[1] / 10)


def near_centres(level: Level, rows: Rows) -> Rows:
    """The rows nearest to free centres that start at these rows."""
    return snapped(level.problem, _centres(level, rows).prototypes[len(level.problem.initial) :])


def rows_apart(candidates: Candidates, random: np.random.Generator) -> Rows:
    """Random rows, each likelier the farther targets are from those drawn before.

    Near-duplicates and limits of sources may leave fewer than k.
    """
    problem, pool = candidates.problem, Pool(candidates.problem, lazy=True)
    weights = problem.masses.weights
    rows: list[int] = problem.initial.tolist()
    nearest = candidates.columns(problem.initial).min(axis=1) if rows else np.ones(problem.n)
    while len(rows) < problem.k and pool.free.any():
        worth = weights * nearest
        worth = worth if worth.any() else weights
        target = random.choice(problem.n, p=worth / worth.sum())
        apart = candidates.to_target(target)
        free = np.flatnonzero(pool.free)
        place = int(free[np.argmin(apart[problem.candidates[free]])])
        if pool.admits(place):
            pool.take(place)
            rows.append(int(problem.candidates[place]))
            nearest = np.minimum(nearest, candidates.columns(np.array(rows[-1:]))[:, 0])
    return np.array(rows, np.intp)


def settled(problem: Problem, rows: Rows, prices: Any = None, below: float = np.inf) -> Assigned:
    """Let each prototype give way to the best row of its cell, on all targets."""
    level = Level(problem)
    return settle(level, level.assign(rows, prices=prices), _ROUNDS, below)


def _picked(level: Level, greedy: Method, random: np.random.Generator) -> Rows:
    """The picks of the greedy algorithm on a level, or on a part of it."""
    part, places = level.problem, np.arange(level.problem.m)
    if part.limits is None:
        size = max(_GREEDY_ROWS, _GREEDY_ROWS_EACH * part.k)
        part, places = sampled(part, size, random)
    alone = part.changed(checkpoint=None)  # what is saved are rows of the whole search
    return places[greedy.pick(alone, Progress(False)).rows]


def _centres(level: Level, rows: Rows) -> Assigned:
    return move_centres(level, level.assign(as_points(level, rows)), _STEPS)


def _from_sample(problem: Problem, level: Level, rows: Rows, picked: Rows) -> Rows:
    """What greedy picks on a sample become: free centres, then the best rows of all."""
    found, given = level.assign(picked), len(problem.initial)
    chosen, prices = rows[picked], found.prices
    if have_centres(problem.costs):
        centres = _centres(level, picked)
        near = level.assign(snapped(level.problem, centres.prototypes[given:]))
        if near.value < found.value:
            chosen, prices = snapped(problem, centres.prototypes[given:]), centres.prices
    else:
        better = settle(level, found, _STEPS)
        chosen, prices = rows[better.prototypes], better.prices
    return settled(problem, chosen, prices).prototypes.astype(np.intp)
