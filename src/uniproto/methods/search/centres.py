"""What costs the targets of a cell least: a free centre, or a row of the pool."""

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
from uniproto.geometry.metrics import Linear
from uniproto.methods.search.assigner import Assigned, Assigner, members, slopes
from uniproto.problem.allowed import Allowed
from uniproto.problem.problem import Problem
from uniproto.runtime.budget import Check
from uniproto.runtime.threads import parallel_map, pieces_of

_SHORTLIST = 32  # rows near the centre of a cell that are compared exactly
_SHARPENING = 5  # steps towards the best point of a cell
_LEAST_GAIN = 1e-5  # of the cost, for another round


def move_to_medoids(assigner: Assigner, now: Assigned, rounds: int, goes_on: Check) -> Assigned:
    """Give each place to the best row of its cell, assign again, and so on; the cost falls.

    Stops after so many rounds, or once the cost hardly falls any more.
    """
    for _ in range(rounds):
        places, rows = _better_rows(assigner, now)
        if not len(places) or not goes_on():
            break
        moved = assigner.exchanged(now, places, rows)
        gain = now.value - moved.value
        if gain <= 0:
            break
        now = moved
        if gain < _LEAST_GAIN * now.value:
            break
    return now


def snapped(assigner: Assigner, points: NDArray[Any]) -> NDArray[np.intp]:
    """The given rows, and for each point the nearest row that may still be chosen."""
    problem, nearest = assigner.problem, assigner.nearest_rows(points, _SHORTLIST)
    allowed, chosen = Allowed(problem), problem.initial
    for place in range(len(points)):
        free = allowed.beside(chosen, nearest[:, place])
        if not len(free):  # all near ones are taken: go through every row
            free = allowed.beside(chosen, _by_distance(problem, points[place : place + 1]))
        if not len(free):
            raise problem.too_few_distinct(len(chosen))
        chosen = np.append(chosen, free[0])
    return chosen


def _better_rows(assigner: Assigner, now: Assigned) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places whose cell another row serves better, and those rows."""
    targets = members(now.cells, len(now.prototypes))
    if isinstance(assigner.problem.costs, FeatureCosts):
        lists = _near_centres(assigner, now)
    else:
        lists = _of_matrix(assigner, now)
    places, rows = [], []
    allowed, chosen = Allowed(assigner.problem), now.prototypes.copy()
    moving = [p for p in range(assigner.given, len(now.prototypes)) if len(targets[p])]
    tried = [np.append(lists[:, place], now.prototypes[place]) for place in moving]
    totals = assigner.totals(tried, [targets[place] for place in moving])
    for place, likely, costs in zip(moving, tried, totals, strict=True):
        better = likely[np.argsort(costs, kind="stable")]
        better = better[: np.flatnonzero(better == now.prototypes[place])[0]]
        free = allowed.instead(chosen, place, better)
        if len(free):
            chosen[place] = free[0]
            places.append(place)
            rows.append(free[0])
    return np.array(places, np.intp), np.array(rows, np.intp)


def _near_centres(assigner: Assigner, now: Assigned) -> NDArray[np.intp]:
    """Rows near the best point of each cell, the nearest first."""
    costs: Any = assigner.problem.costs
    points = centres(assigner, now.cells, assigner.own_costs(now), len(now.prototypes))
    count = _SHORTLIST
    if isinstance(costs.curve, Linear) and costs.distance is not L1_DISTANCE:
        count = 4  # the nearest to the mean is the best, and others only where it is taken
    elif not isinstance(costs.curve, Linear):
        points = _sharpened(assigner, now, points)
    return assigner.nearest_rows(points, count)


def _sharpened(assigner: Assigner, now: Assigned, points: NDArray[Any]) -> NDArray[Any]:
    """Further steps towards the best points, on some of the targets."""
    part, cells = assigner.thinned(now.cells)
    for _ in range(_SHARPENING):
        points = centres(part, cells, part.costs_to_own(points, cells), len(points))
    return points


def _by_distance(problem: Problem, point: NDArray[Any]) -> NDArray[np.intp]:
    """All candidates, the nearest to the point first."""
    costs: Any = problem.costs
    parts = pieces_of(len(problem.candidates), block_rows(1))
    apart = [costs.block_to_points(problem.candidates[part], point)[:, 0] for part in parts]
    return problem.candidates[np.argsort(np.concatenate(apart), kind="stable")]


def _of_matrix(assigner: Assigner, now: Assigned) -> NDArray[np.intp]:
    """The candidates that cost each cell least, from the matrix itself."""
    problem, k = assigner.problem, len(now.prototypes)
    n, weights = assigner.n, assigner.weights
    membership = sp.csr_array((weights, (now.cells, np.arange(n))), shape=(k, n))
    rows = problem.candidates

    def totals(part: slice) -> NDArray[np.float64]:
        return (membership @ problem.costs.block(rows[part]).T).T

    parts = pieces_of(len(rows), block_rows(assigner.n))
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


def as_points(assigner: Assigner, rows: NDArray[np.intp]) -> NDArray[Any]:
    """The features of some rows of the pool."""
    costs: Any = assigner.problem.costs
    features = costs.source[rows]
    return np.asarray(features.toarray() if sp.issparse(features) else features)


def move_centres(assigner: Assigner, now: Assigned, steps: int, goes_on: Check) -> Assigned:
    """Assign and move in turn, as long as the cost falls; given rows stay where they are."""
    given = len(assigner.problem.initial)
    for _ in range(steps):
        if not goes_on():
            break
        points = now.prototypes.copy()
        points[given:] = centres(assigner, now.cells, assigner.own_costs(now), len(points))[given:]
        moved = assigner.assign(points, prices=now.prices)
        gain = now.value - moved.value
        if gain <= 0:
            break
        now = moved
        if gain < _LEAST_STEP * now.value:
            break
    return now


def centres(assigner: Assigner, cells: NDArray[np.int32], own: Any, k: int) -> NDArray[Any]:
    """One step towards the best point of each cell, from points that cost its targets `own`.

    The mean for squared distances, the mean direction for cosine, the median of each feature for
    l1; for costs that rise otherwise the mean or median in which far targets count less, by which
    repeated steps come to the best point (Weiszfeld's iteration). For `dot` the mean, which tells
    the best row as well, and for sparse rows under l1, for want of better. A cell without targets
    gets the mean of all.
    """
    costs: Any = assigner.problem.costs
    if costs.distance is L1_DISTANCE and not is_sparse(costs.target):
        return _medians(costs, cells, assigner.weights * slopes(costs.curve, own), k)
    sums, totals = assigner.sums(cells, own, k)
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
