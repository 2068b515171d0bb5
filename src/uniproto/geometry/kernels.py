"""Compiled loops of the geometry: L1 distances, near-duplicates, the order of ties.

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

    A row is abandoned as soon as its sum exceeds the limit, which for most is after a few of its
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
