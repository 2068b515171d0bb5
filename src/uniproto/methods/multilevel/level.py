"""A level of the search: some of the rows that may be chosen against some of the targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem
from uniproto.runtime.threads import parallel_for, pieces_of
from uniproto.transport.balance import balance

_TARGETS_PER_PIECE = 16384


@dataclass(frozen=True)
class Assigned:
    """Prototypes and which of them each target goes to.

    `columns` are the costs of all targets (rows of the array) to each prototype, `prices` balance
    them, `cells` says where each target is cheapest at these prices. `value` is the dual value of
    the prices: the cost of the prototypes, or below it by less than a millionth.
    """

    rows: NDArray[np.intp]
    columns: NDArray[np.float32]
    prices: NDArray[np.float64]
    cells: NDArray[np.int32]
    value: float


class Level:
    """A problem, its target weights, and its costs in units that single precision can hold."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        weights = problem.target_weights
        self.weights = np.full(problem.n, 1 / problem.n) if weights is None else weights
        # A power of two changes no digits.
        self.unit = 2.0 ** math.frexp(problem.costs.ceiling or 1.0)[1]
        self.given = len(problem.initial)

    @property
    def n(self) -> int:
        return self.problem.n

    def columns(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """What every target costs each of these rows, n × len(rows)."""
        return self._columns(len(rows), lambda part: self.problem.costs.block(rows, part))

    def columns_of_points(self, points: NDArray[Any]) -> NDArray[np.float32]:
        """What every target costs each of these points of the feature space."""
        costs: Any = self.problem.costs
        return self._columns(len(points), lambda part: costs.block_of_points(points, part))

    def _columns(self, count: int, block: Any) -> NDArray[np.float32]:
        columns = np.empty((self.n, count), np.float32)

        def fill(part: slice) -> None:
            columns[part] = (block(part) / self.unit).T

        parallel_for(fill, pieces_of(self.n, min(_TARGETS_PER_PIECE, block_rows(count))))
        return columns

    def assign(
        self,
        rows: NDArray[np.intp],
        columns: NDArray[np.float32],
        prices: NDArray[np.float64] | None = None,
    ) -> Assigned:
        """Balance these prototypes; `prices` are those of similar ones."""
        found = balance(columns, self.weights, prices)
        prices = np.zeros(columns.shape[1]) if found is None else found.prices
        cells, least = np.empty(self.n, np.int32), np.empty(self.n)

        def fill(part: slice) -> None:
            _cheapest(columns[part], prices, cells[part], least[part])

        parallel_for(fill, pieces_of(self.n, _TARGETS_PER_PIECE))
        value = float(self.weights @ least) + float(prices.mean())
        return Assigned(rows, columns, prices, cells, value)

    def exchanged(
        self, now: Assigned, places: NDArray[np.intp], rows: NDArray[np.intp]
    ) -> Assigned:
        """The same prototypes with other rows at some places."""
        columns, all_rows = now.columns.copy(), now.rows.copy()
        columns[:, places] = self.columns(rows)
        all_rows[places] = rows
        return self.assign(all_rows, columns, now.prices)

    def own_costs(self, now: Assigned) -> NDArray[np.float32]:
        """What each target costs the prototype it goes to."""
        return now.columns[np.arange(self.n), now.cells]


def members(cells: NDArray[np.int32], k: int) -> list[NDArray[np.intp]]:
    """The targets of each of k cells."""
    order = np.argsort(cells, kind="stable")
    return np.split(order, np.searchsorted(cells[order], np.arange(1, k)))


def sampled(
    problem: Problem,
    rows: int,
    targets: int,
    random: np.random.Generator,
    keep: NDArray[np.intp] | None = None,
) -> tuple[Problem, NDArray[np.intp]]:
    """The problem among so many random rows and targets, in memory; and which rows they are.

    Where source and target are one set, so are the samples. Given rows are always in it, and so
    are those to `keep`. Targets are drawn as often as their weight says.
    """
    always = problem.initial if keep is None else np.union1d(problem.initial, keep)
    weights = problem.target_weights
    if targets >= problem.n:
        columns, share = np.arange(problem.n), weights
    elif weights is None:
        columns, share = np.sort(random.permutation(problem.n)[:targets]), None
    else:
        drawn = random.choice(problem.n, targets, p=weights / weights.sum())
        columns, counts = np.unique(drawn, return_counts=True)
        share = counts / counts.sum()
    if problem.same_set and weights is None:
        columns = np.union1d(columns, always)
        return _in_memory(problem.among(columns, columns, share)), columns
    some = problem.candidates
    if rows < len(some):
        some = some[np.sort(random.permutation(len(some))[:rows])]
    chosen = np.union1d(some, always).astype(np.intp)
    return _in_memory(problem.among(chosen, columns, share)), chosen


def _in_memory(problem: Problem) -> Problem:
    """The problem with its features read from disk, where they lie there."""
    costs = problem.costs
    if not (isinstance(costs, FeatureCosts) and costs.on_disk):
        return problem
    return problem.changed(costs=costs.read(np.arange(problem.m), np.arange(problem.n)))


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
