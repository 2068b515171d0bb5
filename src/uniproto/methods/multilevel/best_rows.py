"""From cells to free centres and to rows of the pool: what costs the targets of a cell least."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.geometry.costs import Costs
from uniproto.geometry.distances import ANGLES, L1_DISTANCE, PRODUCTS
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import is_sparse
from uniproto.geometry.metrics import Line
from uniproto.methods.multilevel.level import Assigned, Level, members, slopes
from uniproto.problem.problem import Problem
from uniproto.runtime.threads import parallel_map, pieces_of

_SHORTLIST = 32  # rows near the centre of a cell that are compared exactly
_SHARPENING = 5  # steps towards the best point of a cell
_LEAST_GAIN = 1e-5  # of the cost, for another round
_HOPE = 4.0  # times what the last round gained: what the rounds to come may gain


def settle(level: Level, now: Assigned, rounds: int, below: float = np.inf) -> Assigned:
    """Replace each prototype by the best row of its cell, and assign again; the cost falls.

    Stops after so many rounds, once the cost hardly falls any more, or where the rounds to come
    are not likely to bring it below a limit.
    """
    for _ in range(rounds):
        places, rows = _better_rows(level, now)
        if not len(places):
            break
        settled = level.exchanged(now, places, rows)
        gain = now.value - settled.value
        if gain <= 0:
            break
        now = settled
        if gain < _LEAST_GAIN * now.value or now.value - _HOPE * gain > below:
            break
    return now


def snapped(level: Level, points: NDArray[Any]) -> NDArray[np.intp]:
    """The given rows, and for each point the nearest row that may still be chosen."""
    problem, nearest = level.problem, level.nearest_rows(points, _SHORTLIST)
    choice = Choice(problem, problem.initial)
    for place in range(len(points)):
        row = choice.first_free(nearest[:, place])
        if row is None:  # all near ones are taken: go through every row
            row = choice.first_free(_by_distance(problem, points[place : place + 1]))
        if row is None:
            raise problem.too_few_distinct(len(choice.rows))
        choice.rows.append(row)
    return np.array(choice.rows, np.intp)


class Choice:
    """Rows chosen so far, and which others may be chosen beside them."""

    def __init__(self, problem: Problem, rows: NDArray[np.intp]) -> None:
        self.problem = problem
        self.rows: list[int] = rows.tolist()

    def first_free(self, rows: NDArray[np.intp]) -> int | None:
        """The first row that neither is chosen nor too close to one that is."""
        return next((int(row) for row in rows if self.is_free(int(row))), None)

    def is_free(self, row: int) -> bool:
        if row in self.rows:
            return False
        limit = self.problem.twin_distance
        if limit is None or not self.rows:
            return True
        apart = self.problem.costs.twin_distances(row, np.array(self.rows, np.intp))
        return bool(apart.min() > limit)


def _better_rows(level: Level, now: Assigned) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places whose cell another row serves better, and those rows."""
    targets = members(now.cells, len(now.prototypes))
    if isinstance(level.problem.costs, FeatureCosts):
        lists = _near_centres(level, now)
    else:
        lists = _of_matrix(level, now)
    places, rows = [], []
    choice = Choice(level.problem, now.prototypes)
    moving = [p for p in range(len(level.problem.initial), len(now.prototypes)) if len(targets[p])]
    tried = [np.append(lists[:, place], now.prototypes[place]) for place in moving]
    totals = level.totals(tried, [targets[place] for place in moving])
    for place, likely, costs in zip(moving, tried, totals, strict=True):
        better = likely[np.argsort(costs, kind="stable")]
        better = better[: np.flatnonzero(better == now.prototypes[place])[0]]
        del choice.rows[place]  # its own row is free, and so are those near it
        row = choice.first_free(better)
        choice.rows.insert(place, int(now.prototypes[place]) if row is None else row)
        if row is not None:
            places.append(place)
            rows.append(row)
    return np.array(places, np.intp), np.array(rows, np.intp)


def _near_centres(level: Level, now: Assigned) -> NDArray[np.intp]:
    """Rows near the best point of each cell, the nearest first."""
    costs: Any = level.problem.costs
    points = centres(level, now.cells, level.own_costs(now), len(now.prototypes))
    count = _SHORTLIST
    if isinstance(costs.curve, Line) and costs.distance is not L1_DISTANCE:
        count = 4  # the nearest to the mean is the best, and others only where it is taken
    elif not isinstance(costs.curve, Line):
        points = _sharpened(level, now, points)
    return level.nearest_rows(points, count)


