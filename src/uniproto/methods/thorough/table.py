"""A small problem as a table of costs: exact plans of any set of rows, and bounds by prices.

Rows are known by their positions here: given prototypes first, then the candidates. Everything is
NumPy and POT's solver, so that nothing is compiled for a small problem. Where costs of very
different magnitude lead that solver astray, which its own prices show, `partial_plan` solves anew.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.thorough.line import can_solve_on_line
from uniproto.problem.problem import Problem
from uniproto.transport.exact import import_ot, partial_plan

LEAST_GAIN = 1e-9  # of the cost: what is better by less is the same
FEW_PAIRS = 1_000_000  # of rows and targets, up to which memory is no matter
_BYTES_OF_TABLE = 64  # for each of them: with so few, as little as to load the libraries
_TRUSTED = 3e-10  # of the cost: a plan whose prices leave a wider gap is solved anew
_EPS = float(np.finfo(np.float64).eps)
_ITERATIONS = 10_000_000
_MASS_BITS = 20  # the solver finds no plan for masses beyond some 10^8
# Work is counted in quarters of a microsecond, as measured: a solve takes about √k · n^1.5.
_WORK_OF_SOLVE, _WORK_OF_TARGETS = 300, 0.17
_WORK_ANEW, _WORK_OF_VALUES = 8_000, 250
_WORK_OF_COST, _WORK_OF_SORTED_COST = 1 / 12, 1 / 3

Places = NDArray[np.intp]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Solved:
    """The exact plan of a set of rows: its cost, the masses, and prices of the targets.

    `prices` may be of either sign: what a target pays for being served. They prove that no plan of
    these rows costs less than `least`, whatever was rounded.
    """

    cost: float
    masses: Numbers
    prices: Numbers
    least: float


@dataclass(frozen=True)
class Found:
    """A set of rows and its exact plan."""

    places: Places
    solved: Solved

    @property
    def cost(self) -> float:
        return self.solved.cost

    def is_better(self, other: Found | None) -> bool:
        return other is None or self.cost < other.cost * (1 - LEAST_GAIN)


class Table:
    """Costs of the rows that may be chosen against the targets that have weight."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.k, self.given = problem, problem.k, len(problem.initial)
        self.rows = np.concatenate([problem.initial, problem.candidates])
        present = np.flatnonzero(problem.masses.offer)
        costs = problem.costs.exact_block(self.rows)
        self.costs = np.ascontiguousarray(costs[:, present])
        # A power of two, which takes no digit, so that sums of huge costs are finite.
        self.unit = math.ldexp(1.0, math.frexp(float(self.costs.max()))[1])
        if self.unit > 0:
            self.costs /= self.unit
        offer, need = problem.masses.offer[present], problem.masses.need
        self.offer, self.need = offer, need
        self.rounding = (4 * len(offer) + 2 * self.k + 64) * _EPS  # of all that is summed here
        # Bounds are those of the weights themselves, which whole masses differ from by a hair.
        given = problem.target_weights
        self.weights = offer / (self.k * need) if given is None else given[present]
        # Of a target, in what one prototype takes; never less than that, so that no bound is high.
        self.capacity = self.k * self.weights * (1 + self.rounding)
        scale = max(0, int(offer.sum()).bit_length() - _MASS_BITS)
        self._offer, self._need = np.ldexp(offer, -scale), math.ldexp(need, -scale)
        self._emd = import_ot().emd
        self._whole = None if np.ptp(offer) else len(offer) / self.k
        self._work_of_cost = _WORK_OF_COST if self._whole is not None else _WORK_OF_SORTED_COST
        self._work_of_solve = _WORK_OF_SOLVE + int(
            _WORK_OF_TARGETS * math.sqrt(self.k) * len(offer) ** 1.5
        )
        self.work = 0
        self._lowest = 0.0  # cost of k rows so far, which is what gaps are held against

    def places_of(self, rows: Places) -> Places:
        """The positions of rows."""
        order = np.argsort(self.rows)
        return np.asarray(order[np.searchsorted(self.rows[order], rows)])

    def solve(self, places: Places) -> Solved:
        """The exact plan of k rows."""
        solved = self._solved(self.costs[places])
        self._lowest = min(self._lowest or solved.cost, solved.cost)
        return solved

    def solve_without(self, places: Places) -> Solved:
        """The exact plan of k − 1 rows, whose missing one would take any target for nothing."""
        free = np.zeros((1, self.costs.shape[1]))
        return self._solved(np.concatenate([self.costs[places], free]))

    def _solved(self, costs: Numbers) -> Solved:
        self.work += self._work_of_solve
        # The solver's tolerance refers to the largest cost and to 1.
        scale = math.frexp(float(costs.max()))[1]
        masses, log = self._emd(
            np.full(self.k, self._need),
            self._offer,
            np.ldexp(costs, -scale),
            numItermax=_ITERATIONS,
            log=True,
            center_dual=False,
            check_marginals=False,
        )
        total = self.k * self.need
        masses, prices = masses / (self._need * self.k), self._centred(np.ldexp(log["v"], scale))
        cost, gap = float((masses * costs).sum()), _gap(costs, masses, prices)
        if log["result_code"] != 1 or not gap <= _TRUSTED * max(cost, self._lowest):
            self.work += _WORK_ANEW + self._work_of_solve
            plan = partial_plan(costs, self.offer, self.need)
            masses, prices = plan.masses.toarray() / total, self._centred(-plan.prices)
            cost, gap = plan.cost / total, plan.gap / total
        # The gap is that of whole masses; a target that has more pays its price for the rest.
        gap -= float(prices @ (self.weights - self.offer / total))
        gap += self.rounding * (cost + 2 * float(self.weights @ np.abs(prices)))
        return Solved(cost, masses, prices, cost - gap)

    def _centred(self, prices: Numbers) -> Numbers:
        """Prices less the median of what is paid: only their differences matter."""
        order = np.argsort(prices)
        middle = int(np.searchsorted(np.cumsum(self.weights[order]), 0.5))
        return np.asarray(prices - prices[order[min(middle, len(order) - 1)]])

    def values(self, prices: Numbers, places: Places | slice = slice(None)) -> Numbers:
        """What each row pays for its cheapest unit of mass, where target j pays `prices[j]`.

        A set of k rows costs at least Σ ν_j v_j + the mean of its values, whatever the prices v;
        so that this is so, both are rounded down.
        """
        net = self.costs[places] - prices
        self.work += _WORK_OF_VALUES + int(self._work_of_cost * net.size)
        if self._whole is None:
            order = np.argsort(net, axis=1)
            taken = _up_to_one(self.capacity[order])
            values = (np.take_along_axis(net, order, axis=1) * taken).sum(axis=1)
        elif (full := int(self._whole)) == net.shape[1]:
            values = net.mean(axis=1)
        else:
            net.partition(full, axis=1)
            cheapest = net[:, :full].sum(axis=1) + net[:, full] * (self._whole - full)
            values = cheapest / self._whole
        # What is summed is C − v: with its sign left out, at most this.
        summed = np.abs(values) + 2 * max(float(prices.max()), 0.0)
        return np.asarray(values - self.rounding * summed)

    def fills(self, places: Places, prices: Numbers) -> Numbers:
        """How much of each target the rows would take at these prices, one unit each."""
        order = np.argsort(self.costs[places] - prices, axis=1, kind="stable")
        taken = np.empty(order.shape)
        np.put_along_axis(taken, order, _up_to_one(self.capacity[order]), axis=1)
        return taken

    def paid(self, prices: Numbers) -> float:
        """Σ ν_j v_j, what all targets pay together, rounded down."""
        return float(self.weights @ prices - self.rounding * (self.weights @ np.abs(prices)))


