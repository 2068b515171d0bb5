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

from uniproto.data.arrays import float_type
from uniproto.errors import InvalidInputError, invalid, require_name
from uniproto.geometry.features import (
    RowsOnDisk,
    greatest_length,
    largest_l1_norm,
    mean_row,
    prepare,
    squared_norms,
    unit_rows,
)
from uniproto.threads import finish, pieces_of, side_by_side

FEATURE_METRICS = ("cosine", "euclidean", "sqeuclidean", "l1", "dot")
MATRIX_METRICS = ("precomputed", "similarity")
METRICS = FEATURE_METRICS + MATRIX_METRICS

_BLOCK_BYTES = 32 * 2**20  # one block of costs: small enough for the caches, large enough for BLAS

_COLUMNS_PER_BLOCK = 16384
_KEPT_ENTRIES = 2**24  # of a target in memory, kept in double precision
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

        What lies on disk stays there, and is read whenever costs are asked for.
        """
        ...

    def read(self, rows: Rows, columns: Rows) -> Costs:
        """The same, with features in memory; `EVERY` leaves a side where it is."""
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


def column_blocks(costs: Costs, most: int = _COLUMNS_PER_BLOCK) -> Iterator[slice]:
    """Slices that walk over all columns, each of which can be read into memory."""
    if isinstance(costs, FeatureCosts) and isinstance(costs.target, RowsOnDisk):
        # Rows are prepared in double precision on the way.
        most = max(1, min(most, _BLOCK_BYTES // (costs.target.shape[1] * 8)))
    yield from pieces_of(costs.shape[1], most)


def make_costs(source: Any, target: Any, metric: str) -> Costs:
    """Costs for a metric; for matrix metrics `source` is the m × n matrix and `target` is None."""
    require_name("metric", metric, METRICS)
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
        self.dtype = np.dtype(float_type(matrix.dtype))  # on disk it may have another
        self.rounding = 0.0
        self._rows: Rows = EVERY  # those of the matrix this object speaks of
        self._columns: Rows = EVERY
        self.shift = 0.0 if shift is None else shift
        self.ceiling = ceiling
        if shift is None:
            lowest, highest = _value_range(matrix)
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
            if not self.ceiling <= _largest_cost(self.dtype):
                raise _out_of_range(metric, self.dtype, "Rescale the matrix.")

    def block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[Any]:
        part = _submatrix(self.matrix, _within(self._rows, rows), _within(self._columns, columns))
        part = part.astype(self.dtype, copy=False)
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

    def read(self, rows: Rows, columns: Rows) -> MatrixCosts:
        return self.restrict(rows, columns)

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
        self._centre: NDArray[np.float64] | None = None
        self._kept_target: Any = None
        self.shift = 0.0
        with np.errstate(over="ignore", invalid="ignore"):  # such costs are refused below
            self.source, self.target = (
                (source, target) if prepared else self._prepared(source, target)
            )
            if shift is not None and ceiling is not None:
                self.shift, self.ceiling = shift, ceiling
            else:
                if metric == "dot":  # cost = max − product: the maximum takes a pass of its own
                    self.shift = self._largest_product()
                self.ceiling = self._ceiling()
                self._require_range(prepared)
        # A product of w terms is off by at most about w units in the last place.
        relative = (self.source.shape[1] + 16) * float(np.finfo(self.dtype).eps)
        scale = self.ceiling + abs(self.shift)
        self.rounding = scale * (relative**0.5 if metric == "euclidean" else relative)

    def _prepared(self, source: Any, target: Any) -> tuple[Any, Any]:
        unit_length, centre = self.metric == "cosine", None
        if self.metric in ("euclidean", "sqeuclidean") and not _is_sparse(source, target):
            # Distances do not change, and x² + y² − 2xy loses fewer digits near the origin.
            centre = self._centre = mean_row(target)
        ready = prepare(source, self.dtype, unit_length=unit_length, centre=centre)
        if source is target:
            return ready, ready
        return ready, prepare(
            target, self.dtype, unit_length=unit_length, centre=centre, parameter="target"
        )

    @property
    def _on_disk(self) -> bool:
        return isinstance(self.source, RowsOnDisk) or isinstance(self.target, RowsOnDisk)

    def _largest_product(self) -> float:
        largest = -np.inf
        for columns in column_blocks(self):
            facing = self.read(EVERY, columns)
            for rows in row_blocks(*facing.shape):
                largest = max(largest, -float(facing.block(rows).min()))  # without a shift yet
        return largest

    def block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[Any]:
        if self._on_disk:
            return self._by_parts(rows, columns, exact=False)
        return self._costs(_part(self.source, rows), _part(self.target, columns))

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        if self._on_disk or self.shape[1] * self.target.shape[1] > _KEPT_ENTRIES:
            return self._by_parts(rows, columns, exact=True)
        if self._kept_target is None:
            self._kept_target = self._exact(self.target, "target")
        source = self._exact(_part(self.source, rows), "source")
        return self._exact_costs(source, _part(self._kept_target, columns))

    def _by_parts(self, rows: Rows, columns: Rows, *, exact: bool) -> NDArray[Any]:
        """Costs for which few rows at a time are read from disk, or turned into doubles."""
        shape = (_count(rows, self.shape[0]), _count(columns, self.shape[1]))
        tiles = [
            (some, others)
            for some in _parts(self.source, shape[0], exact)
            for others in _parts(self.target, shape[1], exact)
        ]
        if len(tiles) == 1:
            return self._tile(rows, columns, exact)
        costs = np.empty(shape, np.float64 if exact else self.dtype)

        def fill(tile: tuple[slice, slice]) -> None:
            costs[tile] = self._tile(_within(rows, tile[0]), _within(columns, tile[1]), exact)

        finish(side_by_side(fill, tiles))
        return costs

    def _tile(self, rows: Rows, columns: Rows, exact: bool) -> NDArray[Any]:
        source, target = _read(self.source, rows), _read(self.target, columns)
        if not exact:
            return self._costs(source, target)
        return self._exact_costs(self._exact(source, "source"), self._exact(target, "target"))

    def _exact(self, rows: Any, parameter: str) -> Any:
        rows = rows.astype(np.float64)
        # Rows scaled to unit length in single precision are off by its rounding.
        return unit_rows(rows, parameter) if self.metric == "cosine" else rows

    def _exact_costs(self, source: Any, target: Any) -> NDArray[np.float64]:
        costs = np.maximum(self._costs(source, target), 0.0)
        if self.metric in ("euclidean", "sqeuclidean") and not sp.issparse(source):
            self._settle_near_ones(costs, source, target)
        return costs

    def _settle_near_ones(
        self, costs: NDArray[np.float64], source: NDArray[Any], target: NDArray[Any]
    ) -> None:
        """Compute the smallest distances from differences: x² + y² − 2xy leaves them no digits."""
        reach = squared_norms(source)[:, None] + squared_norms(target)[None, :]
        squares = costs**2 if self.metric == "euclidean" else costs
        rows, columns = np.nonzero(squares < _NEAR * reach)
        for part in row_blocks(len(rows), 2 * source.shape[1]):
            apart = source[rows[part]] - target[columns[part]]
            near = np.einsum("ij,ij->i", apart, apart)
            costs[rows[part], columns[part]] = np.sqrt(near) if self.metric == "euclidean" else near

    def restrict(self, rows: Rows, columns: Rows) -> FeatureCosts:
        return self._between(_only(self.source, rows), _only(self.target, columns))

    def read(self, rows: Rows, columns: Rows) -> FeatureCosts:
        return self._between(_part(self.source, rows), _part(self.target, columns))

    def _between(self, source: Any, target: Any) -> FeatureCosts:
        part = copy.copy(self)
        part.source, part.target, part._kept_target = source, target, None
        part.shape = (source.shape[0], target.shape[0])
        return part

    def twin_distances(self, row: int) -> NDArray[np.float64]:
        own = self.source[row : row + 1]
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
        longest_source, longest_target = map(greatest_length, (self.source, self.target))
        if self.metric == "dot":
            return self.shift + longest_source * longest_target
        reach = longest_source + longest_target
        return reach if self.metric == "euclidean" else reach * reach

    def _require_range(self, prepared: bool) -> None:
        """Refuse features whose costs overflow, or vanish although the features do not."""
        if not self.ceiling <= _largest_cost(self.dtype):
            raise _out_of_range(self.metric, self.dtype, "Rescale the features.")
        if prepared or self.metric in ("cosine", "l1"):
            return
        kind = np.finfo(self.dtype)
        smallest = float(kind.tiny / kind.eps)  # a square with all its digits
        # Rows that are alike but for rounding are no further apart than that from their mean.
        centre = 0.0 if self._centre is None else float(np.abs(self._centre).max())
        lengths = [greatest_length(side) for side in (self.source, self.target)]
        by_product = self.metric == "dot"
        square = lengths[0] * lengths[1] if by_product else max(lengths) ** 2
        some = min(lengths) > 0 if by_product else max(lengths) > 0
        if some and square < smallest and centre < smallest**0.5:
            raise invalid(
                "source",
                f"must have features of at least {smallest**0.5:.2g} in {self.dtype} when metric="
                f"{self.metric!r}, for their squares to keep their digits",
                "smaller ones",
                "Rescale the features.",
            )


def _largest_cost(dtype: np.dtype[Any]) -> float:
    """Costs are multiplied by masses of up to 2^46 and added up, in double precision."""
    return min(float(np.finfo(dtype).max) / 4, float(np.finfo(np.float64).max) / 2**64)


def _out_of_range(metric: str, dtype: np.dtype[Any], remedy: str) -> InvalidInputError:
    return invalid(
        "source",
        f"must have costs below {_largest_cost(dtype):.3g} in {dtype} when metric={metric!r}, for "
        "sums of them to be finite",
        "larger ones",
        remedy,
    )


def _is_sparse(*arrays: Any) -> bool:
    return any(sp.issparse(array) for array in arrays)


def _part(features: Any, rows: Rows) -> Any:
    """Rows in memory, or everything as it is."""
    return features if isinstance(rows, slice) and rows == EVERY else features[rows]


def _parts(features: Any, count: int, exact: bool) -> list[slice]:
    if isinstance(features, RowsOnDisk) or (exact and not sp.issparse(features)):
        return list(row_blocks(count, features.shape[1]))
    return [EVERY]


def _read(features: Any, rows: Rows) -> Any:
    """Rows in memory."""
    return features[rows] if isinstance(features, RowsOnDisk) else _part(features, rows)


def _only(features: Any, rows: Rows) -> Any:
    """Some rows; those on disk stay there, because they may be most of them."""
    if isinstance(features, RowsOnDisk) and not (isinstance(rows, slice) and rows == EVERY):
        which = np.arange(*rows.indices(features.shape[0])) if isinstance(rows, slice) else rows
        return features.only(which)
    return _part(features, rows)


def _within(outer: Rows, inner: Rows) -> Rows:
    """Rows of rows: `inner` counts what `outer` has picked."""
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


def _count(rows: Rows, total: int) -> int:
    return len(range(*rows.indices(total))) if isinstance(rows, slice) else len(rows)


def _value_range(matrix: NDArray[Any]) -> tuple[float, float]:
    def extremes(part: slice) -> tuple[float, float]:
        return float(matrix[part].min()), float(matrix[part].max())

    found = list(side_by_side(extremes, row_blocks(*matrix.shape)))
    return min(low for low, _ in found), max(high for _, high in found)


def _submatrix(matrix: NDArray[Any], rows: Rows, columns: Rows) -> NDArray[Any]:
    if isinstance(rows, slice) or isinstance(columns, slice):
        return matrix[rows, columns]
    if matrix.dtype not in (np.float32, np.float64):  # a file of numbers the loop does not know
        return matrix[rows].take(columns, axis=1)
    from uniproto.geometry.kernels import gather

    return gather(matrix, rows, columns)


def narrow_indices(rows: Any) -> Any:
    """Sparse rows with 32-bit indices, all that scikit-learn's loops over them take."""
    matrix = sp.csr_matrix(rows)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return matrix


def _l1_distances(source: Any, target: Any) -> NDArray[Any]:
    if _is_sparse(source, target):
        from sklearn.metrics.pairwise import manhattan_distances

        if not source.shape[0] * target.shape[0]:  # which it refuses
            return np.empty((source.shape[0], target.shape[0]), source.dtype)
        source, target = (narrow_indices(side) for side in (source, target))
        return manhattan_distances(source, target).astype(source.dtype, copy=False)
    from uniproto.geometry.kernels import l1_distances

    return l1_distances(source, target)
