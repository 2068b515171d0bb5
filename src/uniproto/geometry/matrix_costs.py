"""Costs that the user passes as a matrix, in memory or on disk."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import float_type
from uniproto.errors import InvalidInputError
from uniproto.geometry.blocks import COLUMNS_PER_BLOCK, EVERY, Rows, length_of, row_blocks, within
from uniproto.geometry.distances import require_finite_sums
from uniproto.geometry.twins import NotedTwins, TwinFinder
from uniproto.runtime.threads import parallel_map, pieces_of


class MatrixCosts:
    """Costs the user computed: a cost matrix, or a similarity matrix S read as max(S) − S."""

    def __init__(
        self, matrix: NDArray[Any], metric: str, shift: float | None = None, ceiling: float = 0.0
    ) -> None:
        self.metric = metric
        self.bandwidth: float | None = None
        self.matrix = matrix
        self.shape = matrix.shape
        self.dtype = np.dtype(float_type(matrix.dtype))  # may differ on disk
        self.rounding = 0.0  # costs are the matrix; similarities are taken from their maximum
        self._rows: Rows = EVERY  # the rows of the matrix that this object covers
        self._columns: Rows = EVERY
        self.shift = 0.0 if shift is None else shift
        self.ceiling = ceiling
        if shift is None:
            lowest, highest = _value_range(matrix)
            if metric == "precomputed":
                if lowest < 0:
                    raise InvalidInputError(
                        "must hold costs of at least 0 when metric='precomputed' (the "
                        f"least is {lowest:g}). Pass metric='similarity' if larger means closer.",
                        parameter="source",
                    )
                self.ceiling = highest
            else:
                self.shift, self.ceiling = highest, highest - lowest
            require_finite_sums(self.ceiling, metric, self.dtype, "Rescale the matrix.")
        if metric == "similarity":
            self.rounding = float(np.finfo(self.dtype).eps) * self.ceiling

    zero_is_exact = True

    @property
    def exact_error(self) -> tuple[float, float]:
        share = float(np.finfo(np.float64).eps) if self.metric == "similarity" else 0.0
        return 0.0, share

    def block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[Any]:
        part = self._entries(rows, columns).astype(self.dtype, copy=False)
        if self.metric == "similarity":
            return np.subtract(self.dtype.type(self.shift), part)
        return part

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        part = self._entries(rows, columns).astype(np.float64)
        return self.shift - part if self.metric == "similarity" else part

    def _entries(self, rows: Rows, columns: Rows) -> NDArray[Any]:
        return _submatrix(self.matrix, within(self._rows, rows), within(self._columns, columns))

    def restrict(self, rows: Rows, columns: Rows) -> MatrixCosts:
        part = copy.copy(self)  # the matrix is shared; only the entries needed are read
        part._rows, part._columns = within(self._rows, rows), within(self._columns, columns)
        part.shape = (length_of(rows, self.shape[0]), length_of(columns, self.shape[1]))
        return part

    def read(self, rows: Rows, columns: Rows) -> MatrixCosts:
        return self.restrict(rows, columns)

    def column_blocks(self, most: int = COLUMNS_PER_BLOCK) -> Iterator[slice]:
        yield from pieces_of(self.shape[1], most)

    def twin_distances(self, row: int, rows: Rows = EVERY) -> NDArray[np.float64]:
        # Without features, the distance of two rows is the largest difference of their costs, or
        # of their similarities, which lose no digits to a shift.
        def entries(of: Rows) -> NDArray[Any]:
            return self._entries(of, EVERY).astype(self.dtype, copy=False)

        own = entries(np.array([row]))
        parts = row_blocks(length_of(rows, self.shape[0]), self.shape[1])
        distances = [np.abs(entries(within(rows, part)) - own).max(axis=1) for part in parts]
        return np.concatenate(distances).astype(np.float64)

    def twins(self, row: int, distance: float, rows: Rows = EVERY) -> NDArray[np.bool_]:
        return np.asarray(self.twin_distances(row, rows) <= distance)

    def twin_finder(self, distance: float) -> TwinFinder:
        return NotedTwins(self.twins, distance)


def _value_range(matrix: NDArray[Any]) -> tuple[float, float]:
    def extremes(part: slice) -> tuple[float, float]:
        return float(matrix[part].min()), float(matrix[part].max())

    found = list(parallel_map(extremes, row_blocks(*matrix.shape)))
    return min(low for low, _ in found), max(high for _, high in found)


def _submatrix(matrix: NDArray[Any], rows: Rows, columns: Rows) -> NDArray[Any]:
    if isinstance(rows, slice) or isinstance(columns, slice):
        return matrix[rows, columns]
    if matrix.dtype not in (np.float32, np.float64):  # not supported by the loop
        return matrix[rows].take(columns, axis=1)
    from uniproto.geometry.kernels import gather

    return gather(matrix, rows, columns)
