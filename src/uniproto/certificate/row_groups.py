"""Bounds of rows that lie close together, over the targets that can matter to one of them.

Where costs are distances, a row x at most r away from another has C_xj ≥ C_j − r: its value is at
most r below the other's, and its threshold at most r above. So the value of a group's middle row
bounds all its rows, and of all targets the group needs those that its middle row would take at a
threshold a little higher. With few features these are few, and they are gathered once for the
whole group.

A pass bounds the middle rows of all groups first, which is quick, and then tightens the bounds, the
lowest first: whenever time is up, every row has a bound and those that matter most are tight.
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
from uniproto.runtime.threads import parallel_map, pieces_of

_DISTANCES = ("euclidean", "l1")
_MOST_FEATURES = 10
_FEWEST_ROWS = 4096
_GROUP = 24  # rows at most
_WIDE = 4.0  # median radii; wider groups are split further
_MIDDLES = 8  # middle rows that are bounded at a time
_BEYOND = 0.4  # of a group's radius: how far thresholds may rise above that of its middle row
_FEW = 11  # rows of a group that may gather more targets: thresholds may rise by its radius
_NEGLIGIBLE = 1e-4  # of the radius of most groups
_LEAST, _MOST = 1e-15, 1e15  # radius, coordinate: single precision has room for their squares
_CHUNK = 512  # targets whose distances stay in the cache while features are added up

# Places of rows, bounds of their values, and the thresholds that prove them.
Bounded = tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]


class _Group(NamedTuple):
    places: NDArray[np.intp]
    middle: int  # its place
    radius: float
    rise: float  # by which thresholds may exceed that of the middle row
    lost: float  # to rounding, by the value of any row


def row_groups(problem: Problem, rows: NDArray[np.intp]) -> RowGroups | None:
    """The rows in groups, or None if groups would not save work."""
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
    """Rows of few features, split recursively along the feature of largest spread."""

    def __init__(self, costs: FeatureCosts, rows: NDArray[np.intp]) -> None:
        self.l1 = costs.metric == "l1"
        self.features = np.ascontiguousarray(costs.source[rows])
        self.targets = np.ascontiguousarray(costs.target.T)  # one row per feature
        self.eps = float(np.finfo(costs.dtype).eps)
        self.group_of, self.apart = np.empty(len(rows), np.intp), np.empty(len(rows))
        groups = self._split(np.arange(len(rows)), _GROUP, 0.0)
        wide = _WIDE * float(np.median([group.radius for group in groups]))
        parts = (
            [group] if group.radius <= wide else self._split(group.places, 1, wide)
            for group in groups
        )
        groups = [group for part in parts for group in part]
        self.middles = np.array([group.middle for group in groups])
        self.radius = np.array([group.radius for group in groups])
        self.rise = np.array([group.rise for group in groups])
        self.lost = np.array([group.lost for group in groups])
        for number, group in enumerate(groups):
            self.group_of[group.places] = number
        self._take_single_precision()
        # Denormal squares are rounded, too.
        kind = np.finfo(self.targets.dtype)
        self.lost += float(np.sqrt(len(self.targets) * float(kind.smallest_subnormal)))

    def _take_single_precision(self) -> None:
        """Use single precision, which is twice as fast, if rounding is negligible to a radius."""
        lost = self.lost * (float(np.finfo(np.float32).eps) / self.eps)
        most = max(float(np.abs(each).max()) for each in (self.features, self.targets))
        usual = float(np.median(self.radius))
        if most < _MOST and usual > _LEAST and np.median(lost) <= _NEGLIGIBLE * usual:
            self.lost = lost
            self.features = self.features.astype(np.float32)
            self.targets = self.targets.astype(np.float32)

    def _split(self, places: NDArray[np.intp], size: int, radius: float) -> list[_Group]:
        """Halve recursively until groups have at most `size` rows or this radius."""
        groups, waiting = [], [places]
        while waiting:
            places = waiting.pop()
            if len(places) <= _GROUP:
                group = self._measured(places)
                if len(places) <= size or group.radius <= radius:
                    groups.append(group)
                    continue
            part = self.features[places]
            widest = np.argmax(part.std(axis=0, dtype=np.float64))  # whatever single rows do
            half = len(places) // 2
            places = places[np.argpartition(part[:, widest], half)]
            waiting += [places[half:], places[:half]]
        return groups

    def _measured(self, places: NDArray[np.intp]) -> _Group:
        """A group: its rows, the one nearest to their mean, and the largest distance from it."""
        own = self.features[places].astype(np.float64)
        middle = int(np.argmin(((own - own.mean(axis=0)) ** 2).sum(axis=1)))
        apart = np.abs(own - own[middle])
        reach = apart.sum(axis=1) if self.l1 else np.sqrt((apart**2).sum(axis=1))
        self.apart[places] = reach * (1 + 1e-9)
        # Distances are off by a share of themselves, for which they were lowered, and by the
        # rounding of both rows when they were prepared; |y| ≤ |x| + C.
        lost = 8 * self.eps * float(np.abs(own).sum(axis=1).max())
        radius = float(self.apart[places].max())
        rise = radius if len(places) <= _FEW else _BEYOND * radius
        return _Group(places, int(places[middle]), radius, rise, lost)

    def sample(self, draw: np.random.Generator, count: int) -> NDArray[np.intp]:
        """About `count` positions, in whole groups."""
        some = draw.permutation(len(self.middles))[: -(-count // _GROUP)]
        return np.flatnonzero(np.isin(self.group_of, some))

    def costs_of(self, places: NDArray[np.intp]) -> NDArray[Any]:
        """The costs of the rows at these positions, up to rounding."""
        block = np.empty((len(places), self.targets.shape[1]), self.targets.dtype)
        for own, costs in zip(self.features[places], block, strict=True):
            _distances(own, self.targets, self.l1, costs)
        return block

    def values(
        self,
        places: NDArray[np.intp],
        prices: NDArray[np.float64],
        capacity: NDArray[np.float64],
        level: float,
        known: NDArray[np.float64],
        thresholds: NDArray[np.float64],
    ) -> Generator[Bounded]:
        """Bounds of the rows at these positions, twice: by their middle rows, then tighter ones.

        The second time the lowest come first, and bounds above `level` are not tightened. `known`
        and `thresholds` are of all rows; the caller must store what is yielded before the next
        iteration. Prices are at least 0.
        """
        total = float(capacity.sum())
        prices = _rounded_down(prices, self.targets.dtype)
        even = bool((capacity == capacity[0]).all())
        shared = (self.targets, prices, capacity, even)
        of_middles, at_middles = np.empty(len(self.middles)), np.empty(len(self.middles))

        def judge(part: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Bounded:
            groups, some = part
            middles = self.middles[groups]
            values, at = np.empty(len(groups)), thresholds[middles]
            _values_of_middles(self.features[middles], *shared, total, self.l1, values, at)
            of_middles[groups], at_middles[groups] = values - self.lost[groups], at
            own = self.group_of[some]
            return some, of_middles[own] - self.apart[some], at_middles[own]

        def refine(part: tuple[NDArray[np.intp], NDArray[np.intp]]) -> Bounded:
            (group,), some = part
            values, at = np.empty(len(some)), np.empty(len(some))
            _values_of_group(
                self.features[some],
                self.features[self.middles[group]],
                self.radius[group],
                self.rise[group],
                at_middles[group],
                *shared,
                level,
                self.l1,
                values,
                at,
            )
            return some, values - self.lost[group], at

        yield from parallel_map(judge, self._parts(places, _MIDDLES))
        alone = self.radius[self.group_of[places]] == 0.0
        is_done = alone | (known[places] > level)
        done = places[is_done]
        yield done, known[done], thresholds[done]
        parts = self._parts(places[~is_done], 1)
        parts.sort(key=lambda part: known[part[1]].min())
        yield from parallel_map(refine, parts)

    def _parts(
        self, places: NDArray[np.intp], count: int
    ) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Chunks of groups, with the given positions that are in them."""
        places = places[np.argsort(self.group_of[places], kind="stable")]
        groups, starts = np.unique(self.group_of[places], return_index=True)
        ends = np.append(starts, len(places))
        return [
            (groups[part], places[starts[part.start] : ends[part.stop]])
            for part in pieces_of(len(groups), count)
        ]


