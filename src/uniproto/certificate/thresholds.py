"""A row's value at given prices by a threshold, without sorting its targets.

The cheapest unit of mass that a row can collect at costs w_j = C_ij + v_j, where target j offers
a_j = k ν_j units, costs on average

    B_i = max over t of  t − Σ_j a_j (t − w_j)⁺.

Every t proves a lower bound, and near the best t the loss is of second order: so a t guessed from a
few targets and corrected once or twice is as good as sorting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.fills.priced_fills import cheapest_first
from uniproto.geometry.blocks import Rows
from uniproto.geometry.costs import Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import RowsOnDisk
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import njit
from uniproto.runtime.threads import available_cores

# Thresholds of lists follow moving prices by the density of mass around them. A density guessed
# from the cost would not do: good prices concentrate targets there, and the steps would diverge.
WINDOW = 0.15  # of a row's cost: the distance from its threshold within which mass is counted
FARTHEST = 2.0  # windows that a threshold moves if the unit is not full within one
_CHUNK = 512  # terms that are summed in the prices' own precision
_SAMPLED = 2048  # targets from which the first threshold of a row is guessed
_CORRECTIONS = 5
_NEGLIGIBLE = 1e-5  # relative loss at which the search ends
_DENSITY = 0.8  # of mass near the threshold, in units of mass² / paid: 1/2 to 1 for most rows
_FEW, _MANY = 0.7, 1.4  # units of mass below an initial threshold that is too far off
_EPS = float(np.finfo(np.float64).eps)


@njit(cache=True, nogil=True)
def threshold_values(
    block: NDArray[Any],
    prices: NDArray[np.float64],
    capacity: NDArray[np.float64],
    highest: float,
    values: NDArray[np.float64],
    thresholds: NDArray[np.float64],
    enough: float = np.inf,
) -> None:
    """Lower bounds of the values of rows of costs, and the thresholds that prove them.

    `thresholds` are the initial ones, or NaN. None ends above `highest`, so that targets whose cost
    plus price is higher may be left out. A bound above `enough` is not tightened.
    """
    even = len(capacity) > 0 and capacity.min() == capacity.max()
    total = capacity.sum()
    for i in range(block.shape[0]):
        values[i], thresholds[i] = best_threshold(
            block[i], prices, capacity, even, total, thresholds[i], highest, enough
        )


@njit(cache=True, nogil=True)
def guessed_threshold(
    row: NDArray[Any],
    prices: NDArray[np.float64],
    capacity: NDArray[np.float64],
    share: float,
) -> float:
    """A threshold with about this share of all mass below it, from a sample of targets."""
    n = len(row)
    step = max(1, n // _SAMPLED)
    size = (n + step - 1) // step
    costs, masses = np.empty(size), np.empty(size)
    seen = 0.0
    for place in range(size):
        j = place * step
        costs[place], masses[place] = row[j] + prices[j], capacity[j]
        seen += capacity[j]
    _, dearest, _ = cheapest_first(costs, masses, np.arange(size), size, share * seen)
    return costs[dearest]


@njit(cache=True, nogil=True)
def best_threshold(
    row: NDArray[Any],
    prices: NDArray[Any],
    capacity: NDArray[np.float64],
    even: bool,
    total: float,
    t: float,
    highest: float,
    enough: float,
) -> tuple[float, float]:
    """The best bound found, and its t: Newton's method for the t with one unit of mass below it.

    `t` is the initial value, or NaN; a poor value is replaced by a guess. `total` is all capacity.
    Short sums are in the precision of the prices.
    """
    is_guess = np.isnan(t) or total < 1.5  # one prototype: its unit is all mass
    if is_guess:
        t = guessed_threshold(row, prices, capacity, 1.0 / total)
    t = min(t, highest)
    low, high = -np.inf, np.inf
    low_mass, high_mass = 0.0, np.inf
    best, at = -np.inf, t
    for _ in range(_CORRECTIONS):
        t, paid, mass, value = _judged(row, prices, capacity, even, t)
        if value > best:
            best, at = value, t
        if best > enough:
            break
        if not is_guess and not _FEW < mass < _MANY:
            is_guess = True
            t = min(guessed_threshold(row, prices, capacity, 1.0 / total), highest)
            continue
        if mass < 1.0:
            low, low_mass = t, mass
        else:
            high, high_mass = t, mass
        if paid <= 0.0 or (mass < 1.0 and t >= highest):
            break
        density = _DENSITY * mass * mass / paid
        if low > -np.inf and high < np.inf and high > low:
            density = (high_mass - low_mass) / (high - low)
        if not density > 0.0:  # masses too small for a step; any t is valid
            break
        following = t + (1.0 - mass) / density
        if not low < following < high:
            following = 0.5 * (low + high)
        following = min(following, highest)
        if abs((1.0 - mass) * (following - t)) <= _NEGLIGIBLE * paid or following == t:
            break
        t = following
    else:  # ties or uneven masses: no step converged, so evaluate the last one
        if not is_guess:
            t = min(guessed_threshold(row, prices, capacity, 1.0 / total), highest)
        t, _, _, value = _judged(row, prices, capacity, even, t)
        if value > best:
            best, at = value, t
    return best, at


@njit(cache=True, nogil=True)
def _judged(
    row: NDArray[Any],
    prices: NDArray[Any],
    capacity: NDArray[np.float64],
    even: bool,
    t: float,
) -> tuple[float, float, float, float]:
    """The threshold in the prices' precision, its cost, the mass below it, and its bound."""
    t = float(prices.dtype.type(t))
    paid, mass = _paid_below(row, prices, capacity, even, t)
    # Rounding: of every w and every difference by its own size, and of their sums.
    eps = np.finfo(prices.dtype).eps
    off = eps * ((_CHUNK + 8) * paid + (2 * mass + 4) * abs(t)) + (len(row) + 64) * _EPS * paid
    return t, paid, mass, t - paid - off


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _paid_below(
    row: NDArray[Any],
    prices: NDArray[Any],
    capacity: NDArray[np.float64],
    even: bool,
    t: float,
) -> tuple[float, float]:
    """Σ a (t − w)⁺ for a threshold t, and the mass below it, in short sums."""
    limit, zero, one = prices.dtype.type(t), prices.dtype.type(0), prices.dtype.type(1)
    paid, mass = 0.0, 0.0
    for start in range(0, len(row), _CHUNK):
        costs, added = row[start : start + _CHUNK], prices[start : start + _CHUNK]
        if even:
            part, held = zero, zero
            for j in range(len(costs)):
                below = limit - (costs[j] + added[j])
                part += max(below, zero)
                held += one if below > zero else zero
            paid += capacity[0] * part
            mass += capacity[0] * held
        else:
            offered = capacity[start : start + _CHUNK]
            for j in range(len(costs)):
                below = limit - (costs[j] + added[j])
                paid += offered[j] * max(below, zero)
                mass += offered[j] if below > zero else 0.0
    return paid, mass


