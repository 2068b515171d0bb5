"""Rows on a line: where only one column varies, the plan in the order of the line is the best.

For a cost that is convex in |x − y| the monotone coupling is optimal: the first prototype takes
the first k-th of all target mass, the next one the next. That takes no solver, however many
targets there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.costs import Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import RowsOnDisk
from uniproto.problem.masses import Masses

_POWERS = {"euclidean": 1, "l1": 1, "sqeuclidean": 2}  # of |x − y|, by metric
_EPS = float(np.finfo(np.float64).eps)
_FIRST_ROWS = 100  # most tables show in these that several columns vary


@dataclass(frozen=True)
class Line:
    """Where source and target rows lie; a cost is |x − y| to this power."""

    source: NDArray[np.float64]
    target: NDArray[np.float64]
    power: int


def line_of(costs: Costs) -> Line | None:
    """The line that all rows lie on, or None where several columns vary or costs are others.

    >>> from uniproto.geometry.costs import make_costs
    >>> rows = np.array([[1.0, 7.0], [4.0, 7.0]])
    >>> line_of(make_costs(rows, rows, "euclidean")).source.tolist()
    [1.0, 4.0]
    """
    if not isinstance(costs, FeatureCosts) or costs.metric not in _POWERS:
        return None
    if any(
        isinstance(side, RowsOnDisk) or sp.issparse(side) for side in (costs.source, costs.target)
    ):
        return None
    # As given: where rows are moved near the origin, columns that hardly vary may vanish.
    first = np.concatenate([costs.given(side, slice(0, _FIRST_ROWS)) for side in (0, 1)])
    if np.count_nonzero(np.ptp(first, axis=0)) > 1:
        return None
    sides = [costs.given(side) for side in (0, 1)]
    least = np.minimum(*(side.min(axis=0) for side in sides))
    most = np.maximum(*(side.max(axis=0) for side in sides))
    varying = np.flatnonzero(most > least)
    if len(varying) > 1:
        return None
    column = int(varying[0]) if len(varying) else 0
    source, target = (np.asarray(side[:, column], np.float64) for side in sides)
    return Line(source, target, _POWERS[costs.metric])


def carried(line: Line, masses: Masses, weights: NDArray[np.float64], k: int, cost: float) -> float:
    """By how much the cost of k rows may change where the targets have weights, not masses.

    What one target has less than its weight is carried along the line from those that have more;
    |x − y|² changes by the sum of both distances times the way, and no row that pays so little is
    farther than √(k · cost) away. Sums begin at the end with less mass: so what is far away and
    hardly counts is known as well as it counts.
    """
    order = np.argsort(line.target, kind="stable")
    order = order[weights[order] > 0]
    places, exact, whole = line.target[order], weights[order], masses.weights[order]
    short, held = exact - whole, exact + whole
    before, after = np.cumsum(held)[:-1], np.cumsum(held[::-1])[-2::-1]
    moved = np.where(before <= after, np.cumsum(short)[:-1], np.cumsum(short[::-1])[-2::-1])
    rounding = (2 * len(order) + 16) * _EPS
    most = np.abs(moved) + rounding * np.minimum(before, after)
    way = float(most @ np.diff(places)) * (1 + rounding)
    if line.power == 1:
        return way
    return way * 2 * (float(np.ptp(places)) + math.sqrt(k * cost))


def plan_on_line(
    line: Line, rows: NDArray[np.integer], masses: Masses
) -> tuple[sp.csr_array, NDArray[np.float64]]:
    """The cheapest plan of these rows in whole masses, and what each row pays in it."""
    k = len(rows)
    by_place = np.argsort(line.source[rows], kind="stable")
    targets = np.argsort(line.target, kind="stable")
    ends = np.cumsum(masses.offer[targets])
    stops = np.union1d(ends[masses.offer[targets] > 0], masses.need * np.arange(1, k + 1))
    moved = np.diff(stops, prepend=0)
    target = targets[np.searchsorted(ends, stops, side="left")]
    prototype = by_place[(stops - 1) // masses.need]
    apart = np.abs(line.source[rows[prototype]] - line.target[target]) ** line.power
    plan = sp.csr_array((moved, (prototype, target)), shape=(k, len(line.target)))
    paid = np.bincount(prototype, moved * apart, minlength=k)
    return plan, paid.astype(np.float64)
