"""The exact plan of k rows in cells, kept up to date by compiled loops when one is exchanged.

A prototype is compared with the rows that cost its cell least; prices rule most of them out, and
the likeliest are tried exactly.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.search.assigner import Assigner, targets_are_rows
from uniproto.methods.search.descent import (
    CHANGED,
    DONE,
    ENOUGH,
    NEAR,
    NO_ROOM,
    SCREENED,
    SPENT,
    STEP,
    BlockRows,
    Waiting,
    descend,
)
from uniproto.methods.search.exact_plan import Numbers, Rows
from uniproto.problem.problem import Problem
from uniproto.runtime.budget import Budget, Check
from uniproto.runtime.threads import parallel_for, pieces_of
from uniproto.transport.cell_kernels import (
    FULL,
    Cells,
    least_costs,
    surroundings,
    unit_bounds,
    unit_costs,
)
from uniproto.transport.cells import (
    copied,
    exchange,
    filled,
    holders,
    losses,
    restore,
    shares,
    with_more_room,
    without,
)

_REFILLED = 64  # exchanges, after which the plan is filled again, without what was rounded
_WORK_OF_VISIT, _WORK_OF_TRIAL = 1e5, 5e4  # beside what is counted
_WORK_AT_ONCE = 1e7  # of compiled code, before it is asked whether to go on


class CellPlan:
    """An `ExactPlan` of many targets."""

    def __init__(
        self,
        problem: Problem,
        rows: Rows,
        costs: RowCosts,
        budget: Budget,
        prices: Numbers | None = None,
    ) -> None:
        self.problem, self.row_costs, self.budget = problem, costs, budget
        self.k = problem.k
        self.offer, self.need = problem.masses.offer, problem.masses.need
        self.masses = self.offer.astype(np.float64)
        self.start(rows, prices)

    def start(self, rows: Rows, prices: Numbers | None = None) -> None:
        """Go on from these rows; `prices` that nearly balance them save work."""
        self.rows = rows.copy()
        prices = np.zeros(self.k) if prices is None else prices / self.row_costs.unit
        self._fill(self.row_costs.columns(self.rows), prices)

    def _fill(self, costs: Numbers, prices: Numbers) -> None:
        self.cells, self.total = filled(costs, self.offer, self.need, prices)
        self._spare, self._exchanges, self._counted = copied(self.cells), 0, 0
        self._has_changed()
        self._is_saved = True
        self._count()

    def _has_changed(self) -> None:
        self._is_saved = False  # whether the spare cells are as these
        self._least: Numbers | None = None  # costs of the targets, at these prices
        self._given_up = -1, np.empty(0), np.empty(0, np.int64), 0.0  # which place; as `without`

    def _without(self, place: int) -> tuple[Numbers, NDArray[np.int64], float]:
        """As `without`, found once as long as nothing changes."""
        if self._given_up[0] != place:
            if self._least is None:
                self._least = least_costs(self.cells)
            self._given_up = place, *without(self.cells, place, self.need, self._least)
        return self._given_up[1:]

    def _count(self, more: float = 0.0) -> None:
        """Count what compiled loops have done since, and some more work."""
        done = int(self.cells.work[0])
        self.budget.spend(done - self._counted + more)
        self._counted = done

    @property
    def cost(self) -> float:
        return float(self.total) / self.problem.masses.total * self.row_costs.unit

    @property
    def cell_of_target(self) -> NDArray[np.int32]:
        """The place that each target belongs to."""
        return holders(self.cells)

    @property
    def shares(self) -> tuple[Rows, Rows, NDArray[np.int64]]:
        """What is held: the target, the place and the mass of every piece."""
        return shares(self.cells)

    def exchange(self, place: int, row: int, below: float) -> bool:
        costs, (least, heirs, _) = self.row_costs.row(row), self._without(place)
        limit = below * self.problem.masses.total / self.row_costs.unit
        while True:
            if not self._is_saved:
                restore(self._spare, self.cells)
                self._is_saved = True
            total = exchange(self.cells, place, costs, self.need, self.total, limit, least, heirs)
            self._count(_WORK_OF_TRIAL + self.row_costs.work(1, len(costs)) + 2 * len(costs))
            if total != FULL and total < limit:
                self.rows[place], self.total = row, total
                self._has_changed()
                self._exchanges += 1
                if self._exchanges >= _REFILLED:
                    self._fill(self.cells.costs, self.cells.prices)
                return True
            restore(self.cells, self._spare)
            costs, self.cells.costs[:, place] = self.cells.costs[:, place].copy(), costs
            if total != FULL:
                return False
            self._make_room()

    def _make_room(self) -> None:
        self.cells = with_more_room(self.cells)
        self._spare, self._is_saved = copied(self.cells), True

    def descend_all(self, row_of_target: Rows, goes_on: Check) -> None:
        """What `Exchanges.descend_all` does, in compiled code, where any rows are allowed.

        All costs are held; `row_of_target` says which row each target is, -1 for none. Where it is
        empty, all rows are compared.
        """
        given, held = len(self.problem.initial), self.row_costs.held
        assert held is not None
        is_free = np.zeros(self.problem.m, np.bool_)
        is_free[self.problem.candidates] = True
        is_free[self.rows] = False
        rows = BlockRows(held, self.rows, is_free, row_of_target)
        waiting = Waiting.of(np.arange(given, self.k), self.k)
        exchanges, why = _REFILLED, SPENT
        if not self._is_saved:
            restore(self._spare, self.cells)
        while why != DONE and goes_on():
            self.total, exchanges, why = descend(
                self.cells,
                self._spare,
                rows,
                waiting,
                self.offer,
                self.need,
                self.total,
                exchanges,
                _WORK_AT_ONCE,
            )
            self._count()
            if why == NO_ROOM:
                self._make_room()
            elif why == CHANGED:
                self._fill(self.cells.costs, self.cells.prices)
                exchanges = _REFILLED
        self._has_changed()

    def bounds(self, place: int, rows: Rows, *, near: bool) -> Numbers:
        least, _, rise = self._without(place)
        if near:
            _, targets, ends = surroundings(self.cells, place, NEAR)
            own = targets[: ends[0]]
            price = float(self.cells.prices[place])
            step = STEP * (price - float((self.cells.costs[own, place] - least[own]).min()))
            block = self.row_costs.block(rows, targets)
            masses = self.masses[targets]
            paid = unit_bounds(*block, least[targets], masses, float(self.need), price, step)
        else:
            targets = np.arange(self.problem.n)
            block = self.row_costs.block(rows)
            paid = unit_costs(*block[:2], least, self.offer, self.need)
        compared = len(rows), len(targets)
        self._count(self.row_costs.work(*compared) + math.prod(compared))
        bounds = self.total + rise + paid
        return np.asarray(bounds / self.problem.masses.total * self.row_costs.unit)

    def likely(self, place: int) -> Rows:
        self.budget.spend(_WORK_OF_VISIT)
        own = surroundings(self.cells, place, 0)[1]
        rows = self.row_costs.near(own, int(self.rows[place]))
        if len(rows) > SCREENED:
            some = own[:: -(-len(own) // ENOUGH)]
            totals = self.row_costs.totals(rows, some)
            self.budget.spend(self.row_costs.work(len(rows), len(some)))
            rows = rows[np.argpartition(totals, SCREENED - 1)[:SCREENED]]
        return rows

    def around(self, place: int) -> list[int]:
        return surroundings(self.cells, place, NEAR)[0][1:].tolist()

    def losses(self) -> Numbers:
        rises = losses(self.cells, self.need)
        self._count()
        return rises / self.problem.masses.total * self.row_costs.unit

    def saved(self) -> Any:
        return self.rows.copy(), self.total, copied(self.cells)

    def restore(self, saved: tuple[Rows, float, Cells]) -> None:
        rows, self.total, held = saved
        changed = np.flatnonzero(self.rows != rows)
        self.cells.costs[:, changed] = self.row_costs.columns(rows[changed])
        self.rows = rows.copy()
        self._has_changed()
        if held.piece.shape == self.cells.piece.shape:
            restore(self.cells, held)
        else:
            self.cells = copied(held)._replace(costs=self.cells.costs)
            self._spare = copied(self.cells)


_MOST_HELD = 25_000_000  # costs of all rows in single precision that are kept
_EXACT = 1_000_000  # so few are kept in double precision
_MOST_NEAR = 1_000  # rows of a cell that are looked at


class RowCosts:
    """What rows that may be chosen cost, computed when asked for, or all `held` in a table."""

    def __init__(
        self, problem: Problem, held: NDArray[Any] | None = None, unit: float | None = None
    ) -> None:
        """`held` are all costs, in this unit."""
        costs: Any = problem.costs
        self.problem = problem
        if unit is None:
            unit = 2.0 ** math.frexp(problem.costs.ceiling or 1.0)[1]  # changes no digits
        self.unit = unit
        self._is_candidate = np.zeros(problem.m, np.bool_)
        self._is_candidate[problem.candidates] = True
        self.width = costs.source.shape[1] if isinstance(costs, FeatureCosts) else 1
        self._targets_are_rows = targets_are_rows(problem)
        self.held = held

    def hold(self) -> RowCosts:
        """Compute all costs at once, where they are few.

        Whether they are does not hang on the memory that is allowed, which must not change the
        answer.
        """
        problem = self.problem
        pairs, dtype = problem.m * problem.n, problem.costs.dtype
        if pairs <= _EXACT:
            held = problem.costs.exact_block(slice(None)) / self.unit
            self.held = np.ascontiguousarray(held)  # a matrix may come in the other order
        elif pairs * dtype.itemsize <= 4 * _MOST_HELD:
            self.held = np.empty((problem.m, problem.n), dtype)
            parallel_for(self._hold, pieces_of(problem.m, block_rows(problem.n)))
        return self

    def table(self, rows: Rows, targets: Rows) -> NDArray[np.float32] | None:
        """The costs of some rows in single precision, in the unit; None if they are many."""
        if len(rows) * len(targets) > _MOST_HELD:
            return None
        return np.ascontiguousarray(self._of(rows, targets), np.float32)

    def _hold(self, part: slice) -> None:
        assert self.held is not None
        self.held[part] = self._of(part)

    @property
    def problem_from_held(self) -> Problem:
        """The problem, with the costs that are held where they would be computed again."""
        costs = self.problem.costs
        if self.held is None or not isinstance(costs, FeatureCosts):
            return self.problem
        return self.problem.changed(costs=costs.from_table(self.held, self.unit))

    def _of(self, rows: Rows | slice, targets: Any = slice(None)) -> NDArray[Any]:
        return np.divide(self.problem.costs.block(rows, targets), self.unit)

    def block(self, rows: Rows, targets: Rows | None = None) -> tuple[NDArray[Any], Rows, Rows]:
        """A block of costs, and where in it these rows and targets are."""
        every = np.arange(self.problem.n) if targets is None else targets
        if self.held is not None:
            return self.held, rows, every
        block = self._of(rows, slice(None) if targets is None else targets)
        return block, np.arange(len(rows)), np.arange(block.shape[1])

    def totals(self, rows: Rows, targets: Rows) -> NDArray[Any]:
        """What each row pays for these targets together."""
        if self.held is None:
            return np.asarray(self._of(rows, targets).sum(axis=1))
        positions = rows[:, None] * self.problem.n + targets
        return np.asarray(self.held.ravel().take(positions).sum(axis=1))

    def columns(self, rows: Rows) -> Numbers:
        """Costs of rows against all targets, as float64, one row to a column."""
        found = self._of(rows) if self.held is None else self.held[rows]
        return np.ascontiguousarray(found.T, np.float64)

    def column(self, target: int, rows: Rows) -> NDArray[Any]:
        """What rows pay for one target."""
        if self.held is not None:
            return np.asarray(self.held[rows, target])
        return self._of(rows, np.array([target]))[:, 0]

    def row(self, row: int) -> NDArray[Any]:
        """What a row pays for every target."""
        return self.columns(np.array([row]))[:, 0]

    def work(self, rows: int, targets: int) -> float:
        """The work of these costs; where none are held, of a product of features, too."""
        if self.held is not None:
            return rows * targets
        return rows * targets * (2 + self.width / 30) + targets * self.width / 4

    def near(self, targets: Rows, row: int) -> Rows:
        """Rows that may be good for a cell of these targets, which has a row now."""
        candidates = self.problem.candidates
        if self._targets_are_rows:
            if len(targets) > _MOST_NEAR:
                apart = self._of(np.array([row]), targets)[0]
                targets = targets[np.argpartition(apart, _MOST_NEAR)[:_MOST_NEAR]]
            return targets[self._is_candidate[targets]]
        costs: Any = self.problem.costs
        if self.held is not None or not isinstance(costs, FeatureCosts):
            return candidates
        if len(candidates) <= _MOST_NEAR:
            return candidates
        point = np.asarray(costs.target[targets].mean(axis=0), costs.dtype).reshape(1, -1)
        return Assigner(self.problem).nearest_rows(point, _MOST_NEAR // 4)[:, 0]
