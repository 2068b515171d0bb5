"""Sorted lists of each source row's nearest targets, built without the m × n matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.costs import Costs, block_rows
from uniproto.geometry.kernels import keep_nearest, order_ties
from uniproto.progress import Progress
from uniproto.threads import available_cores, pieces_of, side_by_side

_COLUMNS_PER_BLOCK = 16384


def nearest(
    costs: Costs, rows: NDArray[np.intp], length: int
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The `length` cheapest columns for each of `rows`, cheapest first, ties by column.

    Returns their costs and their column numbers, both (rows, min(length, columns)).
    """
    n = costs.shape[1]
    length = min(length, n)
    shape = (len(rows), 2 * length + 64)
    kept_costs, kept_columns = np.empty(shape, costs.dtype), np.empty(shape, np.int32)
    sizes = np.zeros(len(rows), np.int64)
    limits = np.full(len(rows), np.inf, costs.dtype)
    for part in pieces_of(n, _COLUMNS_PER_BLOCK):
        block = costs.block(_as_slice(rows), part)
        columns = np.arange(part.start, part.stop)
        keep_nearest(block, columns, length, kept_costs, kept_columns, sizes, limits)
    order = np.argsort(kept_costs[:, :length], axis=1)
    list_costs = np.take_along_axis(kept_costs, order, axis=1)
    list_columns = np.take_along_axis(kept_columns, order, axis=1)
    order_ties(list_costs, list_columns)
    return list_costs, list_columns


def nearest_lists(
    costs: Costs, rows: NDArray[np.intp], length: int, progress: Progress
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """`nearest` of many rows, on all cores, with a progress bar."""
    shape = (len(rows), min(length, costs.shape[1]))
    list_costs, list_columns = np.empty(shape, costs.dtype), np.empty(shape, np.int32)

    def build(piece: slice) -> int:
        list_costs[piece], list_columns[piece] = nearest(costs, rows[piece], length)
        return piece.stop - piece.start

    with progress.stage("nearest targets", len(rows)) as advance:
        for count in side_by_side(build, row_pieces(len(rows), costs.shape[1], length)):
            advance(count)
    return list_costs, list_columns


def row_pieces(n_rows: int, n_columns: int, length: int) -> list[slice]:
    """Rows to build together: their costs and lists fit one block, and every core has work."""
    at_once = block_rows(min(n_columns, _COLUMNS_PER_BLOCK) + 4 * min(length, n_columns))
    return pieces_of(n_rows, max(1, min(at_once, -(-n_rows // available_cores()))))


def _as_slice(rows: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Consecutive rows as a slice, which reads without copying."""
    if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
