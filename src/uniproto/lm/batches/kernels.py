"""Compiled loops of mini-batch selection: one call for all sources of a pool, dense matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.fills.priced_fills import cheapest_first
from uniproto.runtime.compiling import njit
from uniproto.transport.cell_kernels import (
    AFTER,
    FIRST,
    FULL,
    MASS,
    NEXT,
    TARGET,
    TOUCHED,
    Cells,
    copy_cells,
    fill_cells,
    give_up,
    least_costs,
    put_in,
    share_out,
)

_GAIN_ROUNDING = 16  # units in the last place below which two gains count as equal
_ROUNDING = 1e-9  # of the cost: a smaller gain is rounding
_WORTHWHILE = 8e-6  # of the cost, for each row: what a round of exchanges must gain for another
_WORK = 1_600  # of all exchanges, for each row: about two nanoseconds each
_PATIENCE = 400  # of the exchanges of one round, for each row
_FEW_SETS = 300  # that are all compared
_STEPS = 8  # of prices, before a set's plan is made

Numbers = NDArray[np.float64]
Rows = NDArray[np.int64]


@njit(cache=True, nogil=True)
def choose(costs: Numbers, sizes: Rows, counts: Rows, exchanges: bool) -> tuple[Rows, Numbers]:
    """How many rows `counts` wants of each source, one source after another, and their fill costs.

    `costs` holds the n × n costs of every source, flat. The rows are those of
    `uniproto.algorithm.uniprot` with plan `extend`; `exchanges` then improve them.
    """
    picks, paid = np.empty(counts.sum(), np.int64), np.empty(counts.sum())
    begin, first = 0, 0
    for source in range(len(sizes)):
        n, k = sizes[source], counts[source]
        end, last = begin + n * n, first + k
        matrix, rows = costs[begin:end].reshape(n, n), picks[first:last]
        common = math.gcd(k, n)  # integer masses: each column offers k, each pick needs n
        offer, need = k // common, n // common
        alone = _pick_by_fills(matrix, offer, need, rows, paid[first:last])
        if exchanges and 1 < k < n:
            sets = 1.0
            for place in range(k):
                sets *= (n - place) / (place + 1)
            if sets < _FEW_SETS + 0.5:
                _find_best_set(matrix, offer, need, rows, alone)
            else:
                _exchange_rows(matrix, offer, need, rows, alone)
        begin, first = end, last
    return picks, paid


@njit(cache=True, nogil=True, inner=True)
def _pick_by_fills(costs: Numbers, offer: int, need: int, rows: Rows, paid: Numbers) -> Numbers:
    """Each pick claims the `need` cheapest units that are unclaimed, of `offer` in every column.

    Fill costs never fall, so that an earlier one is a bound. Of equal costs the lowest row is
    picked. Returns what each row would have cost as the first one.
    """
    n = len(costs)
    usual = min(n, need // offer + 3)
    nearest, listed = np.empty((n, n), np.int32), np.empty(n, np.int64)
    unclaimed, columns, left = np.full(n, offer), np.arange(n), n  # those with unclaimed mass
    values, moment = np.empty(n), np.zeros(n, np.int64)
    for row in range(n):
        listed[row] = _find_nearest(costs[row], columns, n, nearest[row], usual)
        values[row] = _fill_cost(costs[row], nearest[row], listed[row], unclaimed, need)
    alone = values.copy()
    for picked in range(len(rows)):
        while True:
            row, least = 0, values[0]
            for other in range(1, n):
                if values[other] < least:
                    row, least = other, values[other]
            if moment[row] == picked:
                break
            least, most = _fill_cost(costs[row], nearest[row], listed[row], unclaimed, need), usual
            while least == np.inf:  # the list ran out
                listed[row] = _find_nearest(costs[row], columns, left, nearest[row], most)
                least = _fill_cost(costs[row], nearest[row], listed[row], unclaimed, need)
                most = min(2 * most, n)
            values[row], moment[row] = least, picked
        rows[picked], paid[picked], values[row] = row, values[row], np.inf
        missing = need
        for position in range(listed[row]):
            column = nearest[row, position]
            taken = min(unclaimed[column], missing)
            unclaimed[column] -= taken
            missing -= taken
        write = 0
        for read in range(left):
            columns[write] = columns[read]
            write += unclaimed[columns[read]] > 0
        left = write
    return alone


@njit(cache=True, nogil=True, inner=True)
def _find_nearest(
    costs: Numbers, columns: Rows, size: int, nearest: NDArray[np.int32], most: int
) -> int:
    """Write the `most` cheapest of some columns, cheapest first; how many there are.

    Equal costs stay in the order of the columns.
    """
    found, limit = 0, np.inf
    for place in range(size):
        cost = costs[columns[place]]
        if cost < limit:
            position = min(found, most - 1)
            while position > 0 and costs[nearest[position - 1]] > cost:
                nearest[position] = nearest[position - 1]
                position -= 1
            nearest[position] = columns[place]
            found = min(found + 1, most)
            if found == most:
                limit = costs[nearest[most - 1]]
    return found


@njit(cache=True, nogil=True, inner=True)
def _fill_cost(
    costs: Numbers, nearest: NDArray[np.int32], listed: int, unclaimed: Rows, need: int
) -> float:
    """Mean cost of the cheapest unclaimed units in a list; infinite if it holds too few."""
    missing, total = need, 0.0
    for position in range(listed):
        taken = min(unclaimed[nearest[position]], missing)
        total += costs[nearest[position]] * taken
        missing -= taken
        if missing == 0:
            return total / need
    return np.inf


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


# --- exact exchanges, within about half a millisecond --------------------------------------------
# Inside a training step there is no second for a search. A bound on what each exchange would cost
# orders them; those that may pay are made in the exact plan, until they gain next to nothing.


@njit(cache=True, nogil=True, inner=True)
def _exchange_rows(costs: Numbers, offer: int, need: int, rows: Rows, prices: Numbers) -> None:
    """Exchange rows for better ones. `prices` near to those that balance the plan save work."""
    n, k = len(costs), len(rows)
    cells = _empty_cells(costs[rows].T.copy(), prices[rows])
    saved = _empty_cells(cells.costs, prices[rows])
    total = share_out(cells, need, fill_cells(cells, np.full(n, offer)), np.inf)
    if total == FULL:
        return
    copy_cells(cells, saved, 0)
    is_chosen = np.zeros(n, np.bool_)
    is_chosen[rows] = True
    others, before, most = np.flatnonzero(~is_chosen), np.inf, cells.work[0] + _WORK * n
    while total < before * (1 - _WORTHWHILE * n) and cells.work[0] < most:
        before, bounds = total, _exchange_bounds(costs, cells, others, offer, need)
        until = min(cells.work[0] + _PATIENCE * n, most)
        while cells.work[0] < until:
            place, column = divmod(np.argmin(bounds), n - k)
            row, limit = others[column], total * (1 - _ROUNDING)
            if total + bounds[place, column] >= limit:
                break
            cells.work[0] += k * (n + k) // 2
            least, heirs = least_costs(cells), np.empty(n, np.int64)
            give_up(cells, place, need, least, heirs)
            after = put_in(cells, place, costs[row].copy(), need, total, least, heirs)
            if after != FULL:
                after = share_out(cells, need, after, limit)
            bounds[place, column] = np.inf
            if after != FULL and after < limit:
                copy_cells(cells, saved, place)
                others[column], rows[place], total = rows[place], row, after
                bounds[place], bounds[:, column] = np.inf, np.inf
            else:
                copy_cells(saved, cells, place)
                for j in range(n):
                    cells.costs[j, place] = costs[rows[place], j]
                if total < before:
                    break  # the bounds are those of a plan that has changed since


@njit(cache=True, nogil=True, inner=True)
def _exchange_bounds(
    costs: Numbers, cells: Cells, others: Rows, offer: int, need: int
) -> NDArray[np.float64]:
    """For every place and every other row, a bound on how much the cost rises with the row there.

    The rise without the prototype, plus the row's fill at the prices that targets then have: those
    of the place are dearer than before. Infinite where the row would take none of them, since such
    exchanges hardly ever pay, and where the bound is above 0.
    """
    n, k, m = len(costs), len(cells.prices), len(others)
    least, size = least_costs(cells), -(-need // offer)
    net, listed, columns = np.empty((n, m)), np.empty((m, size)), np.empty((m, size), np.int64)
    fills, dearest, saved = np.empty(m), np.empty(m), np.empty(m)
    own, order, masses = np.empty(2 * n), np.empty(2 * n, np.int64), np.full(2 * n, offer)
    for i in range(m):
        for j in range(n):
            own[j] = costs[others[i], j] - least[j]
            net[j, i], order[j] = own[j], j
        fills[i] = cheapest_first(own, masses, order, n, need)[0]
        for position in range(size):
            listed[i, position], columns[i, position] = own[position], order[position]
        dearest[i] = own[size - 1]
    bounds, is_near = np.full((k, m), np.inf), np.empty(m, np.bool_)
    is_held = np.zeros(n, np.bool_)
    raised, heirs, held = least.copy(), np.empty(n, np.int64), np.empty(n, np.int64)
    for place in range(k):
        rise, count = give_up(cells, place, need, raised, heirs), 0
        saved[:], is_near[:] = 0.0, False
        piece = cells.cell[FIRST, place]
        while piece >= 0:
            j = cells.piece[TARGET, piece]
            gap = raised[j] - least[j]
            for i in range(m):
                below = dearest[i] - net[j, i]
                is_near[i] |= below + gap > 0
                saved[i] += max(below + gap, 0.0) - max(below, 0.0)
            held[count], is_held[j] = j, True
            count += 1
            piece = cells.piece[AFTER, piece]
        for i in range(m):
            if is_near[i] and rise + fills[i] < offer * saved[i]:
                found = 0
                for position in range(count):
                    j = held[position]
                    own[found] = net[j, i] - (raised[j] - least[j])
                    found += own[found] <= dearest[i]
                for position in range(size):
                    own[found] = listed[i, position]
                    found += not is_held[columns[i, position]]
                bounds[place, i] = rise + cheapest_first(own, masses, order, int(found), need)[0]
        cells.work[0] += 2 * m * count
        for position in range(count):
            is_held[held[position]], raised[held[position]] = False, least[held[position]]
    cells.work[0] += 2 * n * m
    return bounds


@njit(cache=True, nogil=True, inner=True)
def _find_best_set(costs: Numbers, offer: int, need: int, rows: Rows, prices: Numbers) -> None:
    """Compare all sets of rows; `rows` stay unless others are cheaper.

    Prices bound what a set costs. A few steps towards what balances it show of most sets that they
    are too dear, and the prices of one set are near to those of the next.
    """
    n, k = len(costs), len(rows)
    cells = _empty_cells(costs[rows].T.copy(), prices[rows])
    empty = _empty_cells(cells.costs, prices[rows])
    offers, some, lacking = np.full(n, offer), np.arange(k), np.empty(k, np.int64)
    limit = share_out(cells, need, fill_cells(cells, offers), np.inf) * (1 - _ROUNDING)
    while True:
        for _ in range(_STEPS):
            bound, square = 0.0, 0
            lacking[:] = need
            for j in range(n):
                cheapest, least = 0, np.inf
                for place in range(k):
                    reduced = costs[some[place], j] - prices[some[place]]
                    if reduced < least:
                        cheapest, least = place, reduced
                bound += offer * least
                lacking[cheapest] -= offer
            for place in range(k):
                bound += need * prices[some[place]]
                square += lacking[place] ** 2
            if bound >= limit or square == 0:
                break
            for place in range(k):
                prices[some[place]] += (limit - bound) / square * lacking[place]
        if bound < limit:
            copy_cells(empty, cells, 0)
            for place in range(k):
                cells.prices[place] = prices[some[place]]
                for j in range(n):
                    cells.costs[j, place] = costs[some[place], j]
            cost = share_out(cells, need, fill_cells(cells, offers), limit)
            for place in range(k):
                prices[some[place]] = cells.prices[place]
            if cost != FULL and cost < limit:
                limit, rows[:] = cost * (1 - _ROUNDING), some
        place = k - 1
        while place >= 0 and some[place] == n - k + place:
            place -= 1
        if place < 0:
            return
        some[place] += 1
        for later in range(place + 1, k):
            some[later] = some[later - 1] + 1


@njit(cache=True, nogil=True, inner=True)
def _empty_cells(costs: Numbers, prices: Numbers) -> Cells:
    """As `cells_for`, compiled."""
    n, k = costs.shape
    room = n + 4 * k + 4
    piece, cell, unused = np.full((6, room), -1), np.zeros((3, k), np.int64), np.array([0, room])
    for place in range(room):
        piece[MASS, place], piece[AFTER, place] = 0, place + 1
    cell[FIRST], cell[TOUCHED] = -1, 1
    moves, via = np.full((k, k), np.inf), np.full((k, k), -1)
    following, known = np.empty((k, k, NEXT), np.int64), np.full((k, k), -np.inf)
    part, work = np.full(n, -1), np.zeros(1, np.int64)
    return Cells(costs, prices, moves, via, following, known, cell, part, piece, unused, work)
