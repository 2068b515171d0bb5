"""Rows and columns of a cost matrix by slices and numbers, and the blocks that walk over them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

Rows = slice | NDArray[np.intp]
EVERY = slice(None)

COLUMNS_PER_BLOCK = 16384
_BLOCK_BYTES = 32 * 2**20  # one block of costs: small enough for the caches, large enough for BLAS


def block_rows(n_columns: int, itemsize: int = 4) -> int:
    """The number of rows of costs per block."""
    return min(4096, rows_in_block(n_columns * itemsize))


def rows_in_block(row_bytes: int) -> int:
    """The number of rows of `row_bytes` bytes per block, at least one."""
    return max(1, _BLOCK_BYTES // max(1, row_bytes))


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Slices that walk over all rows one block at a time."""
    step = block_rows(n_columns)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def spread_rows(count: int, most: int) -> NDArray[np.intp]:
    """At most `most` row numbers, evenly spread.

    >>> spread_rows(5, 64), len(spread_rows(1000, 64))
    (array([0, 1, 2, 3, 4]), 64)
    """
    return np.unique(np.linspace(0, count - 1, min(most, count)).astype(np.intp))


def within(outer: Rows, inner: Rows) -> Rows:
    """Compose two selections of rows: `inner` indexes the rows that `outer` selects."""
    if isinstance(outer, slice) and outer == EVERY:
        return inner
    if isinstance(inner, slice) and inner == EVERY:
        return outer
    if isinstance(outer, slice):
        start = outer.start or 0
        if isinstance(inner, slice):
            stop = start + inner.stop
            stop = stop if outer.stop is None else min(stop, outer.stop)
            return slice(start + (inner.start or 0), stop)
        return inner + start
    return outer[inner]


def length_of(rows: Rows, total: int) -> int:
    """The number of rows of `total` that these select."""
    return len(range(*rows.indices(total))) if isinstance(rows, slice) else len(rows)
