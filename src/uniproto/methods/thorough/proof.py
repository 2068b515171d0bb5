"""Proof that no set of rows is better: prices rule most sets out, and the others are compared.

For any prices v of the targets, a set P of k rows costs at least Σ ν_j v_j + the mean of its rows'
values (`Table.values`). Prices that make this high for every set are found by subgradient steps.
The sets that they leave below the best cost so far are listed, if they are few; each exact plan
has prices that rule more of them out (Benders), until none is left.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from uniproto.methods.thorough.table import (
    LEAST_GAIN,
    Conditions,
    Found,
    Limit,
    Numbers,
    Places,
    Table,
)
from uniproto.problem.problem import Problem

MOST_SETS = 60_000  # that are compared one by one
_STEPS = 200
_DEFLECTION = 0.4
_PATIENCE = 12  # steps without a higher bound, after which steps are halved
_CUTS = 40  # plans whose prices are held against every set that is left
_FEW_SETS = 1_000  # so few that every plan's prices are


def count_of_sets(problem: Problem) -> int:
    """How many sets of rows there are."""
    return math.comb(len(problem.candidates), problem.k - len(problem.initial))


def best_prices(table: Table, found: Found, limit: Limit) -> tuple[Numbers, list[Places]]:
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
        if found.cost - bound <= LEAST_GAIN * found.cost or limit.is_reached:
            break
        if since >= _PATIENCE or room > furthest:
            factor, since, prices = factor / 2, 0, best
            if factor < 1e-3:
                break
        taken = table.fills(chosen, prices).sum(axis=0) / table.k
        slope = table.weights - taken
        direction = slope + _DEFLECTION * direction
        length = float(direction @ direction)
        if length == 0:
            break
        prices = prices + factor * max(room, 0.0) / length * direction
    return best, met


def _lowest(table: Table, values: Numbers) -> Places:
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
        if counts.sum() > 4 * MOST_SETS or (rest == 1 and counts.sum() > MOST_SETS):
            return None
        table.work += int(counts.sum()) // 4
        parent = np.repeat(np.arange(len(sets)), counts)
        first = np.repeat(np.cumsum(counts) - counts, counts)
        rank = np.arange(len(parent)) - first + last[parent] + 1
        sets = np.concatenate([sets[parent], rank[:, None].astype(np.int32)], axis=1)
        spent, last = spent[parent] + ranked[rank], rank
    own = np.broadcast_to(np.arange(given, dtype=np.int32), (len(sets), given))
    return np.concatenate([own, order.astype(np.int32)[sets]], axis=1)


def compare_sets(
    table: Table,
    conditions: Conditions,
    sets: NDArray[np.int32],
    found: Found,
    cuts: list[Numbers],
    limit: Limit,
) -> tuple[Found, bool]:
    """The best of these sets and the one found so far; whether every set was compared.

    Sets are solved from the lowest bound up; a set whose bound reaches the best cost is done. So
    is one that was solved, if its own prices prove what it costs.
    """
    sets = sets[conditions.allowed(sets)] if conditions.any else sets
    bounds = np.full(len(sets), -np.inf)
    used, is_known = 0, True
    for prices in cuts:
        bounds = np.maximum(bounds, _bounds(table, sets, prices))
    while True:
        table.work += len(sets) // 100
        left = bounds < found.cost * (1 - LEAST_GAIN)
        if not left.all():
            sets, bounds = sets[left], bounds[left]
        if not len(sets):
            return found, is_known
        if limit.is_reached:
            return found, False
        lowest = int(np.argmin(bounds))
        tried = Found(sets[lowest].astype(np.intp), table.solve(sets[lowest]))
        if tried.is_better(found):
            found = tried
        is_known &= tried.solved.least >= found.cost * (1 - LEAST_GAIN)
        bounds[lowest] = np.inf
        if used < _CUTS or len(sets) < _FEW_SETS:
            used += 1
            bounds = np.maximum(bounds, _bounds(table, sets, tried.solved.prices))


def _bounds(table: Table, sets: NDArray[np.int32], prices: Numbers) -> Numbers:
    table.work += sets.size // 50
    values = table.values(prices)
    return np.asarray(table.paid(prices) + values[sets].sum(axis=1) / table.k)
