"""From cells to rows of the pool: the row that costs the targets of a cell least."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.geometry.distances import L1_DISTANCE
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.metrics import Line
from uniproto.methods.multilevel.centres import centres
from uniproto.methods.multilevel.level import Assigned, Level, members
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import njit
from uniproto.runtime.threads import parallel_for, parallel_map, pieces_of

_SHORTLIST = 32  # rows near the centre of a cell that are compared exactly
_SHARPENING = 5  # steps towards the best point of a cell
_SAMPLE = 200_000  # targets these steps look at
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


def snapped(problem: Problem, points: NDArray[Any]) -> NDArray[np.intp]:
    """The given rows, and for each point the nearest row that may still be chosen."""
    nearest = nearest_rows(problem, points, min(_SHORTLIST, len(problem.candidates)))
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

    def scores(place: int) -> tuple[int, NDArray[np.intp], NDArray[np.float64]]:
        tried = np.append(lists[:, place], now.prototypes[place])
        costs = level.problem.costs.block(tried, targets[place])
        return place, tried, costs @ level.weights[targets[place]]

    moving = [p for p in range(len(level.problem.initial), len(now.prototypes)) if len(targets[p])]
    for place, tried, totals in parallel_map(scores, moving):
        better = tried[np.argsort(totals, kind="stable")]
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
    problem, k = level.problem, len(now.prototypes)
    costs: Any = problem.costs
    points = centres(level, now.cells, level.own_costs(now), k)
    count = _SHORTLIST
    if isinstance(costs.curve, Line) and costs.distance is not L1_DISTANCE:
        count = 4  # the nearest to the mean is the best, and others only where it is taken
    elif not isinstance(costs.curve, Line):
        points = _sharpened(level, now, points)
    return nearest_rows(problem, points, min(count, len(problem.candidates)))


def _sharpened(level: Level, now: Assigned, points: NDArray[Any]) -> NDArray[Any]:
    """Further steps towards the best points, on some of the targets."""
    costs: Any = level.problem.costs
    some = np.arange(0, level.n, max(1, level.n // _SAMPLE))
    weights = level.weights[some] / level.weights[some].sum()
    part = Level(level.problem.among(level.problem.candidates[:1], some, weights))
    cells, own = now.cells[some], np.empty(len(some))
    parts = members(cells, len(points))

    def fill(place: int) -> None:
        if len(parts[place]):
            point = points[place : place + 1]
            own[parts[place]] = costs.block_of_points(point, some[parts[place]])[0]

    for _ in range(_SHARPENING):
        parallel_for(fill, range(len(points)))
        points = centres(part, cells, own, len(points))
    return points


def nearest_rows(problem: Problem, points: NDArray[Any], count: int) -> NDArray[np.intp]:
    """The `count` candidates nearest to each point, count × points, the nearest first."""
    costs: Any = problem.costs
    rows = problem.candidates
    found = np.full((len(points), count), -1, np.int64)
    distance = np.full((len(points), count), np.inf, costs.dtype)
    everyone = len(rows) == problem.m

    def block(part: slice) -> tuple[slice, NDArray[Any]]:
        return part, costs.block_to_points(part if everyone else rows[part], points)

    for part, costs_of_part in parallel_map(block, pieces_of(len(rows), block_rows(len(points)))):
        _keep_nearest(costs_of_part, part.start, found, distance)
    return rows[found].T


@njit(nogil=True, cache=True)
def _keep_nearest(block, first, found, distance):  # type: ignore[no-untyped-def]
    rows, points = block.shape
    last = found.shape[1] - 1
    for i in range(rows):
        for p in range(points):
            value = block[i, p]
            if not value < distance[p, last]:
                continue
            place = last
            while place > 0 and distance[p, place - 1] > value:
                distance[p, place] = distance[p, place - 1]
                found[p, place] = found[p, place - 1]
                place -= 1
            distance[p, place] = value
            found[p, place] = first + i


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
