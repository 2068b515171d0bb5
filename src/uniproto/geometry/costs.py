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

FEATURE_METRICS = ("cosine", "euclidean", "sqeuclidean", "l1", "dot")
MATRIX_METRICS = ("precomputed", "similarity")
METRICS = FEATURE_METRICS + MATRIX_METRICS

_BLOCK_BYTES = 32 * 2**20  # one block of costs: small enough for the caches, large enough for BLAS

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

    def restrict(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Costs:
        """The sub-problem of these rows and columns; `ceiling` and any shift stay the same."""
        ...

    def facing(self, columns: NDArray[np.intp]) -> Costs:
        """The same source against these columns alone, gathered once."""
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
        self._columns: NDArray[np.intp] | None = None  # those faced, where not all are
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
        if self._columns is not None:
            columns = self._columns[columns]
        part = _submatrix(self.matrix, rows, columns)
        if self.metric == "similarity":
            return np.subtract(self.dtype.type(self.shift), part)
        return part

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        return self.block(rows, columns).astype(np.float64)

    def restrict(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> MatrixCosts:
        part = _submatrix(self.matrix, rows, columns)
        return MatrixCosts(part, self.metric, self.shift, self.ceiling)

    def facing(self, columns: NDArray[np.intp]) -> MatrixCosts:
        part = copy.copy(self)  # the matrix is shared: only the columns asked for are ever read
        part._columns = columns if self._columns is None else self._columns[columns]
        part.shape = (self.shape[0], len(columns))
        return part

    def twin_distances(self, row: int) -> NDArray[np.float64]:
        # Without features, two rows are as far apart as the target can tell them apart.
        own = self.matrix[row]
        distances = np.empty(self.shape[0])
        for part in row_blocks(*self.shape):
            distances[part] = np.abs(self.matrix[part] - own).max(axis=1)
        return distances


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
        self.dtype = np.result_type(source.dtype, target.dtype)
        self.shape = (source.shape[0], target.shape[0])
        if not prepared:
            same = source is target
            source, target = source.astype(self.dtype), target.astype(self.dtype)
            if metric == "cosine":
                target = _unit_rows(target, "target")
                source = target if same else _unit_rows(source, "source")
            elif metric in ("euclidean", "sqeuclidean") and not _is_sparse(source, target):
                # Distances do not change, and x² + y² − 2xy loses fewer digits near the origin.
                centre = target.mean(axis=0, dtype=np.float64).astype(self.dtype)
                target = target - centre
                source = target if same else source - centre
        self.source, self.target = source, target
        self.shift = 0.0
        if shift is not None and ceiling is not None:
            self.shift, self.ceiling = shift, ceiling
        else:
            if metric == "dot":  # cost = max − inner product: the maximum takes a pass of its own
                self.shift = -min(float(self.block(part).min()) for part in row_blocks(*self.shape))
            self.ceiling = self._ceiling()
        # A product of w terms is off by at most about w units in the last place.
        relative = (self.source.shape[1] + 16) * float(np.finfo(self.dtype).eps)
        self.rounding = self.ceiling * (relative**0.5 if metric == "euclidean" else relative)

    def block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[Any]:
        return self._costs(_take(self.source, rows), _take(self.target, columns))

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        source = _take(self.source, rows).astype(np.float64)
        target = _take(self.target, columns).astype(np.float64)
        if self.metric == "cosine":  # rows normalised in single precision are off by its rounding
            source, target = _unit_rows(source, "source"), _unit_rows(target, "target")
        return np.maximum(self._costs(source, target), 0.0)

    def restrict(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> FeatureCosts:
        source, target = _take(self.source, rows), _take(self.target, columns)
        return FeatureCosts(source, target, self.metric, self.shift, self.ceiling, prepared=True)

    def facing(self, columns: NDArray[np.intp]) -> FeatureCosts:
        part = copy.copy(self)
        part.target = _take(self.target, columns)
        part.shape = (self.shape[0], len(columns))
        return part

    def twin_distances(self, row: int) -> NDArray[np.float64]:
        # An inner product does not tell how far apart two rows are: compare those by distance.
        metric = "euclidean" if self.metric == "dot" else self.metric
        own = FeatureCosts(
            self.source, _take(self.source, slice(row, row + 1)), metric, 0.0, 0.0, prepared=True
        )
        return own.block(EVERY)[:, 0].astype(np.float64)

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
        product += _squared_norms(source)[:, None]
        product += _squared_norms(target)[None, :]
        np.maximum(product, 0, out=product)
        return np.sqrt(product, out=product) if self.metric == "euclidean" else product

    def _ceiling(self) -> float:
        """An upper bound on every cost, from norms alone."""
        if self.metric == "cosine":
            return 2.0
        if self.metric == "l1":
            return _largest_l1_norm(self.source) + _largest_l1_norm(self.target)
        longest_source = float(np.sqrt(_squared_norms(self.source).max()))
        longest_target = float(np.sqrt(_squared_norms(self.target).max()))
        if self.metric == "dot":
            return self.shift + longest_source * longest_target
        reach = longest_source + longest_target
        return reach if self.metric == "euclidean" else reach**2


def _is_sparse(*arrays: Any) -> bool:
    return any(sp.issparse(array) for array in arrays)


def _take(features: Any, rows: Rows) -> Any:
    return features if isinstance(rows, slice) and rows == EVERY else features[rows]


def _submatrix(matrix: NDArray[Any], rows: Rows, columns: Rows) -> NDArray[Any]:
    if isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray):
        return matrix[np.ix_(rows, columns)]
    return matrix[rows, columns]


def _squared_norms(rows: Any) -> NDArray[Any]:
    if sp.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1)).ravel().astype(rows.dtype)
    return np.einsum("ij,ij->i", rows, rows)


def _largest_l1_norm(rows: Any) -> float:
    return float(abs(rows).sum(axis=1).max())


def _unit_rows(rows: Any, parameter: str) -> Any:
    norms = np.sqrt(_squared_norms(rows).astype(np.float64))
    zero = np.flatnonzero(norms == 0)
    if zero.size:
        raise invalid(
            parameter,
            "must have no all-zero row when metric='cosine', which has no angle",
            f"{zero.size} zero row(s), the first at index {zero[0]}",
            "Drop those rows, or use metric='euclidean'.",
        )
    scale = (1.0 / norms).astype(rows.dtype)
    if sp.issparse(rows):
        return sp.csr_matrix(sp.diags(scale).astype(rows.dtype) @ rows)
    return rows * scale[:, None]


def _l1_distances(source: Any, target: Any) -> NDArray[Any]:
    if _is_sparse(source, target):
        from sklearn.metrics.pairwise import manhattan_distances

        return manhattan_distances(source, target)
    from uniproto.geometry.kernels import l1_distances

    return l1_distances(source, target)
