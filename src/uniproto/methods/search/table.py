"""A small problem as a table of costs: exact plans of any set of rows, and bounds by prices.

Rows are known by their positions here: given prototypes first, then the candidates. Everything is
NumPy and POT's solver, so that nothing is compiled for a small problem. Where costs of very
different magnitude lead that solver astray, which its own prices show, `partial_plan` solves again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.search.exact_plan import LEAST_GAIN
from uniproto.problem.problem import Problem
from uniproto.runtime.budget import Budget
from uniproto.transport.exact import import_ot, partial_plan

_TRUSTED = 3e-10  # of the cost: a plan whose prices leave a wider gap is solved anew
_EPS = float(np.finfo(np.float64).eps)
_ITERATIONS = 10_000_000
_MASS_BITS = 20  # the solver finds no plan for masses beyond some 10^8
# Work as measured, in quarters of a microsecond: a solve takes about √k · n^1.5.
_UNITS = 100.0  # of work of a budget in each
_WORK_OF_SOLVE, _WORK_OF_TARGETS = 300, 0.17
_WORK_AGAIN, _WORK_OF_VALUES = 8_000, 250
_WORK_OF_COST, _WORK_OF_SORTED_COST = 1 / 12, 1 / 3

Positions = NDArray[np.intp]
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
class SolvedSet:
    """A set of rows, by their positions, and its exact plan."""

    members: Positions
    solved: Solved

    @property
    def cost(self) -> float:
        return self.solved.cost

    def is_better(self, other: SolvedSet | None) -> bool:
        return other is None or self.cost < other.cost * (1 - LEAST_GAIN)


class Table:
    """Costs of the rows that may be chosen against the targets that have weight."""

    def __init__(self, problem: Problem, budget: Budget | None = None) -> None:
        self.problem, self.k, self.given = problem, problem.k, len(problem.initial)
        self.budget = budget or Budget()
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
        self._lowest = 0.0  # cost of k rows so far, which is what gaps are held against

    def positions_of(self, rows: Positions) -> Positions:
        """The positions of rows."""
        order = np.argsort(self.rows)
        return np.asarray(order[np.searchsorted(self.rows[order], rows)])

    def solve(self, members: Positions) -> Solved:
        """The exact plan of k rows."""
        solved = self._solved(self.costs[members])
        self._lowest = min(self._lowest or solved.cost, solved.cost)
        return solved

    def _solved(self, costs: Numbers) -> Solved:
        self._spend(self._work_of_solve)
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
            self._spend(_WORK_AGAIN + self._work_of_solve)
            plan = partial_plan(costs, self.offer, self.need)
            masses, prices = plan.masses.toarray() / total, self._centred(-plan.prices)
            cost, gap = plan.cost / total, plan.gap / total
        # The gap is that of whole masses; a target that has more pays its price for the rest.
        gap -= float(prices @ (self.weights - self.offer / total))
        gap += self.rounding * (cost + 2 * float(self.weights @ np.abs(prices)))
        return Solved(cost, masses, prices, cost - gap)

    def _spend(self, work: float) -> None:
        self.budget.spend(_UNITS * work)

    def _centred(self, prices: Numbers) -> Numbers:
        """Prices less the median of what is paid: only their differences matter."""
        order = np.argsort(prices)
        middle = int(np.searchsorted(np.cumsum(self.weights[order]), 0.5))
        return np.asarray(prices - prices[order[min(middle, len(order) - 1)]])

    def values(self, prices: Numbers, members: Positions | slice = slice(None)) -> Numbers:
        """What each row pays for its cheapest unit of mass, where target j pays `prices[j]`.

        A set of k rows costs at least Σ ν_j v_j + the mean of its values, whatever the prices v;
        so that this is so, both are rounded down.
        """
        net = self.costs[members] - prices
        self._spend(_WORK_OF_VALUES + self._work_of_cost * net.size)
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

    def fills(self, members: Positions, prices: Numbers) -> Numbers:
        """How much of each target the rows would take at these prices, one unit each."""
        order = np.argsort(self.costs[members] - prices, axis=1, kind="stable")
        taken = np.empty(order.shape)
        np.put_along_axis(taken, order, _up_to_one(self.capacity[order]), axis=1)
        return taken

    def paid(self, prices: Numbers) -> float:
        """Σ ν_j v_j, what all targets pay together, rounded down."""
        return float(self.weights @ prices - self.rounding * (self.weights @ np.abs(prices)))


def _gap(costs: Numbers, masses: Numbers, prices: Numbers) -> float:
    """How much less another plan can cost at most, by these prices (see `transport/proof.py`)."""
    reduced = costs - prices
    return float((masses * (reduced - reduced.min(axis=1, keepdims=True))).sum())


def _up_to_one(offered: Numbers) -> Numbers:
    """How much of each offer is taken, from the first on, until there is one unit."""
    before = np.cumsum(offered, axis=1) - offered
    return np.clip(1.0 - before, 0.0, offered)
