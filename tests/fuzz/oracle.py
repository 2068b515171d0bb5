"""Costs and weights computed the plain way, for comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def plain_costs(
    source: NDArray[np.float64], target: NDArray[np.float64], metric: str
) -> NDArray[np.float64]:
    """All costs, entry by entry from differences; for matrix metrics `target` is unused."""
    if metric == "precomputed":
        return source
    if metric == "similarity":
        return source.max() - source
    if metric == "dot":
        products = source @ target.T
        return products.max() - products
    if metric == "cosine":
        return 1 - _unit(source) @ _unit(target).T
    apart = source[:, None, :] - target[None, :, :]
    if metric == "l1":
        return np.abs(apart).sum(axis=2)
    largest = np.abs(apart).max()
    scale = largest if largest > 0 else 1.0  # squares of tiny differences must not vanish
    distances = scale * np.sqrt(((apart / scale) ** 2).sum(axis=2))
    return distances if metric == "euclidean" else distances**2


def rounding(
    source: NDArray[np.float64],
    target: NDArray[np.float64],
    metric: str,
    single: bool,
    sparse: bool,
) -> float:
    """How far costs may be off that are computed by products in single or double precision."""
    if metric in ("precomputed", "similarity"):
        return 4 * float(np.finfo(np.float32 if single else np.float64).eps) * _reach(source)
    # Costs are reported in double precision, but from rows prepared in the precision they have.
    unit = float(np.finfo(np.float32 if single else np.float64).eps) * (source.shape[1] + 16)
    if metric == "cosine":
        return 4 * unit
    if metric in ("euclidean", "sqeuclidean") and not sparse:
        centre = target.mean(axis=0)
        source, target = source - centre, target - centre
    length = _reach(source) + _reach(target)
    if metric == "euclidean" and sparse:  # x² + y² − 2xy, for which the origin may be far
        return 4 * length * unit**0.5
    return 8 * unit * (length**2 if metric in ("dot", "sqeuclidean") else length)


def plain_weights(given: Any, n: int) -> NDArray[np.float64]:
    """The target distribution: largest first brought to 1, so that no sum overflows."""
    if given is None:
        return np.full(n, 1 / n)
    weights = np.array([float(value) for value in given])
    weights = weights / weights.max()
    return weights / weights.sum()


def _reach(rows: NDArray[np.float64]) -> float:
    return float(np.abs(rows).sum(axis=1).max())


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    scaled = rows / np.abs(rows).max(axis=1, keepdims=True)
    return scaled / np.sqrt((scaled**2).sum(axis=1, keepdims=True))
