"""The search for an update: what 0, 1, 2, … changes of the rows chosen before can save.

From the old rows on, the exchange that saves most is made again and again; from a fresh selection
on, the old row is taken back that costs least. After each, exchanges improve what is around it,
under the rule that all but so many old rows stay. Where rows are many, this is done on a sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.greedy import Greedy
from uniproto.methods.search.cell_plan import CellPlan, RowCosts
from uniproto.methods.search.exact_plan import LEAST_GAIN
from uniproto.methods.search.exchanges import Exchanges, rows_apart
from uniproto.methods.search.prove import may_be_proven
from uniproto.methods.search.search import search
from uniproto.methods.search.starts import sampled
from uniproto.problem.allowed import Allowed
from uniproto.problem.keep import keep_all_but
from uniproto.problem.problem import Problem
from uniproto.runtime.budget import Budget
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import blas_on_one_core
from uniproto.transport.prototypes import transport

_ONE_BY_ONE = 8  # changes; beyond, their number grows by a quarter
_ROWS, _PAIRS = 20_000, 15_000_000  # of a sample: rows, and prototypes times targets
_TAKEN_BACK = 6  # exchanges for an old row that are tried exactly, the likeliest
_RELOCATIONS = 6  # tried after every step; on a sample after the last one
_EFFORT = 0.25  # of a small problem's usual work, for every step

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Step:
    """The best rows found with at most `changes` changes, and their cost."""

    changes: int
    rows: Rows
    cost: float


def counts_from(least: int, most: int) -> Iterator[int]:
    """The numbers of changes to try: one by one, then in steps that grow.

    >>> list(counts_from(0, 20))
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 20]
    """
    changes = least
    while changes < most:
        yield changes
        changes += max(1, (changes - least) // 4) if changes - least >= _ONE_BY_ONE else 1
    yield most


class Updates:
    """The best rows for any number of changes of the old rows, from `least` on.

    `measured` is the problem on whose targets costs are measured: a sample that holds the old
    `rows` and those to `keep`, or the whole.
    """

    def __init__(self, problem: Problem, old: Rows, least: int, keep: Rows) -> None:
        self.problem, self.old, self.least = problem, old, least
        self.measured, self._numbers = problem, np.arange(problem.m)
        size = min(_ROWS, max(_PAIRS // problem.k, 2 * problem.k))
        self.is_large = not may_be_proven(problem) and max(problem.m, problem.n) > size
        if self.is_large:
            random = np.random.default_rng([problem.seed, 4])
            self.measured, self._numbers = sampled(problem, size, random, np.union1d(old, keep))

    def steps(self, most: int) -> Iterator[Step]:
        """The best rows found with `least` changes, with one more, and so on up to `most`."""
        if may_be_proven(self.problem):
            yield from self._proven(most)
            return
        walk = _Walk(self.measured, np.searchsorted(self._numbers, self.old), self.least)
        for changes in counts_from(self.least, most):
            walk.change(changes, 0 if self.is_large and changes < most else _RELOCATIONS)
            yield Step(changes, self._numbers[walk.plan.rows], walk.plan.cost)

    def steps_back(self, rows: Rows, most: float) -> Iterator[Step]:
        """The same from other rows on: one old row more each time, while they cost no more."""
        if may_be_proven(self.problem):
            return
        walk = _Walk(self.measured, np.searchsorted(self._numbers, self.old), self.least)
        walk.plan.start(np.searchsorted(self._numbers, rows))
        while walk.take_back() and walk.plan.cost <= most:
            changes = int((~walk.is_old[walk.plan.rows]).sum())
            yield Step(changes, self._numbers[walk.plan.rows], walk.plan.cost)

    def cost_of(self, rows: Rows) -> float:
        """The cost of rows on the targets that steps are measured on."""
        return transport(self.measured, np.searchsorted(self._numbers, rows)).cost

    def _proven(self, most: int) -> Iterator[Step]:
        problem = self.problem.changed(effort=self.problem.effort * _EFFORT)
        rows: Rows | None = None
        for changes in counts_from(self.least, most):
            asked = problem.changed(keep=keep_all_but(changes, self.old, problem.k, problem.m))
            picks = search(asked, Greedy(), None, Progress(False), rows)
            rows = picks.rows
            yield Step(changes, rows, (picks.transport or transport(problem, rows)).cost)


class _Walk:
    """Rows that change one by one, with their exact plan."""

    def __init__(self, problem: Problem, old: Rows, least: int) -> None:
        self.problem, self.old = problem, old
        self.is_old = np.zeros(problem.m, np.bool_)
        self.is_old[old] = True
        self.random = np.random.default_rng([problem.seed, 6])
        costs = RowCosts(problem).hold()
        self.plan = CellPlan(problem, self._first(costs), costs, Budget())
        self.exchanges = Exchanges(self.plan, Allowed(problem), lambda: True)
        self.gains = np.full(problem.k, np.inf)  # of exchanges that were tried, or unknown

    def change(self, changes: int, relocations: int) -> None:
        """Exchange old rows for others until there are so many changes, and improve what is new."""
        keep = keep_all_but(changes, self.old, self.problem.k, self.problem.m)
        self.exchanges.allowed = Allowed(self.problem.changed(keep=keep))
        with blas_on_one_core():
            self._descend(self._places(old=False))
            while len(self._places(old=False)) < changes and self._exchange_best():
                pass
            for _ in range(relocations if changes else 0):
                self.exchanges.relocate(self.random)

    def take_back(self) -> bool:
        """Exchange a new row for the old one that costs least, and improve the other new ones."""
        plan, places = self.plan, self._places(old=False)
        gone = np.setdiff1d(self.old, plan.rows)
        likely: list[tuple[float, int, int]] = []
        for place in places.tolist():
            rows = self.exchanges.allowed.instead(plan.rows, place, gone)
            bounds = plan.bounds(place, rows, near=False) if len(rows) else np.empty(0)
            likely += zip(bounds.tolist(), [place] * len(rows), rows.tolist(), strict=True)
        saved, least, best = plan.saved(), np.inf, None
        for bound, place, row in sorted(likely)[:_TAKEN_BACK]:
            if bound < least and plan.exchange(place, row, least):
                least, best = plan.cost, plan.saved()
                plan.restore(saved)
        if best is None:
            return False
        plan.restore(best)
        self.change(len(places) - 1, _RELOCATIONS)
        return True

    def _first(self, costs: RowCosts) -> Rows:
        """The old rows, given ones first, and rows apart from them where some are missing."""
        problem = self.problem
        given = np.concatenate([problem.initial, np.setdiff1d(self.old, problem.initial)])
        if len(given) > problem.k:
            asked = problem.changed(candidates=np.setdiff1d(self.old, problem.initial), keep=None)
        else:
            rest = np.setdiff1d(problem.candidates, given)
            asked = problem.changed(initial=given, candidates=rest, keep=None)
        found = rows_apart(asked, costs, np.random.default_rng([problem.seed, 5]))
        if found is None:
            raise problem.too_few_distinct(problem.k - 1)
        return found

    def _places(self, *, old: bool) -> Rows:
        places = np.flatnonzero(self.is_old[self.plan.rows] == old)
        return places[places >= self.exchanges.given]

    def _descend(self, places: Iterable[int]) -> None:
        before = self.plan.rows.copy()
        self.exchanges.descend(places)
        for place in np.flatnonzero(self.plan.rows != before).tolist():
            self.gains[[place, *self.plan.around(place)]] = np.inf

    def _exchange_best(self) -> bool:
        """Make the exchange of an old row that saves most; whether any saves something.

        What an exchange saves hardly changes with others far away, so few are tried again.
        """
        plan, tried = self.plan, set()
        saved, rows, cost = plan.saved(), plan.rows.copy(), plan.cost
        places = self._places(old=True)
        while len(places):
            place = int(places[np.argmax(self.gains[places])])
            found = place in tried
            if found and self.gains[place] <= LEAST_GAIN * abs(cost):
                return False
            self.exchanges.visit(place)
            if found:
                self._descend([place, *plan.around(place)])
                return True
            tried.add(place)
            self.gains[place] = cost - plan.cost
            if plan.rows[place] != rows[place]:
                plan.restore(saved)
        return False
