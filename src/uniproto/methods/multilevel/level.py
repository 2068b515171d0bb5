"""A level of the search: some of the rows that may be chosen against some of the targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import njit
from uniproto.runtime.threads import parallel_for, pieces_of
from uniproto.transport.balance import balance
from uniproto.transport.cells import cells_suit, filled, holders

_TARGETS_PER_PIECE = 16384
_MOST_NUMBERS = 25_000_000  # of a sample's rows
_ACCURACY = 0.01  # of the shares; what that leaves of the cost is of second order


@dataclass(frozen=True)
class Assigned:
    """k prototypes and which of them each target goes to.

    `prototypes` are rows of the pool, or points of the feature space. `columns` are the costs of
    all targets (rows of the array) to each, `prices` balance them, and `cells` says where each
    target is cheapest at these prices. `value` is the cost of the prototypes, or less than a
    millionth below it.
    """

    prototypes: NDArray[Any]
    columns: NDArray[np.float32]
    prices: NDArray[np.float64]
    cells: NDArray[np.int32]
    value: float


class Level:
    """A problem, its target weights, and its costs in units that single precision can hold."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.n = problem, problem.n
        weights = problem.target_weights
        self.weights = np.full(self.n, 1 / self.n) if weights is None else weights
        self.unit = 2.0 ** math.frexp(problem.costs.ceiling or 1.0)[1]  # changes no digits

    def columns(self, prototypes: NDArray[Any]) -> NDArray[np.float32]:
        """What every target costs each of these rows or points, n × how many they are."""
        columns = np.empty((self.n, len(prototypes)), np.float32)
        self._fill(columns, slice(None), prototypes)
        return columns

    def _fill(self, columns: NDArray[np.float32], places: Any, prototypes: NDArray[Any]) -> None:
        def fill(part: slice) -> None:
            columns[part, places] = self.block(prototypes, part).T

        parallel_for(fill, pieces_of(self.n, block_rows(len(prototypes))))

    def block(self, prototypes: NDArray[Any], targets: Any) -> NDArray[Any]:
        """Costs of rows or points against some of the targets."""
        costs: Any = self.problem.costs
        block = costs.block_of_points if are_points(prototypes) else costs.block
        return np.divide(block(prototypes, targets), self.unit)

    def assign(
        self,
        prototypes: NDArray[Any],
        columns: NDArray[np.float32] | None = None,
        prices: NDArray[np.float64] | None = None,
    ) -> Assigned:
        """Balance these prototypes; `columns` and `prices` where they are known, if nearly."""
        if columns is None:
            columns = self.columns(prototypes)
        if cells_suit(len(prototypes), self.n):
            masses, start = self.problem.masses, prices
            start = np.zeros(len(prototypes)) if start is None else start
            exact, total = filled(columns.astype(np.float64), masses.offer, masses.need, start)
            return Assigned(prototypes, columns, exact.prices, holders(exact), total / masses.total)
        found = balance(columns, self.weights, prices, _ACCURACY)
        prices = np.zeros(len(prototypes)) if found is None else found.prices
        cells, least = np.empty(self.n, np.int32), np.empty(self.n)

        def fill(part: slice) -> None:
            _cheapest(columns[part], prices, cells[part], least[part])

        parallel_for(fill, pieces_of(self.n, _TARGETS_PER_PIECE))
        value = float(self.weights @ least) + float(prices.mean())
        return Assigned(prototypes, columns, prices, cells, value)

    def exchanged(self, now: Assigned, places: NDArray[np.intp], new: NDArray[Any]) -> Assigned:
        """The same prototypes but for some places."""
        columns, prototypes = now.columns.copy(), now.prototypes.copy()
        self._fill(columns, places, new)
        prototypes[places] = new
        return self.assign(prototypes, columns, now.prices)

    def own_costs(self, now: Assigned) -> NDArray[np.float64]:
        """What each target costs the prototype it goes to, in the units of the problem."""
        own = now.columns[np.arange(self.n), now.cells]
        return own.astype(np.float64) * self.unit


def are_points(prototypes: NDArray[Any]) -> bool:
    """Whether these are points of the feature space rather than rows of the pool."""
    return prototypes.dtype.kind == "f"


def members(cells: NDArray[np.int32], k: int) -> list[NDArray[np.intp]]:
    """The targets of each of k cells.

    >>> members(np.array([1, 0, 1], np.int32), 2)
    [array([1]), array([0, 2])]
    """
    order = np.argsort(cells.astype(np.min_scalar_type(k)), kind="stable")  # short ones by radix
    return np.split(order, np.cumsum(np.bincount(cells, minlength=k))[:-1])


def sampled(
    problem: Problem, size: int, random: np.random.Generator, keep: NDArray[np.intp] | None = None
) -> tuple[Problem, NDArray[np.intp]]:
    """The problem among so many random rows and targets, in memory; and which rows they are.

    Where targets are fewer, rows are more, as it is their pairs that take time; but not so many
    that they take much memory. Where source and target are one set, so are the samples. Given rows
    are always in it, and so are those to `keep`. Targets are drawn as often as their weight says.
    """
    always = problem.initial if keep is None else np.union1d(problem.initial, keep)
    candidates = problem.candidates
    if size * size >= problem.m * problem.n:
        return problem, np.arange(problem.m)
    few = min(size, problem.n)
    targets, share = np.arange(problem.n), problem.target_weights
    if few < problem.n:
        targets, share = problem.drawn_targets(few, random)
    if problem.same_set and share is None:
        rows = targets = np.union1d(targets, always)
    else:
        width = problem.costs.source.shape[1] if isinstance(problem.costs, FeatureCosts) else few
        most = max(size, min(size * size // few, _MOST_NUMBERS // width))
        some = random.permutation(len(candidates))[:most]
        rows = np.union1d(candidates[some], always)
    part = problem.among(rows, targets, share)
    if isinstance(part.costs, FeatureCosts) and part.costs.on_disk:
        part = part.changed(costs=part.costs.read(np.arange(part.m), np.arange(part.n)))
    return part, rows


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
