"""Steps on the prices of the targets against few candidate rows, with a smoothed choice.

The bound sums the k smallest values: a function with a kink wherever two rows change places. Here
rows are chosen by shares instead, all of those with nearly the smallest values,

    share_i = min(1, exp((μ − B_i) / τ_i)),   Σ share_i = k,

and τ falls from step to step. Every price has its own step size (Adam) and rises if the demand for
its target exceeds the capacity, otherwise falls. The prices are heuristic; `row_bounds.py` computes
what they prove.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.bound import Quota
from uniproto.certificate.candidate_lists import CandidateLists
from uniproto.certificate.gpu_rows import GpuCandidateLists
from uniproto.runtime.compiling import njit, working_time
from uniproto.runtime.progress import Advance

_EVERY = 10  # steps between evaluations of all candidates
_ACTIVE = 12.0  # temperatures above the last row summed; candidates further above are skipped
_FEWEST_LISTS = 3  # that must hold a target for its price to move
_MOMENTUM, _SPREAD = 0.9, 0.98
_LEAST_SHARE = 1e-3
_STEADY = 0.1  # added to the root of the mean square, so that converged prices stay


@dataclass(frozen=True)
class Pace:
    """The number of steps, the first step size and temperature, and their final factor.

    Step sizes are relative to the scale of a target's price, temperatures to that of a row's cost.
    Both fall to the share `cooled` towards the last step.
    """

    steps: int
    stride: float
    temperature: float
    cooled: float


class Motion:
    """Adam's moments of the prices: running means of their slopes and of the squares."""

    def __init__(self, targets: int) -> None:
        self.mean, self.square = np.zeros(targets, np.float32), np.zeros(targets, np.float32)
        self.steps = 0


@dataclass(frozen=True)
class Climbed:
    """The best prices by the candidates' values, all at least 0.

    `total` is k times the bound by these values, and `levels` the highest that it sums of every
    quota.
    """

    prices: NDArray[np.float64]
    total: float
    levels: list[float]
    steps: int


def ascend(
    lists: CandidateLists | GpuCandidateLists,
    quotas: list[Quota],
    prices: NDArray[np.float64],
    capacity: NDArray[np.float64],
    scales: tuple[NDArray[np.float64], NDArray[np.float64]],
    motion: Motion,
    pace: Pace,
    deadline: float,
    advance: Advance,
) -> Climbed:
    """Raise the bound over the candidates.

    `scales` are those of the candidates and of the targets; `motion` is kept between calls.
    """
    centre = float(np.average(prices, weights=capacity))
    small = (prices - centre).astype(np.float32)
    offered = capacity.astype(np.float32)
    row_scale, target_scale = scales[0], scales[1].astype(np.float32)
    reach = _reach(*lists.rooms(prices, int((capacity > 0).sum())))
    lowest, highest = small - reach, small + reach
    lists.thresholds[:] -= centre
    best, best_prices = -np.inf, small.copy()
    levels = [np.inf] * len(quotas)
    everything = np.arange(len(lists.thresholds))
    active, step = everything, 0
    count = sum(len(quota.given) + quota.count for quota in quotas)
    values = np.full(len(everything), np.inf)
    for step in range(pace.steps):
        warmth = pace.cooled ** (step / pace.steps)
        tau = pace.temperature * warmth * row_scale
        look = step % _EVERY == 0 or step == pace.steps - 1
        rows = everything if look else active
        values[rows] = lists.values(rows, small, offered)
        if look:  # again, to update the thresholds of skipped rows
            values = np.maximum(values, lists.values(rows, small, offered))
            total = sum_of_smallest(values, quotas) - float(capacity @ small)
            if total > best:
                best, best_prices, levels = total, small.copy(), _highest(values, quotas)
            if working_time() > deadline:
                break
            active = _near_smallest(values, quotas, tau)
        shares = chosen_shares(values, quotas, tau)
        some = np.flatnonzero(shares > _LEAST_SHARE)
        taken = lists.taken(some, shares[some].astype(np.float32), small, offered)
        advance(1, f"bound about {best / count:.6g}")
        motion.steps += 1
        stride = pace.stride * warmth
        _move(
            small,
            taken,
            lowest,
            highest,
            target_scale,
            motion.mean,
            motion.square,
            stride,
            motion.steps,
        )
    least = float(best_prices.min())
    prices = best_prices.astype(np.float64) - least
    return Climbed(prices, best, [level - least for level in levels], step + 1)


