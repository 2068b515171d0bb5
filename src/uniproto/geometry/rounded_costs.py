"""Error bounds of costs in double precision, and of sums of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import EVERY, Rows
from uniproto.geometry.costs import Costs


class LeastCosts:
    """Each cost lowered by its rounding error in double precision."""

    def __init__(self, costs: Costs) -> None:
        self.costs, self.shape = costs, costs.shape

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        return extreme_costs(self.costs, self.costs.exact_block(rows, columns), -1)


def extreme_costs(costs: Costs, block: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """The least (`side` −1) or the most (+1) that costs in double precision may really be."""
    error, share = costs.exact_error
    if not error and not share:
        return block
    return np.maximum(block + side * (share * block + error), 0.0)


def error_of_mean(costs: Costs, mean: float) -> float:
    """The error bound of a weighted mean of costs, or of the least of several."""
    error, share = costs.exact_error
    return error + share * mean
