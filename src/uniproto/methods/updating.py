"""The search for an update: what 0, 1, 2, … changes of the rows chosen before can save.

Two ways meet. From the old rows, the exchange that saves most is made again and again; from a fresh
selection, the old row that costs least returns again and again. After each change, exchanges under
the rule improve what is around it. Where rows are many, all this is done on a sample, and in the
end the new rows give way to better ones of the whole pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import Picks
from uniproto.methods.greedy import Greedy
from uniproto.methods.search.cell_plan import CellPlan, RowCosts
from uniproto.methods.search.centres import move_to_medoids
from uniproto.methods.search.exact_plan import LEAST_GAIN
from uniproto.methods.search.exchanges import Exchanges, rows_apart
from uniproto.methods.search.gpu_assigner import assigner_of
from uniproto.methods.search.prove import may_be_proven
from uniproto.methods.search.search import search
from uniproto.methods.search.starts import sampled
from uniproto.problem.allowed import Allowed
from uniproto.problem.keep import keep_all_but
from uniproto.problem.problem import Problem
from uniproto.runtime.budget import Budget
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import blas_on_one_core
from uniproto.transport.cells import targets_of
from uniproto.transport.prototypes import transport

_ONE_BY_ONE = 8  # changes; beyond, their number grows by a quarter
_ROWS, _PAIRS = 20_000, 15_000_000  # of a sample: rows, and prototypes times targets
_RELOCATIONS = 6  # tried after every step, where rows are few enough for all to be looked at
_RETURNS = 3  # old rows tried for the place of a new one
_ROUNDS = 1  # of medoids on all rows
_EFFORT = 0.25  # of a small problem's usual work, for every step

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Step:
    """The best rows found with at most so many changes, and their cost."""

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
    """The best rows for any number of changes of the old rows, by exchanges."""

    def __init__(self, problem: Problem, old: Rows, least: int, fresh: Rows | None = None) -> None:
        self.problem, self.old, self.least = problem, old, least
        self.is_small = may_be_proven(problem)
        size = min(_ROWS, max(_PAIRS // problem.k, 2 * problem.k))
        self.is_large = not self.is_small and max(problem.m, problem.n) > size
        self.part, self.part_rows = problem, np.arange(problem.m)
        if self.is_large:
            always = old if fresh is None else np.union1d(old, fresh)
            random = np.random.default_rng([problem.seed, 4])
            self.part, self.part_rows = sampled(problem, size, random, always)
        self._walk: _Walk | None = None

    def changes_of(self, rows: Rows) -> int:
        """How many rows are not among the old ones."""
        return len(np.setdiff1d(rows, self.old))

    def forwards(self, most: int) -> Iterator[Step]:
        """From the old rows on, up to so many changes."""
        last: Step | None = None
        for changes in counts_from(self.least, most):
            if self.is_small:
                last = self._proven(changes, last)
                yield last
                continue
            walk = self._begin()
            if changes == self.least:
                walk.start(self._first(walk))
            walk.change(changes, 0 if self.is_large and changes < most else _RELOCATIONS)
            yield self._step(walk, changes)

    def backwards(self, fresh: Rows, cost: float) -> Iterator[Step]:
        """From a fresh selection back, as old rows return one after the other."""
        changes = self.changes_of(fresh)
        yield Step(changes, fresh, cost)
        if self.is_small:
            return
        walk = self._begin()
        walk.start(np.searchsorted(self.part_rows, fresh))
        for count in reversed(list(counts_from(self.least, changes))[:-1]):
            if not walk.give_back(count):
                return
            yield self._step(walk, count)

    def cost_of(self, rows: Rows) -> float:
        """The cost of rows on the targets that steps are measured on."""
        return transport(self.part, np.searchsorted(self.part_rows, rows)).cost

    def settled(self, rows: Rows) -> Rows:
        """The rows of a step; of a large problem, new ones give way to better ones of all."""
        problem = self.problem
        if not self.is_large or problem.limits:
            return rows
        kept = rows[np.isin(rows, np.union1d(self.old, problem.initial))]
        new = np.setdiff1d(rows, kept)
        rest = np.setdiff1d(problem.candidates, kept)
        assigner = assigner_of(problem.changed(initial=kept, candidates=rest, keep=None))
        begun = assigner.assign(np.concatenate([kept, new]))
        found = move_to_medoids(assigner, begun, _ROUNDS, _always)
        return np.asarray(found.prototypes, np.intp)

    def _proven(self, changes: int, last: Step | None) -> Step:
        asked = self.problem.changed(
            keep=keep_all_but(changes, self.old, self.problem.k, self.problem.m),
            effort=self.problem.effort * _EFFORT,
        )
        picks = search(asked, Greedy(), None, Progress(False), None if last is None else last.rows)
        assert picks.transport is not None
        return Step(changes, picks.rows, picks.transport.cost)

    def _begin(self) -> _Walk:
        if self._walk is None:
            self._walk = _Walk(self.part, np.searchsorted(self.part_rows, self.old))
        return self._walk

    def _first(self, walk: _Walk) -> Rows:
        """The old rows, given ones first, and rows apart from them where some are missing."""
        problem, old = walk.problem, walk.old
        random = np.random.default_rng([problem.seed, 5])
        given = np.concatenate([problem.initial, np.setdiff1d(old, problem.initial)])
        rest = np.setdiff1d(problem.candidates, given)
        if len(given) <= problem.k:
            asked = problem.changed(initial=given, candidates=rest, keep=None)
        else:
            kept = np.setdiff1d(old, problem.initial)
            asked = problem.changed(candidates=kept, keep=None)
        found = rows_apart(asked, walk.costs, random)
        if found is None:
            raise problem.too_few_distinct(problem.k - 1)
        return found

    def _step(self, walk: _Walk, changes: int) -> Step:
        return Step(changes, self.part_rows[walk.plan.rows], walk.plan.cost)


class _Walk:
    """Rows that change one by one, with their exact plan."""

    def __init__(self, problem: Problem, old: Rows) -> None:
        self.problem, self.old = problem, old
        self.is_old = np.zeros(problem.m, np.bool_)
        self.is_old[old] = True
        self.random = np.random.default_rng([problem.seed, 6])
        self.costs = RowCosts(problem)
        self.exchanges: Any = None

    @property
    def plan(self) -> CellPlan:
        plan: CellPlan = self.exchanges.plan
        return plan

    def start(self, rows: Rows) -> None:
        if self.exchanges is None:
            plan = CellPlan(self.problem, rows, self.costs, Budget())
            self.exchanges = Exchanges(plan, Allowed(self.problem), _always)
        else:
            self.plan.start(rows)
        self.gains = np.full(self.problem.k, np.inf)  # of exchanges that were tried, or unknown

    def allow(self, changes: int) -> None:
        """Let exchanges lead to so many changes at most."""
        keep = keep_all_but(changes, self.old, self.problem.k, self.problem.m)
        self.exchanges.allowed = Allowed(self.problem.changed(keep=keep))

    def change(self, changes: int, relocations: int) -> None:
        """Exchange old rows for others until there are so many changes, and improve what is new."""
        self.allow(changes)
        with blas_on_one_core():
            self._descend(self._places(old=False))
            while len(self._places(old=False)) < changes and self._exchange_best():
                pass
            for _ in range(relocations if changes else 0):
                self.exchanges.relocate(self.random)

    def give_back(self, changes: int) -> bool:
        """Let old rows return, each time the one that costs least; whether enough could."""
        with blas_on_one_core():
            while len(self._places(old=False)) > changes:
                if not self._return_one():
                    return False
                self.allow(len(self._places(old=False)))
                self._descend(self._places(old=False))
        return True

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

    def _return_one(self) -> bool:
        """Give the place of a new row to the old row that costs least there."""
        plan = self.plan
        rest = np.setdiff1d(self.old, plan.rows)
        trials: list[tuple[float, int, int]] = []
        for place in self._places(old=False).tolist():
            rows = self.exchanges.allowed.instead(plan.rows, place, rest)
            if not len(rows):
                continue
            own = targets_of(plan.cells, np.array([place]))
            rises = self.costs.totals(np.append(rows, plan.rows[place]), own)
            rises = rises[:-1] - rises[-1]
            best = int(np.argmin(rises))
            trials.append((float(rises[best]), place, int(rows[best])))
        found: tuple[float, int, int] | None = None
        saved = plan.saved()
        for _, place, row in sorted(trials)[:_RETURNS]:
            if plan.exchange(place, row, np.inf):
                found = min(found or (np.inf, 0, 0), (plan.cost, place, row))
                plan.restore(saved)
        if found is None:
            return False
        plan.exchange(found[1], found[2], np.inf)
        self.gains[:] = np.inf
        return True


def _always() -> bool:
    return True


def improved(problem: Problem, rows: Rows, seconds: float | None, progress: Progress) -> Picks:
    """What the usual search makes of rows of an update, whose rule the problem has."""
    return search(problem, Greedy(), seconds, progress, rows)
