"""Lists of the targets that matter to some rows at given prices, for many steps of an ascent.

A row collects its unit of mass where cost plus price is lowest. While prices change little, those
targets are among the ones that hold about its two cheapest units now: some n/k of n targets, in any
order. `rooms` measures how much prices may change.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.gpu_rows import GpuCandidateLists, GpuRows, most_rows_on_gpu
from uniproto.certificate.row_bounds import RowBounds
from uniproto.certificate.thresholds import (
    FARTHEST,
    WINDOW,
    guessed_threshold,
    rows_per_block,
    threshold_values,
)
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import njit
from uniproto.runtime.threads import available_cores, parallel_map, pieces_of

_UNITS = 2.2  # the approximate mass that a list holds at least
_ENTRIES = 8_000_000  # of all lists together, up to which they hold more


class CandidateLists(NamedTuple):
    """Rows with their listed targets one after the other, and their thresholds.

    Row i has the entries `starts[i]` to `starts[i + 1]`. They are in single precision, as the steps
    of an ascent prove nothing.
    """

    starts: NDArray[np.int64]
    columns: NDArray[np.int32]
    costs: NDArray[np.float32]
    thresholds: NDArray[np.float32]
    windows: NDArray[np.float32]

    def rooms(
        self, prices: NDArray[np.float64], offering: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """For each target, the sum of the rooms of the rows that list it, and their number.

        The room of a row is the difference between its threshold and the most expensive target in
        its list; it is infinite if the list holds all targets that are `offering` mass.
        """
        return _listed_rooms(self, prices, offering)

    def values(
        self,
        rows: NDArray[np.intp],
        prices: NDArray[np.float32],
        capacity: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """The rows' approximate values; updates their thresholds for the prices."""
        values = np.empty(len(rows), np.float32)
        even = bool(capacity[0] == capacity.min() == capacity.max())

        def compute(piece: slice) -> None:
            _listed_values(self, rows[piece], prices, capacity, even, values[piece])

        _in_parallel(compute, len(rows), 4)
        return values

    def averages(
        self, of_targets: NDArray[np.float64], prices: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The mean of target values over the targets that each row takes."""
        averages = np.empty(len(self.thresholds))

        def compute(piece: slice) -> None:
            rows = np.arange(piece.start, piece.stop)
            _listed_averages(self, rows, prices, of_targets, averages)

        _in_parallel(compute, len(averages), 4)
        return averages

    def taken(
        self,
        rows: NDArray[np.intp],
        shares: NDArray[np.float32],
        prices: NDArray[np.float32],
        capacity: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """The demand for each target, relative to its capacity, if rows have these shares."""

        def compute(piece: slice) -> NDArray[np.float32]:
            return _listed_taken(self, rows[piece], shares[piece], prices, capacity)

        parts = _in_parallel(compute, len(rows), 1)  # each has all targets
        return sum(parts[1:], parts[0])


def build_lists(
    bounds: RowBounds, places: NDArray[np.intp], prices: NDArray[np.float64]
) -> CandidateLists | GpuCandidateLists:
    """The lists of these rows at these prices, built on a GPU if there is one."""
    problem, capacity, rows = bounds.problem, bounds.capacity, bounds.rows[places]
    share = max(_UNITS / capacity.sum(), _ENTRIES / (len(rows) * problem.n))
    if bounds.gpu is not None:
        return GpuCandidateLists(bounds.gpu, rows, prices, min(share, 1.0))
    small_prices = prices.astype(np.float32)

    def compute(piece: slice) -> tuple[Any, ...]:
        block = bounds.costs_of(places[piece])
        thresholds, values = bounds.thresholds[places[piece]], np.empty(len(block))
        threshold_values(block, small_prices, capacity, np.inf, values, thresholds)
        windows = WINDOW * (thresholds - values)
        listed = _below_limits(block, small_prices, capacity, share, thresholds)
        return (*listed, thresholds, windows)

    found = list(parallel_map(compute, pieces_of(len(rows), rows_per_block(problem))))
    parts = (np.concatenate(part) for part in zip(*found, strict=True))
    counts, columns, costs, thresholds, windows = parts
    starts = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    small = thresholds.astype(np.float32), windows.astype(np.float32)
    return CandidateLists(starts, columns, costs, *small)


def most_rows(problem: Problem, gpu: GpuRows | None) -> int:
    """The approximate number of rows whose lists fit into memory while they are built."""
    entries = max(1, int(min(1.0, _UNITS / problem.k) * problem.n))
    if gpu is not None:
        return most_rows_on_gpu(gpu, entries)
    return int(problem.memory // 2 // (2 * 8 * entries))


def _in_parallel(work: Any, count: int, pieces_per_core: int) -> list[Any]:
    step = max(16, math.ceil(count / (pieces_per_core * available_cores())))
    return list(parallel_map(work, pieces_of(count, step)))


@njit(cache=True, nogil=True)
def _below_limits(
    block: NDArray[Any],
    prices: NDArray[np.float32],
    capacity: NDArray[np.float64],
    share: float,
    thresholds: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.float32]]:
    m, n = block.shape
    counts = np.zeros(m, np.int64)
    columns, costs = np.empty(n, np.int32), np.empty(n, np.float32)
    # Mark targets first: groups of eight without a mark are then skipped at once.
    marked = np.zeros((n + 7) // 8 * 8, np.uint8)
    eights = marked.view(np.uint64)
    held = 0
    for i in range(m):
        limit = guessed_threshold(block[i], prices, capacity, share) if share < 1.0 else np.inf
        limit = block.dtype.type(max(limit, thresholds[i]))
        for j in range(n):
            marked[j] = block[i, j] + prices[j] <= limit
        if len(columns) < held + n:  # enough for a whole row
            columns = np.concatenate((columns, np.empty(held + n, np.int32)))
            costs = np.concatenate((costs, np.empty(held + n, np.float32)))
        first = held
        for place in range(len(eights)):
            if eights[place]:
                for j in range(8 * place, min(8 * place + 8, n)):
                    if marked[j] and capacity[j] > 0.0:
                        columns[held], costs[held] = j, block[i, j]
                        held += 1
        counts[i] = held - first
    return counts, columns[:held].copy(), costs[:held].copy()


@njit(cache=True, nogil=True, fastmath=True)
def _listed_values(
    lists: CandidateLists,
    rows: NDArray[Any],
    prices: NDArray[np.float32],
    capacity: NDArray[np.float32],
    even: bool,
    values: NDArray[np.float32],
) -> None:
    starts, columns, costs, thresholds, windows = lists
    zero, one, farthest = np.float32(0), np.float32(1), np.float32(FARTHEST)
    for place in range(len(rows)):
        row = rows[place]
        t, window = thresholds[row], windows[row]
        paid, mass, lower, upper = zero, zero, zero, zero
        for e in range(starts[row], starts[row + 1]):
            below = t - (costs[e] + prices[columns[e]])
            offered = one if even else capacity[columns[e]]
            paid += offered * max(below, zero)
            mass += offered if below > zero else zero
            lower += offered if below > window else zero
            upper += offered if below > -window else zero
        if even:
            paid, mass = paid * capacity[0], mass * capacity[0]
            lower, upper = lower * capacity[0], upper * capacity[0]
        values[place] = t - paid
        windows[row] = np.float32(WINDOW) * paid
        # The next threshold: where the accumulated mass reaches one unit.
        if mass > one:
            thresholds[row] = t - window * (
                (mass - one) / (mass - lower) if lower < one else farthest
            )
        elif mass > zero:
            thresholds[row] = t + window * (
                (one - mass) / (upper - mass) if upper > one else farthest
            )
        else:  # all prices have risen
            lowest = np.float32(np.inf)
            for e in range(starts[row], starts[row + 1]):
                lowest = min(lowest, costs[e] + prices[columns[e]])
            thresholds[row] = lowest + np.float32(1e-3) * abs(lowest)


@njit(cache=True, nogil=True, fastmath=True)
def _listed_taken(
    lists: CandidateLists,
    rows: NDArray[Any],
    shares: NDArray[np.float32],
    prices: NDArray[np.float32],
    capacity: NDArray[np.float32],
) -> NDArray[np.float32]:
    starts, columns, costs, thresholds, _ = lists
    taken = np.zeros(len(prices), np.float32)
    for place in range(len(rows)):
        row, share = rows[place], shares[place]
        t = thresholds[row]
        mass = np.float32(0)
        for e in range(starts[row], starts[row + 1]):
            column = columns[e]
            if costs[e] + prices[column] < t:
                mass += capacity[column]
                taken[column] += share
        if mass > 2:  # a target may offer more than one unit; at most one is taken
            for e in range(starts[row], starts[row + 1]):
                column = columns[e]
                if costs[e] + prices[column] < t:
                    taken[column] -= share * (1 - 1 / mass)
    return taken


@njit(cache=True, nogil=True)
def _listed_rooms(
    lists: CandidateLists,
    prices: NDArray[np.float64],
    offering: int,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    starts, columns, costs, thresholds, _ = lists
    rooms, counts = np.zeros(len(prices)), np.zeros(len(prices), np.int64)
    for row in range(len(thresholds)):
        dearest = np.inf
        if starts[row + 1] - starts[row] < offering:
            dearest = thresholds[row]
            for e in range(starts[row], starts[row + 1]):
                dearest = max(dearest, costs[e] + prices[columns[e]])
        for e in range(starts[row], starts[row + 1]):
            rooms[columns[e]] += dearest - thresholds[row]
            counts[columns[e]] += 1
    return rooms, counts


@njit(cache=True, nogil=True)
def _listed_averages(
    lists: CandidateLists,
    rows: NDArray[Any],
    prices: NDArray[np.float64],
    of_targets: NDArray[np.float64],
    averages: NDArray[np.float64],
) -> None:
    starts, columns, costs, thresholds, _ = lists
    for row in rows:
        total, every, count = 0.0, 0.0, 0
        for e in range(starts[row], starts[row + 1]):
            column = columns[e]
            every += of_targets[column]
            if costs[e] + prices[column] <= thresholds[row]:
                total += of_targets[column]
                count += 1
        averages[row] = total / count if count else every / (starts[row + 1] - starts[row])