def _reach(rooms: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """How far each price may move before rows that do not list its target would take it.

    Half the mean room of the rows that list it; the other half is for their thresholds. If few do,
    the price stays.
    """
    reach = np.where(counts >= _FEWEST_LISTS, rooms / np.maximum(2 * counts, 1), 0.0)
    return reach.astype(np.float32)


def chosen_shares(
    values: NDArray[np.float64], quotas: list[Quota], tau: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Shares in [0, 1] that sum to each quota, larger for smaller values.

    The shares of a row from two quotas are added, up to 1.
    """
    shares = np.zeros(len(values))
    for quota in quotas:
        shares[quota.given] = 1.0
        if quota.count == len(quota.free):
            shares[quota.free] = 1.0
        elif quota.count:
            shares[quota.free] += _shares(values[quota.free], quota.count, tau[quota.free])
    return np.minimum(shares, 1.0)


def _shares(
    values: NDArray[np.float64], count: int, tau: NDArray[np.float64]
) -> NDArray[np.float64]:
    last = np.partition(values, count - 1)[count - 1]
    near = np.flatnonzero(values <= last + 40 * tau)
    values, tau, size = values[near], tau[near], len(values)
    low, high = last - 40 * float(tau.max()), last
    for _ in range(40):
        level = (low + high) / 2
        found = np.exp(np.minimum((level - values) / tau, 0.0))
        if found.sum() > count:
            high = level
        else:
            low = level
    shares = np.zeros(size)
    shares[near] = found
    return shares


def sum_of_smallest(values: NDArray[np.float64], quotas: list[Quota]) -> float:
    """The sum of the included rows' values and of the smallest others, by quota."""
    total, summed = 0.0, np.empty(0, np.intp)
    for quota in quotas:
        summed = np.append(summed, smallest := quota.smallest(values, summed))
        total += float(values[quota.given].sum() + values[smallest].sum())
    return total


def _highest(values: NDArray[np.float64], quotas: list[Quota]) -> list[float]:
    """The largest of the summed values, for each quota."""
    return [
        float(np.partition(values[quota.free], quota.count - 1)[quota.count - 1])
        if quota.count
        else -np.inf
        for quota in quotas
    ]


def _near_smallest(
    values: NDArray[np.float64], quotas: list[Quota], tau: NDArray[np.float64]
) -> NDArray[np.intp]:
    """Candidates that may get a share before all are evaluated again."""
    parts = []
    for quota in quotas:
        parts.append(quota.given)
        if quota.count:
            free = values[quota.free]
            few = min(4 * quota.count, len(free)) - 1
            ordered = np.partition(free, (quota.count - 1, few))
            reach = ordered[quota.count - 1] + _ACTIVE * tau[quota.free]
            parts.append(quota.free[free <= np.maximum(reach, ordered[few])])
    return np.sort(np.concatenate(parts))


@njit(cache=True, nogil=True, fastmath=True)
def _move(
    prices: NDArray[np.float32],
    taken: NDArray[np.float32],
    lowest: NDArray[np.float32],
    highest: NDArray[np.float32],
    scale: NDArray[np.float32],
    mean: NDArray[np.float32],
    square: NDArray[np.float32],
    stride: float,
    step: int,
) -> None:
    """One Adam step of every price."""
    of_mean = np.float32(stride / (1 - _MOMENTUM**step))
    of_square = np.float32(1 / (1 - _SPREAD**step))
    steady, newest = np.float32(_STEADY), np.float32(1 - _MOMENTUM)
    newest_square = np.float32(1 - _SPREAD)
    for j in range(len(prices)):
        slope = taken[j] - np.float32(1)
        mean[j] += newest * (slope - mean[j])
        square[j] += newest_square * (slope * slope - square[j])
        root = np.sqrt(square[j] * of_square) + steady
        moved = prices[j] + of_mean * scale[j] * mean[j] / root
        prices[j] = min(max(moved, lowest[j]), highest[j])
