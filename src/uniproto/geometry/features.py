"""Feature rows prepared for a metric: in memory once, on disk whenever they are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.runtime.threads import parallel_for, parallel_map, pieces_of

_ROWS_READ = 512  # from disk at a time
_ROWS_AT_ONCE = 4096
_FEWEST_SAMPLED, _SAMPLED_NUMBERS = 256, 2**22  # rows from which a median is taken
_SHORTEST = float(np.finfo(np.float64).tiny)  # smaller numbers are denormal


class RowsOnDisk:
    """A memory-mapped matrix whose rows are prepared as they are read.

    Indexing with a slice or an array of rows gives an ordinary array.
    """

    def __init__(
        self,
        values: Any,  # a np.memmap, or rows on disk that are already prepared
        dtype: np.dtype[Any],
        scale: NDArray[np.float64] | None,
        centre: NDArray[np.float64] | None,
        which: NDArray[np.intp] | None = None,
    ) -> None:
        self.values, self.dtype = values, dtype
        self.shape: tuple[int, int] = (
            values.shape[0] if which is None else len(which),
            values.shape[1],
        )
        self._scale, self._centre, self._which = scale, centre, which

    def only(self, which: NDArray[np.intp]) -> RowsOnDisk:
        """Some of the rows, still on disk."""
        which = which if self._which is None else self._which[which]
        return RowsOnDisk(self.values, self.dtype, self._scale, self._centre, which)

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        rows = rows if self._which is None else self._which[rows]
        scale = None if self._scale is None else self._scale[rows]
        values = np.asarray(self.values[rows])
        if values.ndim < 2 or len(values) <= _ROWS_READ:
            return _prepared(values, self.dtype, scale, self._centre)
        prepared = np.empty(values.shape, self.dtype)  # by parts: on the way rows are doubles
        for part in pieces_of(len(values), _ROWS_READ):
            own = None if scale is None else scale[part]
            prepared[part] = _prepared(values[part], self.dtype, own, self._centre)
        return prepared


def prepare(
    values: Any,
    dtype: np.dtype[Any],
    *,
    unit_length: bool = False,
    centre: NDArray[np.float64] | None = None,
    parameter: str = "source",
) -> Any:
    """Rows in `dtype`, scaled to unit length or moved by `centre`, if given."""
    scale = _inverse_norms(values, parameter) if unit_length else None
    if isinstance(values, np.memmap | RowsOnDisk):
        return RowsOnDisk(values, dtype, scale, centre)
    if sp.issparse(values):
        if scale is None:
            return values.astype(dtype)
        return sp.csr_matrix(sp.diags(scale) @ values, dtype=dtype)  # in doubles on the way
    if scale is not None and np.abs(scale - 1).max(initial=0.0) <= 4 * np.finfo(dtype).eps:
        scale = None  # as most embeddings are; they are not copied
    if scale is None and centre is None:
        return np.ascontiguousarray(values, dtype=dtype)
    prepared = np.empty(values.shape, dtype)

    def fill(part: slice) -> None:
        part_scale = None if scale is None else scale[part]
        prepared[part] = _prepared(values[part], dtype, part_scale, centre)

    parallel_for(fill, pieces_of(len(values), _ROWS_AT_ONCE))
    return prepared


def readable_as_doubles(values: Any) -> Any:
    """Rows as they are; those on disk stay there, and are read in double precision."""
    on_disk = isinstance(values, np.memmap)
    return RowsOnDisk(values, np.dtype(np.float64), None, None) if on_disk else values


def is_sparse(*arrays: Any) -> bool:
    """Whether any of these is a SciPy sparse matrix."""
    return any(sp.issparse(array) for array in arrays)


def narrow_indices(rows: Any) -> Any:
    """Sparse rows with 32-bit indices, as scikit-learn's loops require."""
    matrix = sp.csr_matrix(rows)
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return matrix


