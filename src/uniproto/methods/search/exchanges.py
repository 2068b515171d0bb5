"""Local search on an exact plan: single exchanges, and one prototype moved elsewhere.

Bounds rule most rows out, and the likeliest are tried exactly. Once no such exchange is left, the
prototype that is missed least is moved to where one would fill most cheaply, what is around is
improved, and what is no better is undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from uniproto.methods.search.exact_plan import LEAST_GAIN, CostsOfRows, ExactPlan, Numbers, Rows
from uniproto.problem.allowed import Allowed, Pool
from uniproto.problem.problem import Problem
from uniproto.runtime.budget import Check, Gains

_TRIED = 3  # of the likeliest rows, exactly
_DRAWN, _LIKELY = 30, 12  # rows to move a prototype to: looked at, and taken into account
_HOPELESS = 1.05  # of the cost: a move that much dearer does not become better


class Exchanges:
    """Improves the plan of k rows as long as `goes_on` says so; notes each cost in `gains`."""

    def __init__(
        self, plan: ExactPlan, allowed: Allowed, goes_on: Check, gains: Gains | None = None
    ) -> None:
        self.plan, self.allowed, self.goes_on, self.gains = plan, allowed, goes_on, gains
        self.given, self.k = len(plan.problem.initial), plan.problem.k

    def descend(self, places: Iterable[int]) -> None:
        """Visit places, and those around each that changes, until none changes any more."""
        waiting = deque(place for place in places if place >= self.given)
        queued = set(waiting)
        while waiting and self.goes_on():
            place = waiting.popleft()
            queued.discard(place)
            if self.visit(place):
                for near in (place, *self.plan.around(place)):
                    if near >= self.given and near not in queued:
                        waiting.append(near)
                        queued.add(near)

    def descend_all(self) -> None:
        """Visit every place, and again until no likely exchange is better."""
        self.descend(range(self.k))

    def visit(self, place: int) -> bool:
        """Give a place to a better row, if one of the likeliest is; whether one was."""
        plan = self.plan
        rows = self.allowed.instead(plan.rows, place, plan.likely(place))
        if not len(rows):
            return False
        return self._try(place, rows, plan.bounds(place, rows, near=True), _TRIED)

    def try_all(self) -> bool:
        """Exchange a row for any other that is better, if there is one; whether there was."""
        plan = self.plan
        for place in range(self.given, self.k):
            rows = self.allowed.instead(plan.rows, place, plan.problem.candidates)
            if not self.goes_on():
                return False
            if len(rows) and self._try(
                place, rows, plan.bounds(place, rows, near=False), len(rows)
            ):
                return True
        return False

    def _try(self, place: int, rows: Rows, bounds: Numbers, most: int) -> bool:
        """Try rows from the lowest bound up, and take the first that is better."""
        goal = self.plan.cost * (1 - LEAST_GAIN)
        for position in np.argsort(bounds, kind="stable")[:most]:
            if bounds[position] >= goal or not self.goes_on():
                return False
            if self.plan.exchange(place, int(rows[position]), goal):
                if self.gains is not None:
                    self.gains.note(self.plan.cost)
                return True
        return False

    def relocate(self, random: np.random.Generator) -> bool:
        """Move one prototype elsewhere and improve what is around; whether that is better."""
        plan = self.plan
        ranked = np.argsort(plan.losses()[self.given :], kind="stable")
        ranked = ranked[: max(6, len(ranked) // 5)]
        place = self.given + int(ranked[min(int(random.exponential(3)), len(ranked) - 1)])
        rows = self.allowed.instead(plan.rows, place, self._drawn(random))
        if not len(rows):
            return False
        bounds = plan.bounds(place, rows, near=False)
        paid = np.argsort(bounds, kind="stable")[:_LIKELY]
        row = int(rows[paid[min(int(random.exponential(3)), len(paid) - 1)]])
        left, cost, saved = plan.around(place), plan.cost, plan.saved()
        if plan.exchange(place, row, _HOPELESS * cost):
            self.descend([place, *plan.around(place), *left])
            if plan.cost < cost * (1 - LEAST_GAIN):
                return True
            plan.restore(saved)
        return False

    def with_others(self, rows: Rows, random: np.random.Generator) -> Rows:
        """These rows, up to a third of them exchanged for random ones."""
        rows, free = rows.copy(), np.arange(self.given, self.k)
        for place in random.permutation(free)[: random.integers(1, 2 + len(free) // 3)]:
            others = self.allowed.instead(rows, int(place), self._drawn(random))
            rows[place] = random.choice(others) if len(others) else rows[place]
        return rows

    def _drawn(self, random: np.random.Generator) -> Rows:
        """Random candidates."""
        candidates = self.plan.problem.candidates
        if len(candidates) <= _DRAWN:
            return candidates
        return candidates[random.choice(len(candidates), _DRAWN, replace=False)]


def rows_apart(problem: Problem, costs: CostsOfRows, random: np.random.Generator) -> Rows | None:
    """Random rows, each likelier the farther targets are from those drawn before.

    None where near-duplicates and limits leave fewer than k.
    """
    pool, weights = Pool(problem, lazy=True), problem.masses.weights
    rows: list[int] = problem.initial.tolist()
    nearest = np.min([costs.row(row) for row in rows], axis=0) if rows else np.ones(problem.n)
    while len(rows) < problem.k and pool.free.any():
        worth = weights * nearest
        worth = worth if worth.any() else weights
        target = int(random.choice(problem.n, p=worth / worth.sum()))
        free = np.flatnonzero(pool.free)
        apart = costs.column(target, problem.candidates[free])
        position = int(free[np.argmin(apart)])
        if pool.admits(position):
            pool.take(position)
            rows.append(int(problem.candidates[position]))
            nearest = np.minimum(nearest, costs.row(rows[-1]))
    return np.array(rows, np.intp) if len(rows) == problem.k else None
