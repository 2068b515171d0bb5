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
_SIGN = np.uint32(1 << 31)
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
    for some columns from all over (`spread_columns`), shows beforehand which costs are low.
    """
    n = costs.shape[1]
    length = min(length, n)
    mine = costs.restrict(as_slice(rows), EVERY)
    tiles = pieces_of(len(rows), max(1, min(_ROWS_PER_TILE, -(-len(rows) // available_cores()))))
    limits = None
    if sample is not None:
        limits = _sampled_limits(sample.restrict(as_slice(rows), EVERY), length / n, tiles)
    found = [_Nearest(length, None if limits is None else limits[tile]) for tile in tiles]
    blocks = list(costs.column_blocks(_COLUMNS_PER_BLOCK))
    for part in blocks:
        column_costs = mine.read(EVERY, part)

        def merge(place: int, column_costs: Costs = column_costs, part: slice = part) -> None:
            found[place].add(column_costs.block(tiles[place]), part.start)

        for tile, _ in zip(tiles, parallel_map(merge, range(len(tiles))), strict=True):
            advance((tile.stop - tile.start) / len(blocks))
    list_costs = np.empty((len(rows), length), costs.dtype)
    list_columns = np.empty((len(rows), length), np.int32)

    def sort(place: int) -> None:
        tile = tiles[place]
        list_costs[tile], list_columns[tile] = found[place].sorted()

    parallel_for(sort, range(len(tiles)))
    if sample is not None:
        short = np.flatnonzero(np.isinf(list_costs[:, -1]))  # their limits were too low
        if len(short):
            list_costs[short], list_columns[short] = nearest(costs, rows[short], length)
    return list_costs, list_columns


class _Nearest:
    """The nearest columns so far of a few rows, in column order, possibly with some more.

    Only costs below `limits` count, which are found in the first block where there are none yet.
    Rows are as wide as the longest of them, and end with infinite costs.
    """

    def __init__(self, length: int, limits: NDArray[Any] | None) -> None:
        self.length, self.limits = length, limits
        self.costs: NDArray[Any] = np.empty((0, 0))
        self.columns: NDArray[np.int32] = np.empty((0, 0), np.int32)

    def add(self, block: NDArray[Any], first_column: int) -> None:
        """Merge a block of columns that come after those seen so far.

        An entry that ties with the farthest kept one comes after it, and is dropped.
        """
        limits = self.limits
        if limits is None:
            limits = _guessed_limits(block, self.length)
        entries, starts, counts = _entries_below(limits, block)
        few = counts < min(self.length, block.shape[1])
        if self.limits is None and few.any():
            limits[few] = _limits_of(block[few], self.length)
            entries, starts, counts = _entries_below(limits, block)
        listed = np.arange(counts.max()) < counts[:, None]
        costs = np.full(listed.shape, np.inf, block.dtype)
        columns: NDArray[np.int32] = np.zeros(listed.shape, np.int32)
        costs[listed] = block.ravel().take(entries)
        columns[listed] = entries - np.repeat(starts[:-1], counts) + first_column
        if self.costs.size:
            costs = np.concatenate([self.costs, costs], axis=1)
            columns = np.concatenate([self.columns, columns], axis=1)
        if costs.shape[1] > 2 * self.length + 64:
            costs, columns = _cut_back(costs, columns, self.length)
            limits = np.minimum(limits, costs.max(axis=1))
        self.costs, self.columns, self.limits = costs, columns, limits

    def sorted(self) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """The nearest columns by cost; infinite costs where limits have left too few."""
        if self.costs.shape[1] < self.length:
            return np.full((1, 1), np.inf), np.zeros((1, 1), np.int32)
        return sort_rows(self.costs, self.columns, self.length)


def _entries_below(
    limits: NDArray[Any], block: NDArray[Any]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """The places of costs below each row's limit, the start of each row, and its count.

    Places are counted row by row.
    """
    entries = np.flatnonzero(block < limits[:, None])
    starts = np.arange(len(block) + 1) * block.shape[1]
    return entries, starts, np.diff(np.searchsorted(entries, starts))


def _cut_back(
    costs: NDArray[Any], columns: NDArray[np.int32], length: int
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Keep the `length` nearest entries of each row, in their order; the earliest win a tie."""
    farthest = np.partition(costs, length - 1, axis=1)[:, length - 1 : length]
    kept, ties = costs < farthest, costs == farthest
    left = length - np.count_nonzero(kept, axis=1)
    many = np.flatnonzero(np.count_nonzero(ties, axis=1) > left)
    ties[many] &= np.cumsum(ties[many], axis=1) <= left[many, None]
    entries = np.flatnonzero(kept | ties).reshape(len(costs), length)
    return costs.ravel().take(entries), columns.ravel().take(entries)