# --- blocks of costs in their own precision, lowered by their rounding error ----------------------


_BLOCK_BYTES = 16 * 2**20
_COPIES = 8  # of a block at most, while it is computed


def rows_per_block(problem: Problem) -> int:
    """The number of whole rows of costs that a core computes at a time.

    They exceed the cache only if targets are read from disk for every block.
    """
    costs, allowed = problem.costs, problem.memory // (_COPIES * available_cores())
    on_disk = isinstance(costs, FeatureCosts) and isinstance(costs.target, RowsOnDisk)
    size = allowed if on_disk else min(allowed, _BLOCK_BYTES)
    return max(1, size // (problem.n * costs.dtype.itemsize))


def lower_to_least(costs: Costs, block: NDArray[Any], lengths: NDArray[np.float64] | None) -> None:
    """Lower a block of costs, in their own precision, by their rounding error.

    `lengths` are those of its source rows if costs are Euclidean (`own_lengths`). The error of a
    squared distance is then a share of (|x| + |y|)², with |y| ≤ |x| + C: small for rows near the
    centre, however far away others are.
    """
    if costs.rounding == 0:
        return
    if lengths is None:
        stored = float(np.finfo(block.dtype).eps) * costs.ceiling  # the difference is rounded too
        block -= block.dtype.type(1.0001 * costs.rounding + stored)
        return
    _lower_distances(block, lengths, share_of_squares(costs) or 0.0)


def share_of_squares(costs: Costs) -> float | None:
    """The error of squared distances as a share of (|x| + |y|)²; None for other costs."""
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
