"""The descent of `Exchanges` in compiled code, where costs are at hand and any rows are allowed.

Blocks of neighbouring prototypes are improved by it side by side, as it holds no lock.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uniproto.fills.priced_fills import cheapest_first
from uniproto.methods.search.exact_plan import LEAST_GAIN
from uniproto.runtime.compiling import njit
from uniproto.transport.cell_kernels import (
    FULL,
    Cells,
    Numbers,
    copy_cells,
    copy_numbers,
    give_up,
    least_costs,
    lowest,
    put_in,
    share_out,
    surroundings,
    unit_bounds,
)

SCREENED = 32  # rows for each prototype that are compared by bounds
ENOUGH = 100  # targets of a cell that tell which of its rows are compared
NEAR = 10  # prototypes around one that share its targets
CLOSEST = 2  # prototypes around one whose targets are tried as rows
STEP = 0.15  # of the range of what a cell's targets pay
TRIED = 2  # of the likeliest rows, exactly

DONE, SPENT, NO_ROOM, CHANGED = 0, 1, 2, 3  # why it ends


class BlockRows(NamedTuple):
    """The rows of a block."""

    costs: NDArray[Any]  # rows × targets
    chosen: NDArray[np.int64]  # the row of each place
    is_free: NDArray[np.bool_]  # whether a row may be chosen, and is not
    of_target: NDArray[np.int64]  # the row that each target is, or -1; empty: all rows are compared


class Waiting(NamedTuple):
    """The places to visit, in a ring, and whether a place is among them."""

    ring: NDArray[np.int64]
    ends: NDArray[np.int64]  # where the first one is, and how many there are
    holds: NDArray[np.bool_]  # always True for given rows, which stay

    @classmethod
    def of(cls, places: NDArray[np.int64], k: int) -> Waiting:
        """These of k places."""
        return cls(np.resize(places, k), np.array([0, len(places)]), np.ones(k, np.bool_))


@njit(cache=True, nogil=True)
def descend(
    cells: Cells,
    spare: Cells,
    rows: BlockRows,
    waiting: Waiting,
    offer: NDArray[np.int64],
    need: int,
    total: float,
    exchanges: int,
    work: float,
) -> tuple[float, int, int]:
    """Visit places, and those around each that changes, until none changes any more.

    Ends early once so much work is spent, after so many exchanges, or where there is no room for
    more pieces. Returns the cost of the plan, how many exchanges are left, and why it ended.
    """
    left = exchanges
    least = least_costs(cells)
    limit = cells.work[0] + work
    while waiting.ends[1] > 0:
        if cells.work[0] >= limit:
            return total, left, SPENT
        place = _next(waiting)
        found, row = _visit(cells, spare, rows, place, offer, need, total, least)
        if found == FULL:
            _wait(waiting, place)
            return total, left, NO_ROOM
        if row < 0:
            continue
        total = found
        rows.is_free[rows.chosen[place]], rows.is_free[row] = True, False
        rows.chosen[place] = row
        _wait(waiting, place)
        around = surroundings(cells, place, NEAR)[0]
        for position in range(1, len(around)):
            _wait(waiting, around[position])
        left -= 1
        if left == 0:
            return total, left, CHANGED
        least = least_costs(cells)
    return total, left, DONE


@njit(cache=True, nogil=True, inner=True)
def _visit(
    cells: Cells,
    spare: Cells,
    rows: BlockRows,
    place: int,
    offer: NDArray[np.int64],
    need: int,
    total: float,
    least: Numbers,
) -> tuple[float, int]:
    """Give a place to a better row, if one of the likeliest is: the plan's cost then, and the row.

    FULL where there is no room to try one; the row is -1 where none is better.
    """
    n = len(cells.costs)
    places, targets, ends = surroundings(cells, place, NEAR)
    own, close, size = ends[0], ends[min(CLOSEST, len(places) - 1)], len(targets)
    likely = _likely(cells, rows, targets, own, close)
    if len(likely) == 0:
        return total, -1
    costs, reduced, heirs = np.empty(n), np.empty(n), np.empty(n, np.int64)
    copy_numbers(least, reduced)
    rise = give_up(cells, place, need, reduced, heirs)
    price, cheapest = cells.prices[place], np.inf
    near, masses = np.empty(size), np.empty(size)
    for position in range(size):
        j = targets[position]
        near[position], masses[position] = reduced[j], offer[j]
        if position < own:
            cheapest = min(cheapest, cells.costs[j, place] - reduced[j])
    step = STEP * (price - cheapest) if own else 0.0
    bounds = unit_bounds(rows.costs, likely, targets, near, masses, float(need), price, step)
    cells.work[0] += len(likely) * size
    goal = total * (1 - LEAST_GAIN)
    for _ in range(min(TRIED, len(likely))):
        best = lowest(bounds)
        if total + rise + bounds[best] >= goal:
            break
        bounds[best], row = np.inf, likely[best]
        for j in range(n):
            costs[j] = rows.costs[row, j]
        found = put_in(cells, place, costs, need, total, reduced, heirs)
        if found != FULL:
            found = share_out(cells, need, found, goal)
        if found != FULL and found < goal:
            copy_cells(cells, spare, place)
            return found, row
        copy_cells(spare, cells, place)
        for j in range(n):
            cells.costs[j, place] = costs[j]
        if found == FULL:
            return FULL, -1
    return total, -1


@njit(cache=True, nogil=True, inner=True)
def _likely(
    cells: Cells, rows: BlockRows, targets: NDArray[np.int64], own: int, close: int
) -> NDArray[np.int64]:
    """The rows that may serve a cell's own targets best: those of targets close by, or of all."""
    every = len(rows.of_target) == 0
    looked_at = len(rows.is_free) if every else close
    found, size = np.empty(looked_at, np.int64), 0
    for position in range(looked_at):
        row = position if every else rows.of_target[targets[position]]
        if row >= 0 and rows.is_free[row]:
            found[size] = row
            size += 1
    if size > SCREENED:
        step = -(-own // ENOUGH)
        totals, ones = np.zeros(size), np.empty(size, np.int64)
        for i in range(size):
            ones[i] = 1
            for position in range(0, own, step):
                totals[i] += rows.costs[found[i], targets[position]]
        cells.work[0] += size * (own // step)
        cheapest_first(totals, ones, found, size, SCREENED)
        size = SCREENED
    return found[:size]


@njit(cache=True, nogil=True, inner=True)
def _next(waiting: Waiting) -> int:
    first = waiting.ends[0]
    place = waiting.ring[first]
    waiting.ends[0], waiting.ends[1] = (first + 1) % len(waiting.ring), waiting.ends[1] - 1
    waiting.holds[place] = False
    return place


@njit(cache=True, nogil=True, inner=True)
def _wait(waiting: Waiting, place: int) -> None:
    if not waiting.holds[place]:
        last = (waiting.ends[0] + waiting.ends[1]) % len(waiting.ring)
        waiting.ring[last], waiting.holds[place] = place, True
        waiting.ends[1] += 1