def sort_rows(
    costs: NDArray[Any], columns: NDArray[np.int32], length: int
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The first `length` entries of every row by cost, then by column.

    Columns come in ascending order.
    """
    if costs.dtype == np.float32:  # sorting integers is several times faster
        keys = _packed(costs, columns)
        keys.sort(axis=1)
        return _unpacked(keys[:, :length])
    order = np.argsort(costs, axis=1)  # a stable sort takes up to five times longer
    found = np.take_along_axis(costs, order, axis=1)
    rises = found[:, 1:] > found[:, :-1]
    tied = np.flatnonzero(~rises.all(axis=1))
    if len(tied):  # sort places among equal costs
        ranks = np.zeros((len(tied), costs.shape[1]), np.int64)
        np.cumsum(rises[tied], axis=1, out=ranks[:, 1:])
        ranks <<= 32
        ranks |= order[tied]
        ranks.sort(axis=1)
        order[tied] = ranks & 0xFFFFFFFF
    return found[:, :length], np.take_along_axis(columns, order[:, :length], axis=1)


def _packed(costs: NDArray[np.float32], columns: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Each single-precision cost and its column as one integer that orders by both."""
    bits = (costs + np.float32(0)).view(np.uint32)  # the sum makes −0 and 0 equal
    keys = np.where(bits >> 31, ~bits, bits | _SIGN).astype(np.uint64)
    keys <<= np.uint64(32)
    keys |= columns.view(np.uint32)
    return keys


def _unpacked(keys: NDArray[np.uint64]) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    bits = (keys >> np.uint64(32)).astype(np.uint32)
    bits = np.where(bits >> 31, bits ^ _SIGN, ~bits)
    return bits.view(np.float32), keys.astype(np.uint32).view(np.int32)


def _guessed_limits(block: NDArray[Any], length: int) -> NDArray[Any]:
    """For each row, a cost that probably has slightly more than `length` entries below it."""
    width = block.shape[1]
    if 4 * length >= width:
        return _limits_of(block, length)
    stride = max(1, width // _SAMPLED_COLUMNS)
    sample = block[:, ::stride]
    expected = length / stride
    rank = min(int(expected + 4 * np.sqrt(expected)) + 2, sample.shape[1] - 1)
    return np.partition(sample, rank, axis=1)[:, rank]


def _limits_of(block: NDArray[Any], length: int) -> NDArray[Any]:
    """For each row the least cost that has `length` entries below it."""
    if length >= block.shape[1]:
        return np.full(len(block), np.inf, block.dtype)
    return np.nextafter(np.partition(block, length - 1, axis=1)[:, length - 1], np.inf)


def spread_columns(n: int) -> NDArray[np.intp] | None:
    """A spread sample of columns, from which `nearest` estimates limits; None if not needed."""
    if n <= _COLUMNS_PER_BLOCK:
        return None
    return np.linspace(0, n - 1, min(_SPREAD_COLUMNS, n // 16)).astype(np.intp)


def _sampled_limits(sample: Costs, share: float, tiles: list[slice]) -> NDArray[Any]:
    """For each row, a cost that probably has slightly more than this share of columns below it."""
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
    """The number of rows that `nearest` can process together within this much memory."""
    return max(64, memory // ((2 * length + 64) * 12))


def as_slice(rows: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Consecutive rows as a slice, which reads without copying."""
    if len(rows) and (np.diff(rows) == 1).all():
        return slice(int(rows[0]), int(rows[-1]) + 1)
    return rows
