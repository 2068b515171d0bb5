"""The rows that may take a prototype's place, and their costs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.multilevel.best_rows import nearest_rows
from uniproto.problem.problem import Problem
from uniproto.runtime.threads import parallel_for, pieces_of

_MOST_HELD = 25_000_000  # costs of all rows that are kept
_ALWAYS_HELD = 1_000_000  # and so few at any rate: memory must not change the answer
_MOST_NEAR = 1_000  # rows of a cell that are looked at

Rows = NDArray[np.intp]


class Candidates:
    """Rows that may be chosen: which are near a cell, which are allowed, and what they cost."""

    def __init__(self, problem: Problem) -> None:
        costs: Any = problem.costs
        self.problem = problem
        self.unit = 2.0 ** math.frexp(problem.costs.ceiling or 1.0)[1]  # changes no digits
        self.is_candidate = np.zeros(problem.m, np.bool_)
        self.is_candidate[problem.candidates] = True
        self._free = np.ones(problem.m, np.bool_)
        self._twins_of: dict[int, Rows] = {}
        self.width = 1
        if isinstance(problem.costs, FeatureCosts):
            self.width = int(costs.source.shape[1])
        self.held: NDArray[Any] | None = None
        pairs = problem.m * problem.n
        if pairs <= _ALWAYS_HELD:
            self.held = problem.costs.exact_block(slice(None)) / self.unit
        elif pairs <= _MOST_HELD and costs.dtype.itemsize * pairs <= problem.memory // 2:
            self.held = np.empty((problem.m, problem.n), costs.dtype)
            parallel_for(self._hold, pieces_of(problem.m, block_rows(problem.n)))

    def _hold(self, part: slice) -> None:
        assert self.held is not None
        self.held[part] = self.costs(part)

    @property
    def problem_from_held(self) -> Problem:
        """The problem, with the costs that are held where they would be computed again."""
        costs = self.problem.costs
        if self.held is None or not isinstance(costs, FeatureCosts):
            return self.problem
        return self.problem.changed(costs=costs.from_table(self.held, self.unit))

    def costs(self, rows: Rows | slice, targets: Any = slice(None)) -> NDArray[Any]:
        """Costs of rows against some targets or all."""
        return np.divide(self.problem.costs.block(rows, targets), self.unit)

    def block(self, rows: Rows, targets: Rows | None = None) -> tuple[NDArray[Any], Rows, Rows]:
        """A block of costs, and where in it these rows and targets are."""
        every = np.arange(self.problem.n) if targets is None else targets
        if self.held is not None:
            return self.held, rows, every
        block = self.costs(rows, slice(None) if targets is None else targets)
        return block, np.arange(len(rows)), np.arange(block.shape[1])

    def totals(self, rows: Rows, targets: Rows) -> NDArray[Any]:
        """What each row pays for these targets together."""
        if self.held is None:
            return np.asarray(self.costs(rows, targets).sum(axis=1))
        places = rows[:, None] * self.problem.n + targets
        return np.asarray(self.held.ravel().take(places).sum(axis=1))

    def columns(self, rows: Rows) -> NDArray[np.float64]:
        """Costs of rows against all targets, as float64, one row to a column."""
        found = self.costs(rows) if self.held is None else self.held[rows]
        return np.ascontiguousarray(found.T, np.float64)

    def to_target(self, target: int) -> NDArray[Any]:
        """Costs of all rows against one target."""
        if self.held is not None:
            return self.held[:, target]
        return self.costs(slice(None), np.array([target]))[:, 0]

    def work(self, rows: int, targets: int) -> float:
        """The work of these costs."""
        return rows * targets * (1.0 if self.held is not None else 2.0 + self.width / 4)

    def near(self, targets: Rows, row: int) -> Rows:
        """Rows that may be good for a cell of these targets, which has a row now."""
        candidates = self.problem.candidates
        if self.problem.same_set:
            if len(targets) > _MOST_NEAR:
                apart = self.costs(np.array([row]), targets)[0]
                targets = targets[np.argpartition(apart, _MOST_NEAR)[:_MOST_NEAR]]
            return targets[self.is_candidate[targets]]
        costs: Any = self.problem.costs
        if self.held is not None or not isinstance(costs, FeatureCosts):
            return candidates
        if len(candidates) <= _MOST_NEAR:
            return candidates
        point = np.asarray(costs.target[targets].mean(axis=0), costs.dtype).reshape(1, -1)
        return nearest_rows(self.problem, point, _MOST_NEAR // 4)[:, 0]

    def drawn(self, random: np.random.Generator, count: int) -> Rows:
        """Random rows."""
        candidates = self.problem.candidates
        if len(candidates) <= count:
            return candidates
        return candidates[random.choice(len(candidates), count, replace=False)]

    def allowed(self, rows: Rows, chosen: Rows, place: int) -> Rows:
        """Those of some rows that may stand at a place, but for the one that does."""
        problem = self.problem
        self._free[chosen] = False
        rows = rows[self._free[rows]]
        self._free[chosen] = True
        if problem.limits is not None and len(rows):
            rows = rows[problem.limits.may_replace(chosen, place)[rows]]
        if problem.twin_distance is not None and len(rows):
            near = [self._twins(other) for other in np.delete(chosen, place).tolist()]
            rows = rows[~np.isin(rows, np.concatenate([rows[:0], *near]))]
        return rows

    def _twins(self, row: int) -> Rows:
        """The rows that are too close to one that is chosen; found once."""
        if row not in self._twins_of:
            assert self.problem.twin_distance is not None
            close = self.problem.costs.twins(row, self.problem.twin_distance)
            self._twins_of[row] = np.flatnonzero(close)
        return self._twins_of[row]