def memory_of_table(problem: Problem) -> int:
    """The memory that the thorough search takes of what is allowed, in bytes.

    None for small problems, whose answer must not hang on it, and for rows on a line.
    """
    if problem.m * problem.n <= FEW_PAIRS or can_solve_on_line(problem):
        return 0
    return _BYTES_OF_TABLE * problem.m * problem.n


def _gap(costs: Numbers, masses: Numbers, prices: Numbers) -> float:
    """How much less another plan can cost at most, by these prices (see `transport/proof.py`)."""
    reduced = costs - prices
    return float((masses * (reduced - reduced.min(axis=1, keepdims=True))).sum())


def _up_to_one(offered: Numbers) -> Numbers:
    """How much of each offer is taken, from the first on, until there is one unit."""
    before = np.cumsum(offered, axis=1) - offered
    return np.clip(1.0 - before, 0.0, offered)


class Conditions:
    """Which sets of rows are allowed, by the positions of a table.

    No row twice, no near-duplicates, limits of sources kept.
    """

    def __init__(self, table: Table) -> None:
        problem, rows = table.problem, table.rows
        self.table, self.limits = table, problem.limits
        self.twins: NDArray[np.bool_] | None = None
        if problem.twin_distance is not None:
            near = [problem.costs.twins(int(row), problem.twin_distance, rows) for row in rows]
            self.twins = np.array(near) | np.array(near).T

    @property
    def any(self) -> bool:
        return self.twins is not None or self.limits is not None

    def may_replace(self, places: Places, place: int) -> NDArray[np.bool_]:
        """Which rows may stand where `places[place]` stands now, itself among them."""
        others = np.delete(places, place)
        allowed = np.ones(len(self.table.rows), np.bool_)
        allowed[: self.table.given] = False
        allowed[others] = False
        if self.twins is not None:
            allowed &= ~self.twins[others].any(axis=0)
        if self.limits is not None:
            allowed &= self.limits.may_replace(self.table.rows[places], place)[self.table.rows]
        return allowed

    def allowed(self, sets: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of these sets of rows, one to a line, are allowed."""
        fine = np.ones(len(sets), np.bool_)
        k, given = sets.shape[1], self.table.given
        if self.twins is not None:
            for first in range(k):
                for second in range(max(first + 1, given), k):
                    fine &= ~self.twins[sets[:, first], sets[:, second]]
        if self.limits is not None:
            sources = self.limits.source_of_row[self.table.rows][sets]
            for source, (low, high) in enumerate(
                zip(self.limits.least, self.limits.most, strict=True)
            ):
                count = (sources == source).sum(axis=1)
                fine &= (count >= low) & (count <= high)
        return fine


@dataclass(frozen=True)
class Limit:
    """How long a search goes on: by counted work, or by the clock where seconds are given.

    Reached once a table has done so much work, or at a moment of `time.perf_counter`.
    """

    table: Table
    work: float = math.inf
    deadline: float = math.inf

    @property
    def is_reached(self) -> bool:
        return self.table.work >= self.work or time.perf_counter() >= self.deadline

    def part(self, share: float) -> Limit:
        """The limit of a share of what is left."""
        done, now = self.table.work, time.perf_counter()
        return Limit(
            self.table, done + share * (self.work - done), now + share * (self.deadline - now)
        )
