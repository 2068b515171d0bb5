"""The exact plan of a small problem, without compiled code: every exchange is solved by POT."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.search.exact_plan import LEAST_GAIN, Numbers, Rows
from uniproto.methods.search.table import Solved, SolvedSet, Table
from uniproto.problem.allowed import Allowed, Pool
from uniproto.transport.exact import partial_plan

_LIKELY = 6  # rows that cost the targets of a place least
_ROUNDING = 1e-14  # of the largest cost: fills that differ by less are equal


class TablePlan:
    """An `ExactPlan` over a table of costs."""

    def __init__(self, table: Table, rows: Rows) -> None:
        self.table, self.problem = table, table.problem
        self._weighted = np.flatnonzero(self.problem.masses.offer)
        self._position = np.full(self.problem.m, -1)
        self._position[table.rows] = np.arange(len(table.rows))
        self.start(rows)

    def start(self, rows: Rows) -> None:
        self._take(rows.copy(), self.table.solve(self._position[rows]))

    def _take(self, rows: Rows, solved: Solved) -> None:
        self.rows, self.solved = rows, solved
        self._held: tuple[Numbers, Numbers] | None = None

    @property
    def cost(self) -> float:
        return self.solved.cost * self.table.unit

    @property
    def set(self) -> SolvedSet:
        """The rows by their positions in the table."""
        return SolvedSet(self._position[self.rows], self.solved)

    def exchange(self, place: int, row: int, below: float) -> bool:
        rows = self.rows.copy()
        rows[place] = row
        solved = self.table.solve(self._position[rows])
        if not solved.cost * self.table.unit < below:
            return False
        self._take(rows, solved)
        return True

    def bounds(self, place: int, rows: Rows, *, near: bool) -> Numbers:
        """By the prices that the other prototypes leave: each target goes to the next best."""
        table, k = self.table, len(self.rows)
        reduced, potentials = self._reduced
        others = np.delete(np.arange(k), place)
        prices = reduced[others].min(axis=0) if k > 1 else self.solved.prices
        base = table.paid(prices) + potentials[others].sum() / k
        values = table.values(prices, self._position[rows])
        return np.asarray((base + values / k) * table.unit)

    @property
    def _reduced(self) -> tuple[Numbers, Numbers]:
        """Costs of the prototypes, less what each pays for every one of its targets; and that."""
        if self._held is None:
            costs = self.table.costs[self._position[self.rows]]
            potentials = (costs - self.solved.prices).min(axis=1)
            self._held = costs - potentials[:, None], potentials
        return self._held

    def medoids_from(self, rows: Rows) -> Rows:
        """Rows after each has gone to the best row for its targets, again and again."""
        table, allowed = self.table, Allowed(self.problem)
        solved = table.solve(self._position[rows])
        while True:
            paid, moved = table.costs @ solved.masses.T, rows.copy()
            for place in range(table.given, table.k):
                others = allowed.instead(moved, place, self.problem.candidates)
                if len(others):
                    best = others[np.argmin(paid[self._position[others], place])]
                    if paid[self._position[best], place] < paid[self._position[rows[place]], place]:
                        moved[place] = best
            after = solved if (moved == rows).all() else table.solve(self._position[moved])
            if not after.cost < solved.cost * (1 - LEAST_GAIN):
                return rows
            rows, solved = moved, after

    def likely(self, place: int) -> Rows:
        candidates = self.problem.candidates
        if len(candidates) <= _LIKELY:
            return candidates
        totals = self.table.costs[self._position[candidates]] @ self.solved.masses[place]
        return candidates[np.argpartition(totals, _LIKELY - 1)[:_LIKELY]]

    def around(self, place: int) -> list[int]:
        return [other for other in range(len(self.rows)) if other != place]

    def losses(self) -> Numbers:
        """By prices: the targets of each place pay what they cost where they are cheapest else."""
        k, masses = len(self.rows), self.solved.masses
        if k == 1:
            return np.zeros(1)
        reduced, potentials = self._reduced
        two = np.partition(reduced, 1, axis=0)[1] - self.solved.prices  # 0 where it is held
        return np.asarray((masses @ two - potentials / k) * self.table.unit)

    def saved(self) -> Any:
        return self.rows, self.solved

    def restore(self, saved: Any) -> None:
        self._take(*saved)

    def column(self, target: int, rows: Rows) -> NDArray[Any]:
        found = np.searchsorted(self._weighted, target)
        return np.asarray(self.table.costs[self._position[rows], found])

    def row(self, row: int) -> NDArray[Any]:
        costs = np.zeros(self.problem.n)  # targets without weight count nothing
        costs[self._weighted] = self.table.costs[self._position[row]]
        return costs


def greedy_rows(table: Table) -> Rows:
    """The picks of the paper's algorithm: each time the row whose fill is cheapest."""
    pool, need, given = Pool(table.problem), table.need, table.given
    order = np.argsort(table.costs, axis=1, kind="stable")
    ordered = np.take_along_axis(table.costs, order, axis=1)
    chosen, unclaimed = list(range(given)), table.offer.copy()
    slack = _ROUNDING * float(table.costs.max())
    if chosen:  # in their joint exact plan
        claimed = partial_plan(table.costs[chosen], table.offer, need).masses.toarray()
        unclaimed = unclaimed - claimed.sum(axis=0)
    while len(chosen) < table.k:
        pool.require_free()
        offered = unclaimed[order]
        taken = np.clip(need - (np.cumsum(offered, axis=1) - offered), 0, offered)
        costs = (taken * ordered).sum(axis=1)[given:] / need
        costs[~pool.free] = np.inf
        best = int(np.argmax(costs <= costs.min() + slack))
        unclaimed[order[given + best]] -= taken[given + best]
        pool.take(best)
        chosen.append(given + best)
    return table.rows[np.array(chosen, np.intp)]
