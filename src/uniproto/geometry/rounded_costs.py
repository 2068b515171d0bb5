"""How far costs in double precision may be from the true ones, and what that does to sums."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import EVERY, Rows
from uniproto.geometry.costs import Costs
from uniproto.geometry.distances import NEAR
from uniproto.geometry.feature_costs import FeatureCosts


class LeastCosts:
    """Costs of which each is the least that the rounding of double precision leaves possible."""

    def __init__(self, costs: Costs) -> None:
        self.costs, self.shape = costs, costs.shape

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        return extreme_costs(self.costs, self.costs.exact_block(rows, columns), -1)


def extreme_costs(costs: Costs, block: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """The least (`side` −1) or the most (+1) that costs in double precision may really be.

    Also of what `exact_block` gives for them in blocks of another shape, hence twice the error.
    """
    if costs.rounding == 0:
        return block
    # Rounding is known in the costs' own precision.
    eps = float(np.finfo(np.float64).eps)
    shrunk = eps / float(np.finfo(costs.dtype).eps)
    if not isinstance(costs, FeatureCosts):
        return np.maximum(block + side * 2 * shrunk * costs.rounding, 0.0)
    distances = costs.curve.distances(block)
    error = _error_of_distances(costs, distances, shrunk * costs.distance_rounding)
    extreme = costs.curve.of(np.maximum(distances + side * error, 0.0))
    return extreme * (1 + side * costs.curve.rounds * eps)


def _error_of_distances(
    costs: FeatureCosts, distances: NDArray[np.float64], most: float
) -> NDArray[np.float64] | float:
    """Twice how far the distances that costs are made from may be off; `most` holds for all.

    Where those that lost digits are computed from differences, none is off by more than a share
    of itself, and by what preparing the rows has rounded.
    """
    if not (costs.refines_small_costs and costs.reach):
        return 2 * most
    relative = most / costs.reach
    with np.errstate(over="ignore"):  # of huge distances, where `most` holds
        own = 2 * distances / NEAR + np.sqrt(distances * costs.reach) + relative * costs.reach
    return np.asarray(2 * np.minimum(most, relative * own))


def least_mean(costs: Costs, block: NDArray[np.float64], mean: float) -> float:
    """What weighted means of the costs of a block, not below `mean`, can really be at least.

    No cost up to the mean is off by more than `most`, none above it by more than `share` of it.
    """
    off = block - extreme_costs(costs, block, -1)
    small = block <= mean
    most = float(off[small].max(initial=0.0))
    share = float((off[~small] / block[~small]).max(initial=0.0))
    return mean - most - share * mean
