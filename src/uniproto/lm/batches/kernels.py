"""Compiled loops of mini-batch selection: one call per pool, no checks, dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.fills.fill_kernels import (
    Claims,
    Lists,
    Values,
    fill_costs,
    make_heap,
    pick_and_claim,
)
from uniproto.runtime.compiling import njit

_GAIN_ROUNDING = 16  # units in the last place below which two gains count as equal


def pick_by_fills(
    list_costs: NDArray[Any], list_columns: NDArray[np.int32], k: int, offer: int, need: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k rows of `uniproto.algorithm.uniprot` with plan `extend`, and what each fill cost.

    Each row's columns come from cheap to dear, equal costs in the order of the columns. Every
    column offers `offer` units and every pick claims the `need` cheapest units that are unclaimed.
    The lists are used up.
    """
    m, n = list_costs.shape
    none = np.zeros(m, np.int64)
    lists = Lists(list_costs, list_columns, none, none.copy(), np.full(m, n), np.full(m, np.inf))
    values = Values(
        cost=np.empty(m),
        exact=np.ones(m, np.bool_),
        moment=np.zeros(m, np.int64),
        alive=np.ones(m, np.bool_),
        keys=np.empty(m),
        rows=np.arange(m),
    )
    claims = Claims(
        picks=np.empty(k, np.int64),
        costs=np.empty(k),
        ends=np.empty(k, np.int64),
        columns=np.empty(n + k, np.int64),
        masses=np.empty(n + k, np.int64),
    )
    narrow = np.int16 if offer <= np.iinfo(np.int16).max else np.int64  # as in larger problems
    unclaimed = np.full(n, offer, narrow)
    fill_costs(lists, values.rows, unclaimed, need, values.cost, values.exact)
    make_heap(values, values.rows)
    pick_and_claim(lists, values, m, unclaimed, need, claims, 0, k)
    return claims.picks, claims.costs


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
