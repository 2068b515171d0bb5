"""Relocation: take one prototype away, put one elsewhere, and let the cells settle."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.multilevel.best_rows import Choice, settle
from uniproto.methods.multilevel.level import Assigned, Level

_CANDIDATES = 150  # random rows whose fills are compared
_TARGETS_EACH = 60  # per prototype, on which they are compared
_LIKELY = 20  # of them that may be tried
_TRIALS = 6  # before the next candidates are drawn
_HOPELESS = 1.03  # of the cost: an exchange that much dearer does not become better by settling
_ROUNDS = 3  # of settling after an exchange
_LEAST_GAIN = 1e-6  # of the cost


def relocate(
    level: Level,
    now: Assigned,
    deadline: float,
    random: np.random.Generator,
    found: Callable[[Assigned], None],
) -> Assigned:
    """Exchange prototypes until the deadline; each exchange that stays lowers the cost.

    What is taken away is what the others can replace most cheaply; what comes in is where the
    targets pay most. `found` is told of every improvement.
    """
    while time.perf_counter() < deadline:
        leaving, arriving = _likely(level, now, random)
        if not len(leaving) or not len(arriving):
            break
        for _ in range(_TRIALS):
            place = leaving[min(int(random.exponential(3)), len(leaving) - 1)]
            row = arriving[min(int(random.exponential(4)), len(arriving) - 1)]
            trial = _exchanged(level, now, int(place), int(row))
            if trial is not None:
                now = trial
                found(now)
                break
            if time.perf_counter() >= deadline:
                break
    return now


def _exchanged(level: Level, now: Assigned, place: int, row: int) -> Assigned | None:
    """The prototypes with `row` at a place, settled; None where that is no better."""
    others = Choice(level.problem, np.delete(now.rows, place))
    if not others.is_free(row):
        return None
    trial = level.exchanged(now, np.array([place]), np.array([row]))
    if trial.value > _HOPELESS * now.value:
        return None
    trial = settle(level, trial, _ROUNDS)
    return trial if trial.value < now.value * (1 - _LEAST_GAIN) else None


def _likely(
    level: Level, now: Assigned, random: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places whose prototype is missed least, and rows that would be filled most cheaply."""
    k = len(now.rows)
    reduced = now.columns - now.prices.astype(np.float32)
    every = np.arange(level.n)
    first = reduced[every, now.cells].copy()
    reduced[every, now.cells] = np.inf
    missed = level.weights * np.maximum(reduced.min(axis=1) - first, 0.0)
    loss = np.bincount(now.cells, missed, minlength=k) - now.prices / k
    loss[: level.given] = np.inf
    leaving = np.argsort(loss)[: max(6, k // 5)]

    candidates = level.problem.candidates
    drawn = candidates[random.permutation(len(candidates))[:_CANDIDATES]]
    some = np.sort(random.permutation(level.n)[: _TARGETS_EACH * k])
    costs = level.problem.costs.block(drawn, some) / level.unit - first[some]
    order = np.argsort(costs, axis=1)
    ordered = np.take_along_axis(costs, order, axis=1)
    share = np.cumsum(level.weights[some][order], axis=1)
    taken = share <= share[:, -1:] / k
    taken[:, 0] = True
    fill = np.where(taken, ordered, 0.0).sum(axis=1) / taken.sum(axis=1)
    return leaving[np.isfinite(loss[leaving])], drawn[np.argsort(fill)[:_LIKELY]]
