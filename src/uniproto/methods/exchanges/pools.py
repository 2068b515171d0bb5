"""A few exact exchanges in a pool of some dozens of rows, within about a millisecond.

Inside a training step there is no second for a search. Where there are few sets of rows all are
compared; elsewhere the prototypes that are missed least are compared with every other row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
