"""Ground costs C_ij between source rows and target rows, computed block by block.

`Costs` is the only door to the geometry: everything above it asks for blocks of costs and never
sees features. The whole m × n matrix is never formed here unless the user hands one in.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import invalid, unknown_name
from uniproto.geometry.features import (
    RowsOnDisk,
    largest_l1_norm,
    mean_row,
    prepare,
    squared_norms,
    unit_rows,
)
from uniproto.threads import pieces_of

FEATURE_METRICS = ("cosine", "euclidean", "sqeuclidean", "l1", "dot")
MATRIX_METRICS = ("precomputed", "similarity")
METRICS = FEATURE_METRICS + MATRIX_METRICS

_BLOCK_BYTES = 32 * 2**20  # one block of costs: small enough for the caches, large enough for BLAS

_KEPT_ENTRIES = 2**24
_NEAR = 1e-6  # squared distances below this share of the squared norms have lost too many digits

Rows = slice | NDArray[np.intp]
EVERY = slice(None)


class Costs(Protocol):
    """Costs of m source rows against n target rows."""

    metric: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    ceiling: float  # β: no cost is above it
    rounding: float  # how far `block` may be from `exact_block`

    def block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[Any]:
        """Costs of some rows against some columns, in `dtype`. Read only: it may be a view."""
        ...

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        """The same in double precision: what reported numbers are computed from."""
        ...

    def restrict(self, rows: Rows, columns: Rows) -> Costs:
        """The sub-problem of these rows and columns; `ceiling` and any shift stay the same.

        What is asked for is read and prepared once; `EVERY` leaves a side as it is.
        """
        ...

    def twin_distances(self, row: int) -> NDArray[np.float64]:
        """How far every source row is from this one, for telling near-duplicates."""
        ...


def block_rows(n_columns: int, itemsize: int = 4) -> int:
    """How many rows of costs make one block."""
    return max(1, min(4096, _BLOCK_BYTES // max(1, n_columns * itemsize)))


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Slices that walk over all rows one block at a time."""
    step = block_rows(n_columns)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def make_costs(source: Any, target: Any, metric: str) -> Costs:
    """Costs for a metric; for matrix metrics `source` is the m × n matrix and `target` is None."""
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    if metric in MATRIX_METRICS:
        return MatrixCosts(source, metric)
    return FeatureCosts(source, target, metric)


class MatrixCosts:
    """Costs the user computed: a cost matrix, or a similarity matrix S read as max(S) − S."""

    def __init__(
        self, matrix: NDArray[Any], metric: str, shift: float | None = None, ceiling: float = 0.0
    ) -> None:
        self.metric = metric
        self.matrix = matrix
        self.shape = matrix.shape
        self.dtype = matrix.dtype
        self.rounding = 0.0
        self._rows: Rows = EVERY  # those of the matrix this object speaks of
        self._columns: Rows = EVERY
        self.shift = 0.0 if shift is None else shift
        self.ceiling = ceiling
        if shift is None:
            lowest, highest = float(matrix.min()), float(matrix.max())
            if metric == "precomputed":
                if lowest < 0:
                    raise invalid(
                        "source",
                        "must hold costs of at least 0 when metric='precomputed'",
                        f"a smallest entry of {lowest:g}",
                        "Add a constant to the matrix, or pass metric='similarity' if larger "
                        "means closer.",
                    )
                self.ceiling = highest
            else:
                self.shift, self.ceiling = highest, highest - lowest

    def block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[Any]:
        part = _submatrix(self.matrix, _within(self._rows, rows), _within(self._columns, columns))
        if self.metric == "similarity":
            return np.subtract(self.dtype.type(self.shift), part)
        return part

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        return self.block(rows, columns).astype(np.float64)

    def restrict(self, rows: Rows, columns: Rows) -> MatrixCosts:
        part = copy.copy(self)  # the matrix is shared: only the entries asked for are ever read
        part._rows, part._columns = _within(self._rows, rows), _within(self._columns, columns)
        part.shape = (_count(rows, self.shape[0]), _count(columns, self.shape[1]))
        return part

    def twin_distances(self, row: int) -> NDArray[np.float64]:
        # Without features, two rows are as far apart as the target can tell them apart.
        own = self.block(np.array([row]))
        distances = [np.abs(self.block(part) - own).max(axis=1) for part in row_blocks(*self.shape)]
        return np.concatenate(distances).astype(np.float64)


