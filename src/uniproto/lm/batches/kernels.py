"""Compiled loops of mini-batch selection: one call per pool, no checks, dense matrices."""

from __future__ import annotations

import math
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
from uniproto.transport.cell_kernels import (
    FULL,
    Cells,
    exchange,
    fill_cells,
    give_up,
    least_costs,
    unit_bounds,
)
from uniproto.transport.cells import cells_for, copied

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


# --- a few exact exchanges in a pool of some dozens of rows, within about a millisecond -----------
# Inside a training step there is no second for a search. Where there are few sets of rows all are
# compared; elsewhere the prototypes that are missed least are compared with every other row.


_FEW_SETS = 300  # that are compared one by one
_WORK = 400_000  # of exchanges, about a nanosecond each
_TRIED = 2  # rows at the place of each prototype

Rows = NDArray[np.int64]


def improve_in_pool(costs: NDArray[np.float64], rows: Rows) -> Rows:
    """The best rows of a pool whose m × n costs these are, or better ones than these.

    Rows stay at their places unless another is better there.

    >>> improve_in_pool(np.abs(np.subtract.outer([0.0, 1, 2, 9], [0.0, 1, 2, 9])), np.array([0, 1]))
    array([0, 2])
    """
    k, (m, n) = len(rows), costs.shape
    common = math.gcd(k, n)  # whole masses: each column offers k, each row needs n
    offer, need = np.full(n, k // common), n // common
    costs = np.ascontiguousarray(costs, np.float64)
    cells = cells_for(costs[rows].T.copy(), np.zeros(k), 4 * (n + k))
    empty = copied(cells)
    if math.comb(m, k) <= _FEW_SETS:
        best = _best_set(costs, np.sort(rows), offer, need, cells, empty)
        return np.concatenate([rows[np.isin(rows, best)], np.setdiff1d(best, rows)])
    return _exchanged(costs, rows.copy(), offer, need, cells, empty)


@njit(cache=True, nogil=True, inner=True)
def _restore(cells: Cells, saved: Cells) -> None:
    """As `restore` of the cells, compiled."""
    _copy(cells.prices, saved.prices)
    _copy(cells.moves, saved.moves)
    _copy(cells.via, saved.via)
    _copy(cells.cell, saved.cell)
    _copy(cells.part, saved.part)
    _copy(cells.piece, saved.piece)
    _copy(cells.unused, saved.unused)


@njit(cache=True, nogil=True, inner=True)
def _copy(into: NDArray[Any], what: NDArray[Any]) -> None:
    """One by one: assigning a slice takes four seconds to compile."""
    for place in range(what.size):
        into.flat[place] = what.flat[place]


@njit(cache=True, nogil=True)
def _best_set(
    costs: NDArray[np.float64],
    best: Rows,
    offer: NDArray[np.int64],
    need: int,
    cells: Cells,
    empty: Cells,
) -> Rows:
    """The cheapest of all sets of rows; the one that is given unless another is cheaper."""
    k, m = len(best), len(costs)
    least = fill_cells(cells, offer, need)
    some = np.arange(k)
    while True:
        _restore(cells, empty)
        for place in range(k):
            for j in range(costs.shape[1]):
                cells.costs[j, place] = costs[some[place], j]
        cost = fill_cells(cells, offer, need)
        if cost != FULL and cost < least * (1 - 1e-9):
            best, least = some.copy(), cost
        place = k - 1
        while place >= 0 and some[place] == m - k + place:
            place -= 1
        if place < 0:
            return best
        some[place] += 1
        for later in range(place + 1, k):
            some[later] = some[later - 1] + 1


@njit(cache=True, nogil=True)
def _exchanged(
    costs: NDArray[np.float64],
    rows: Rows,
    offer: NDArray[np.int64],
    need: int,
    cells: Cells,
    spare: Cells,
) -> Rows:
    """Exchange rows for better ones, as long as the work allows."""
    m, n = costs.shape
    total = fill_cells(cells, offer, need)
    if total == FULL:
        return rows
    most = cells.work[0] + _WORK
    is_free = np.ones(m, np.bool_)
    is_free[rows] = False
    heirs, masses, targets = np.empty(n, np.int64), offer.astype(np.float64), np.arange(n)
    least, losses, is_better = np.empty(n), np.empty(len(rows)), True
    while is_better:
        is_better = False
        for place in range(len(rows)):
            losses[place] = give_up(cells, place, need, least, heirs)
        for place in np.argsort(losses):
            if cells.work[0] >= most:
                return rows
            least = least_costs(cells)
            rise = give_up(cells, place, need, least, heirs)
            others = np.flatnonzero(is_free)
            dearest = cells.prices[place]
            step = 0.1 * abs(dearest) + 1e-300
            bounds = rise + unit_bounds(
                costs, others, targets, least, masses, float(need), dearest, step
            )
            cells.work[0] += 2 * len(others) * n
            for position in np.argsort(bounds)[:_TRIED]:
                if bounds[position] >= -1e-9 * total:
                    break
                _restore(spare, cells)
                column, row = cells.costs[:, place].copy(), others[position]
                after = exchange(cells, place, costs[row], need, total, total * (1 - 1e-9))
                if after != FULL and after < total * (1 - 1e-9):
                    is_free[rows[place]], is_free[row] = True, False
                    rows[place], total, is_better = row, after, True
                    break
                _restore(cells, spare)
                for j in range(n):
                    cells.costs[j, place] = column[j]
    return rows
