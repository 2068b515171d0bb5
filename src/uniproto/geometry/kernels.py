"""Compiled loops of the geometry: L1 distances and the nearest columns of a block.

They use one core and release the interpreter lock; `uniproto.threads` runs them side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def l1_distances(source: NDArray[Any], target: NDArray[Any]) -> NDArray[Any]:
    """Sum of absolute differences between every row of `source` and every row of `target`."""
    m, n, width = source.shape[0], target.shape[0], source.shape[1]
    distances = np.empty((m, n), source.dtype)
    for i in range(m):
        for j in range(n):
            total = 0.0
            for t in range(width):
                total += abs(source[i, t] - target[j, t])
            distances[i, j] = total
    return distances


@njit(cache=True)
def _kth_smallest(values: NDArray[Any], size: int, k: int) -> float:
    """The k-th smallest (from 1) of the first `size` values, which are rearranged."""
    low, high = 0, size - 1
    while low < high:
        pivot = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < pivot:
                left += 1
            while values[right] > pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if k - 1 <= right:
            high = right
        elif k - 1 >= left:
            low = left
        else:
            break
    return values[k - 1]


@njit(cache=True)
def _cut_back(costs: NDArray[Any], columns: NDArray[Any], size: int, length: int) -> float:
    """Keep the `length` nearest entries, in their order; returns the cost of the farthest kept."""
    farthest = _kth_smallest(costs[:size].copy(), size, length)
    nearer = 0
    for position in range(size):
        nearer += costs[position] < farthest
    ties_left = length - nearer  # the earliest columns win a tie
    write = 0
    for position in range(size):
        cost = costs[position]
        if cost < farthest or (cost == farthest and ties_left > 0):
            ties_left -= cost == farthest
            costs[write], columns[write] = cost, columns[position]
            write += 1
    return farthest


@njit(cache=True)
def _guess_limit(row: NDArray[Any], length: int) -> float:
    """A cost that probably has a little more than `length` entries of the row below it."""
    stride = max(1, len(row) // 512)
    sample = row[::stride].copy()
    expected = length / stride
    rank = int(expected + 3 * np.sqrt(expected)) + 2
    return _kth_smallest(sample, len(sample), min(rank, len(sample)))


@njit(cache=True)
def _append_below(
    row: NDArray[Any],
    columns: NDArray[Any],
    limit: float,
    length: int,
    costs: NDArray[Any],
    kept: NDArray[Any],
    size: int,
) -> tuple[int, float]:
    """Append the row's entries below `limit`, cutting the buffer back whenever it fills up."""
    for chunk in range(0, len(row), 64):
        stop = min(chunk + 64, len(row))
        if size + (stop - chunk) > len(costs):
            limit = _cut_back(costs, kept, size, length)
            size = length
        # No branch, which would often be guessed wrong; unsigned, which needs no wrap-around.
        end = np.uint64(size)
        for j in range(chunk, stop):
            kept[end] = j
            end += np.uint64(row[j] < limit)
        for position in range(size, np.int64(end)):
            costs[position] = row[kept[position]]
            kept[position] = columns[kept[position]]
        size = np.int64(end)
    return size, limit


@njit(cache=True, nogil=True)
def keep_nearest(
    block: NDArray[Any],
    columns: NDArray[Any],
    length: int,
    kept_costs: NDArray[Any],
    kept_columns: NDArray[Any],
    sizes: NDArray[Any],
    limits: NDArray[Any],
) -> None:
    """Merge a block of costs into each row's buffer of its nearest columns so far.

    Afterwards `sizes[i]` ≤ `length` entries of buffer i are filled, in ascending order of their
    columns. Columns must ascend over all calls: an entry as costly as the farthest one kept then
    comes after it and is rightly refused.
    """
    for i in range(block.shape[0]):
        row, costs, kept, size = block[i], kept_costs[i], kept_columns[i], 0
        if sizes[i] == 0 and 4 * length < len(row):
            limit = _guess_limit(row, length)
            size, limit = _append_below(row, columns, limit, length, costs, kept, 0)
        if size < length:  # no guess was made, or it was too low
            size, limit = _append_below(row, columns, limits[i], length, costs, kept, sizes[i])
        if size >= length:
            limit = _cut_back(costs, kept, size, length)
            size = length
        sizes[i], limits[i] = size, limit


@njit(cache=True, nogil=True)
def order_ties(costs: NDArray[Any], columns: NDArray[Any]) -> None:
    """In rows sorted by cost, put entries of equal cost in the order of their columns."""
    for i in range(costs.shape[0]):
        for position in range(1, costs.shape[1]):
            column, hole = columns[i, position], position
            while (
                hole > 0
                and costs[i, hole - 1] == costs[i, position]
                and columns[i, hole - 1] > column
            ):
                columns[i, hole] = columns[i, hole - 1]
                hole -= 1
            columns[i, hole] = column
