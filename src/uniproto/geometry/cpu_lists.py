"""Neighbour lists on the processor: every row's nearest targets, without the m × n matrix."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import EVERY
from uniproto.geometry.costs import Costs
from uniproto.runtime.progress import Advance, unseen
from uniproto.runtime.threads import available_cores, parallel_for, parallel_map, pieces_of

_COLUMNS_PER_BLOCK = 16384
_ROWS_PER_TILE = 512
_SAMPLED_COLUMNS = 512  # of each row, to guess where its nearest columns end
_SPREAD_COLUMNS = 8192  # the same, from all columns where they come in several blocks


class CpuLists:
    """Exact lists by blocks of matrix products on all cores."""

    exact, fills = True, 8

    def index(self, costs: Costs, columns: NDArray[np.intp] | None = None) -> _CpuIndex:
        return _CpuIndex(costs if columns is None else costs.restrict(EVERY, columns))

    def notes(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class _CpuIndex:
    costs: Costs

    @cached_property
    def sample(self) -> Costs | None:
        columns = spread_columns(self.costs.shape[1])
        return None if columns is None else self.costs.read(EVERY, columns)

    def nearest(
        self, rows: NDArray[np.intp], length: int, advance: Advance = unseen
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        return nearest(self.costs, rows, length, self.sample, advance)


def nearest(
    costs: Costs,
    rows: NDArray[np.intp],
    length: int,
    sample: Costs | None = None,
    advance: Advance = unseen,
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The `length` cheapest columns for each of `rows`, cheapest first, ties by column.

    Returns their costs and their column numbers, both (rows, min(length, columns)). Columns are
    read once, a block at a time; the rows share each block on all cores. `sample`, the same costs
    for some columns from all over (`spread_columns`), tells beforehand which costs are low.
    """
    from uniproto.geometry.kernels import merge_nearest, pad  # Numba, which takes long to load

    n = costs.shape[1]
    length = min(length, n)
    shape = (len(rows), 2 * length + 64)
    buffer_costs, buffer_columns = np.empty(shape, costs.dtype), np.empty(shape, np.int32)
    sizes = np.zeros(len(rows), np.int64)
    limits = np.full(len(rows), np.inf, costs.dtype)
    mine = costs.restrict(as_slice(rows), EVERY)
    tiles = pieces_of(len(rows), max(1, min(_ROWS_PER_TILE, -(-len(rows) // available_cores()))))
    if sample is not None:
        limits = _sampled_limits(sample.restrict(as_slice(rows), EVERY), length / n, tiles)
    blocks = list(costs.column_blocks(_COLUMNS_PER_BLOCK))
    for part in blocks:
        column_costs = mine.read(EVERY, part)

        def merge(tile: slice, column_costs: Costs = column_costs, part: slice = part) -> None:
            block = column_costs.block(tile)
            merge_nearest(
                block,
                part.start,
                _guessed_limits(block, length) if sample is None else limits[tile],
                length,
                buffer_costs[tile],
                buffer_columns[tile],
                sizes[tile],
                limits[tile],
            )

        for tile, _ in zip(tiles, parallel_map(merge, tiles), strict=True):
            advance((tile.stop - tile.start) / len(blocks))
    list_costs = np.empty((len(rows), length), costs.dtype)
    list_columns = np.empty((len(rows), length), np.int32)

    def sort(tile: slice) -> None:
        width = int(sizes[tile].max())
        if width >= length:
            pad(buffer_costs[tile, :width], sizes[tile])
            own = buffer_costs[tile, :width], buffer_columns[tile, :width]
            sort_rows(*own, list_costs[tile], list_columns[tile])

    parallel_for(sort, tiles)
    short = np.flatnonzero(sizes < length)  # the sample's limit was too low for these
    if len(short):
        list_costs[short], list_columns[short] = nearest(costs, rows[short], length)
    return list_costs, list_columns


def sort_rows(
    costs: NDArray[Any],
    columns: NDArray[np.int32],
    list_costs: NDArray[Any],
    list_columns: NDArray[np.int32],
) -> None:
    """Sort every row by cost, then by column; write as many entries as the lists hold.

    Columns come in ascending order.
    """
    from uniproto.geometry.kernels import arrange, pack, unpack

    if costs.dtype == np.float32:  # sorting whole numbers is several times as quick
        keys = np.empty(costs.shape, np.uint64)
        pack(costs, columns, keys)
        keys.sort(axis=1)
        unpack(keys, list_costs, list_columns)
        return
    order = np.argsort(costs, axis=1)  # a stable sort takes five times as long
    arrange(costs, columns, order, list_costs, list_columns)


def _guessed_limits(block: NDArray[Any], length: int) -> NDArray[Any]:
    """For each row a cost that probably has a little more than `length` entries below it."""
    width = block.shape[1]
    if 4 * length >= width:
        return np.full(len(block), np.inf, block.dtype)
    stride = max(1, width // _SAMPLED_COLUMNS)
    sample = block[:, ::stride]
    expected = length / stride
    rank = min(int(expected + 3 * np.sqrt(expected)) + 2, sample.shape[1] - 1)
    return np.partition(sample, rank, axis=1)[:, rank]


def spread_columns(n: int) -> NDArray[np.intp] | None:
    """Columns from all over, for `nearest` to judge by; None where they are few enough without."""
    if n <= _COLUMNS_PER_BLOCK:
        return None
    return np.linspace(0, n - 1, min(_SPREAD_COLUMNS, n // 16)).astype(np.intp)


def _sampled_limits(sample: Costs, share: float, tiles: list[slice]) -> NDArray[Any]:
    """For each row a cost below which probably a little more than this share of columns are."""
    width = sample.shape[1]
    expected = share * width
    rank = int(expected + 4 * np.sqrt(expected)) + 2
    limits = np.full(sample.shape[0], np.inf, sample.dtype)
    if rank >= width:
        return limits

    def guess(tile: slice) -> None:
        limits[tile] = np.partition(sample.block(tile), rank, axis=1)[:, rank]

    parallel_for(guess, tiles)
    return limits


def rows_at_once(length: int, memory: int) -> int:
    """How many rows `nearest` may take together within this much memory."""
    return max(64, memory // ((2 * length + 64) * 12))


def as_slice(rows: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Consecutive rows as a slice, which reads without copying."""
    if len(rows) and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
