"""Shares the targets out among prototypes, rows or free points, by prices that balance them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.metrics import Curve, Root, Saturating
from uniproto.methods.picking import is_distance_matrix
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import njit
from uniproto.runtime.threads import parallel_for, parallel_map, pieces_of
from uniproto.transport.balance import TargetCosts, balance
from uniproto.transport.cells import cells_suit, filled, holders

_TARGETS_PER_PIECE = 16384
_FEWEST_AT_ONCE, _MOST_AT_ONCE = 8192, 65536  # targets that are summed
_THINNED = 200_000  # targets that single steps towards the best points look at
_CLOSEST = 0.03  # of the mean cost: targets nearer than that count as if they were that near
_FLATTEST = 1e-3  # the least slope of a cost that saturates, so that far targets count at all
_MOST_PARTS = 64  # that rows are searched in side by side
_LOOKED_AT = 64  # rows and columns of a matrix
_ACCURACY = 0.01  # of the shares; what that leaves of the cost is of second order


@dataclass(frozen=True)
class Assigned:
    """k prototypes and which of them each target goes to.

    `prototypes` are rows of the pool, or points of the feature space. `columns` are the costs of
    all targets to each, as the rows of an array, or of a tensor on the GPU; `prices` balance them,
    and `cells` says where each target is cheapest at these prices. `value` is the cost of the
    prototypes, or less than a millionth below it.
    """

    prototypes: NDArray[Any]
    columns: Any
    prices: NDArray[np.float64]
    cells: NDArray[np.int32]
    value: float


class Assigner:
    """A problem, its target weights, and its costs in units that single precision can hold."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.n, self.given = problem, problem.n, len(problem.initial)
        weights = problem.target_weights
        self.weights = np.full(self.n, 1 / self.n) if weights is None else weights
        self.unit = 2.0 ** math.frexp(problem.costs.ceiling or 1.0)[1]  # changes no digits

    def assign(
        self,
        prototypes: NDArray[Any],
        columns: Any = None,
        prices: NDArray[np.float64] | None = None,
    ) -> Assigned:
        """Balance these prototypes; `columns` and `prices` where they are known, if nearly."""
        if columns is None:
            columns = self.columns(prototypes)
        if self.fills_exactly(len(prototypes)):
            masses, start = self.problem.masses, prices
            start = np.zeros(len(prototypes)) if start is None else start
            exact, total = filled(columns.astype(np.float64), masses.offer, masses.need, start)
            return Assigned(prototypes, columns, exact.prices, holders(exact), total / masses.total)
        found = balance(self.target_costs(columns), prices, _ACCURACY)
        prices = np.zeros(len(prototypes)) if found is None else found.prices
        cells, paid = self.cheapest(columns, prices)
        return Assigned(prototypes, columns, prices, cells, paid + float(prices.mean()))

    def exchanged(self, now: Assigned, places: NDArray[np.intp], new: NDArray[Any]) -> Assigned:
        """The same prototypes but for some places."""
        prototypes = now.prototypes.copy()
        prototypes[places] = new
        return self.assign(prototypes, self.replaced(now.columns, places, new), now.prices)

    def own_costs(self, now: Assigned) -> Any:
        """What each target costs the prototype it goes to, in the units of the problem."""
        own = now.columns[np.arange(self.n), now.cells]
        return own.astype(np.float64) * self.unit

    # --- passes over all targets, or over all rows ---

    def fills_exactly(self, k: int) -> bool:
        """Whether an exact plan of k prototypes is as quick as balancing prices."""
        return cells_suit(k, self.n)

    def columns(self, prototypes: NDArray[Any]) -> Any:
        """What every target costs each of these rows or points, n × how many they are."""
        columns = np.empty((self.n, len(prototypes)), np.float32)
        self._fill(columns, slice(None), prototypes)
        return columns

    def replaced(self, columns: Any, places: NDArray[np.intp], new: NDArray[Any]) -> Any:
        """The same columns but for those of other rows or points at some places."""
        columns = columns.copy()
        self._fill(columns, places, new)
        return columns

    def _fill(self, columns: NDArray[np.float32], places: Any, prototypes: NDArray[Any]) -> None:
        costs: Any = self.problem.costs
        block = costs.block_of_points if are_points(prototypes) else costs.block

        def fill(part: slice) -> None:
            columns[part, places] = np.divide(block(prototypes, part), self.unit).T

        parallel_for(fill, pieces_of(self.n, block_rows(len(prototypes))))

    def target_costs(self, columns: Any) -> TargetCosts:
        return TargetCosts(columns, self.weights)

    def cheapest(
        self, columns: Any, prices: NDArray[np.float64]
    ) -> tuple[NDArray[np.int32], float]:
        """Where each target is cheapest at these prices, and what all cost less the prices."""
        cells, least = np.empty(self.n, np.int32), np.empty(self.n)

        def fill(part: slice) -> None:
            _cheapest(columns[part], prices, cells[part], least[part])

        parallel_for(fill, pieces_of(self.n, _TARGETS_PER_PIECE))
        return cells, float(self.weights @ least)

    def costs_to_own(self, points: NDArray[Any], cells: NDArray[np.int32]) -> Any:
        """What each target costs the point of its cell, in the units of the problem."""
        costs: Any = self.problem.costs
        own, targets = np.empty(self.n), members(cells, len(points))

        def fill(place: int) -> None:
            point = points[place : place + 1]
            for part in pieces_of(len(targets[place]), _TARGETS_PER_PIECE // 4):
                some = targets[place][part]
                own[some] = costs.block_of_points(point, some)[0]

        parallel_for(fill, range(len(points)))
        return own

    def thinned(self, cells: NDArray[np.int32]) -> tuple[Assigner, NDArray[np.int32]]:
        """Some of the targets, where all would take long, and their cells."""
        some = np.arange(0, self.n, max(1, self.n // _THINNED))
        weights = self.weights[some] / self.weights[some].sum()
        return Assigner(self.problem.among(self.problem.candidates[:1], some, weights)), cells[some]

    def sums(
        self, cells: NDArray[np.int32], own: Any, k: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sum of the targets of each cell, and how much they count in all, as a column.

        Each counts by its weight, and by how steeply its `own` cost rises with the distance.
        """
        costs: Any = self.problem.costs
        counts = self.weights * slopes(costs.curve, own)

        def part_of(part: slice) -> NDArray[np.float64]:
            rows = costs.target[part]
            membership = sp.csr_array(
                (counts[part].astype(rows.dtype), (cells[part], np.arange(rows.shape[0]))),
                shape=(k, rows.shape[0]),
            )
            product = membership @ rows
            return np.asarray(product.toarray() if sp.issparse(product) else product, np.float64)

        step = min(max(_FEWEST_AT_ONCE, self.n // 64), _MOST_AT_ONCE)
        sums = np.zeros((k, costs.target.shape[1]))
        for part in parallel_map(part_of, pieces_of(self.n, step)):
            sums += part
        return sums, np.bincount(cells, counts, minlength=k)[:, None].astype(np.float64)

    def totals(
        self, rows: list[NDArray[np.intp]], targets: list[NDArray[np.intp]]
    ) -> list[NDArray[np.float64]]:
        """What each of some rows costs the targets of a cell, for every cell."""

        def of(place: int) -> NDArray[np.float64]:
            total = np.zeros(len(rows[place]))
            for part in pieces_of(len(targets[place]), _TARGETS_PER_PIECE // 4):
                some = targets[place][part]
                total += self.problem.costs.block(rows[place], some) @ self.weights[some]
            return total

        return list(parallel_map(of, range(len(rows))))

    def nearest_rows(self, points: NDArray[Any], count: int) -> NDArray[np.intp]:
        """The `count` candidates nearest to each point, count × points, the nearest first."""
        costs: Any = self.problem.costs
        rows = self.problem.candidates
        count, everyone = min(count, len(rows)), len(rows) == self.problem.m
        blocks = pieces_of(len(rows), block_rows(len(points)))

        def search(part: slice) -> tuple[NDArray[np.int64], NDArray[Any]]:
            found = np.full((len(points), count), -1, np.int64)
            distance = np.full((len(points), count), np.inf, costs.dtype)
            for block in blocks[part]:
                near = costs.block_to_points(block if everyone else rows[block], points)
                _keep_nearest(near, block.start, found, distance)
            return found, distance

        parts = list(parallel_map(search, pieces_of(len(blocks), -(-len(blocks) // _MOST_PARTS))))
        found = np.concatenate([part for part, _ in parts], axis=1)
        distance = np.concatenate([part for _, part in parts], axis=1)
        order = np.argsort(distance, axis=1, kind="stable")[:, :count]  # of equal ones the first
        return rows[np.take_along_axis(found, order, axis=1)].T


def are_points(prototypes: NDArray[Any]) -> bool:
    """Whether these are points of the feature space rather than rows of the pool."""
    return prototypes.dtype.kind == "f"


def targets_are_rows(problem: Problem) -> bool:
    """Whether most targets are rows that may be chosen, so that a cell holds rows to try."""
    if 2 * len(problem.candidates) < problem.m:
        return False
    costs = problem.costs
    if isinstance(costs, FeatureCosts) or problem.m != problem.n:
        return problem.same_set
    some = np.linspace(0, problem.m - 1, min(problem.m, _LOOKED_AT)).astype(np.intp)
    return is_distance_matrix(costs.restrict(some, some))


def members(cells: NDArray[np.integer], k: int) -> list[NDArray[np.intp]]:
    """The targets of each of k cells.

    >>> members(np.array([1, 0, 1], np.int32), 2)
    [array([1]), array([0, 2])]
    """
    order = np.argsort(cells.astype(np.min_scalar_type(k)), kind="stable")  # short ones by radix
    return np.split(order, np.cumsum(np.bincount(cells, minlength=k))[:-1])


def slopes(curve: Curve, own: Any) -> Any:
    """How steeply each cost, of an array or a tensor, rises with its distance, up to a constant."""
    if isinstance(curve, Saturating):
        return (1 - own).clip(min=_FLATTEST)
    typical = float(own.mean())
    if isinstance(curve, Root) and typical > 0:
        return 1 / (own / typical).clip(min=_CLOSEST)
    return 1.0


@njit(nogil=True, cache=True)
def _cheapest(columns, prices, cells, least):  # type: ignore[no-untyped-def]
    n, k = columns.shape
    for j in range(n):
        best, place = np.inf, 0
        for p in range(k):
            reduced = columns[j, p] - prices[p]
            if reduced < best:
                best, place = reduced, p
        cells[j], least[j] = place, best


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