def _rounded_down(values: NDArray[np.float64], kind: Any) -> NDArray[Any]:
    """Values in this precision, rounded down."""
    rounded = values.astype(kind)
    above = rounded > values
    rounded[above] = np.nextafter(rounded[above], rounded.dtype.type(-np.inf))
    return rounded


@njit(cache=True, nogil=True)
def _values_of_middles(
    middles: NDArray[Any],
    targets: NDArray[Any],
    prices: NDArray[Any],
    capacity: NDArray[np.float64],
    even: bool,
    total: float,
    l1: bool,
    values: NDArray[np.float64],
    thresholds: NDArray[np.float64],
) -> None:
    """Values of rows over all targets; updates the initial `thresholds`."""
    distances = np.empty(targets.shape[1], targets.dtype)
    for i in range(len(middles)):
        _distances(middles[i], targets, l1, distances)
        values[i], thresholds[i] = best_threshold(
            distances, prices, capacity, even, total, thresholds[i], np.inf, np.inf
        )


@njit(cache=True, nogil=True)
def _values_of_group(
    own: NDArray[Any],
    middle: NDArray[Any],
    radius: float,
    rise: float,
    t: float,
    targets: NDArray[Any],
    prices: NDArray[Any],
    capacity: NDArray[np.float64],
    even: bool,
    level: float,
    l1: bool,
    values: NDArray[np.float64],
    thresholds: NDArray[np.float64],
) -> None:
    """Values of rows at most `radius` from a middle row, whose threshold is `t`."""
    width, n = targets.shape
    distances = np.empty(n, targets.dtype)
    _distances(middle, targets, l1, distances)
    highest = t + rise
    reach = (highest + radius) * (1 + 4 * np.finfo(targets.dtype).eps)
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
        if count == 0:  # no targets below the threshold
            values[i], thresholds[i] = highest, highest
            continue
        _distances(own[i], near, l1, distances)
        values[i], thresholds[i] = best_threshold(
            distances, near_prices, near_capacity, even, near_total, t, highest, level
        )


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
