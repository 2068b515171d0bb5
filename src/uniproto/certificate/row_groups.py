"""Bounds of rows that lie close together, over the targets that can matter to one of them.

Where costs are distances, a row x at most r away from another has C_xj ≥ C_j − r, and its
threshold is at most r above the other's. So of all targets, a group of rows needs those that its
middle row would take at a threshold a little higher. With few features these are few, and they
are gathered once for the whole group.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.thresholds import best_threshold
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import njit
from uniproto.runtime.threads import parallel_map

_DISTANCES = ("euclidean", "l1")
_MOST_FEATURES = 10
_FEWEST_ROWS = 4096
_GROUP = 24  # rows at most
_BEYOND = 0.4  # of a group's radius: how far thresholds may rise above that of its middle row
_CHUNK = 512  # targets whose distances stay in the cache while features are added up

# Places of rows, bounds of their values, and the thresholds that prove them.
Bounded = tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]


class _Group(NamedTuple):
    places: NDArray[np.intp]
    middle: int  # position in `places`
    radius: float


def row_groups(problem: Problem, rows: NDArray[np.intp]) -> RowGroups | None:
    """The rows in groups, or None where groups would not pay."""
    costs = problem.costs
    if not (
        isinstance(costs, FeatureCosts)
        and costs.metric in _DISTANCES
        and isinstance(costs.source, np.ndarray)
        and isinstance(costs.target, np.ndarray)
        and costs.source.shape[1] <= _MOST_FEATURES
        and len(rows) >= _FEWEST_ROWS
    ):
        return None
    return RowGroups(costs, rows)


class RowGroups:
    """Rows of few features, halved where they are spread widest until few are together."""

    def __init__(self, costs: FeatureCosts, rows: NDArray[np.intp]) -> None:
        self.l1 = costs.metric == "l1"
        self.features = np.ascontiguousarray(costs.source[rows])
        self.targets = np.ascontiguousarray(costs.target.T)  # one row per feature
        self.eps = float(np.finfo(costs.dtype).eps)
        self.groups: list[_Group] = []
        order, waiting = np.arange(len(rows)), [(0, len(rows))]
        while waiting:
            start, stop = waiting.pop()
            places = order[start:stop]
            part = self.features[places]
            if len(places) <= _GROUP:
                self.groups.append(self._measured(places.copy(), part.astype(np.float64)))
                continue
            widest = np.argmax(part.std(axis=0, dtype=np.float64))  # whatever single rows do
            half = len(places) // 2
            order[start:stop] = places[np.argpartition(part[:, widest], half)]
            waiting += [(start + half, stop), (start, start + half)]

    def _measured(self, places: NDArray[np.intp], own: NDArray[np.float64]) -> _Group:
        """Rows with the one nearest to their mean, and how far the others are from it."""
        middle = int(np.argmin(((own - own.mean(axis=0)) ** 2).sum(axis=1)))
        apart = np.abs(own - own[middle])
        reach = apart.sum(axis=1) if self.l1 else np.sqrt((apart**2).sum(axis=1))
        return _Group(places, middle, float(reach.max()) * (1 + 1e-9))

    def sample(self, draw: np.random.Generator, count: int) -> NDArray[np.intp]:
        """About so many places, in whole groups."""
        some = draw.permutation(len(self.groups))[: -(-count // _GROUP)]
        return np.concatenate([self.groups[place].places for place in some])

    def values(
        self,
        places: NDArray[np.intp],
        prices: NDArray[np.float64],
        capacity: NDArray[np.float64],
        level: float,
        thresholds: NDArray[np.float64],
    ) -> Generator[Bounded]:
        """Bounds of the rows at these places; above `level` they are not made closer.

        Prices are at least 0.
        """
        wanted = np.zeros(len(self.features), bool)
        wanted[places] = True
        total = float(capacity.sum())
        prices = _rounded_down(prices, self.targets.dtype)
        even = bool((capacity == capacity[0]).all())

        def compute(group: _Group) -> Bounded:
            some = wanted[group.places]
            own = self.features[group.places]
            found, at = np.empty(len(own)), np.empty(len(own))
            guess = thresholds[group.places[group.middle]]
            _values_of_group(
                own,
                some,
                group.middle,
                group.radius,
                self.targets,
                prices,
                capacity,
                even,
                total,
                guess,
                level,
                self.l1,
                self.eps,
                found,
                at,
            )
            return group.places[some], found[some], at[some]

        yield from parallel_map(compute, [g for g in self.groups if wanted[g.places].any()])


def _rounded_down(values: NDArray[np.float64], kind: Any) -> NDArray[Any]:
    """Values in this precision, none above what it was."""
    rounded = values.astype(kind)
    above = rounded > values
    rounded[above] = np.nextafter(rounded[above], rounded.dtype.type(-np.inf))
    return rounded


@njit(cache=True, nogil=True)
def _values_of_group(
    own: NDArray[Any],
    some: NDArray[np.bool_],
    middle: int,
    radius: float,
    targets: NDArray[Any],
    prices: NDArray[Any],
    capacity: NDArray[np.float64],
    even: bool,
    total: float,
    guess: float,
    level: float,
    l1: bool,
    eps: float,
    values: NDArray[np.float64],
    thresholds: NDArray[np.float64],
) -> None:
    width, n = targets.shape
    distances = np.empty(n, targets.dtype)
    _distances(own[middle], targets, l1, distances)
    best, t = best_threshold(distances, prices, capacity, even, total, guess, np.inf, np.inf)
    # Distances are off by a share of themselves, for which they were lowered, and by the
    # rounding of both rows when they were prepared; |y| ≤ |x| + C.
    longest = 0.0
    for i in range(len(own)):
        longest = max(longest, np.abs(own[i]).sum())
    lost = 8 * eps * longest
    best -= lost
    if best - radius > level:
        values[:], thresholds[:] = best - radius, t
        return
    highest = t + _BEYOND * radius
    reach = (highest + radius) * (1 + 4 * eps)
    places, count = np.empty(n, np.int32), 0
    for j in range(n):
        places[count] = j
        count += (distances[j] + prices[j] < reach) & (capacity[j] > 0.0)
    near = np.empty((width, count), targets.dtype)
    for f in range(width):
        for place in range(count):
            near[f, place] = targets[f, places[place]]
    near_prices, near_capacity = prices[places[:count]], capacity[places[:count]]
    distances, near_total = np.empty(count, targets.dtype), near_capacity.sum()
    for i in range(len(own)):
        values[i], thresholds[i] = best - _apart(own[i], own[middle], l1), t
        if values[i] > level or not some[i]:
            continue
        if count == 0:  # nobody takes anything below the threshold
            values[i], thresholds[i] = max(highest - lost, values[i]), highest
            continue
        _distances(own[i], near, l1, distances)
        value, thresholds[i] = best_threshold(
            distances, near_prices, near_capacity, even, near_total, t, highest, level
        )
        values[i] = max(value - lost, values[i])


@njit(cache=True, nogil=True)
def _apart(one: NDArray[Any], other: NDArray[Any], l1: bool) -> float:
    """How far two rows are from each other, rounded up."""
    total = 0.0
    for f in range(len(one)):
        apart = abs(float(one[f]) - float(other[f]))
        total += apart if l1 else apart * apart
    return (total if l1 else np.sqrt(total)) * (1 + 1e-9)


@njit(cache=True, nogil=True, fastmath={"contract"})
def _distances(own: NDArray[Any], targets: NDArray[Any], l1: bool, found: NDArray[Any]) -> None:
    """Distances of one row to all targets, from differences, each lowered by its rounding."""
    width, n = targets.shape
    lowered = found.dtype.type(1.0 - (width + 8) * np.finfo(found.dtype).eps)
    for start in range(0, n, _CHUNK):
        part = found[start : start + _CHUNK]
        part[:] = 0
        for f in range(0, width - 1, 2):  # two at a time: half the passes
            x, y = own[f], targets[f, start : start + _CHUNK]
            also, there = own[f + 1], targets[f + 1, start : start + _CHUNK]
            if l1:
                for j in range(len(part)):
                    part[j] += abs(x - y[j]) + abs(also - there[j])
            else:
                for j in range(len(part)):
                    apart, other = x - y[j], also - there[j]
                    part[j] += apart * apart + other * other
        if width % 2:
            x, y = own[width - 1], targets[width - 1, start : start + _CHUNK]
            if l1:
                for j in range(len(part)):
                    part[j] += abs(x - y[j])
            else:
                for j in range(len(part)):
                    apart = x - y[j]
                    part[j] += apart * apart
        if l1:
            for j in range(len(part)):
                part[j] *= lowered
        else:
            for j in range(len(part)):
                part[j] = np.sqrt(part[j]) * lowered
