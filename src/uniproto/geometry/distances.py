"""What two sets of rows in memory cost under each metric, and how large a cost may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import invalid
from uniproto.geometry.blocks import row_blocks
from uniproto.geometry.features import is_sparse, narrow_indices, squared_norms

NEAR = 1e-3  # squared distances below this share of the squared norms have lost too many digits


def costs_between(source: Any, target: Any, metric: str, shift: float = 0.0) -> NDArray[Any]:
    """Costs of every source row against every target row, in their precision.

    Rows are of unit length for `cosine`; `dot` costs `shift` − product.

    >>> costs_between(np.array([[0.0, 1.0]]), np.array([[3.0, 5.0]]), "euclidean")
    array([[5.]])
    """
    if metric == "l1":
        return _l1_distances(source, target)
    product = source @ target.T
    if sp.issparse(product):
        product = product.toarray()
    if metric == "dot":
        return np.subtract(product.dtype.type(shift), product, out=product)
    if metric == "cosine":
        np.subtract(product.dtype.type(1), product, out=product)
        return np.maximum(product, 0, out=product)  # rounding may put cos a hair above 1
    product *= -2
    product += squared_norms(source)[:, None]
    product += squared_norms(target)[None, :]
    np.maximum(product, 0, out=product)
    return np.sqrt(product, out=product) if metric == "euclidean" else product


def refine_small_costs(
    costs: NDArray[np.float64], source: NDArray[Any], target: NDArray[Any], metric: str
) -> None:
    """Compute the smallest distances from differences: x² + y² − 2xy leaves them no digits.

    Neither does 1 − xy, which for rows of length 1 is half the square of their distance.
    """
    reach = squared_norms(source)[:, None] + squared_norms(target)[None, :]
    squares = costs**2 if metric == "euclidean" else costs
    rows, columns = np.nonzero(squares < NEAR * reach)
    for part in row_blocks(len(rows), 2 * source.shape[1]):
        apart = source[rows[part]] - target[columns[part]]
        near = np.einsum("ij,ij->i", apart, apart)
        if metric == "euclidean":
            near = np.sqrt(near)
        costs[rows[part], columns[part]] = near / 2 if metric == "cosine" else near


def distances_from(own: Any, rows: Any, metric: str) -> NDArray[np.float64]:
    """How far each of `rows` is from the one row `own`, for telling near-duplicates."""
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
    if metric == "l1":
        return np.asarray(abs(apart).sum(axis=1)).ravel()
    squares = np.asarray(squares).ravel()
    if metric == "cosine":
        return cosine_costs(squares, rows)
    return squares if metric == "sqeuclidean" else np.sqrt(squares)


def are_within(own: Any, rows: Any, metric: str, distance: float) -> NDArray[np.bool_]:
    """Which of `rows` are at most `distance` from the one row `own`, as `distances_from` counts.

    >>> are_within(np.array([[0.0, 1.0]]), np.array([[0.0, 3.0], [0.0, 1.5]]), "euclidean", 1.0)
    array([False,  True])
    """
    limit = largest_sum(metric, distance, rows)
    if limit is None:
        return np.asarray(distances_from(own, rows, metric) <= distance)
    from uniproto.geometry.kernels import rows_within

    return rows_within(rows, own[0], limit, metric == "l1")


def largest_sum(metric: str, distance: float, rows: Any) -> float | None:
    """The sum of squared (for l1: absolute) differences that makes this distance, if one does."""
    return None if sp.issparse(rows) or metric not in _SUMS else _SUMS[metric](distance, rows)


def _largest_square(distance: float, _: Any) -> float:
    """The largest number whose root is at most `distance`."""
    square = distance * distance
    while np.sqrt(square) > distance:
        square = float(np.nextafter(square, 0.0))
    while square < np.inf and np.sqrt(np.nextafter(square, np.inf)) <= distance:
        square = float(np.nextafter(square, np.inf))
    return square


# How large a sum of squares (for l1: of absolute differences) makes a distance.
_SUMS: dict[str, Callable[[float, Any], float]] = {
    "cosine": lambda distance, rows: max(2 * distance, _scaling_error(rows) ** 2),
    "euclidean": _largest_square,
    "dot": _largest_square,
    "sqeuclidean": lambda distance, _: distance,
    "l1": lambda distance, _: distance,
}


def cosine_costs(squares: NDArray[np.float64], unit_rows: Any) -> NDArray[np.float64]:
    """1 − cos of unit rows, from the squares of their distances; 0 for rows of one direction.

    Scaling such rows to unit length leaves them apart by its rounding.
    """
    return np.where(squares <= _scaling_error(unit_rows) ** 2, 0.0, squares / 2)


def _scaling_error(unit_rows: Any) -> float:
    """How far apart rows of one direction may be once they are scaled to unit length."""
    scaled, summed = (float(np.finfo(kind).eps) for kind in (unit_rows.dtype, np.float64))
    return 4 * scaled + unit_rows.shape[1] * summed


def _l1_distances(source: Any, target: Any) -> NDArray[Any]:
    if is_sparse(source, target):
        from sklearn.metrics.pairwise import manhattan_distances

        if not source.shape[0] * target.shape[0]:  # which it refuses
            return np.empty((source.shape[0], target.shape[0]), source.dtype)
        source, target = (narrow_indices(side) for side in (source, target))
        return manhattan_distances(source, target).astype(source.dtype, copy=False)
    from uniproto.geometry.kernels import l1_distances

    return l1_distances(source, target)


def require_finite_sums(ceiling: float, metric: str, dtype: np.dtype[Any], remedy: str) -> None:
    """Refuse costs up to `ceiling` where sums of them might overflow.

    >>> require_finite_sums(2.0, "cosine", np.dtype(np.float32), "Rescale the features.")
    """
    # Costs are multiplied by masses of up to 2^46 and added up, in double precision.
    largest = min(float(np.finfo(dtype).max) / 4, float(np.finfo(np.float64).max) / 2**64)
    if not ceiling <= largest:
        raise invalid(
            "source",
            f"must have costs below {largest:.3g} in {dtype} when metric={metric!r}, for sums of "
            "them to be finite",
            "larger ones",
            remedy,
        )