def _sharpened(level: Level, now: Assigned, points: NDArray[Any]) -> NDArray[Any]:
    """Further steps towards the best points, on some of the targets."""
    part, cells = level.thinned(now.cells)
    for _ in range(_SHARPENING):
        points = centres(part, cells, part.costs_to_own(points, cells), len(points))
    return points


def _by_distance(problem: Problem, point: NDArray[Any]) -> NDArray[np.intp]:
    """All candidates, the nearest to the point first."""
    costs: Any = problem.costs
    parts = pieces_of(len(problem.candidates), block_rows(1))
    apart = [costs.block_to_points(problem.candidates[part], point)[:, 0] for part in parts]
    return problem.candidates[np.argsort(np.concatenate(apart), kind="stable")]


def _of_matrix(level: Level, now: Assigned) -> NDArray[np.intp]:
    """The candidates that cost each cell least, from the matrix itself."""
    problem, k = level.problem, len(now.prototypes)
    membership = sp.csr_array((level.weights, (now.cells, np.arange(level.n))), shape=(k, level.n))
    rows = problem.candidates

    def totals(part: slice) -> NDArray[np.float64]:
        return (membership @ problem.costs.block(rows[part]).T).T

    parts = pieces_of(len(rows), block_rows(level.n))
    costs = np.concatenate(list(parallel_map(totals, parts)))
    count = min(4, len(rows))
    lowest = np.argpartition(costs, count - 1, axis=0)[:count]
    return rows[lowest]


# --- free centres: points of the feature space, moved until the cells they are best for stay put --


_LEAST_STEP = 2e-4  # of the cost, for another step


def have_centres(costs: Costs) -> bool:
    """Whether some point is best for a cell: not for `dot`, nor for a matrix of costs."""
    if not isinstance(costs, FeatureCosts) or costs.distance is PRODUCTS:
        return False
    return costs.distance is not L1_DISTANCE or not is_sparse(costs.source, costs.target)


def as_points(level: Level, rows: NDArray[np.intp]) -> NDArray[Any]:
    """The features of some rows of the pool."""
    costs: Any = level.problem.costs
    features = costs.source[rows]
    return np.asarray(features.toarray() if sp.issparse(features) else features)


def move_centres(level: Level, now: Assigned, steps: int) -> Assigned:
    """Assign and move in turn, as long as the cost falls; given rows stay where they are."""
    given = len(level.problem.initial)
    for _ in range(steps):
        points = now.prototypes.copy()
        points[given:] = centres(level, now.cells, level.own_costs(now), len(points))[given:]
        moved = level.assign(points, prices=now.prices)
        gain = now.value - moved.value
        if gain <= 0:
            break
        now = moved
        if gain < _LEAST_STEP * now.value:
            break
    return now


def centres(level: Level, cells: NDArray[np.int32], own: Any, k: int) -> NDArray[Any]:
    """One step towards the best point of each cell, from points that cost its targets `own`.

    The mean for squared distances, the mean direction for cosine, the median of each feature for
    l1; for costs that rise otherwise the mean or median in which far targets count less, by which
    repeated steps come to the best point (Weiszfeld's iteration). For `dot` the mean, which tells
    the best row as well, and for sparse rows under l1, for want of better. A cell without targets
    gets the mean of all.
    """
    costs: Any = level.problem.costs
    if costs.distance is L1_DISTANCE and not is_sparse(costs.target):
        return _medians(costs, cells, level.weights * slopes(costs.curve, own), k)
    sums, totals = level.sums(cells, own, k)
    some = totals > 0
    means = np.where(some, sums, sums.sum(axis=0)) / np.where(some, totals, totals.sum())
    if costs.distance is ANGLES:
        lengths = np.linalg.norm(means, axis=1, keepdims=True)
        means /= np.where(lengths > 0, lengths, 1.0)
    return means.astype(costs.dtype)


def _medians(
    costs: FeatureCosts, cells: NDArray[np.int32], counts: NDArray[np.float64], k: int
) -> NDArray[Any]:
    """The weighted median of each feature in each cell."""

    def median(own: NDArray[np.intp]) -> NDArray[Any]:
        if not len(own):
            return np.zeros(costs.target.shape[1], costs.dtype)
        rows, weights = costs.target[own], counts[own]
        by_feature = np.argsort(rows, axis=0, kind="stable")
        below = np.cumsum(weights[by_feature], axis=0)
        middle = (below >= below[-1:] / 2).argmax(axis=0)
        return np.take_along_axis(rows, by_feature, axis=0)[middle, np.arange(rows.shape[1])]

    return np.stack(list(parallel_map(median, members(cells, k))))
