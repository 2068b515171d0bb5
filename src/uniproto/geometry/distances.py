"""Distances between pairs of rows, and upper bounds on them.

The metrics of `metrics.py` are costs that rise with one of these. Each is a `Distance`: a formula
for two sets of rows, the same from differences of rows, the same on a GPU, and an upper bound.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.geometry.blocks import row_blocks
from uniproto.geometry.features import (
    greatest_length,
    is_sparse,
    largest_l1_norm,
    narrow_indices,
    squared_norms,
)
from uniproto.runtime.gpu import product

_FEW_DIFFERENCES = 10**8
_NEAR = 1e-3  # squared distances below this share of the squared norms lack precision
_ERROR = 2.5e-10  # of a squared distance from a product; wide rows need a larger share
_EPS = float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


class Distance(Protocol):
    """A distance. Subclasses define the methods; the attributes have defaults."""

    unit_length: bool = False  # rows are scaled to length 1 first
    centred: bool = False  # invariant to translation, so rows are moved near the origin
    multiplies: bool = False  # squares and products of small features may underflow
    refined: bool = False  # small ones are recomputed from differences, for precision
    by_product: bool | None = None  # found by FAISS by inner product, by squares, or not (None)
    absolute: bool = False  # absolute differences rather than squares

    def between(self, source: Any, target: Any) -> NDArray[Any]:
        """Every source row against every target row, dense or sparse, in their precision."""
        ...

    def of_differences(self, apart: Any, dtype: np.dtype[Any]) -> NDArray[np.float64]:
        """The same for pairs of rows, from rows x − y in double precision; 0 for copies.

        `dtype` is that of the rows, whose preparation rounded them to it.
        """
        ...

    def largest_sum(self, distance: float, rows: Any) -> float:
        """The sum of squared (or `absolute`) differences up to which rows are within `distance`."""
        return distance

    def on_gpu(self, source: Any, target: Any, squares: Any) -> Any:
        """`between` for torch tensors; `squares` are the targets' squared lengths, if centred."""
        ...

    def reach(self, source: Any, target: Any) -> float:
        """An upper bound, from norms alone."""
        ...


class Squares(Distance):
    """|x − y|².

    >>> SQUARES.between(np.array([[0.0, 1.0]]), np.array([[3.0, 5.0]]))
    array([[25.]])
    """

    centred = multiplies = refined = True
    by_product = False

    def between(self, source: Any, target: Any) -> NDArray[Any]:
        squares = _products(source, target)
        squares *= -2
        squares += squared_norms(source)[:, None]
        squares += squared_norms(target)[None, :]
        return np.maximum(squares, 0, out=squares)

    def of_differences(self, apart: Any, dtype: np.dtype[Any]) -> NDArray[np.float64]:
        if sp.issparse(apart):
            return np.asarray(apart.multiply(apart).sum(axis=1)).ravel()
        return np.einsum("ij,ij->i", apart, apart)

    def on_gpu(self, source: Any, target: Any, squares: Any) -> Any:
        own = (source * source).sum(1, keepdim=True)
        return product(source, target.T).mul_(-2).add_(own).add_(squares).clamp_(min=0)

    def reach(self, source: Any, target: Any) -> float:
        length = greatest_length(source) + greatest_length(target)
        return length * length  # a power raises an error where this is infinite


class Angles(Distance):
    """1 − cos of the angle between rows, which have length 1; half of the squared distance."""

    unit_length = refined = True
    by_product = True

    def of_products(self, products: NDArray[Any]) -> NDArray[Any]:
        np.subtract(products.dtype.type(1), products, out=products)
        return np.maximum(products, 0, out=products)  # rounding may put cos slightly above 1

    def between(self, source: Any, target: Any) -> NDArray[Any]:
        return self.of_products(_products(source, target))

    def of_differences(self, apart: Any, dtype: np.dtype[Any]) -> NDArray[np.float64]:
        squares = SQUARES.of_differences(apart, dtype)
        return np.where(squares <= _scaling_error(apart.shape[1], dtype) ** 2, 0.0, squares / 2)

    def largest_sum(self, distance: float, rows: Any) -> float:
        return max(2 * distance, _scaling_error(rows.shape[1], rows.dtype) ** 2)

    def on_gpu(self, source: Any, target: Any, squares: Any) -> Any:
        return product(source, target.T).neg_().add_(1).clamp_(min=0)

    def reach(self, source: Any, target: Any) -> float:
        return 2.0


class Products(Distance):
    """−x·y: not a distance, as its zero is arbitrary, but it orders pairs like one."""

    multiplies = by_product = True

    def of_products(self, products: NDArray[Any]) -> NDArray[Any]:
        return np.negative(products, out=products)

    def between(self, source: Any, target: Any) -> NDArray[Any]:
        return self.of_products(_products(source, target))

    def of_differences(self, apart: Any, dtype: np.dtype[Any]) -> NDArray[np.float64]:
        raise NotImplementedError("A product does not follow from a difference.")

    def on_gpu(self, source: Any, target: Any, squares: Any) -> Any:
        return product(source, target.T).neg_()

    def reach(self, source: Any, target: Any) -> float:
        return greatest_length(source) * greatest_length(target)