def middle_row(values: Any) -> NDArray[np.float64]:
    """The median of some rows, each feature rounded to a power of two within its spread.

    Unlike a mean it stays among most rows, however far out others lie. So few binary digits leave
    whole numbers their exact differences, squares and products: what is equally far apart stays
    so, and ties are broken by index rather than by rounding.
    """
    count = min(_ROWS_AT_ONCE, max(_FEWEST_SAMPLED, _SAMPLED_NUMBERS // values.shape[1]))
    some = np.asarray(values[:: -(-values.shape[0] // count)], np.float64).T
    half = some.shape[1] // 2
    middle = np.partition(some, half, axis=1)[:, half]
    with np.errstate(over="ignore"):  # such features are rejected with their costs
        spread = np.partition(np.abs(some - middle[:, None]), half, axis=1)[:, half]
    unit = np.ldexp(1.0, np.frexp(spread)[1] - 1)
    rounds = (spread > 0) & (unit > 0) & np.isfinite(spread)
    return np.where(rounds, np.rint(middle / np.where(rounds, unit, 1.0)) * unit, middle)


def squared_norms(rows: Any) -> NDArray[Any]:
    """The squared length of every row."""
    if sp.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1)).ravel().astype(rows.dtype)
    if isinstance(rows, RowsOnDisk):
        parts = pieces_of(rows.shape[0], _ROWS_AT_ONCE)
        return np.concatenate([squared_norms(rows[part]) for part in parts])
    return np.einsum("ij,ij->i", rows, rows)


def greatest_length(rows: Any) -> float:
    """The length of the longest row, or a little more where its square has no digits left."""
    squared = float(squared_norms(rows).max())
    kind = np.finfo(rows.dtype)
    if not squared < kind.tiny / kind.eps:
        return squared**0.5
    return largest_l1_norm(rows)


def largest_l1_norm(rows: Any) -> float:
    """The largest sum of absolute values of a row."""
    if isinstance(rows, RowsOnDisk):
        parts = pieces_of(rows.shape[0], _ROWS_AT_ONCE)
        return max(largest_l1_norm(rows[part]) for part in parts)
    return float(abs(rows).sum(axis=1).max())


def unit_rows(rows: Any, parameter: str) -> Any:
    """Rows of length 1, in the precision they have."""
    return prepare(rows, rows.dtype, unit_length=True, parameter=parameter)


def _prepared(
    values: NDArray[Any],
    dtype: np.dtype[Any],
    scale: NDArray[np.float64] | None,
    centre: NDArray[np.float64] | None,
) -> NDArray[Any]:
    # In double precision on the way: neither huge nor tiny features overflow or vanish.
    if scale is not None and values.dtype == dtype and ((scale > 1e-30) & (scale < 1e30)).all():
        return values * scale.astype(dtype)[:, None]
    rows = values if scale is None else values * scale[:, None]
    rows = rows if centre is None else rows - centre
    return np.ascontiguousarray(rows, dtype=dtype)


def _inverse_norms(values: Any, parameter: str) -> NDArray[np.float64]:
    parts = pieces_of(values.shape[0], _ROWS_AT_ONCE)
    found = list(parallel_map(lambda part: _norms(values[part]), parts))
    norms = np.concatenate(found) if found else np.empty(0)
    zero = np.flatnonzero(norms == 0)
    if zero.size:
        raise InvalidInputError(
            f"must have no all-zero row when metric='cosine' (there are {zero.size}, "
            f"the first at index {zero[0]}). Drop those rows, or use metric='euclidean'.",
            parameter=parameter,
        )
    odd = np.flatnonzero(~((norms >= _SHORTEST) & (norms < np.inf)))
    if odd.size:
        raise InvalidInputError(
            f"must have rows of a length between {_SHORTEST:.3g} and 1.8e308 when "
            f"metric='cosine', unlike the row at index {odd[0]}. Rescale the features.",
            parameter=parameter,
        )
    return 1.0 / norms


def _norms(values: Any) -> NDArray[np.float64]:
    """Row lengths, by way of the largest entry, so that squares cannot overflow."""
    if sp.issparse(values):
        values = values.astype(np.float64)
        peak = abs(values).max(axis=1).toarray().ravel()
        with np.errstate(over="ignore"):
            scaled = sp.diags(1 / np.where(peak >= _SHORTEST, peak, 1)) @ values
            return peak * np.sqrt(squared_norms(scaled))
    lowest, highest = values.min(axis=1).astype(np.float64), values.max(axis=1).astype(np.float64)
    peak = np.maximum(highest, -lowest)
    if peak.min() > 1e-30 and peak.max() < 1e30:  # their squares cannot overflow
        return np.sqrt(np.einsum("ij,ij->i", values, values, dtype=np.float64, casting="same_kind"))
    with np.errstate(over="ignore"):  # a length may overflow
        return peak * np.sqrt(squared_norms(values / np.where(peak > 0, peak, 1)[:, None]))
