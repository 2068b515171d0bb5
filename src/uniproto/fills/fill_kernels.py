"""Compiled loops of the greedy algorithm: fills over neighbour lists, and the lazy heap.

A *fill* is the cheapest way for one row to collect `need` units of unclaimed target mass (the
fractional knapsack of the paper's Eq. 8, in cost form): walk its targets from near to far and
take what is unclaimed until the need is met.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uniproto.runtime.compiling import njit

# A bound from an exhausted list is a sum in another order than the fill itself: step below it.
_ROUNDING = 1e-12


class Lists(NamedTuple):
    """Nearest targets of every row i, cheapest first: entries `:prefix[i]` and `rest[i]:stop[i]`.

    Between the two lies what was dropped because it had been claimed.
    """

    costs: NDArray[Any]
    columns: NDArray[np.int32]
    prefix: NDArray[np.int64]
    rest: NDArray[np.int64]
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
    """The plan so far: pick t drew `masses` from `columns` at positions `ends[t-1]:ends[t]`."""

    picks: NDArray[np.int64]
    costs: NDArray[np.float64]
    ends: NDArray[np.int64]
    columns: NDArray[np.int64]
    masses: NDArray[np.int64]


@njit(cache=True)
def _walk(
    costs: NDArray[Any],
    columns: NDArray[np.int32],
    row: int,
    first: int,
    stop: int,
    write: int,
    unclaimed: NDArray[Any],
    missing: float,
    total: float,
) -> tuple[int, int, float, float]:
    """Take unclaimed mass from entries `first:stop`, moving those worth keeping to `write`.

    Returns where reading and writing ended, the mass missing and the cost so far. Claimed targets
    offer nothing and are simply written over: without a branch, which would often be guessed
    wrong.
    """
    position = first
    while position < stop:
        cost, column = costs[row, position], columns[row, position]
        available = unclaimed[column]
        costs[row, write], columns[row, write] = cost, column
        write += available > 0
        taken = min(available, missing)
        total += cost * taken
        missing -= taken
        position += 1
        if missing <= 0:
            break
    return position, write, missing, total


@njit(cache=True)
def fill_cost(lists: Lists, row: int, unclaimed: NDArray[Any], need: float) -> tuple[float, bool]:
    """Mean cost of a row's fill, and whether its list reached it.

    Where the list runs out, the missing mass is priced at the tail, so the value is a lower
    bound. Claimed targets met on the way are dropped from the list.
    """
    costs, columns = lists.costs, lists.columns  # whole: views of one row would cost more
    prefix, rest, stop = lists.prefix[row], lists.rest[row], lists.stop[row]
    position, write, missing, total = _walk(costs, columns, row, 0, prefix, 0, unclaimed, need, 0.0)
    if missing > 0:
        position, write, missing, total = _walk(
            costs, columns, row, rest, stop, write, unclaimed, missing, total
        )
        lists.rest[row] = position
    else:  # ended inside the prefix: close the gap that dropped ones have left
        for read in range(position, prefix):
            costs[row, write], columns[row, write] = costs[row, read], columns[row, read]
            write += 1
    lists.prefix[row] = write
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
    columns: NDArray[Any],
    unclaimed: NDArray[Any],
    missing: int,
    claims: Claims,
    end: int,
) -> tuple[int, int]:
    """Take unclaimed mass, columns in order; returns the mass missing and the end of the claims."""
    for position in range(len(columns)):
        if missing <= 0:
            break
        j = columns[position]
        if unclaimed[j] > 0:
            taken = min(unclaimed[j], missing)
            unclaimed[j] -= taken
            missing -= taken
            claims.columns[end], claims.masses[end] = j, taken
            end += 1
    return missing, end


@njit(cache=True)
def _held(columns: NDArray[Any], unclaimed: NDArray[Any], need: int) -> int:
    """The unclaimed mass of these columns, counted no further than `need`."""
    held = 0
    for position in range(len(columns)):
        held += unclaimed[columns[position]]
        if held >= need:
            break
    return held


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
        prefix = lists.columns[row, : lists.prefix[row]]
        rest = lists.columns[row, lists.rest[row] : lists.stop[row]]
        held = _held(prefix, unclaimed, need)
        if held < need and held + _held(rest, unclaimed, need - held) < need:
            return picked, size, row
        end = claims.ends[picked - 1] if picked > 0 else 0
        missing, end = claim(prefix, unclaimed, need, claims, end)
        _, end = claim(rest, unclaimed, missing, claims, end)
        values.alive[row] = False
        claims.picks[picked], claims.costs[picked] = row, values.cost[row]
        claims.ends[picked] = end
        picked += 1
    return picked, size, -1
