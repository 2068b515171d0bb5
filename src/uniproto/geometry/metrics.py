"""The metrics, one entry each: which distance a cost is made of, and how it rises with it.

Everything else follows from the entry: costs by blocks, near-duplicates, bounds, rounding errors,
neighbour lists on the processor, on a GPU and by FAISS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.geometry.distances import ANGLES, L1_DISTANCE, PRODUCTS, SQUARES, Distance

_ALMOST_ONE = 1 - 2.0**-53  # the largest number below 1
_ROUNDINGS = 16  # of the operations in a curve that rounds


class Curve(Protocol):
    """How a cost rises with a distance: 0 at 0, and steepest there.

    So an error of e in a distance changes a cost by no more than what a distance of e costs.
    """

    rounds: float  # units in the last place that computing it may add

    def of(self, distances: NDArray[Any]) -> NDArray[Any]:
        """Costs of distances, in their place."""
        ...

    def on_gpu(self, distances: Any) -> Any:
        """The same for a torch tensor."""
        ...

    def distances(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        """The distances of costs, or less where a cost is too high to have one."""
        ...

    def largest_distance(self, cost: float) -> float:
        """The largest distance that costs no more."""
        ...


class Linear(Curve):
    """The cost is the distance."""

    rounds = 0.0

    def of(self, distances: NDArray[Any]) -> NDArray[Any]:
        return distances

    def on_gpu(self, distances: Any) -> Any:
        return distances

    def distances(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        return costs

    def largest_distance(self, cost: float) -> float:
        return cost


class Root(Curve):
    """The square root of a squared distance."""

    rounds = 0.0

    def of(self, distances: NDArray[Any]) -> NDArray[Any]:
        return np.sqrt(distances, out=distances)

    def on_gpu(self, distances: Any) -> Any:
        return distances.sqrt_()

    def distances(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        return costs**2

    def largest_distance(self, cost: float) -> float:
        """The largest number whose root is at most `cost`."""
        square = cost * cost
        while math.sqrt(square) > cost:
            square = math.nextafter(square, 0.0)
        while square < math.inf and math.sqrt(math.nextafter(square, math.inf)) <= cost:
            square = math.nextafter(square, math.inf)
        return square


@dataclass(frozen=True)
class Saturating(Curve):
    """1 − exp(−distance/width): rises at first, and tends to 1.

    >>> Saturating(2.0).of(np.array([0.0, 2.0, 400.0])).round(3)
    array([0.   , 0.632, 1.   ])
    """

    width: float
    rounds = _ROUNDINGS

    def of(self, distances: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(under="ignore", over="ignore"):  # very far apart, or very near
            np.divide(distances, -self.width, out=distances)
        np.expm1(distances, out=distances)
        return np.negative(distances, out=distances)

    def on_gpu(self, distances: Any) -> Any:
        return distances.div_(-self.width).expm1_().neg_()

    def distances(self, costs: NDArray[np.float64]) -> NDArray[np.float64]:
        return -self.width * np.log1p(-np.minimum(costs, _ALMOST_ONE))

    def largest_distance(self, cost: float) -> float:
        return float(self.distances(np.array([cost]))[0])


@dataclass(frozen=True)
class Metric:
    """How far rows are apart.

    `curve` makes the cost from `distance`; a metric with a `scale` has a bandwidth σ, and the
    width of its curve is scale(σ). `apart` is the metric for near-duplicates and densities,
    where that is not the metric itself.
    """

    name: str
    distance: Distance
    curve: Curve | None = None
    scale: Callable[[float], float] | None = None
    apart: str | None = None

    def curve_for(self, bandwidth: float | None) -> Curve:
        if self.scale is None:
            return self.curve or Linear()
        assert bandwidth is not None
        return Saturating(self.scale(bandwidth))


_ENTRIES = (
    Metric("cosine", ANGLES),
    Metric("euclidean", SQUARES, Root()),
    Metric("sqeuclidean", SQUARES),
    Metric("l1", L1_DISTANCE),
    Metric("dot", PRODUCTS, apart="euclidean"),  # the largest product less the product
    Metric("rbf", SQUARES, scale=lambda sigma: 2 * sigma * sigma, apart="euclidean"),
    Metric("laplacian", L1_DISTANCE, scale=float, apart="l1"),
)
OF_FEATURES = {metric.name: metric for metric in _ENTRIES}
FEATURE_METRICS = tuple(OF_FEATURES)
MATRIX_METRICS = ("precomputed", "similarity")
METRICS = FEATURE_METRICS + MATRIX_METRICS
WITH_BANDWIDTH = tuple(metric.name for metric in _ENTRIES if metric.scale is not None)


def metric_label(metric: str, bandwidth: float | None) -> str:
    """The display name of a metric.

    >>> metric_label("rbf", 2.5), metric_label("cosine", None)
    ('rbf, bandwidth 2.5', 'cosine')
    """
    return metric if bandwidth is None else f"{metric}, bandwidth {bandwidth:.6g}"


def require_width(curve: Curve, reach: float, dtype: np.dtype[Any], bandwidth: float) -> None:
    """Refuse a bandwidth that leaves costs no digits in this precision."""
    assert isinstance(curve, Saturating)
    kind = np.finfo(dtype)
    lowest, highest = float(kind.tiny / kind.eps), float(kind.max * kind.eps)
    too_wide = reach > 0 and reach / max(curve.width, 1e-300) < lowest
    if not lowest < curve.width < highest or too_wide:
        raise InvalidInputError(
            f"must be such that costs keep their digits in {dtype}, for distances up "
            f"to {reach:.3g}{' squared' if curve.width != bandwidth else ''} (got "
            f"{bandwidth:.3g}). Use 'auto', or rescale the features.",
            parameter="bandwidth",
        )