class L1(Distance):
    """The sum of absolute differences."""

    absolute = True

    def between(self, source: Any, target: Any) -> NDArray[Any]:
        if is_sparse(source, target):
            from sklearn.metrics.pairwise import manhattan_distances

            if not source.shape[0] * target.shape[0]:  # which it rejects
                return np.empty((source.shape[0], target.shape[0]), source.dtype)
            source, target = (narrow_indices(side) for side in (source, target))
            return manhattan_distances(source, target).astype(source.dtype, copy=False)
        if source.dtype == target.dtype == np.float64 and _are_few(source, target):
            from scipy.spatial.distance import cdist  # nothing needs to be compiled for these

            return cdist(source, target, "cityblock")
        from uniproto.geometry.kernels import l1_distances

        return l1_distances(source, target)

    def of_differences(self, apart: Any, dtype: np.dtype[Any]) -> NDArray[np.float64]:
        return np.asarray(abs(apart).sum(axis=1)).ravel()

    def on_gpu(self, source: Any, target: Any, squares: Any) -> Any:
        import torch

        return torch.cdist(source, target, p=1)

    def reach(self, source: Any, target: Any) -> float:
        return largest_l1_norm(source) + largest_l1_norm(target)


SQUARES, ANGLES, PRODUCTS, L1_DISTANCE = Squares(), Angles(), Products(), L1()


def refine_small(
    values: NDArray[np.float64], prepared: tuple[Any, Any], given: tuple[Any, Any], angles: bool
) -> None:
    """Compute the smallest distances from differences: x² + y² − 2xy leaves them no digits.

    Neither does 1 − xy, which for rows of length 1 is half the square of their distance. Products
    are those of `prepared` rows, moved near the origin; differences those of the rows as `given`,
    which nothing has rounded. Only rows without a difference are 0 apart.
    """
    squares = [squared_norms(side) for side in prepared]
    share = near_share(terms_of(*prepared))
    rows, columns = np.nonzero(values <= share * (squares[0][:, None] + squares[1]))
    for part in row_blocks(len(rows), 2 * given[0].shape[1]):
        apart = given[0][rows[part]] - given[1][columns[part]]
        near = SQUARES.of_differences(apart, values.dtype)
        vanished = np.flatnonzero(near < _TINY)
        if len(vanished):  # or only its square has
            some = L1_DISTANCE.of_differences(apart[vanished], values.dtype) > 0
            near[vanished[some]] = _TINY
        values[rows[part], columns[part]] = near / 2 if angles else near


def refine_products(
    costs: NDArray[np.float64], given: tuple[Any, Any], largest: Fraction, below: float
) -> None:
    """Recompute the smallest costs `largest` − xy exactly, in fractions."""
    for i, j in np.argwhere(costs < below):
        costs[i, j] = largest - exact_product(given[0][i], given[1][j])


def exact_product(x: NDArray[np.float64], y: NDArray[np.float64]) -> Fraction:
    """The exact product of two rows."""
    pairs = zip(x.tolist(), y.tolist(), strict=True)
    return sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))


def terms_of(*sides: Any) -> int:
    """The largest number of products in the sum for a pair of rows."""
    if not is_sparse(*sides):
        return int(sides[0].shape[1])
    return max(int(np.diff(side.indptr).max(initial=0)) for side in sides)


def near_share(terms: int) -> float:
    """The share of the squared norms below which distances are computed from differences."""
    return max(_NEAR, _rounded_products(terms) / _ERROR)


def error_of_refined(terms: int) -> float:
    """The largest relative error of a squared distance after `refine_small`."""
    return _rounded_products(terms) / near_share(terms)


def _rounded_products(terms: int) -> float:
    """The error bound of x² + y² − 2xy, relative to x² + y²; (|x| + |y|)² is at most twice that."""
    return 2.2 * (terms + 16) * _EPS


def differences(rows: Any, own: Any) -> Any:
    """`rows` − `own` in double precision; exactly 0 for copies."""
    if sp.issparse(rows):
        copies = sp.csr_matrix(np.ones((rows.shape[0], 1), rows.dtype)) @ own
        return (rows - copies).astype(np.float64)
    return rows.astype(np.float64) - own


def _scaling_error(width: int, dtype: np.dtype[Any]) -> float:
    """The largest distance of parallel rows once they are scaled to length 1."""
    scaled, summed = (float(np.finfo(kind).eps) for kind in (dtype, np.float64))
    return 4 * scaled + width * summed


def _are_few(source: NDArray[Any], target: NDArray[Any]) -> bool:
    return source.shape[0] * target.shape[0] * source.shape[1] <= _FEW_DIFFERENCES


def _products(source: Any, target: Any) -> NDArray[Any]:
    product = source @ target.T
    return product.toarray() if sp.issparse(product) else product


def require_finite_sums(ceiling: float, metric: str, dtype: np.dtype[Any], remedy: str) -> None:
    """Refuse costs up to `ceiling` where sums of them might overflow.

    >>> require_finite_sums(2.0, "cosine", np.dtype(np.float32), "Rescale the features.")
    """
    # Costs are multiplied by masses of up to 2^46 and added up, in double precision.
    largest = min(float(np.finfo(dtype).max) / 4, float(np.finfo(np.float64).max) / 2**64)
    if not ceiling <= largest:
        raise InvalidInputError(
            f"must have costs below {largest:.3g} in {dtype} when metric={metric!r}. {remedy}",
            parameter="source",
        )
