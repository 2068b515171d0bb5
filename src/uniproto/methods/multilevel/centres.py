"""Free centres: points of the feature space, moved until the cells they are best for stay put."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.costs import Costs
from uniproto.geometry.distances import ANGLES, L1_DISTANCE, PRODUCTS
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import RowsOnDisk, is_sparse
from uniproto.geometry.metrics import Curve, Root, Saturating
from uniproto.methods.multilevel.level import Assigned, Level, members
from uniproto.runtime.threads import parallel_map, pieces_of

_CLOSEST = 0.03  # of the mean cost: targets nearer than that count as if they were that near
_FLATTEST = 1e-3  # the least slope of a cost that saturates, so that far targets count at all
_ROWS_AT_ONCE = 65536
_LEAST_GAIN = 2e-4  # of the cost, for another step


def have_centres(costs: Costs) -> bool:
    """Whether some point is best for a cell: not for `dot`, nor for a matrix of costs."""
    if not isinstance(costs, FeatureCosts) or costs.distance is PRODUCTS:
        return False
    return costs.distance is not L1_DISTANCE or not is_sparse(costs.source, costs.target)


def as_points(level: Level, rows: NDArray[np.intp]) -> NDArray[Any]:
    """The features of some rows of the pool."""
    costs: Any = level.problem.costs
    features = costs.source[rows]
    return np.asarray(features.toarray() if sp.issparse(features) else features)


def move_centres(level: Level, now: Assigned, steps: int) -> Assigned:
    """Assign and move in turn, as long as the cost falls; given rows stay where they are."""
    given = len(level.problem.initial)
    for _ in range(steps):
        points = now.prototypes.copy()
        points[given:] = centres(level, now.cells, level.own_costs(now), len(points))[given:]
        columns = level.columns(points[given:])
        if given:
            columns = np.concatenate([now.columns[:, :given], columns], axis=1)
        moved = level.assign(points, columns, now.prices)
        gain = now.value - moved.value
        if gain <= 0:
            break
        now = moved
        if gain < _LEAST_GAIN * now.value:
            break
    return now


def centres(level: Level, cells: NDArray[np.int32], own: NDArray[Any], k: int) -> NDArray[Any]:
    """One step towards the best point of each cell, from points that cost its targets `own`.

    The mean for squared distances, the mean direction for cosine, the median of each feature for
    l1; for costs that rise otherwise the mean or median in which far targets count less, by which
    repeated steps come to the best point (Weiszfeld's iteration). For `dot` the mean, which tells
    the best row as well, and for sparse rows under l1, for want of better. A cell without targets
    gets the mean of all.
    """
    costs: Any = level.problem.costs
    counts = level.weights * _slopes(costs.curve, own)
    if costs.distance is L1_DISTANCE and not is_sparse(costs.target):
        return _medians(costs, cells, counts, k)
    sums, totals = _sums(costs.target, cells, counts, k)
    some = totals > 0
    means = np.where(some, sums, sums.sum(axis=0)) / np.where(some, totals, totals.sum())
    if costs.distance is ANGLES:
        lengths = np.linalg.norm(means, axis=1, keepdims=True)
        means /= np.where(lengths > 0, lengths, 1.0)
    return means.astype(costs.dtype)


def _slopes(curve: Curve, own: NDArray[Any]) -> Any:
    """How steeply each cost rises with its distance, up to a constant."""
    if isinstance(curve, Saturating):
        return np.maximum(1 - own, _FLATTEST)
    typical = float(own.mean())
    if isinstance(curve, Root) and typical > 0:
        return 1 / np.maximum(own / typical, _CLOSEST)
    return 1.0


def _sums(
    targets: Any, cells: NDArray[np.int32], counts: NDArray[np.float64], k: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The weighted sum of the rows of each cell, and its total weight as a column."""
    n = len(cells)

    def part_of(part: slice) -> NDArray[np.float64]:
        rows = targets[part]
        membership = sp.csr_array(
            (counts[part].astype(rows.dtype), (cells[part], np.arange(rows.shape[0]))),
            shape=(k, rows.shape[0]),
        )
        product = membership @ rows
        return np.asarray(product.toarray() if sp.issparse(product) else product, np.float64)

    step = _ROWS_AT_ONCE if isinstance(targets, RowsOnDisk) else max(_ROWS_AT_ONCE, n // 8)
    sums = np.zeros((k, targets.shape[1]))
    for part in parallel_map(part_of, pieces_of(n, step)):
        sums += part
    return sums, np.bincount(cells, counts, minlength=k)[:, None].astype(np.float64)


def _medians(
    costs: FeatureCosts, cells: NDArray[np.int32], counts: NDArray[np.float64], k: int
) -> NDArray[Any]:
    """The weighted median of each feature in each cell."""

    def median(own: NDArray[np.intp]) -> NDArray[Any]:
        if not len(own):
            return np.zeros(costs.target.shape[1], costs.dtype)
        rows, weights = costs.target[own], counts[own]
        by_feature = np.argsort(rows, axis=0, kind="stable")
        below = np.cumsum(weights[by_feature], axis=0)
        middle = (below >= below[-1:] / 2).argmax(axis=0)
        return np.take_along_axis(rows, by_feature, axis=0)[middle, np.arange(rows.shape[1])]

    return np.stack(list(parallel_map(median, members(cells, k))))
