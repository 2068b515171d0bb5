"""Compiled loops of mini-batch selection: one call per pool, no checks, dense matrices.

A pool is a few hundred examples, so a plain search for the smallest value is quicker than a heap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

_GAIN_ROUNDING = 16  # units in the last place below which two gains count as equal


class Lists(NamedTuple):
    """Every row's columns from cheap to dear: entries `:used[row]` and from `rest[row]` on.

    Between the two lies what was dropped because it had been claimed.
    """

    costs: NDArray[Any]
    columns: NDArray[np.int32]
    used: NDArray[np.int64]
    rest: NDArray[np.int64]


@njit(cache=True, nogil=True)
def pick_by_fills(
    costs: NDArray[Any], order: NDArray[np.int64], k: int, offer: int, need: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k rows of `uniproto.algorithm.uniprot` with plan `extend`, and what each fill cost.

    `order` holds each row's columns by ascending cost, equal costs in any order. Every column
    offers `offer` units and every pick claims the `need` cheapest units that are unclaimed. Fill
    costs never fall, so one computed earlier is a lower bound: when the smallest of all has just
    been computed, it is the smallest fill cost there is. Ties go to the lowest row.
    """
    m, n = costs.shape
    unclaimed = np.full(n, offer)
    lists = Lists(
        np.empty((m, n), costs.dtype),
        np.empty((m, n), np.int32),
        np.zeros(m, np.int64),
        np.zeros(m, np.int64),
    )
    bounds = np.empty(m)
    moments = np.zeros(m, np.int64)  # how many picks had been made when the bound was computed
    picks, pick_costs = np.empty(k, np.int64), np.empty(k)
    for row in range(m):
        _list(costs, order, row, lists)
        bounds[row] = _fill_cost(lists, row, unclaimed, need)
    picked = 0
    while picked < k:
        row = int(np.argmin(bounds))
        if moments[row] < picked:
            bounds[row], moments[row] = _fill_cost(lists, row, unclaimed, need), picked
            continue
        _claim(lists, row, unclaimed, need)
        picks[picked], pick_costs[picked] = row, bounds[row]
        bounds[row] = np.inf
        picked += 1
    return picks, pick_costs


@njit(cache=True, nogil=True)
def _list(costs: NDArray[Any], order: NDArray[np.int64], row: int, lists: Lists) -> None:
    """Write a row's columns from cheap to dear, equal costs in the order of the columns."""
    n = order.shape[1]
    first = 0  # of a run of equal costs
    for position in range(n):
        column = order[row, position]
        lists.columns[row, position] = column
        lists.costs[row, position] = costs[row, column]
        if lists.costs[row, position] != lists.costs[row, first]:
            if position - first > 1:
                lists.columns[row, first:position].sort()
            first = position
    if n - first > 1:
        lists.columns[row, first:].sort()


@njit(cache=True, nogil=True)
def _fill_cost(lists: Lists, row: int, unclaimed: NDArray[np.int64], need: int) -> float:
    """Mean cost of the cheapest `need` unclaimed units; claimed columns met are dropped."""
    costs, columns = lists.costs, lists.columns
    missing, total, write = need, 0.0, 0
    for position in range(lists.used[row]):
        cost, column = costs[row, position], columns[row, position]
        available = unclaimed[column]
        costs[row, write], columns[row, write] = cost, column
        write += available > 0
        taken = min(available, missing)
        total += cost * taken
        missing -= taken
    position = lists.rest[row]
    while missing > 0:
        cost, column = costs[row, position], columns[row, position]
        available = unclaimed[column]
        costs[row, write], columns[row, write] = cost, column
        write += available > 0
        taken = min(available, missing)
        total += cost * taken
        missing -= taken
        position += 1
    lists.used[row], lists.rest[row] = write, position
    return total / need


@njit(cache=True, nogil=True)
def _claim(lists: Lists, row: int, unclaimed: NDArray[np.int64], need: int) -> None:
    """Take the units that `_fill_cost` has just priced: all of them are among those listed."""
    position = 0
    while need > 0:
        column = lists.columns[row, position]
        taken = min(unclaimed[column], need)
        unclaimed[column] -= taken
        need -= taken
        position += 1


# Sums may be reordered, so that the loops run on vector registers; nothing else is relaxed.
@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def pick_by_coverage(costs: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Greedy k-medoids, which is greedy facility location with similarity max(C) − C.

    Each pick is the row i of largest Σ_j max(0, c_j − C_ij), where c_j is the cost of column j's
    cheapest pick so far, max(C) at first. Gains never rise, so a row whose last known gain is below
    the best one is passed over. Ties, up to rounding, go to the lowest row.
    """
    m, n = costs.shape
    served_at = np.full(n, np.float64(costs.max()))
    gains = np.full(m, np.inf)
    picks = np.empty(k, np.int64)
    rounding = 1 - _GAIN_ROUNDING * np.finfo(costs.dtype).eps
    for picked in range(k):
        best = 0.0
        for row in range(m):
            if gains[row] < best * rounding:
                continue
            total = 0.0
            for column in range(n):
                total += max(0.0, served_at[column] - costs[row, column])
            gains[row] = total
            best = max(best, total)
        chosen = 0
        while gains[chosen] < best * rounding:
            chosen += 1
        picks[picked] = chosen
        gains[chosen] = -1.0
        for column in range(n):
            served_at[column] = min(served_at[column], np.float64(costs[chosen, column]))
    return picks


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def l1_costs(rows: NDArray[Any]) -> NDArray[Any]:
    """Sums of absolute differences between all pairs of rows, each pair computed once."""
    n, width = rows.shape
    costs = np.zeros((n, n), rows.dtype)
    for i in range(n):
        for j in range(i):
            total = rows.dtype.type(0)
            for t in range(width):
                total += abs(rows[i, t] - rows[j, t])
            costs[i, j] = costs[j, i] = total
    return costs
