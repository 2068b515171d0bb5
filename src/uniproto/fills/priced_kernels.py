"""Compiled loops of the certificate: the cheapest unit of mass when targets have prices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from uniproto.fills.fill_kernels import Lists


@njit(cache=True, nogil=True)
def _cheapest_first(
    costs: NDArray[np.float64],
    masses: NDArray[np.int64],
    columns: NDArray[np.int64],
    size: int,
    need: int,
) -> tuple[float, int, int]:
    """Rearrange entries until the cheapest `need` units come first.

    A quickselect by mass. Returns their total cost, how many entries are taken whole, and how
    much is taken of the one after those.
    """
    low, high, missing, total = 0, size - 1, need, 0.0
    while low < high:
        pivot = costs[(low + high) // 2]
        left, right = low - 1, high + 1
        while True:
            left += 1
            while costs[left] < pivot:
                left += 1
            right -= 1
            while costs[right] > pivot:
                right -= 1
            if left >= right:
                break
            costs[left], costs[right] = costs[right], costs[left]
            masses[left], masses[right] = masses[right], masses[left]
            columns[left], columns[right] = columns[right], columns[left]
        held, cost = 0, 0.0
        for position in range(low, right + 1):
            held += masses[position]
            cost += costs[position] * masses[position]
        if held >= missing:
            high = right
        else:
            total += cost
            missing -= held
            low = right + 1
    return total + costs[low] * missing, low, missing


@njit(cache=True, nogil=True)
def _cheapest_listed(
    lists: Lists,
    row: int,
    prices: NDArray[np.float64],
    offer: NDArray[np.int64],
    need: int,
    costs: NDArray[np.float64],
    masses: NDArray[np.int64],
    columns: NDArray[np.int64],
) -> tuple[float, int, int]:
    """`_cheapest_first` of a row's listed targets at their prices.

    Prices are not negative and lists are sorted by cost. So once two units' worth of mass is at
    hand, targets that cost more than the dearest entry needed cannot matter, whatever their
    price. An unlisted target costs at least the tail: one entry at the tail, offering any mass,
    stands for them all and makes the value a lower bound.
    """
    listed, listed_columns = lists.costs[row], lists.columns[row]
    position, stop, tail = lists.rest[row], lists.stop[row], lists.tail[row]
    size, held = 0, 0
    while position < stop and held < 2 * need:
        column = listed_columns[position]
        costs[size], columns[size] = listed[position] + prices[column], column
        masses[size] = offer[column]
        held += offer[column]
        size += 1
        position += 1
    if held >= need:
        total, whole, part = _cheapest_first(costs, masses, columns, size, need)
        limit = costs[whole]
        if position < stop and listed[position] >= limit:
            return total, whole, part
    else:
        limit = np.inf
    while position < stop and listed[position] < limit:
        column = listed_columns[position]
        cost = listed[position] + prices[column]
        if cost < limit:
            costs[size], columns[size], masses[size] = cost, column, offer[column]
            size += 1
        position += 1
    if tail < limit:
        costs[size], columns[size], masses[size] = tail, -1, need
        size += 1
    return _cheapest_first(costs, masses, columns, size, need)


@njit(cache=True, nogil=True)
def cheapest_units(
    lists: Lists,
    rows: NDArray[Any],
    prices: NDArray[np.float64],
    offer: NDArray[np.int64],
    need: int,
) -> NDArray[np.float64]:
    """A lower bound of BotAvg_i(C + v) for each of `rows`, exact where lists are long enough."""
    room = lists.columns.shape[1] + 1
    costs, masses = np.empty(room), np.empty(room, np.int64)
    columns = np.empty(room, np.int64)
    values = np.empty(len(rows))
    for t in range(len(rows)):
        total, _, _ = _cheapest_listed(lists, rows[t], prices, offer, need, costs, masses, columns)
        values[t] = total / need
    return values


@njit(cache=True, nogil=True)
def mass_taken(
    lists: Lists,
    rows: NDArray[Any],
    prices: NDArray[np.float64],
    offer: NDArray[np.int64],
    need: int,
) -> NDArray[np.int64]:
    """The mass each target gives to the cheapest units of `rows`, taken together."""
    room = lists.columns.shape[1] + 1
    costs, masses = np.empty(room), np.empty(room, np.int64)
    columns = np.empty(room, np.int64)
    taken = np.zeros(len(prices), np.int64)
    for t in range(len(rows)):
        _, whole, part = _cheapest_listed(
            lists, rows[t], prices, offer, need, costs, masses, columns
        )
        for position in range(whole):
            if columns[position] >= 0:
                taken[columns[position]] += masses[position]
        if columns[whole] >= 0:
            taken[columns[whole]] += part
    return taken


@njit(cache=True, nogil=True)
def cheapest_units_of_rows(
    block: NDArray[np.float64], prices: NDArray[np.float64], offer: NDArray[np.int64], need: int
) -> NDArray[np.float64]:
    """BotAvg_i(C + v) of whole rows of costs."""
    n = block.shape[1]
    masses, columns = np.empty(n, np.int64), np.empty(n, np.int64)
    values = np.empty(len(block))
    for i in range(len(block)):
        masses[:] = offer
        costs = block[i] + prices
        values[i] = _cheapest_first(costs, masses, columns, n, need)[0] / need
    return values
