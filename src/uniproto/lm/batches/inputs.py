"""The inputs of a selection as plain arrays, and the costs between examples.

A pool is small enough for one dense matrix of costs. Picks do not change when a constant is added
to all costs, so inner products become costs as max − ⟨g_i, g_j⟩, the maximum over the examples at
hand.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import float_type
from uniproto.errors import InvalidInputError
from uniproto.geometry.bandwidth import MedianShare
from uniproto.geometry.costs import MATRIX_METRICS
from uniproto.geometry.distances import L1_DISTANCE, SQUARES
from uniproto.geometry.metrics import OF_FEATURES, Metric
from uniproto.runtime.threads import blas_on_one_core

_NEGLIGIBLE = 1e-5  # of the largest cost: a negative one this small is rounding
_SMALL_PRODUCT = 2**28  # multiplications
_PARALLEL = 1e-6  # how far from 1 the cosine of parallel rows may be


@dataclass(frozen=True)
class Gram:
    """Inner products of gradients that are never formed, in place of the gradients themselves.

    `pool[i, j]` is ⟨g_i, g_j⟩ between two examples of the pool, `validation[i, v]` is ⟨g_i, g_v⟩
    between an example and a validation anchor. Layer inputs and output gradients give both in one
    backward pass. Every method but those that need L1 distances takes a `Gram` as its features.

    >>> import numpy as np
    >>> from uniproto.lm import BatchSelector
    >>> gradients = np.array([[3.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> BatchSelector("gradnorm", "batch", 1)(Gram(gradients @ gradients.T))
    array([0])
    """

    pool: Any
    validation: Any = None

    def __len__(self) -> int:
        return len(self.pool)


def as_features(values: Any, matrix_metric: bool) -> NDArray[Any] | Gram:
    """A checked feature matrix (n × n where it holds costs), or checked inner products."""
    if isinstance(values, Gram):
        pool = _square(as_numbers(values.pool, "features.pool", 2), "features.pool")
        if values.validation is None:
            return Gram(pool)
        validation = as_numbers(values.validation, "features.validation", 2)
        return Gram(pool, validation)
    features = as_numbers(values, "features", 2)
    return _square(features, "features") if matrix_metric else features


def group_by_source(
    sources: NDArray[Any], rows: NDArray[np.int64]
) -> tuple[NDArray[Any], list[NDArray[np.int64]]]:
    """The names of the sources these rows come from, sorted, and each one's rows, ascending."""
    names, source_of_row, counts = np.unique(sources[rows], return_inverse=True, return_counts=True)
    by_source = rows[np.argsort(source_of_row, kind="stable")]
    return names, np.split(by_source, np.cumsum(counts)[:-1])


def as_numbers(values: Any, parameter: str, dimensions: int) -> NDArray[Any]:
    """A float32 or float64 array of one or two dimensions; NaN and infinity may be in it.

    Takes NumPy and JAX arrays and torch tensors, on any device and in any precision.
    """
    array = np.asarray(off_device(values))
    if array.dtype.name == "bfloat16":  # of JAX; NumPy alone has no such type
        array = array.astype(np.float32)
    if array.ndim != dimensions or 0 in array.shape:
        shape = "one row per example" if dimensions == 2 else "one number per example"
        raise InvalidInputError(
            f"must have {dimensions} dimension(s) with {shape}, not shape {array.shape}.",
            parameter=parameter,
        )
    return np.ascontiguousarray(array, dtype=float_type(array.dtype))


def off_device(values: Any) -> Any:
    """A torch tensor in main memory and in a type NumPy knows, without importing torch."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    return values.float() if "bfloat16" in str(values.dtype) else values


def _square(matrix: NDArray[Any], parameter: str) -> NDArray[Any]:
    if matrix.shape[0] != matrix.shape[1]:
        raise InvalidInputError(
            f"must be square, the pool compared with itself, not of shape {matrix.shape}.",
            parameter=parameter,
        )
    return matrix


# --- which examples can be used ------------------------------------------------------------------


def finite_rows(features: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows hold neither NaN nor infinity."""
    totals = features.sum(axis=1)  # quicker than looking at every value
    fine = np.isfinite(totals)
    return fine if fine.all() else np.isfinite(features).all(axis=1)


def finite_examples(matrix: NDArray[Any]) -> NDArray[np.bool_]:
    """Which examples to keep of an n × n matrix, so that no NaN or infinity is left in it.

    One bad example spoils a row and a column, and every other row by one entry: the one with most
    bad entries goes first.
    """
    fine = np.ones(len(matrix), np.bool_)
    if np.isfinite(matrix.sum()):
        return fine
    bad = ~np.isfinite(matrix)
    while True:
        counts = np.where(fine, bad[:, fine].sum(axis=1) + bad[fine].sum(axis=0), 0)
        if not counts.any():
            return fine
        fine[np.argmax(counts)] = False


def nonzero(features: NDArray[Any] | Gram) -> NDArray[np.bool_]:
    """Which examples are not zero, so that they have a direction."""
    if isinstance(features, Gram):
        return np.diag(features.pool) > 0
    return (features != 0).any(axis=1)


# --- costs ---------------------------------------------------------------------------------------


def pool_costs(
    features: NDArray[Any] | Gram, metric: str, bandwidth: float | MedianShare | None = None
) -> NDArray[Any]:
    """The n × n costs of these examples, in the precision of the features.

    A bandwidth that is a share is one of the median distance among them.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        costs = _costs(features, metric, bandwidth)
        if not np.isfinite(costs.sum()):  # large gradients in single precision
            costs = _costs(_double(features), metric, bandwidth)
        if not np.isfinite(costs.sum()):
            raise InvalidInputError(
                f"are too large: their {metric} costs overflow. Scale them down.",
                parameter="features",
            )
    return costs


def _costs(
    features: NDArray[Any] | Gram, metric: str, bandwidth: float | MedianShare | None
) -> NDArray[Any]:
    if metric == "dot":
        products = inner_products(features)
        return products.max() - products
    if metric == "cosine":
        return _nothing_to_itself(1 - _cosines(features))
    known = OF_FEATURES.get(metric)
    if known is not None and known.distance is SQUARES:
        return _curved(_nothing_to_itself(_squared_distances(features)), known, bandwidth)
    if isinstance(features, Gram):
        raise InvalidInputError(
            f"is {metric!r}, which needs the features themselves, not a Gram. Pass an array, or "
            "use metric='dot' or metric='cosine'.",
            parameter="metric",
        )
    if known is None:
        return features.max() - features if metric == "similarity" else features
    if known.distance is L1_DISTANCE:
        from uniproto.lm.batches.kernels import l1_costs

        return _curved(l1_costs(features), known, bandwidth)
    return _curved(_nothing_to_itself(known.distance.between(features, features)), known, bandwidth)


def _curved(
    distances: NDArray[Any], metric: Metric, bandwidth: float | MedianShare | None
) -> NDArray[Any]:
    """The costs that belong to distances under a metric."""
    if isinstance(bandwidth, MedianShare):
        apart = OF_FEATURES[metric.apart or metric.name].curve_for(None)
        bandwidth = bandwidth.of(apart.of(distances.astype(np.float64)))
    return metric.curve_for(bandwidth).of(distances)


def _nothing_to_itself(costs: NDArray[Any]) -> NDArray[Any]:
    """Remove rounding errors from the diagonal.

    Two examples that are nearest to each other often have equal fills. The tie must go to the lower
    row, and not depend on rounding.
    """
    np.maximum(costs, 0, out=costs)
    np.fill_diagonal(costs, 0)
    return costs


def _squared_distances(features: NDArray[Any] | Gram) -> NDArray[Any]:
    if not isinstance(features, Gram):
        features = features - features.mean(axis=0)  # the same distances, with more digits
    products = inner_products(features)
    squares = np.diag(products)
    return squares[:, None] + squares - 2 * products


def _cosines(features: NDArray[Any] | Gram) -> NDArray[Any]:
    lengths = norms(features)
    lengths[lengths == 0] = 1.0  # at right angles to everything
    if isinstance(features, Gram):
        return features.pool / (lengths[:, None] * lengths)
    rows = features * (1 / lengths).astype(features.dtype)[:, None]
    return rows @ rows.T


def inner_products(features: NDArray[Any] | Gram) -> NDArray[Any]:
    return features.pool if isinstance(features, Gram) else features @ features.T


def norms(features: NDArray[Any] | Gram) -> NDArray[np.float64]:
    """The length of every gradient."""
    if isinstance(features, Gram):
        return np.sqrt(np.maximum(np.diag(features.pool), 0.0, dtype=np.float64))
    return np.sqrt(np.einsum("ij,ij->i", features, features, dtype=np.float64))


def largest_coordinates(features: NDArray[Any], count: int) -> NDArray[Any]:
    """The coordinates with the largest mean magnitude over these rows; ties to the first."""
    if features.shape[1] <= count:
        return features
    magnitude = np.abs(features).mean(axis=0, dtype=np.float64)
    return np.ascontiguousarray(features[:, np.sort(np.argsort(-magnitude, kind="stable")[:count])])


def _double(features: NDArray[Any] | Gram) -> NDArray[Any] | Gram:
    if isinstance(features, Gram):
        return Gram(features.pool.astype(np.float64))
    return features.astype(np.float64)


def products_on_one_core(features: Any, metric: str) -> AbstractContextManager[Any]:
    """Keep small products on one core, where other cores would not make them quicker.

    Where a core is busy with something else, such as loading data, waiting for it takes a hundred
    times as long as the whole product.
    """
    computed = isinstance(features, np.ndarray) and metric not in MATRIX_METRICS
    if computed and len(features) * features.size <= _SMALL_PRODUCT:
        return blas_on_one_core()
    return nullcontext()


# --- features that a metric or a method cannot use -----------------------------------------------


def require_costs_of_at_least_zero(costs: NDArray[Any]) -> None:
    """Refuse negative costs: similarities passed as costs would invert every choice."""
    lowest = float(costs.min())
    if lowest < -_NEGLIGIBLE * max(float(costs.max()), -lowest):
        raise InvalidInputError(
            f"must hold costs of at least 0, not {lowest:g}. Pass metric='similarity' if "
            "larger means closer.",
            parameter="features",
        )


def require_directions(features: NDArray[Any] | Gram) -> None:
    """Refuse cosines of features that all lie on one line, such as zeroth-order gradients.

    With one random direction shared by all examples those are multiples of it, so that every
    cosine is 1 or −1. Copies of one example are no such case.
    """
    lengths = norms(features)
    if isinstance(features, Gram):
        beside_first = features.pool[0] / (lengths[0] * lengths)
    else:
        first = features[0] / lengths[0]
        beside_first = (features @ first) / lengths
    on_one_line = bool((np.abs(beside_first) > 1 - _PARALLEL).all())
    copies = bool((beside_first > 0).all()) and np.ptp(lengths) <= _PARALLEL * lengths.max()
    if on_one_line and not copies:
        raise InvalidInputError(
            "must not be 'cosine' for features of rank one, whose cosines are all 1 or -1. "
            "Use metric='l1', or gradients from backpropagation.",
            parameter="metric",
        )
