"""Sorted lists of each source row's nearest targets, built without the m × n matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.costs import EVERY, Costs
from uniproto.geometry.kernels import keep_nearest, order_ties
from uniproto.threads import available_cores, finish, pieces_of, side_by_side

_COLUMNS_PER_BLOCK = 16384
_ROWS_PER_TILE = 512


def nearest(
    costs: Costs, rows: NDArray[np.intp], length: int
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The `length` cheapest columns for each of `rows`, cheapest first, ties by column.

    Returns their costs and their column numbers, both (rows, min(length, columns)). Columns are
    read once, a block at a time; the rows share each block on all cores.
    """
    n = costs.shape[1]
    length = min(length, n)
    shape = (len(rows), 2 * length + 64)
    kept_costs, kept_columns = np.empty(shape, costs.dtype), np.empty(shape, np.int32)
    sizes = np.zeros(len(rows), np.int64)
    limits = np.full(len(rows), np.inf, costs.dtype)
    mine = costs.restrict(as_slice(rows), EVERY)
    tiles = pieces_of(len(rows), max(1, min(_ROWS_PER_TILE, -(-len(rows) // available_cores()))))
    for part in pieces_of(n, _COLUMNS_PER_BLOCK):
        block = mine.restrict(EVERY, part)
        columns = np.arange(part.start, part.stop)

        def keep(tile: slice, block: Costs = block, columns: NDArray[np.intp] = columns) -> None:
            keep_nearest(
                block.block(tile),
                columns,
                length,
                kept_costs[tile],
                kept_columns[tile],
                sizes[tile],
                limits[tile],
            )

        finish(side_by_side(keep, tiles))
    list_costs = np.empty((len(rows), length), costs.dtype)
    list_columns = np.empty((len(rows), length), np.int32)

    def sort(tile: slice) -> None:
        order = np.argsort(kept_costs[tile, :length], axis=1)
        list_costs[tile] = np.take_along_axis(kept_costs[tile], order, axis=1)
        list_columns[tile] = np.take_along_axis(kept_columns[tile], order, axis=1)
        order_ties(list_costs[tile], list_columns[tile])

    finish(side_by_side(sort, tiles))
    return list_costs, list_columns


def rows_at_once(length: int, memory: int) -> int:
    """How many rows `nearest` may take together within this much memory."""
    return max(64, memory // ((2 * length + 64) * 12))


def as_slice(rows: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Consecutive rows as a slice, which reads without copying."""
    if len(rows) and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
