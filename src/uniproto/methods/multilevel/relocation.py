"""Relocation: take one prototype away, put one elsewhere, and let the cells settle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.multilevel.best_rows import Choice, settle
from uniproto.methods.multilevel.centres import as_points, move_centres
from uniproto.methods.multilevel.level import Assigned, Level, are_points

_DRAWN = 150  # random rows whose fills are compared
_TARGETS_EACH = 60  # per prototype, on which they are compared
_LIKELY = 20  # of them that may be tried
_TRIALS = 6  # before the next are drawn
_HOPELESS = 1.05  # of the cost: an exchange that much dearer does not become better by settling
_STEPS = 12  # of settling after an exchange
_LEAST_GAIN = 1e-5  # of the cost


def relocate(
    level: Level,
    now: Assigned,
    random: np.random.Generator,
    goes_on: Callable[[int], bool],
) -> Assigned:
    """Exchange prototypes as long as it `goes_on`; each exchange that stays lowers the cost.

    What is taken away is what the others replace most cheaply; what comes in is where a
    prototype would fill most cheaply. `goes_on` is told how many trials in a row found nothing.
    """
    failed = 0
    while goes_on(failed):
        leaving, arriving = _likely(level, now, random)
        for _ in range(_TRIALS if len(leaving) and len(arriving) else 0):
            place = int(leaving[min(int(random.exponential(3)), len(leaving) - 1)])
            row = int(arriving[min(int(random.exponential(4)), len(arriving) - 1)])
            trial = _exchanged(level, now, place, row)
            if trial is not None:
                now, failed = trial, 0
                break
            failed += 1
            if not goes_on(failed):
                break
        else:
            failed += 1
    return now


def _exchanged(level: Level, now: Assigned, place: int, row: int) -> Assigned | None:
    """The prototypes with a row at a place, settled; None where that is no better."""
    new: NDArray[Any] = np.array([row])
    free = are_points(now.prototypes)
    if free:
        new = as_points(level, new)
    elif not Choice(level.problem, np.delete(now.prototypes, place)).is_free(row):
        return None
    trial = level.exchanged(now, np.array([place]), new)
    if trial.value > _HOPELESS * now.value:
        return None
    improve = move_centres if free else settle
    trial = improve(level, trial, _STEPS, now.value)
    return trial if trial.value < now.value * (1 - _LEAST_GAIN) else None


def _likely(
    level: Level, now: Assigned, random: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places whose prototype is missed least, and rows that would fill most cheaply."""
    k, given = len(now.prototypes), len(level.problem.initial)
    reduced = now.columns - now.prices.astype(np.float32)
    every = np.arange(level.n)
    least = reduced[every, now.cells].copy()
    reduced[every, now.cells] = np.inf
    missed = level.weights * np.maximum(reduced.min(axis=1) - least, 0.0)
    loss = np.bincount(now.cells, missed, minlength=k) - now.prices / k
    leaving = given + np.argsort(loss[given:])[: max(6, k // 5)]

    candidates = level.problem.candidates
    drawn = candidates[random.permutation(len(candidates))[:_DRAWN]]
    some = np.sort(random.permutation(level.n)[: _TARGETS_EACH * k])
    fills = _fills(level.block(drawn, some) - least[some], level.weights[some], k)
    return leaving, drawn[np.argsort(fills)[:_LIKELY]]


def _fills(costs: NDArray[Any], weights: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """The mean of the lowest costs of each row that make up 1/k of the weight."""
    order = np.argsort(costs, axis=1)
    share = np.cumsum(weights[order], axis=1)
    taken = share <= share[:, -1:] / k
    taken[:, 0] = True
    taken_weights = np.where(taken, weights[order], 0.0)
    ordered = np.take_along_axis(costs, order, axis=1)
    return (taken_weights * ordered).sum(axis=1) / taken_weights.sum(axis=1)
