"""The search: a sample first, then all rows, then as long as time allows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import Method, Picks
from uniproto.methods.multilevel.best_rows import settle, snapped
from uniproto.methods.multilevel.centres import centres, have_centres
from uniproto.methods.multilevel.level import Assigned, Level, sampled
from uniproto.methods.multilevel.relocation import relocate
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import transport

_GREEDY_ROWS = 5_000
_GREEDY_ROWS_EACH = 20  # for each prototype
_CENTRE_ROWS = 20_000
_CENTRE_ROWS_EACH = 200
_RELOCATION_ROWS = 50_000
_RELOCATION_ROWS_EACH = 400
_MOST_STEPS = 30
_LEAST_GAIN = 2e-4  # of the cost, for another step of the centres
_ROUNDS = 4


class Search:
    def __init__(self, problem: Problem, seconds: float | None, progress: Progress) -> None:
        self.problem, self.progress = problem, progress
        self.begin = time.perf_counter()
        self.deadline = self.begin + (np.inf if seconds is None else seconds)
        self.random = np.random.default_rng(problem.seed)
        self.stages: list[tuple[str, float, float]] = []

    def note(self, stage, value, unit):
        self.stages.append((stage, value * unit, time.perf_counter() - self.begin))

    def run(self, greedy: Method, relocating: bool) -> NDArray[np.intp]:
        problem, k = self.problem, self.problem.k
        size = max(_GREEDY_ROWS, _GREEDY_ROWS_EACH * k)
        part, rows = sampled(problem, size, size, self.random)
        chosen = rows[greedy.pick(part, self.progress).rows]
        self.stages.append(("greedy", 0, time.perf_counter() - self.begin))
        size = max(_CENTRE_ROWS, _CENTRE_ROWS_EACH * k)
        part, rows = sampled(problem, size, size, self.random, keep=chosen)
        level = Level(part)
        start = np.searchsorted(rows, chosen)
        now = level.assign(start, level.columns(start))
        self.note("sample", now.value, level.unit)
        if have_centres(problem.costs):
            points = self._move(level, now)
            chosen = snapped(problem, points)
        else:
            chosen = rows[settle(level, now, _MOST_STEPS).rows]
        whole = Level(problem)
        now = whole.assign(chosen, whole.columns(chosen))
        self.note("snapped", now.value, whole.unit)
        now = settle(whole, now, _ROUNDS)
        self.note("settled", now.value, whole.unit)
        if relocating:
            now = self._relocated(whole, now)
        return now.rows

    def _move(self, level: Level, now: Assigned) -> NDArray[Any]:
        """Centres: assign and move in turn, until the cost hardly falls; given rows stay."""
        k, given = len(now.rows), level.given
        columns, value = now.columns, np.inf
        points: NDArray[Any]
        for step in range(_MOST_STEPS):
            points = centres(level, now.cells, level.own_costs(now), k)[given:]
            if now.value > value * (1 - _LEAST_GAIN):
                break
            value = now.value
            columns = np.concatenate([columns[:, :given], level.columns_of_points(points)], axis=1)
            now = level.assign(now.rows, columns, now.prices)
        self.note(f"centres {step}", now.value, level.unit)
        return points

    def _relocated(self, whole: Level, now: Assigned) -> Assigned:
        size = max(_RELOCATION_ROWS, _RELOCATION_ROWS_EACH * self.problem.k)
        while time.perf_counter() < self.deadline:
            if whole.n <= size:
                now = relocate(whole, now, self.deadline, self.random, lambda a: None)
                break
            part, rows = sampled(self.problem, size, size, self.random, keep=now.rows)
            level = Level(part)
            start = np.searchsorted(rows, now.rows)
            trial = level.assign(start, level.columns(start), now.prices)
            left = self.deadline - time.perf_counter()
            before = trial.value
            trial = relocate(level, trial, time.perf_counter() + left / 2, self.random, lambda a: None)
            if trial.value < before:
                chosen = rows[trial.rows]
                full = settle(whole, whole.assign(chosen, whole.columns(chosen), trial.prices), 2)
                if full.value < now.value:
                    now = full
            self.note("relocated", now.value, whole.unit)
        self.note("relocated", now.value, whole.unit)
        return now
