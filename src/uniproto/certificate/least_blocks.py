"""Blocks of costs in their own precision, lowered to the least that they may really be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import Rows
from uniproto.geometry.costs import Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import RowsOnDisk
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import njit
from uniproto.runtime.threads import available_cores

_BLOCK_BYTES = 16 * 2**20
_COPIES = 8  # of a block at most, while it is computed


def rows_per_block(problem: Problem) -> int:
    """How many whole rows of costs a core computes at a time.

    More than a cache holds only where the targets are read from disk for every block.
    """
    costs, allowed = problem.costs, problem.memory // (_COPIES * available_cores())
    on_disk = isinstance(costs, FeatureCosts) and isinstance(costs.target, RowsOnDisk)
    size = allowed if on_disk else min(allowed, _BLOCK_BYTES)
    return max(1, size // (problem.n * costs.dtype.itemsize))


def lower_to_least(costs: Costs, block: NDArray[Any], lengths: NDArray[np.float64] | None) -> None:
    """Lower a block of costs in their own precision to the least that they may really be.

    `lengths` are those of its source rows, where costs are Euclidean (`own_lengths`). A squared
    distance is then off by a share of (|x| + |y|)² only, and |y| ≤ |x| + C: little for rows near
    the middle, however far out others lie.
    """
    if costs.rounding == 0:
        return
    if lengths is None:
        stored = float(np.finfo(block.dtype).eps) * costs.ceiling  # the difference is rounded too
        block -= block.dtype.type(1.0001 * costs.rounding + stored)
        return
    _lower_distances(block, lengths, share_of_squares(costs) or 0.0)


def share_of_squares(costs: Costs) -> float | None:
    """How far squared distances may be off, as a share of (|x| + |y|)²; None for other costs."""
    if costs.metric != "euclidean" or not isinstance(costs, FeatureCosts) or costs.rounding == 0:
        return None
    return 1.1 * (costs.rounding / costs.ceiling) ** 2


def own_lengths(costs: Costs, rows: Rows) -> NDArray[np.float64] | None:
    """The lengths of source rows as they are prepared, for distances; otherwise None."""
    if share_of_squares(costs) is None:
        return None
    assert isinstance(costs, FeatureCosts)
    part = costs.source[rows]
    if not isinstance(part, np.ndarray):
        return np.sqrt(np.asarray(part.multiply(part).sum(axis=1), np.float64)).ravel()
    return np.sqrt(np.einsum("ij,ij->i", part, part, dtype=np.float64))


@njit(cache=True, nogil=True, fastmath={"contract"})
def _lower_distances(block: NDArray[Any], lengths: NDArray[np.float64], share: float) -> None:
    """c − min(√e, e / c), which is at most √(c² − e), for e = share · (2|x| + c)²."""
    root = np.sqrt(share)
    for i in range(block.shape[0]):
        twice = 2.01 * lengths[i]
        for j in range(block.shape[1]):
            c = float(block[i, j])
            reach = twice + c
            off = root * reach
            if off < c:
                off = off * off / c
            block[i, j] = c - off
