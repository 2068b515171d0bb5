"""Compiled loops of the greedy algorithm: fills over neighbour lists, and the lazy heap.

A *fill* is the cheapest way for one row to collect `need` units of unclaimed target mass (the
fractional knapsack of the paper's Eq. 9, in cost form): walk its targets from near to far and
take what is unclaimed until the need is met.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

# A bound from an exhausted list is a sum in another order than the fill itself: step below it.
_ROUNDING = 1e-12


class Lists(NamedTuple):
    """Nearest targets of every row: entries `start[i]:stop[i]` of line i, cheapest first."""

    costs: NDArray[Any]
    columns: NDArray[np.int32]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    tail: NDArray[np.float64]  # no unlisted target is cheaper than this; inf: none is unlisted


class Values(NamedTuple):
    """What is known of every row's fill cost, and the heap that orders the rows by it."""

    cost: NDArray[np.float64]  # the fill cost at some moment: a lower bound ever after
    exact: NDArray[np.bool_]  # False: the list ran out, and `cost` is a lower bound only
    moment: NDArray[np.int64]  # how many picks had been made when `cost` was computed
    alive: NDArray[np.bool_]  # may still be picked
    keys: NDArray[np.float64]
    rows: NDArray[np.int64]


class Claims(NamedTuple):
    """The kept plan: pick t drew `masses` from `columns` at positions `ends[t-1]:ends[t]`."""

    picks: NDArray[np.int64]
    costs: NDArray[np.float64]
    ends: NDArray[np.int64]
    columns: NDArray[np.int64]
    masses: NDArray[np.int64]


@njit(cache=True)
def fill_cost(lists: Lists, row: int, unclaimed: NDArray[Any], need: float) -> tuple[float, bool]:
    """Mean cost of a row's fill, and whether its list reached it.

    Where the list runs out, the missing mass is priced at the tail, so the value is a lower
    bound. Claimed targets met on the way are dropped from the list: what remains is pushed
    together towards the place where the walk ended.
    """
    costs, columns = lists.costs[row], lists.columns[row]
    start, stop = lists.start[row], lists.stop[row]
    missing = need
    total = 0.0
    position = start
    claimed = 0
    while position < stop:
        available = unclaimed[columns[position]]
        if available > 0:
            taken = min(available, missing)
            total += costs[position] * taken
            missing -= taken
            if missing <= 0:
                break
        else:
            claimed += 1
        position += 1
    if claimed > 0:
        write = position
        for read in range(position - 1, start - 1, -1):
            if unclaimed[columns[read]] > 0:
                write -= 1
                costs[write], columns[write] = costs[read], columns[read]
        lists.start[row] = write
    if missing <= 0 or np.isinf(lists.tail[row]):
        return total / need, True
    value = (total + missing * lists.tail[row]) / need
    return value - _ROUNDING * abs(value), False


@njit(cache=True, nogil=True)
def fill_costs(
    lists: Lists,
    rows: NDArray[Any],
    unclaimed: NDArray[Any],
    need: float,
    cost: NDArray[np.float64],
    exact: NDArray[np.bool_],
) -> None:
    """`fill_cost` of many rows, written to their places in `cost` and `exact`."""
    for t in range(rows.shape[0]):
        cost[rows[t]], exact[rows[t]] = fill_cost(lists, rows[t], unclaimed, need)


@njit(cache=True)
def _sift_down(keys: NDArray[np.float64], rows: NDArray[np.int64], root: int, size: int) -> None:
    """Restore the heap (smallest (key, row) on top) below `root`."""
    key, row = keys[root], rows[root]
    while True:
        child = 2 * root + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            keys[right] < keys[child] or (keys[right] == keys[child] and rows[right] < rows[child])
        ):
            child = right
        if keys[child] > key or (keys[child] == key and rows[child] > row):
            break
        keys[root], rows[root] = keys[child], rows[child]
        root = child
    keys[root], rows[root] = key, row


@njit(cache=True)
def heapify(keys: NDArray[np.float64], rows: NDArray[np.int64]) -> None:
    for root in range(len(keys) // 2 - 1, -1, -1):
        _sift_down(keys, rows, root, len(keys))


@njit(cache=True)
def cheapest_row(
    lists: Lists, values: Values, size: int, moment: int, unclaimed: NDArray[Any], need: float
) -> tuple[int, int]:
    """The row with the smallest fill cost, and the new size of the heap.

    Heap keys are fill costs of earlier moments. Fill costs never fall, so a key is a lower bound:
    when the row on top has just been evaluated, no other row can be cheaper. If its value is
    only a bound (`exact` is False), the caller must compute it and ask again.
    """
    keys, rows = values.keys, values.rows
    while True:
        row = rows[0]
        if not values.alive[row]:
            size -= 1
            keys[0], rows[0] = keys[size], rows[size]
        elif values.moment[row] == moment and keys[0] == values.cost[row]:
            return row, size
        else:
            if values.moment[row] != moment:
                value, reached = fill_cost(lists, row, unclaimed, need)
                # A bound may be weaker than what was known before; an exact value never is.
                values.cost[row] = value if reached else max(value, values.cost[row])
                values.exact[row] = reached
                values.moment[row] = moment
            keys[0] = values.cost[row]
        _sift_down(keys, rows, 0, size)


@njit(cache=True)
def claim(
    columns: NDArray[Any], unclaimed: NDArray[np.int64], need: int, claims: Claims, first: int
) -> int:
    """Take `need` units out of `unclaimed`, columns in order; returns the end of the claims.

    Returns -1, and takes nothing, when the columns do not hold enough.
    """
    held = 0
    for position in range(len(columns)):
        held += unclaimed[columns[position]]
        if held >= need:
            break
    if held < need:
        return -1
    missing = need
    end = first
    for position in range(len(columns)):
        j = columns[position]
        if unclaimed[j] > 0:
            taken = min(unclaimed[j], missing)
            unclaimed[j] -= taken
            missing -= taken
            claims.columns[end] = j
            claims.masses[end] = taken
            end += 1
            if missing <= 0:
                break
    return end


@njit(cache=True)
def pick_and_claim(
    lists: Lists,
    values: Values,
    size: int,
    unclaimed: NDArray[np.int64],
    need: int,
    claims: Claims,
    picked: int,
    last: int,
) -> tuple[int, int, int]:
    """Pick the cheapest row and let it claim its fill, until `last` rows are picked.

    Returns the picks made so far, the size of the heap, and a row that needs the caller because
    its list ran out (-1: none).
    """
    while picked < last:
        row, size = cheapest_row(lists, values, size, picked, unclaimed, need)
        if not values.exact[row]:
            return picked, size, row
        first = claims.ends[picked - 1] if picked > 0 else 0
        listed = lists.columns[row, lists.start[row] : lists.stop[row]]
        end = claim(listed, unclaimed, need, claims, first)
        if end < 0:
            return picked, size, row
        values.alive[row] = False
        claims.picks[picked], claims.costs[picked] = row, values.cost[row]
        claims.ends[picked] = end
        picked += 1
    return picked, size, -1
