"""Free centres: the point of the feature space that represents the targets of a cell best."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.costs import Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import RowsOnDisk, is_sparse
from uniproto.methods.multilevel.level import Level, members
from uniproto.runtime.threads import parallel_map, pieces_of

_CLOSEST = 0.03  # of the mean cost: targets nearer than that count as if they were that near
_ROWS_AT_ONCE = 65536


def have_centres(costs: Costs) -> bool:
    """Whether a point exists that is best for a cell: not for `dot`, nor for a matrix of costs."""
    if not isinstance(costs, FeatureCosts) or costs.metric == "dot":
        return False
    return costs.metric != "l1" or not is_sparse(costs.source, costs.target)


def centres(level: Level, cells: NDArray[np.int32], own: NDArray[Any], k: int) -> NDArray[Any]:
    """One step towards the best point of each cell, from points that cost its targets `own`.

    The mean for squared distances, the mean direction for cosine, the median of each feature for
    l1; for other distances the mean in which far targets count less, by which repeated steps come
    to the best point (Weiszfeld's iteration). For `dot` the mean, which tells the best row as
    well. A cell without targets gets the mean of all.
    """
    costs: Any = level.problem.costs
    if costs.metric == "l1":
        return _medians(level, cells, k)
    counts = level.weights * _multipliers(costs.metric, own)
    sums, totals = _sums(costs.target, cells, counts, k)
    means = np.where(totals > 0, sums, sums.sum(axis=0)) / np.where(totals > 0, totals, counts.sum())
    if costs.metric == "cosine":
        length = np.linalg.norm(means, axis=1, keepdims=True)
        means = means / np.where(length > 0, length, 1.0)
    return means.astype(costs.dtype)


def _multipliers(metric: str, own: NDArray[Any]) -> NDArray[np.float64]:
    """How much a target at this cost counts in the mean: the slope of its cost by its square."""
    if metric == "euclidean":
        return 1 / np.maximum(own, max(_CLOSEST * float(own.mean()), np.finfo(np.float32).tiny))
    return np.ones(len(own))


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
    sums = sum(parallel_map(part_of, pieces_of(n, step)), np.zeros((k, targets.shape[1])))
    return sums, np.bincount(cells, counts, minlength=k)[:, None]


def _medians(level: Level, cells: NDArray[np.int32], k: int) -> NDArray[Any]:
    """The weighted median of each feature in each cell."""
    costs: Any = level.problem.costs

    def median(own: NDArray[np.intp]) -> NDArray[Any]:
        if not len(own):
            return np.zeros(costs.target.shape[1], costs.dtype)
        rows, weights = costs.target[own], level.weights[own]
        by_feature = np.argsort(rows, axis=0, kind="stable")
        below = np.cumsum(weights[by_feature], axis=0)
        middle = (below >= below[-1:] / 2).argmax(axis=0)
        return np.take_along_axis(rows, by_feature, axis=0)[middle, np.arange(rows.shape[1])]

    return np.stack(list(parallel_map(median, members(cells, k))))


