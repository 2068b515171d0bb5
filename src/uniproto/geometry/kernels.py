"""Compiled loops of the geometry: L1 distances and the nearest columns of a block.

They use one core and release the interpreter lock; `runtime/threads.py` runs them side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.runtime.compiling import njit


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


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # so that sums are vectorised
def _sum_apart(row: NDArray[Any], own: NDArray[Any], absolute: bool) -> float:
    """The sum of squares (or absolute values) of the differences, in double precision."""
    total = 0.0
    if absolute:
        for t in range(len(row)):
            total += abs(np.float64(row[t]) - np.float64(own[t]))
    else:
        for t in range(len(row)):
            apart = np.float64(row[t]) - np.float64(own[t])
            total += apart * apart
    return total


@njit(cache=True, nogil=True)
def rows_within(
    rows: NDArray[Any], own: NDArray[Any], limit: float, absolute: bool
) -> NDArray[np.bool_]:
    """Which rows differ from `own` by sums of squares (or absolute values) of at most `limit`.

    A row is given up as soon as its sum exceeds the limit, which for most is after a few of its
    numbers: nothing is cast or copied.
    """
    width, step = len(own), 32
    near = np.zeros(len(rows), np.bool_)
    for i in range(len(rows)):
        total, t = 0.0, 0
        while t < width and total <= limit:
            total += _sum_apart(rows[i, t : t + step], own[t : t + step], absolute)
            t += step
        near[i] = total <= limit
    return near


@njit(cache=True, nogil=True)
def gather(matrix: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
    """Some rows and columns of a matrix, read in one pass."""
    part = np.empty((len(rows), len(columns)), matrix.dtype)
    for i in range(len(rows)):
        for j in range(len(columns)):
            part[i, j] = matrix[rows[i], columns[j]]
    return part


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
    """Keep the `length` nearest entries, in their order; returns the cost of the farthest."""
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
def _append_below(
    row: NDArray[Any],
    first_column: int,
    limit: float,
    length: int,
    costs: NDArray[Any],
    columns: NDArray[Any],
    size: int,
) -> tuple[int, float]:
    """Append the row's entries below `limit`, cutting the buffer back whenever it fills up."""
    below = np.empty(64, np.uint8)
    whole = len(row) - len(row) % 64  # loops of known length are compiled to something quicker
    for chunk in range(0, whole, 64):
        if size + 64 > len(costs):
            limit = _cut_back(costs, columns, size, length)
            size = length
        found = np.uint8(0)
        for j in range(64):
            below[j] = row[chunk + j] < limit
            found += below[j]
        if found == 0:
            continue
        # No branch, which would often be guessed wrong; unsigned, which needs no wrap-around.
        end = np.uint64(size)
        for j in range(64):
            columns[end] = chunk + j
            end += np.uint64(below[j])
        for position in range(size, np.int64(end)):
            costs[position] = row[columns[position]]
            columns[position] += first_column
        size = np.int64(end)
    if size + len(row) - whole > len(costs):
        limit = _cut_back(costs, columns, size, length)
        size = length
    for j in range(whole, len(row)):
        if row[j] < limit:
            costs[size], columns[size] = row[j], first_column + j
            size += 1
    return size, limit


@njit(cache=True, nogil=True)
def merge_nearest(
    block: NDArray[Any],
    first_column: int,
    guesses: NDArray[Any],
    length: int,
    buffer_costs: NDArray[Any],
    buffer_columns: NDArray[Any],
    sizes: NDArray[Any],
    limits: NDArray[Any],
) -> None:
    """Merge a block of costs into each row's buffer of its nearest columns so far.

    Afterwards the `sizes[i]` entries of buffer i, in ascending order of their columns, hold the
    `length` nearest of all columns seen, and perhaps some more. Only costs below `limits[i]`
    count; where the buffer is still empty, `guesses[i]` is tried in its place, if it is lower.
    Columns must ascend over all calls: an entry as costly as the farthest in the buffer
    then comes after it and is rightly refused.
    """
    for i in range(block.shape[0]):
        row, costs, columns = block[i], buffer_costs[i], buffer_columns[i]
        size, limit = sizes[i], limits[i]
        if size > length:
            limit = _cut_back(costs, columns, size, length)
            size = length
        unlimited, guessed = limit, size == 0 and guesses[i] < limit
        if guessed:
            limit = guesses[i]
        size, limit = _append_below(row, first_column, limit, length, costs, columns, size)
        if guessed and size < length:  # the guess was too low
            size, limit = _append_below(row, first_column, unlimited, length, costs, columns, 0)
        sizes[i], limits[i] = size, limit


@njit(cache=True, nogil=True)
def pad(costs: NDArray[Any], sizes: NDArray[Any]) -> None:
    """Make entries beyond each row's size infinite, so that sorting leaves them at the end."""
    for i in range(costs.shape[0]):
        costs[i, sizes[i] :] = np.inf


@njit(cache=True, nogil=True)
def pack(costs: NDArray[Any], columns: NDArray[Any], keys: NDArray[np.uint64]) -> None:
    """Write each single-precision cost and its column as one integer that orders by both."""
    for i in range(costs.shape[0]):
        bits = (costs[i] + np.float32(0)).view(np.uint32)  # the sum makes −0 and 0 equal
        for j in range(costs.shape[1]):
            sign = np.uint32(0xFFFFFFFF) if bits[j] >> 31 else np.uint32(0x80000000)
            high = np.uint64(bits[j] ^ sign) << np.uint64(32)
            keys[i, j] = high | np.uint64(columns[i, j])


@njit(cache=True, nogil=True)
def unpack(keys: NDArray[np.uint64], costs: NDArray[Any], columns: NDArray[Any]) -> None:
    """The costs and columns of packed keys, as many as there is room for."""
    for i in range(costs.shape[0]):
        bits = costs[i].view(np.uint32)
        for j in range(costs.shape[1]):
            high = np.uint32(keys[i, j] >> np.uint64(32))
            bits[j] = high ^ (np.uint32(0x80000000) if high >> 31 else np.uint32(0xFFFFFFFF))
            columns[i, j] = np.int32(keys[i, j] & np.uint64(0xFFFFFFFF))


@njit(cache=True, nogil=True)
def arrange(
    costs: NDArray[Any],
    columns: NDArray[Any],
    order: NDArray[Any],
    list_costs: NDArray[Any],
    list_columns: NDArray[Any],
) -> None:
    """Write each row's entries in the order given, those of equal cost as they stood before."""
    width, length = order.shape[1], list_costs.shape[1]
    for i in range(costs.shape[0]):
        begin = 0
        while begin < length:
            cost, end = costs[i, order[i, begin]], begin + 1
            while end < width and costs[i, order[i, end]] == cost:
                end += 1
            if end - begin > 1:
                order[i, begin:end].sort()
            for place in range(begin, min(end, length)):
                list_costs[i, place] = costs[i, order[i, place]]
                list_columns[i, place] = columns[i, order[i, place]]
            begin = end


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
