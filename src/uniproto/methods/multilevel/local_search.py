"""Local search on the exact plan: single exchanges, and one prototype moved elsewhere.

A prototype is compared with the rows that cost its cell least; prices rule most of them out and
the likeliest are tried exactly. Once no such exchange is left, the prototype that is missed least
is moved to where one would fill most cheaply, its surroundings are improved, and what is no better
is undone.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.multilevel.level import Level, targets_are_rows
from uniproto.problem.problem import Problem
from uniproto.runtime.threads import parallel_for, pieces_of
from uniproto.transport.cell_kernels import FULL, Cells, exchange, unit_bounds, unit_costs
from uniproto.transport.cells import (
    copied,
    filled,
    losses,
    neighbours,
    restore,
    targets_of,
    with_more_room,
    without,
)

LEAST_GAIN = 1e-9  # of the cost: what is better by less is the same
_SCREENED, _TRIED = 32, 3  # rows for each prototype: by their bounds, and exactly
_DRAWN, _LIKELY = 100, 12  # rows to move a prototype to: looked at, and taken into account
_NEAR = 10  # prototypes around one that has changed, which are visited again
_HOPELESS = 1.05  # of the cost: a move that much dearer does not become better
_STEP = 0.15  # of the range of what a cell's targets pay
_AS_NEW = 64  # exchanges, after which rounding is swept out

_WORK_OF_VISIT, _WORK_OF_TRIAL = 1e5, 5e4  # beside what is counted

Rows = NDArray[np.intp]


class LocalSearch:
    """k rows, their exact plan, and what could take their places."""

    def __init__(self, problem: Problem, rows: Rows, candidates: Candidates) -> None:
        self.problem, self.candidates = problem, candidates
        self.given, self.k = len(problem.initial), problem.k
        self.offer, self.need = problem.masses.offer, problem.masses.need
        self.masses = self.offer.astype(np.float64)
        self.work_elsewhere = 0.0
        self.cells: Any = None
        self.start(rows)

    def start(self, rows: Rows) -> None:
        """Go on from these rows."""
        self.rows = rows.copy()
        costs = self.candidates.columns(self.rows)
        self._fill(costs, np.zeros(self.k))

    def _fill(self, costs: NDArray[np.float64], prices: NDArray[np.float64]) -> None:
        self.work_elsewhere += 0.0 if self.cells is None else self.cells.work[0]
        self.cells, self.total = filled(costs, self.offer, self.need, prices)
        self._spare, self._since_new = copied(self.cells), 0

    @property
    def cost(self) -> float:
        return float(self.total) / self.problem.masses.total * self.candidates.unit

    @property
    def work(self) -> float:
        return float(self.cells.work[0]) + self.work_elsewhere

    def descend(self, places: Iterable[int], goes_on: Callable[[], bool]) -> None:
        """Visit places, and those around each that changes, until none changes any more."""
        waiting = deque(place for place in places if place >= self.given)
        queued = set(waiting)
        while waiting and goes_on():
            place = waiting.popleft()
            queued.discard(place)
            if self.visit(place):
                for near in (place, *self.around(place)):
                    if near >= self.given and near not in queued:
                        waiting.append(near)
                        queued.add(near)

    def around(self, place: int) -> list[int]:
        """The prototypes whose cells touch that of a place, the closest first."""
        return neighbours(self.cells, place, _NEAR).tolist()

    def visit(self, place: int) -> bool:
        """Give a place to a better row, if one of the likeliest is; whether one was."""
        self.work_elsewhere += _WORK_OF_VISIT
        own = targets_of(self.cells, np.array([place]))
        rows = self._allowed(self.candidates.near(own, int(self.rows[place])), place)
        if len(rows) > _SCREENED:
            totals = self.candidates.totals(rows, own)
            self.work_elsewhere += self.candidates.work(len(rows), len(own))
            rows = rows[np.argpartition(totals, _SCREENED - 1)[:_SCREENED]]
        if not len(rows):
            return False
        least, rise = without(self.cells, place, self.need)
        price = float(self.cells.prices[place])
        step = _STEP * (price - float((self.cells.costs[own, place] - least[own]).min()))
        near = targets_of(self.cells, np.append(neighbours(self.cells, place, _NEAR), place))
        self.work_elsewhere += (self.candidates.work(1, 1) + 1) * len(rows) * len(near)
        block = self.candidates.block(rows, near)
        paid = unit_bounds(*block, least[near], self.masses[near], float(self.need), price, step)
        bounds = self.total + rise + paid
        return self._try(place, rows, bounds, _TRIED, lambda: True)

    def visit_all(self, goes_on: Callable[[], bool]) -> bool:
        """Exchange a row for any other that is better, if there is one; whether there was."""
        for place in range(self.given, self.k):
            rows = self._allowed(self.problem.candidates, place)
            if not len(rows) or not goes_on():
                continue
            least, rise = without(self.cells, place, self.need)
            bounds = self.total + rise + self._unit_costs(rows, least)
            if self._try(place, rows, bounds, len(rows), goes_on):
                return True
        return False

    def _try(
        self,
        place: int,
        rows: Rows,
        bounds: NDArray[np.float64],
        most: int,
        goes_on: Callable[[], bool],
    ) -> bool:
        """Try rows from the lowest bound up, and take the first that is better."""
        goal = self.total - LEAST_GAIN * abs(self.total)
        for position in np.argsort(bounds, kind="stable")[:most]:
            if bounds[position] >= goal or not goes_on():
                return False
            if self._exchange(place, int(rows[position]), goal):
                return True
        return False

    def relocate(self, random: np.random.Generator, goes_on: Callable[[], bool]) -> bool:
        """Move one prototype elsewhere and improve what is around; whether that is better."""
        rises = losses(self.cells, self.need)[self.given :]
        ranked = np.argsort(rises, kind="stable")[: max(6, len(rises) // 5)]
        place = self.given + int(ranked[min(int(random.exponential(3)), len(ranked) - 1)])
        least, _ = without(self.cells, place, self.need)
        rows = self._allowed(self.candidates.drawn(random, _DRAWN), place)
        if not len(rows):
            return False
        paid = np.argsort(self._unit_costs(rows, least), kind="stable")[:_LIKELY]
        row = int(rows[paid[min(int(random.exponential(3)), len(paid) - 1)]])
        left = self.around(place)
        before, total, held = self.rows.copy(), self.total, copied(self.cells)
        if self._exchange(place, row, _HOPELESS * total):
            self.descend([place, *self.around(place), *left], goes_on)
            if self.total < total * (1 - LEAST_GAIN):
                return True
            changed = np.flatnonzero(self.rows != before)
            self.cells.costs[:, changed] = self.candidates.columns(before[changed])
            self.rows, self.total = before, total
            self._back_to(held)
        return False

    def _exchange(self, place: int, row: int, limit: float) -> bool:
        """Give a place to a row if that costs less than a limit; else leave all as it is."""
        costs = self.candidates.columns(np.array([row]))[:, 0]
        self.work_elsewhere += self.candidates.work(1, len(costs))
        while True:
            restore(self._spare, self.cells)
            column = self.cells.costs[:, place].copy()
            total = exchange(self.cells, place, costs, self.need, self.total, limit)
            self.work_elsewhere += _WORK_OF_TRIAL + 2 * len(costs)
            if total != FULL and total < limit:
                self.rows[place], self.total = row, total
                self._since_new += 1
                if self._since_new >= _AS_NEW:
                    self._fill(self.cells.costs, self.cells.prices)
                return True
            restore(self.cells, self._spare)
            self.cells.costs[:, place] = column
            if total != FULL:
                return False
            self.cells = with_more_room(self.cells)
            self._spare = copied(self.cells)

    def _back_to(self, held: Cells) -> None:
        if held.piece.shape == self.cells.piece.shape:
            restore(self.cells, held)
        else:
            self.cells = held._replace(costs=self.cells.costs)
            self._spare = copied(self.cells)

    def _unit_costs(self, rows: Rows, least: NDArray[np.float64]) -> NDArray[Any]:
        n = self.problem.n
        self.work_elsewhere += self.candidates.work(len(rows), n) + 2 * len(rows) * n
        block, places, _ = self.candidates.block(rows)
        return unit_costs(block, places, least, self.offer, self.need)

    def _allowed(self, rows: Rows, place: int) -> Rows:
        return self.candidates.allowed(rows, self.rows, place)


# --- the rows that may take a prototype's place, and their costs ----------------------------------


_MOST_HELD = 25_000_000  # costs of all rows that are kept
_ALWAYS_HELD = 1_000_000  # and so few at any rate: memory must not change the answer
_MOST_NEAR = 1_000  # rows of a cell that are looked at


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
        if targets_are_rows(self.problem):
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
        return Level(self.problem).nearest_rows(point, _MOST_NEAR // 4)[:, 0]

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
