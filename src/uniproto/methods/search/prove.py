"""Proof that no set of rows is better: prices rule most sets out, and the others are compared.

For any prices v of the targets, a set P of k rows costs at least Σ ν_j v_j + the mean of its rows'
values (`Table.values`). Prices that make this high for every set are found by subgradient steps.
The sets that they leave below the best cost so far are listed, if they are few; each exact plan
has prices that rule more of them out (Benders), until none is left.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from uniproto.geometry.rounded_costs import error_of_mean
from uniproto.methods.contract import Optimum
from uniproto.methods.search.exact_plan import LEAST_GAIN
from uniproto.methods.search.line import best_on_line, can_solve_on_line
from uniproto.methods.search.table import (
    Numbers,
    Positions,
    SolvedSet,
    Table,
)
from uniproto.problem.allowed import Allowed
from uniproto.problem.problem import Problem
from uniproto.runtime.budget import Budget, Check
from uniproto.transport.prototypes import SMALL, Transport, transport

_ON_LINE = "the rows lie on a line, where the best ones are found exactly"
_NO_CHOICE = "no other rows may be chosen"
_MOST_SETS = 60_000  # that are compared one by one
_MOST_PAIRS = 1_000_000  # of rows and targets, where sets are so few
_MOST_TRIPLES = 20_000_000  # of prototypes, rows and targets there: a table takes a second
_WORK_OF_PRICES, _WORK_OF_SETS = 6e7, 1.2e8  # to find them, and to compare sets: half a second
_PROVEN = 5e-5  # of the cost: what proves less would be shown with a gap of 0.01 %
_STEPS = 200
_DEFLECTION = 0.4
_LONGEST = 1e150  # times a direction, whose squares have nearly vanished then
_PATIENCE = 12  # steps without a higher bound, after which steps are halved
_CUTS = 40  # plans whose prices are held against every set that is left
_FEW_SETS = 1_000  # so few that every plan's prices are
_WORK_OF_SET = 25.0
_RESOLVED = (
    1e-12  # of cosine distances: rounding hides which of two rows closer than that are apart
)


def may_be_proven(problem: Problem) -> bool:
    """Whether the problem is so small that a proof is looked for."""
    pairs = problem.m * problem.n
    if pairs <= SMALL or pairs > _MOST_PAIRS:
        return pairs <= SMALL
    rows = len(problem.initial) + len(problem.candidates)
    few = problem.k * rows * problem.n <= _MOST_TRIPLES
    return few and count_of_sets(problem) <= _MOST_SETS


def count_of_sets(problem: Problem) -> int:
    """How many sets of rows may be chosen, or more where conditions forbid some of them."""
    return math.comb(len(problem.candidates), problem.k - len(problem.initial))


def prove(
    problem: Problem, rows: Positions, budget: Budget, slack: float = 0.0, *, patience: float = 1.0
) -> Optimum | None:
    """The proof that no choice costs less than these rows; None where there is none.

    Nothing is searched for but prices: the sets that they do not rule out are compared. With more
    patience more work is done before there is said to be none.
    """
    if problem.groups:
        return None
    if (line := can_solve_on_line(problem)) is not None:
        proof: Optimum | None = Optimum(_ON_LINE, best_on_line(problem, line)[1])
    elif count_of_sets(problem) == 1:
        proof = _optimum(problem, _NO_CHOICE, transport(problem, rows).cost * (1 - LEAST_GAIN))
    elif may_be_proven(problem):
        table = Table(problem, budget)
        positions = table.positions_of(rows)
        proof = Prover(table, patience).prove(SolvedSet(positions, table.solve(positions)))[0]
    else:
        return None
    return proof and proof_of_cost(proof, transport(problem, rows), slack)


def proof_of_cost(proof: Optimum, solved: Transport, slack: float = 0.0) -> Optimum | None:
    """The proof that rows with this plan cost least, or None where it proves less."""
    holds = solved.is_exact and proof.least + slack >= (1 - _PROVEN) * solved.cost
    return replace(proof, least=min(proof.least, solved.cost)) if holds else None


class Prover:
    """Looks for a proof that a set is the best; a better one found on the way takes its place."""

    def __init__(self, table: Table, patience: float = 1.0) -> None:
        self.table, self.allowed, self.patience = table, Allowed(table.problem), patience
        self._found: tuple[Numbers, list[Positions]] | None = None

    def prices_from(self, best: SolvedSet) -> tuple[Numbers, list[Positions]]:
        """Prices that bound every set, found once, and sets that are nearly the best by them."""
        if self._found is None:
            goes_on = self.table.budget.part(self.patience * _WORK_OF_PRICES)
            self._found = best_prices(self.table, best, goes_on)
        return self._found

    def prove(self, best: SolvedSet) -> tuple[Optimum | None, SolvedSet]:
        """The proof, if there is one, and the best set."""
        table, count = self.table, count_of_sets(self.table.problem)
        if count == 1:
            return self._optimum(_NO_CHOICE, best.solved.least), best
        if best.cost <= 0:
            return self._optimum("no cost is below 0", 0.0), best
        if not _near_duplicates_are_known(table.problem):
            return None, best
        prices = self.prices_from(best)[0]
        sets = sets_below(table, prices, best.cost)
        if sets is None:
            return None, best
        cuts = [prices, best.solved.prices]
        goes_on = table.budget.part(self.patience * _WORK_OF_SETS)
        best, complete = compare_sets(table, self.allowed, sets, best, cuts, goes_on)
        if not complete:
            return None, best
        number = f"{count:,}" if count < 10**9 else f"{count:.1e}"
        why = f"each of {number} sets of rows is ruled out by a bound or was compared"
        return self._optimum(why, best.cost * (1 - LEAST_GAIN)), best

    def _optimum(self, why: str, least: float) -> Optimum:
        """The proof that computed costs are not below `least`, so true ones not by much."""
        vanished = float(np.finfo(np.float64).tiny)  # of costs in the table's unit
        least = (max(least, 0.0) - vanished) * self.table.unit
        return _optimum(self.table.problem, why, least)


def _optimum(problem: Problem, why: str, least: float) -> Optimum:
    return Optimum(why, max(least - error_of_mean(problem.costs, least), 0.0))


def _near_duplicates_are_known(problem: Problem) -> bool:
    """Whether rounding leaves no doubt which rows may be chosen together."""
    distance = problem.twin_distance
    return distance is None or problem.costs.metric != "cosine" or distance > _RESOLVED


def best_prices(table: Table, found: SolvedSet, goes_on: Check) -> tuple[Numbers, list[Positions]]:
    """Prices with a high bound for all sets, and the sets met on the way, the last the best."""
    prices = found.solved.prices.copy()
    best, bound, met = prices, -math.inf, []
    direction, factor, since = np.zeros(len(prices)), 1.0, 0
    furthest = 4 * float(table.costs.max())  # below the cost: there prices run away
    for _ in range(_STEPS):
        values = table.values(prices)
        chosen = _lowest(table, values)
        value = table.paid(prices) + float(values[chosen].sum()) / table.k
        since += 1
        if value > bound:
            since = since if value - bound < 1e-6 * abs(value) else 0
            best, bound = prices, value
            met.append(chosen)
        room = found.cost - value
        if found.cost - bound <= LEAST_GAIN * found.cost or not goes_on():
            break
        if since >= _PATIENCE or room > furthest:
            factor, since, prices = factor / 2, 0, best
            if factor < 1e-3:
                break
        taken = table.fills(chosen, prices).sum(axis=0) / table.k
        slope = table.weights - taken
        direction = slope + _DEFLECTION * direction
        length = float(direction @ direction)
        step = factor * max(room, 0.0) / length if length else np.inf
        if step > _LONGEST:
            break
        prices = prices + step * direction
    return best, met


def _lowest(table: Table, values: Numbers) -> Positions:
    """The given rows and those of lowest value."""
    order = table.given + np.argsort(values[table.given :], kind="stable")
    return np.concatenate([np.arange(table.given), order[: table.k - table.given]]).astype(np.intp)


def sets_below(table: Table, prices: Numbers, cost: float) -> NDArray[np.int32] | None:
    """The sets of rows that the prices do not rule out of costing less; None if there are many.

    Rows in the order of their values: whatever comes after a row costs no less, so what a begun
    set can still become is known.
    """
    values = table.values(prices)
    given, missing = table.given, table.k - table.given
    order = given + np.argsort(values[given:], kind="stable")
    ranked = values[order]
    room = table.k * (cost * (1 - LEAST_GAIN) - table.paid(prices)) - values[:given].sum()
    sets, spent, last = np.zeros((1, 0), np.int32), np.zeros(1), np.full(1, -1)
    for size in range(missing):
        rest = missing - size
        # The cheapest end of a set whose next row is at rank r.
        ends = sliding_window_view(ranked, rest).sum(axis=1)
        until = np.searchsorted(ends, room - spent, side="left")
        counts = np.maximum(until - (last + 1), 0)
        if counts.sum() > 4 * _MOST_SETS or (rest == 1 and counts.sum() > _MOST_SETS):
            return None
        table.budget.spend(_WORK_OF_SET * float(counts.sum()))
        parent = np.repeat(np.arange(len(sets)), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        rank = np.arange(len(parent)) - first + last[parent] + 1
        sets = np.concatenate([sets[parent], rank[:, None].astype(np.int32)], axis=1)
        spent, last = spent[parent] + ranked[rank], rank
    own = np.broadcast_to(np.arange(given, dtype=np.int32), (len(sets), given))
    return np.concatenate([own, order.astype(np.int32)[sets]], axis=1)


def compare_sets(
    table: Table,
    allowed: Allowed,
    sets: NDArray[np.int32],
    found: SolvedSet,
    cuts: list[Numbers],
    goes_on: Check,
) -> tuple[SolvedSet, bool]:
    """The best of these sets and the one found so far; whether every set was compared.

    Sets are solved from the lowest bound up; a set whose bound reaches the best cost is done. So
    is one that was solved, if its own prices prove what it costs.
    """
    sets = sets if allowed.is_free else sets[allowed.sets(table.rows[sets])]
    bounds = np.full(len(sets), -np.inf)
    used, is_known = 0, True
    for prices in cuts:
        bounds = np.maximum(bounds, _bounds(table, sets, prices))
    while True:
        table.budget.spend(len(sets))
        left = bounds < found.cost * (1 - LEAST_GAIN)
        if not left.all():
            sets, bounds = sets[left], bounds[left]
        if not len(sets):
            return found, is_known
        if not goes_on():
            return found, False
        lowest = int(np.argmin(bounds))
        tried = SolvedSet(sets[lowest].astype(np.intp), table.solve(sets[lowest]))
        if tried.is_better(found):
            found = tried
        is_known &= tried.solved.least >= found.cost * (1 - LEAST_GAIN)
        bounds[lowest] = np.inf
        if used < _CUTS or len(sets) < _FEW_SETS:
            used += 1
            bounds = np.maximum(bounds, _bounds(table, sets, tried.solved.prices))


def _bounds(table: Table, sets: NDArray[np.int32], prices: Numbers) -> Numbers:
    table.budget.spend(2.0 * sets.size)
    values = table.values(prices)
    return np.asarray(table.paid(prices) + values[sets].sum(axis=1) / table.k)
