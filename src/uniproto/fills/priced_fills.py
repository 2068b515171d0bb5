"""Rows against priced targets: the cheapest unit of mass each could collect at those prices.

For prices v ≥ 0 this is BotAvg_i(C + v) of the duality bounds. The certificate sums it, the swap
search and exact gains rule candidates out by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.fills.fill_kernels import Lists
from uniproto.fills.lazy_fills import list_length
from uniproto.geometry.cpu_lists import CpuLists
from uniproto.geometry.lists import lists_of
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import njit
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import available_cores, parallel_map, pieces_of

_LIST_FACTOR = 8  # prices can make targets beyond a row's neighbourhood attractive
_MOST_ENTRIES = 10**8  # longer lists take more time than they save
_ROWS_PER_PIECE = 2048
_ENTRIES_PER_PIECE = 2**24  # of whole rows, in double precision


class PricedRows:
    """Neighbour lists of some rows, for evaluating them under many sets of prices.

    Lists may be truncated: values are then lower bounds, as everything that uses them needs.
    `longest` makes them as long as they may be, for prices that are far apart: a target that is
    not listed counts as if it had none.
    """

    def __init__(
        self,
        problem: Problem,
        rows: NDArray[np.intp],
        progress: Progress,
        *,
        longest: bool = False,
    ) -> None:
        self.problem, self.rows = problem, rows
        self.offer, self.need = problem.masses.offer, problem.masses.need
        entry = problem.costs.dtype.itemsize + 4
        affordable = max(1, problem.memory // 2 // (max(1, len(rows)) * entry))
        usual = list_length(problem.masses)
        longer = max(usual, _MOST_ENTRIES // max(1, len(rows)))
        if not longest:
            longer = min(_LIST_FACTOR * usual, longer)
        length = min(longer, affordable, problem.n)
        costs, columns = lists_of(
            CpuLists() if not problem.lists.exact else problem.lists,
            problem.costs,
            rows,
            length,
            problem.memory,
            progress,
        )
        complete = length == problem.n
        self._lists = Lists(
            costs=costs,
            columns=columns,
            prefix=np.zeros(len(rows), np.int64),
            rest=np.zeros(len(rows), np.int64),
            stop=np.full(len(rows), length, np.int64),
            tail=np.full(len(rows), np.inf) if complete else costs[:, -1].astype(np.float64),
        )

    def values(
        self, positions: NDArray[np.intp], prices: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Lower bounds of the rows' values at these prices, in the costs' own precision."""

        def compute(piece: slice) -> NDArray[np.float64]:
            return cheapest_units(self._lists, positions[piece], prices, self.offer, self.need)

        found = list(parallel_map(compute, pieces_of(len(positions), _ROWS_PER_PIECE)))
        return np.concatenate(found) if found else np.empty(0)

    def taken(
        self, positions: NDArray[np.intp], prices: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The units each target gives when all these rows collect their cheapest unit."""

        def compute(piece: slice) -> NDArray[np.int64]:
            return mass_taken(self._lists, positions[piece], prices, self.offer, self.need)

        step = max(_ROWS_PER_PIECE, -(-len(positions) // available_cores()))
        found = parallel_map(compute, pieces_of(len(positions), step))
        return sum(found, np.zeros(len(prices), np.int64)) / self.need


def exact_values(
    problem: Problem, rows: NDArray[np.intp], prices: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The rows' values over the whole target, in double precision."""
    offer, need = problem.masses.offer, problem.masses.need

    def compute(piece: slice) -> NDArray[np.float64]:
        block = problem.costs.exact_block(rows[piece])
        return cheapest_units_of_rows(block, prices, offer, need)

    affordable = problem.memory // (64 * available_cores())  # several copies of 8 bytes
    at_once = max(1, min(_ENTRIES_PER_PIECE, affordable) // problem.n)
    found = list(parallel_map(compute, pieces_of(len(rows), at_once)))
    return np.concatenate(found) if found else np.empty(0)


@njit(cache=True, nogil=True)
def cheapest_first(
    costs: NDArray[np.float64],
    masses: NDArray[Any],
    columns: NDArray[np.int64],
    size: int,
    need: Any,
) -> tuple[float, int, Any]:
    """Rearrange entries until the cheapest `need` units come first, whole units or not.

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
    """`cheapest_first` of a row's listed targets at their prices.

    Prices are not negative and lists are sorted by cost. So once two units' worth of mass is at
    hand, targets that cost more than the dearest entry needed cannot matter, whatever their
    price. An unlisted target costs at least the tail: one entry at the tail, offering any mass,
    represents them all and makes the value a lower bound.
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
        total, whole, part = cheapest_first(costs, masses, columns, size, need)
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
    return cheapest_first(costs, masses, columns, size, need)


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
    costs, masses, columns = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    values = np.empty(len(block))
    for i in range(len(block)):
        for j in range(n):  # assigning slices takes four seconds to compile
            costs[j], masses[j] = block[i, j] + prices[j], offer[j]
        values[i] = cheapest_first(costs, masses, columns, n, need)[0] / need
    return values
