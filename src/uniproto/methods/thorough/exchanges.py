"""From a set of rows to one that no single exchange improves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from uniproto.methods.thorough.conditions import Conditions
from uniproto.methods.thorough.limit import Limit
from uniproto.methods.thorough.table import Places, Solved, Table

LEAST_GAIN = 1e-9  # of the cost: what is better by less is the same
_TRIALS, _MORE_TRIALS = 4, 4  # for each prototype; in the end so many times as many, and again
_WORK_OF_VISIT = 500


@dataclass(frozen=True)
class Found:
    """A set of rows and its exact plan."""

    places: Places
    solved: Solved

    @property
    def cost(self) -> float:
        return self.solved.cost

    def is_better(self, other: Found | None) -> bool:
        return other is None or self.cost < other.cost * (1 - LEAST_GAIN)


def settle(table: Table, conditions: Conditions, found: Found, limit: Limit) -> Found:
    """Give each prototype's place to the best row for the targets it has; repeat while better."""
    while not limit.is_reached:
        in_cells = found.solved.masses @ table.costs.T
        table.work += table.k * (table.costs.size // 200 + 100)
        places = found.places.copy()
        for place in range(table.given, table.k):
            allowed = conditions.may_replace(places, place)
            costs = np.where(allowed, in_cells[place], np.inf)
            best = int(np.argmin(costs))
            if costs[best] < in_cells[place, places[place]]:
                places[place] = best
        if np.array_equal(places, found.places):
            return found
        moved = Found(places, table.solve(places))
        if not moved.is_better(found):
            return found
        found = moved
    return found


def exchange(
    table: Table, conditions: Conditions, found: Found, limit: Limit, *, every: bool
) -> Found:
    """Exchange single rows for better ones until none of the likeliest is better, or of all.

    `every` goes on until no row that the bounds leave for any place is left untried.
    """
    place, quiet, trials, exhaustive = table.given, 0, _TRIALS, True
    values = table.values(found.solved.prices)
    while table.given < table.k and not limit.is_reached:
        visit = _Visit(table, conditions, found, place, values)
        better, complete = visit.run(trials, limit)
        exhaustive = exhaustive and complete
        quiet += 1
        if better is not None:
            found, quiet, exhaustive = better, 0, True
            values = table.values(found.solved.prices)
        place = place + 1 if place + 1 < table.k else table.given
        if quiet == table.k - table.given:  # a whole round without an exchange
            if exhaustive or not every:
                return found
            trials, quiet, exhaustive = trials * _MORE_TRIALS, 0, True
    return found


class _Visit:
    """One prototype, and the rows that could take its place.

    With the prices of the whole plan, a row in its place costs at least what its value is above
    the prototype's; with those of the plan without it, the bound is higher.
    """

    def __init__(
        self, table: Table, conditions: Conditions, found: Found, place: int, values: np.ndarray
    ) -> None:
        self.table, self.found, self.place = table, found, place
        table.work += _WORK_OF_VISIT
        allowed = conditions.may_replace(found.places, place)
        own = found.places[place]
        allowed[own] = False
        self.goal = found.cost * (1 - LEAST_GAIN)
        bounds = found.cost + (values - values[own]) / table.k
        self.rows = np.flatnonzero(allowed & (bounds < self.goal))

    def run(self, trials: int, limit: Limit) -> tuple[Found | None, bool]:
        """The first row that is better, and whether all that may be were tried."""
        if not len(self.rows):
            return None, True
        table = self.table
        others = np.delete(self.found.places, self.place)
        alone = table.solve_without(others)
        # The free row in its place has its own value at these prices, which is left out.
        base = table.paid(alone.prices) + table.values(alone.prices, others).sum() / table.k
        bounds = base + table.values(alone.prices, self.rows) / table.k
        order = np.argsort(bounds, kind="stable")
        for position in order[:trials]:
            if bounds[position] >= self.goal:
                return None, True
            places = self.found.places.copy()
            places[self.place] = self.rows[position]
            tried = Found(places, table.solve(places))
            if tried.cost < self.goal:
                return tried, True
            if limit.is_reached:
                break
        return None, len(order) <= trials or bounds[order[trials]] >= self.goal
