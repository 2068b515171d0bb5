"""Prices on few prototypes that give each its equal share of the targets.

With prices u on the k prototypes, target j goes to the one with the least C_jp − u_p. Prices that
give every prototype its share maximise the concave dual

    mean_p u_p + Σ_j weight_j · min_p (C_jp − u_p),

a function of k numbers, and its value at any prices is at most the cost of the cheapest balanced
plan. They are found by Newton's method on its smoothed form (a softmin instead of the minimum),
first on a sample of the targets, then on more of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.runtime.compiling import njit
from uniproto.runtime.threads import available_cores, blas_on_one_core, parallel_map, pieces_of

_SAMPLE = 40  # targets per prototype, on which prices are found first
_GROWTH = 8  # of the sample, from one level to the next
_SMOOTHING = (0.2, 0.05, 0.0125)  # on it, as shares of a typical difference of costs
_COARSE = 10  # targets per prototype for the first of these
_RIVALS = 40  # the cheapest prototypes of a target, whose differences are typical
_FEW_PAIRS = 1 / 6  # of all pairs: so few are summed one by one
_LOOKED_AT = 64  # targets, for how many pairs there are
_NEWTON_STEPS = 12
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-9, 1e4  # shares added to the slope
_MORE_DAMPING, _LESS_DAMPING = 10.0, 8.0  # after a step that did not help, and after one that did
_NEGLIGIBLE = 20.0  # smoothing lengths: a prototype that much dearer gets e^-20 of a target


Dual = tuple[float, NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class TargetCosts:
    """n × k costs, one row for each target, and the weights of these, which sum to 1."""

    costs: Any
    weights: Any

    def part(self, targets: Any) -> TargetCosts:
        """Some of the targets alone."""
        weights = self.weights[targets]
        total = weights.sum() or 1.0  # a sample may miss the few that weigh anything
        return TargetCosts(np.ascontiguousarray(self.costs[targets]), weights / total)

    def numbers(self) -> NDArray[np.float64]:
        return self.costs.astype(np.float64)

    def smoothed_dual(self, prices: NDArray[np.float64], smoothing: float) -> Dual:
        """The dual with a softmin, each prototype's share, and how far pairs share targets."""
        costs, weights = self.costs, self.weights
        if _share_of_pairs(costs, prices, smoothing) > _FEW_PAIRS:
            value, shares, overlap = _softmin_products(costs, weights, prices, smoothing)
            return value + float(prices.mean()), shares, overlap

        def of(piece: slice) -> Dual:
            return _softmin_sums(costs[piece], weights[piece], prices, smoothing)

        pieces = pieces_of(len(costs), max(1, -(-len(costs) // available_cores())))
        sums = list(parallel_map(of, pieces))
        value = sum(value for value, _, _ in sums) + float(prices.mean())
        return (
            value,
            np.sum([part for _, part, _ in sums], axis=0),
            np.sum([p for *_, p in sums], axis=0),
        )


@dataclass(frozen=True)
class Balance:
    """Prices that give every prototype about its share.

    `width` is how near to a tie a target may be for the prices not to decide where it goes.
    """

    prices: NDArray[np.float64]
    width: float


def balance(
    targets: TargetCosts, start: NDArray[np.float64] | None = None, accuracy: float = 0.0
) -> Balance | None:
    """Balancing prices for n × k costs.

    `start` are prices near to them, such as those before one prototype was exchanged. Shares of
    the prototypes may be off by `accuracy` of themselves, or by what n targets can resolve. None
    where the costs are indistinguishable.
    """
    n, k = targets.costs.shape
    if k == 1:
        return Balance(np.zeros(1), 0.0)  # nothing to decide
    order = _shuffled(n)
    some = targets.part(order[: min(n, 2000)]).numbers()
    middle = min(k, _RIVALS) // 2
    typical = float(np.median(np.partition(some, middle, axis=1)[:, middle] - some.min(axis=1)))
    if not 0 < typical < math.inf:
        return None
    if start is None:
        prices, size = _first_prices(some), min(n, _SAMPLE * k)
        lengths = [share * typical for share in _SMOOTHING]
        sizes = [min(n, _COARSE * k), min(n, 2 * _COARSE * k), size]
    else:
        prices, size = start, n
        lengths, sizes = [_last_length(typical, n, k)], [n]
    while True:
        with blas_on_one_core():
            for smoothing, few in zip(lengths, sizes, strict=True):
                part = targets.part(np.sort(order[:few]) if few < n else slice(None))
                # No closer than a sample of this size resolves; the last level is no sample.
                closest = max(accuracy, (0.3 if few < n else 0.03) / math.sqrt(few / k))
                prices = _newton(part, prices, smoothing, closest)
        if not np.isfinite(prices).all():
            return None
        if size == n:
            return Balance(prices, lengths[-1])
        size = min(n, _GROWTH * size)
        lengths, sizes = [_last_length(typical, size, k)], [size]


@lru_cache(maxsize=1)
def _shuffled(n: int) -> NDArray[np.int64]:
    """All targets in random order, the same every time."""
    return np.random.default_rng(0).permutation(n)


def _last_length(typical: float, size: int, k: int) -> float:
    """The smoothing for n targets: the more there are, the closer are those near a tie."""
    return _SMOOTHING[-1] * typical * min(1.0, math.sqrt(_SAMPLE * k / size))


def _first_prices(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each prototype alone would have to be lowered by to win its share, far ones too."""
    two = np.partition(costs, 1, axis=1)[:, :2]
    rivals = np.where(costs == two[:, :1], two[:, 1:], two[:, :1])
    return np.quantile(costs - rivals, 1 / costs.shape[1], axis=0)


def _newton(
    targets: TargetCosts, prices: NDArray[np.float64], smoothing: float, accuracy: float
) -> NDArray[np.float64]:
    """Raise the smoothed dual until every share is within `accuracy` of 1/k."""
    k, damping = len(prices), _FIRST_DAMPING
    value, shares, overlap = targets.smoothed_dual(prices, smoothing)
    for _ in range(_NEWTON_STEPS):
        missing = 1 / k - shares
        worst = float(np.abs(missing).max())
        if worst <= accuracy / k or not math.isfinite(value):
            break
        while True:
            # Where hardly any target is near a tie, the slope says little of what lies further.
            curvature = np.diag(shares + damping / k) - overlap
            step = smoothing * np.linalg.solve(curvature, missing)
            step -= step.mean()
            new = targets.smoothed_dual(prices + step, smoothing)
            rises = new[0] >= value + 1e-4 * float(missing @ step)
            if rises or float(np.abs(1 / k - new[1]).max()) < 0.9 * worst:
                break
            damping *= _MORE_DAMPING
            if damping > _MOST_DAMPING:
                return prices
        damping = max(damping / _LESS_DAMPING, _LEAST_DAMPING)
        prices, (value, shares, overlap) = prices + step, new
    return prices


def _share_of_pairs(costs: NDArray[Any], prices: NDArray[np.float64], smoothing: float) -> float:
    """The share of prototypes that a target may go to, by some of the targets."""
    reduced = costs[:: max(1, len(costs) // _LOOKED_AT)] - prices
    return float((reduced < reduced.min(axis=1, keepdims=True) + _NEGLIGIBLE * smoothing).mean())


def _softmin_products(
    costs: NDArray[Any],
    weights: NDArray[np.float64],
    prices: NDArray[np.float64],
    smoothing: float,
) -> Dual:
    """The same sums as `_softmin_sums` by matrix products."""
    reduced = costs - prices
    least = reduced.min(axis=1)
    above = (reduced - least[:, None]) / smoothing
    # Without negligible entries: products of denormal numbers are slow.
    likely = np.where(above < _NEGLIGIBLE, np.exp(-np.minimum(above, _NEGLIGIBLE)), 0.0)
    total = likely.sum(axis=1)
    likely /= total[:, None]
    weighted = likely * weights[:, None]
    value = float(weights @ (least - smoothing * np.log(total)))
    return value, weighted.sum(axis=0), weighted.T @ likely


@njit(nogil=True, cache=True)
def _softmin_sums(costs, weights, prices, smoothing):  # type: ignore[no-untyped-def]
    n, k = costs.shape
    shares, overlap, value = np.zeros(k), np.zeros((k, k)), 0.0
    likely, places = np.empty(k), np.empty(k, np.int64)
    for j in range(n):
        least = np.inf
        for p in range(k):
            least = min(least, costs[j, p] - prices[p])
        count, total = 0, 0.0
        for p in range(k):
            above = costs[j, p] - prices[p] - least
            if above < _NEGLIGIBLE * smoothing:
                likely[count] = math.exp(-above / smoothing)
                places[count] = p
                total += likely[count]
                count += 1
        value += weights[j] * (least - smoothing * math.log(total))
        for a in range(count):
            share = weights[j] * likely[a] / total
            shares[places[a]] += share
            for b in range(count):
                overlap[places[a], places[b]] += share * likely[b] / total
    return value, shares, overlap
