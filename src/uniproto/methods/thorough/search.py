"""The thorough search: several starts, single exchanges, and a proof where one is to be had.

What it does is limited by counted work, not by the clock: the same seed leads to the same rows.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from uniproto.geometry.rounded_costs import least_mean
from uniproto.methods.contract import INTERRUPTED, Optimum, Picks
from uniproto.methods.thorough.line import best_on_line, can_solve_on_line
from uniproto.methods.thorough.proof import (
    MOST_SETS,
    best_prices,
    compare_sets,
    count_of_sets,
    sets_below,
)
from uniproto.methods.thorough.starts import draw, pick_greedily, picks_of, proof_of_cost
from uniproto.methods.thorough.table import (
    LEAST_GAIN,
    Conditions,
    Found,
    Limit,
    Numbers,
    Places,
    Table,
    memory_of_table,
)
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Advance, Progress
from uniproto.transport.prototypes import transport

_PROOF_ON_LINE = "the rows lie on a line, where the best ones are found exactly"
_WORK = 4_000_000  # about a second
_FIRST_SHARE, _PROOF_SHARE = 0.3, 0.5  # of the work: for starts before the proof, for the proof
_LAST_SHARE = 0.2  # and for trying every single exchange in the end
_MOST_PRICED = 60_000  # costs up to which prices that bound all sets are looked for
_FIRST_STARTS, _FRUITLESS = 8, 40  # in a row without anything better: before the proof, after it
_FRUITLESS_IN_TIME = 400  # and where seconds are given
_HOPELESS = 1.1  # times the best cost: sets that are not worth exchanges
_MET = 5  # sets met on the way to those prices, which are starts too


def pick_thoroughly(problem: Problem, seconds: float | None, progress: Progress) -> Picks:
    """The best rows found, and the proof where they are known to be the best there are.

    `seconds`, from now, lets it go on after that. Ctrl-C ends it and keeps the best rows so far.
    """
    if (line := can_solve_on_line(problem)) is not None:
        rows, least = best_on_line(problem, line)
        return picks_of(problem, rows, Optimum(_PROOF_ON_LINE, least), {})
    search = _Search(problem, seconds)
    interrupted = False
    with progress.stage("searching", 1) as advance:
        try:
            search.run(advance)
        except KeyboardInterrupt:
            interrupted = True
    notes: dict[str, Any] = {"starts": search.starts}
    if interrupted:
        notes["interrupted"] = INTERRUPTED
    return picks_of(problem, search.table.rows[search.best.places], search.proof, notes)


def proof_of(problem: Problem, rows: Places, slack: float = 0.0) -> Optimum | None:
    """The proof that no choice costs less than these rows; None where there is none.

    Nothing is searched for but prices: the sets that they do not rule out are compared.
    """
    if problem.groups:
        return None
    if (line := can_solve_on_line(problem)) is not None:
        proof: Optimum | None = Optimum(_PROOF_ON_LINE, best_on_line(problem, line)[1])
    elif memory_of_table(problem) > problem.memory:
        return None
    else:
        search = _Search(problem, None, rows)
        search.limit = Limit(search.table)
        if not search.is_obvious():
            search.prove(others=False)
        proof = search.proof
    return proof and proof_of_cost(proof, transport(problem, rows), slack)


class _Search:
    """The best set so far, and what is known about all others."""

    def __init__(self, problem: Problem, seconds: float | None, rows: Places | None = None) -> None:
        begin = time.perf_counter()
        self.table = table = Table(problem)
        self.conditions = Conditions(table)
        self.random = np.random.default_rng(problem.seed)
        self.limit = Limit(table, work=_WORK * problem.effort)
        self.deadline = None if seconds is None else begin + seconds
        self.proof: Optimum | None = None
        self.starts = 1
        first = pick_greedily(table).places if rows is None else table.places_of(rows)
        self.best = Found(first, table.solve(first))

    def run(self, advance: Advance) -> None:
        self._try(self.best)
        if not self.is_obvious():
            self._start_again(_FIRST_STARTS, self.limit.part(_FIRST_SHARE))
            prices = self.prove()
            if self.proof is None:
                self._go_on(_FRUITLESS, prices)
            if self.proof is None and self.deadline is not None:
                self.limit = Limit(self.table, deadline=self.deadline)
                self._go_on(_FRUITLESS_IN_TIME, prices)
        advance(1)

    def _go_on(self, fruitless: int, prices: Numbers | None) -> None:
        """Start again as far as the limit allows, then try every single exchange."""
        before = self.best
        self._start_again(fruitless, self.limit.part(1 - _LAST_SHARE))
        self.best = exchange(self.table, self.conditions, self.best, self.limit, every=True)
        if prices is not None and self.best.is_better(before):
            self._compare(prices)

    def _try(self, found: Found) -> bool:
        """Improve a set by medoids of cells, then by exchanges; whether it is the best now."""
        found = settle(self.table, self.conditions, found, self.limit)
        if found.cost > self.best.cost * _HOPELESS:
            return False
        found = exchange(self.table, self.conditions, found, self.limit, every=False)
        if not found.is_better(self.best):
            return False
        self.best = found
        return True

    def is_obvious(self) -> bool:
        """Whether there is nothing to compare."""
        if self._sets == 1:
            self.proof = self._optimum("no other rows may be chosen", self.best.solved.least)
        elif self.best.cost <= 0:
            self.proof = self._optimum("no cost is below 0", 0.0)
        return self.proof is not None

    def _optimum(self, why: str, least: float) -> Optimum:
        """The proof that computed costs are not below `least`, so true ones not by much."""
        problem, table = self.table.problem, self.table
        costs = problem.costs.exact_block(table.rows)
        least = least_mean(problem.costs, costs, max(least, 0.0) * table.unit)
        return Optimum(why, max(least, 0.0))

    @property
    def _sets(self) -> int:
        return count_of_sets(self.table.problem)

    def _start_again(self, most: int, limit: Limit) -> None:
        """Other starts until so many in a row lead to nothing better."""
        fruitless = 0
        while fruitless < most and not limit.is_reached:
            places = self._start()
            self.starts += 1
            fruitless += 1
            if len(places) == self.table.k and self._try(Found(places, self.table.solve(places))):
                fruitless = 0

    def _start(self) -> Places:
        """By turns rows apart from each other, the best rows with some exchanged, random rows."""
        turn = self.starts % 4
        if turn in (1, 3):
            return draw(self.table, self.random, apart=turn == 1 or self.starts % 8 == 3)
        places, (given, k) = self.best.places.copy(), (self.table.given, self.table.k)
        count = int(self.random.integers(1, 2 + (k - given) // 3))
        for place in self.random.permutation(np.arange(given, k))[:count]:
            allowed = np.flatnonzero(self.conditions.may_replace(places, place))
            places[place] = self.random.choice(allowed)
        return places

    def prove(self, others: bool = True) -> Numbers | None:
        """Rule out every other set, where that is not too much; returns the prices it rests on.

        `others` tries to improve sets met on the way.
        """
        if self.table.costs.size > _MOST_PRICED and self._sets > MOST_SETS:
            return None
        limit = self.limit.part(_PROOF_SHARE)
        prices, met = best_prices(self.table, self.best, limit.part(0.5))
        for places in met[-_MET:]:
            if others and not self.conditions.any:
                self._try(Found(places, self.table.solve(places)))
        self._compare(prices)
        return prices

    def _compare(self, prices: Numbers) -> None:
        """Go through the sets that the prices leave, if they are few."""
        sets = sets_below(self.table, prices, self.best.cost)
        if sets is None:
            return
        cuts = [prices, self.best.solved.prices]
        limit = self.limit.part(_PROOF_SHARE)
        self.best, complete = compare_sets(
            self.table, self.conditions, sets, self.best, cuts, limit
        )
        if complete:
            count = f"{self._sets:,}" if self._sets < 10**9 else f"{self._sets:.1e}"
            why = f"each of {count} sets of rows is ruled out by a bound or was compared"
            self.proof = self._optimum(why, self.best.cost * (1 - LEAST_GAIN))


# --- from a set of rows to one that no single exchange improves -----------------------------------


_TRIALS, _MORE_TRIALS = 4, 4  # for each prototype; in the end so many times as many, and again
_WORK_OF_VISIT = 500


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