class FeatureCosts:
    """Costs of feature rows under a metric, dense or sparse, in single or double precision."""

    def __init__(
        self,
        source: Any,
        target: Any,
        metric: str,
        shift: float | None = None,
        ceiling: float | None = None,
        prepared: bool = False,
    ) -> None:
        self.metric = metric
        self.dtype = np.result_type(float_type(source.dtype), float_type(target.dtype))
        self.shape = (source.shape[0], target.shape[0])
        if not prepared:
            source, target = self._prepared(source, target)
        self.source, self.target = source, target
        self._kept_target: Any = None
        self.shift = 0.0
        if shift is not None and ceiling is not None:
            self.shift, self.ceiling = shift, ceiling
        else:
            if metric == "dot":  # cost = max − inner product: the maximum takes a pass of its own
                self.shift = -min(float(self.block(part).min()) for part in row_blocks(*self.shape))
            self.ceiling = self._ceiling()
        # A product of w terms is off by at most about w units in the last place.
        relative = (self.source.shape[1] + 16) * float(np.finfo(self.dtype).eps)
        scale = self.ceiling + abs(self.shift)
        self.rounding = scale * (relative**0.5 if metric == "euclidean" else relative)

    def _prepared(self, source: Any, target: Any) -> tuple[Any, Any]:
        unit_length, centre = self.metric == "cosine", None
        if self.metric in ("euclidean", "sqeuclidean") and not _is_sparse(source, target):
            # Distances do not change, and x² + y² − 2xy loses fewer digits near the origin.
            centre = mean_row(target)
        ready = prepare(source, self.dtype, unit_length=unit_length, centre=centre)
        if source is target:
            return ready, ready
        return ready, prepare(
            target, self.dtype, unit_length=unit_length, centre=centre, parameter="target"
        )

    def block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[Any]:
        return self._costs(_take(self.source, rows), _take(self.target, columns))

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        source = self._exact(_take(self.source, rows), "source")
        target = self._exact_target(columns)
        costs = np.maximum(self._costs(source, target), 0.0)
        if self.metric in ("euclidean", "sqeuclidean") and not sp.issparse(source):
            self._settle_near_ones(costs, source, target)
        return costs

    def _exact(self, rows: Any, parameter: str) -> Any:
        rows = rows.astype(np.float64)
        # Rows scaled to unit length in single precision are off by its rounding.
        return unit_rows(rows, parameter) if self.metric == "cosine" else rows

    def _exact_target(self, columns: Rows) -> Any:
        """Target rows in double precision; a small target is kept so for the next call."""
        if self.shape[1] * self.target.shape[1] > _KEPT_ENTRIES:
            return self._exact(_take(self.target, columns), "target")
        if self._kept_target is None:
            self._kept_target = self._exact(_take(self.target, EVERY), "target")
        return _part(self._kept_target, columns)

    def _settle_near_ones(
        self, costs: NDArray[np.float64], source: NDArray[Any], target: NDArray[Any]
    ) -> None:
        """Compute the smallest distances from differences: x² + y² − 2xy leaves them no digits."""
        reach = squared_norms(source)[:, None] + squared_norms(target)[None, :]
        squares = costs**2 if self.metric == "euclidean" else costs
        rows, columns = np.nonzero(squares < _NEAR * reach)
        for part in pieces_of(len(rows), _BLOCK_BYTES // 64):
            apart = source[rows[part]] - target[columns[part]]
            near = np.einsum("ij,ij->i", apart, apart)
            costs[rows[part], columns[part]] = np.sqrt(near) if self.metric == "euclidean" else near

    def restrict(self, rows: Rows, columns: Rows) -> FeatureCosts:
        part = copy.copy(self)
        part.source = _part(self.source, rows)
        if isinstance(self.target, RowsOnDisk) and isinstance(columns, np.ndarray):
            part.target = self.target.only(columns)  # may be most of it: read when it is needed
        else:
            part.target = _part(self.target, columns)
        part._kept_target = None
        part.shape = (part.source.shape[0], part.target.shape[0])
        return part

    def twin_distances(self, row: int) -> NDArray[np.float64]:
        own = _take(self.source, slice(row, row + 1))
        parts = row_blocks(self.shape[0], self.source.shape[1])
        return np.concatenate([self._twin_distances(self.source[part], own) for part in parts])

    def _twin_distances(self, rows: Any, own: Any) -> NDArray[np.float64]:
        # From differences, in double precision: copies are exactly 0 apart. An inner product does
        # not tell how far apart two rows are, so `dot` compares by distance.
        if sp.issparse(rows):
            apart = (rows - sp.csr_matrix(np.ones((rows.shape[0], 1), rows.dtype)) @ own).astype(
                np.float64
            )
            squares = apart.multiply(apart).sum(axis=1)
        else:
            apart = rows.astype(np.float64) - own
            squares = np.einsum("ij,ij->i", apart, apart)
        if self.metric == "l1":
            return np.asarray(abs(apart).sum(axis=1)).ravel()
        squares = np.asarray(squares).ravel()
        if self.metric == "cosine":  # of unit rows
            return squares / 2
        return squares if self.metric == "sqeuclidean" else np.sqrt(squares)

    def _costs(self, source: Any, target: Any) -> NDArray[Any]:
        if self.metric == "l1":
            return _l1_distances(source, target)
        product = source @ target.T
        if sp.issparse(product):
            product = product.toarray()
        if self.metric == "dot":
            return np.subtract(product.dtype.type(self.shift), product, out=product)
        if self.metric == "cosine":
            np.subtract(product.dtype.type(1), product, out=product)
            return np.maximum(product, 0, out=product)  # rounding may put cos a hair above 1
        product *= -2
        product += squared_norms(source)[:, None]
        product += squared_norms(target)[None, :]
        np.maximum(product, 0, out=product)
        return np.sqrt(product, out=product) if self.metric == "euclidean" else product

    def _ceiling(self) -> float:
        """An upper bound on every cost, from norms alone."""
        if self.metric == "cosine":
            return 2.0
        if self.metric == "l1":
            return largest_l1_norm(self.source) + largest_l1_norm(self.target)
        longest_source = float(np.sqrt(squared_norms(self.source).max()))
        longest_target = float(np.sqrt(squared_norms(self.target).max()))
        if self.metric == "dot":
            return self.shift + longest_source * longest_target
        reach = longest_source + longest_target
        return reach if self.metric == "euclidean" else reach**2


def float_type(dtype: np.dtype[Any]) -> type:
    """Single precision stays single; narrow integers become single, wide ones double."""
    return np.float32 if dtype == np.float32 or dtype.itemsize <= 2 else np.float64


def _is_sparse(*arrays: Any) -> bool:
    return any(sp.issparse(array) for array in arrays)


def _take(features: Any, rows: Rows) -> Any:
    """Rows in memory, ready to compute with."""
    if isinstance(features, RowsOnDisk):
        return features[rows]
    return _part(features, rows)


def _part(features: Any, rows: Rows) -> Any:
    """Rows in memory, or everything as it is."""
    return features if isinstance(rows, slice) and rows == EVERY else features[rows]


def _within(outer: Rows, inner: Rows) -> Rows:
    """Rows of rows: `inner` counts what `outer` has picked."""
    if isinstance(outer, slice) and outer == EVERY:
        return inner
    if isinstance(inner, slice) and inner == EVERY:
        return outer
    if isinstance(outer, slice):
        start = outer.start or 0
        if isinstance(inner, slice):
            return slice(start + (inner.start or 0), min(start + inner.stop, outer.stop))
        return inner + start
    return outer[inner]


def _count(rows: Rows, total: int) -> int:
    return len(range(*rows.indices(total))) if isinstance(rows, slice) else len(rows)


def _submatrix(matrix: NDArray[Any], rows: Rows, columns: Rows) -> NDArray[Any]:
    if isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray):
        return matrix[rows].take(columns, axis=1)  # whole rows first: several times as quick
    return matrix[rows, columns]


def _narrow_indices(matrix: Any) -> Any:
    """32-bit indices, all that scikit-learn's loop over sparse rows takes."""
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return matrix


def _l1_distances(source: Any, target: Any) -> NDArray[Any]:
    if _is_sparse(source, target):
        from sklearn.metrics.pairwise import manhattan_distances

        source, target = (_narrow_indices(sp.csr_matrix(side)) for side in (source, target))
        return manhattan_distances(source, target).astype(source.dtype, copy=False)
    from uniproto.geometry.kernels import l1_distances

    return l1_distances(source, target)
