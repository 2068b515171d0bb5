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

    Entries between the two have been claimed and dropped.
    """

    costs: NDArray[Any]
    columns: NDArray[np.int32]
    prefix: NDArray[np.int64]
    rest: NDArray[np.int64]
    stop: NDArray[np.int64]
    tail: NDArray[np.float64]  # no unlisted target is cheaper than this; inf: none is unlisted


class Values(NamedTuple):
    """The known fill cost of every row, and the heap that orders the rows by it."""

    cost: NDArray[np.float64]  # the fill cost at some moment; a lower bound from then on
    exact: NDArray[np.bool_]  # False: the list ran out, and `cost` is a lower bound only
    moment: NDArray[np.int64]  # the number of picks made when `cost` was computed
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


@njit(cache=True, inner=True)
def fill_cost(lists: Lists, row: int, unclaimed: NDArray[Any], need: float) -> tuple[float, bool]:
    """Mean cost of a row's fill, and whether its list reached it.

    Where the list runs out, the missing mass is priced at the tail, so the value is a lower
    bound. Claimed targets are overwritten, which drops them from the list.
    """
    costs, columns = lists.costs, lists.columns  # whole arrays: views of one row would cost more
    prefix = lists.prefix[row]
    position, stop, write = 0, prefix, 0
    missing, total = need, 0.0
    for part in range(2):
        if part == 1:
            position, stop = lists.rest[row], lists.stop[row]
        while position < stop and missing > 0:
            cost, column = costs[row, position], columns[row, position]
            available = unclaimed[column]
            costs[row, write] = cost
            columns[row, write] = column
            write += available > 0  # no branch, which would often be mispredicted
            taken = available if available < missing else missing
            total += cost * taken
            missing -= taken
            position += 1
        if part == 1:
            lists.rest[row] = position
        elif missing <= 0:  # ended inside the prefix: close the gap left by dropped entries
            for read in range(position, prefix):
                costs[row, write] = costs[row, read]
                columns[row, write] = columns[row, read]
                write += 1
            break
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
    for row in rows:
        cost[row], exact[row] = fill_cost(lists, row, unclaimed, need)


def make_heap(values: Values, rows: NDArray[Any]) -> None:
    """Put these rows, which ascend, and their costs in order: a sorted list is a heap."""
    costs = values.cost[rows]
    order = np.argsort(costs)  # much faster than a stable sort, but the order of ties is arbitrary
    keys = costs[order]
    ties = np.zeros(len(rows), np.bool_)
    ties[1:] = keys[1:] == keys[:-1]
    ties[:-1] |= ties[1:]
    tied = np.flatnonzero(ties)
    order[tied] = order[tied][np.lexsort((order[tied], keys[tied]))]
    values.rows[: len(rows)], values.keys[: len(rows)] = rows[order], keys


@njit(cache=True, nogil=True)
def cheapest_row(
    lists: Lists, values: Values, size: int, moment: int, unclaimed: NDArray[Any], need: float
) -> tuple[int, int]:
    """The row with the smallest fill cost, and the new size of the heap.

    Heap keys are earlier fill costs. Fill costs never fall, so a key is a lower bound:
    when the row on top has just been evaluated, no other row can be cheaper. If its value is
    only a bound (`exact` is False), the caller must compute it and ask again.
    """
    keys, rows = values.keys, values.rows
    while True:
        row = rows[0]
        key = values.cost[row]
        if not values.alive[row]:  # replaced by the last entry
            size -= 1
            row = rows[size]
            key = keys[size]
        elif values.moment[row] != moment:
            value, reached = fill_cost(lists, row, unclaimed, need)
            # A bound may be weaker than the earlier one; an exact value never is.
            if reached or value > key:
                key = value
            values.cost[row] = key
            values.exact[row] = reached
            values.moment[row] = moment
        elif keys[0] == key:
            return row, size
        root, child = 0, 1
        while child < size:  # sift down: smallest (key, row) on top
            right = child + 1
            if right < size and (
                keys[right] < keys[child]
                or (keys[right] == keys[child] and rows[right] < rows[child])
            ):
                child = right
            if keys[child] > key or (keys[child] == key and rows[child] > row):
                break
            keys[root] = keys[child]
            rows[root] = rows[child]
            root = child
            child = 2 * root + 1
        keys[root] = key
        rows[root] = row


@njit(cache=True, nogil=True)
def pick_and_claim(
    lists: Lists,
    values: Values,
    size: int,
    unclaimed: NDArray[Any],
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
        end, missing, position = first, need, 0
        while missing > 0:
            if position == lists.prefix[row]:
                position = lists.rest[row]
            if position == lists.stop[row]:
                return picked, size, row
            column = lists.columns[row, position]
            taken = unclaimed[column] if unclaimed[column] < missing else missing
            claims.columns[end] = column
            claims.masses[end] = taken
            end += taken > 0
            missing -= taken
            position += 1
        for place in range(first, end):
            unclaimed[claims.columns[place]] -= claims.masses[place]
        values.alive[row] = False
        claims.picks[picked] = row
        claims.costs[picked] = values.cost[row]
        claims.ends[picked] = end
        picked += 1
    return picked, size, -1
