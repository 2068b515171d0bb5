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
    sides = (costs.source, costs.target)
    if any(isinstance(side, RowsOnDisk) or sp.issparse(side) for side in sides):
        return None
    first = np.concatenate([side[:_FIRST_ROWS] for side in sides])
    if np.count_nonzero(np.ptp(first, axis=0)) > 1:
        return None
    least = np.minimum(*(side.min(axis=0) for side in sides))
    most = np.maximum(*(side.max(axis=0) for side in sides))
    varying = np.flatnonzero(most > least)
    if len(varying) > 1:
        return None
    column = int(varying[0]) if len(varying) else 0
    source, target = (np.asarray(costs.given(side)[:, column], np.float64) for side in (0, 1))
    return Line(source, target, _POWERS[costs.metric])


def carried(line: Line, short: NDArray[np.float64], k: int, cost: float) -> float:
    """What k rows of this cost may pay more or less where targets have so much more weight.

    Weight is carried along the line to where it is short; |x − y|² changes by the sum of both
    distances times the way, and no row that pays so little is farther than √(k · cost) away.
    """
    order = np.argsort(line.target, kind="stable")
    way = float(np.abs(np.cumsum(short[order])[:-1]) @ np.diff(line.target[order]))
    if line.power == 1:
        return way
    return way * 2 * (float(np.ptp(line.target)) + math.sqrt(k * cost))


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
