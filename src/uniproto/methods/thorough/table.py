"""A small problem as a table of costs: exact plans of any set of rows, and bounds by prices.

Rows are known by their positions here: given prototypes first, then the candidates. Everything is
NumPy and POT's solver, so that nothing is compiled for a small problem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from uniproto.problem.problem import Problem
from uniproto.transport.exact import import_ot

_ITERATIONS = 10_000_000
_MASS_BITS = 20  # the solver finds no plan for masses beyond some 10^8
# Work is counted in quarters of a microsecond, as measured: a solve takes about √k · n^1.5.
_WORK_OF_SOLVE, _WORK_OF_TARGETS = 300, 0.17
_WORK_OF_VALUES = 250
_WORK_OF_COST, _WORK_OF_SORTED_COST = 1 / 12, 1 / 3

Places = NDArray[np.intp]
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Solved:
    """The exact plan of a set of rows: its cost, the masses, and prices of the targets.

    `prices` may be of either sign: what a target pays for being served.
    """

    cost: float
    masses: Numbers
    prices: Numbers


class Table:
    """Costs of the rows that may be chosen against the targets that have weight."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.k, self.given = problem, problem.k, len(problem.initial)
        self.rows = np.concatenate([problem.initial, problem.candidates])
        present = np.flatnonzero(problem.masses.offer)
        costs = problem.costs.exact_block(self.rows)
        self.costs = np.ascontiguousarray(costs[:, present])
        # The solver's tolerance refers to the largest cost and to 1: a power of two takes no digit.
        self.unit = math.ldexp(1.0, math.frexp(float(self.costs.max()))[1])
        if self.unit > 0:
            self.costs /= self.unit
        offer, need = problem.masses.offer[present], problem.masses.need
        self.offer = offer
        self.weights = offer / (self.k * need)
        self.capacity = offer / need  # of a target, in what one prototype takes
        scale = max(0, int(offer.sum()).bit_length() - _MASS_BITS)
        self._offer, self._need = np.ldexp(offer, -scale), math.ldexp(need, -scale)
        self._emd = import_ot().emd
        self._whole = None if np.ptp(offer) else len(offer) / self.k
        self._work_of_cost = _WORK_OF_COST if self._whole is not None else _WORK_OF_SORTED_COST
        self._work_of_solve = _WORK_OF_SOLVE + int(
            _WORK_OF_TARGETS * math.sqrt(self.k) * len(offer) ** 1.5
        )
        self.work = 0

    def solve(self, places: Places) -> Solved:
        """The exact plan of k rows."""
        return self._solved(self.costs[places], np.full(len(places), self._need))

    def solve_without(self, places: Places) -> Solved:
        """The exact plan of k − 1 rows, whose missing one would take any target for nothing."""
        free = np.zeros((1, self.costs.shape[1]))
        return self._solved(np.concatenate([self.costs[places], free]), np.full(self.k, self._need))

    def _solved(self, costs: Numbers, supply: Numbers) -> Solved:
        self.work += self._work_of_solve
        masses, log = self._emd(
            supply,
            self._offer,
            costs,
            numItermax=_ITERATIONS,
            log=True,
            center_dual=False,
            check_marginals=False,
        )
        masses = masses / (self._need * self.k)
        return Solved(float((masses * costs).sum()), masses, log["v"])

    def values(self, prices: Numbers, places: Places | slice = slice(None)) -> Numbers:
        """What each row pays for its cheapest unit of mass, where target j pays `prices[j]`.

        A set of k rows costs at least Σ ν_j v_j + the mean of its values, whatever the prices v.
        """
        net = self.costs[places] - prices
        self.work += _WORK_OF_VALUES + int(self._work_of_cost * net.size)
        if self._whole is None:
            order = np.argsort(net, axis=1)
            taken = _up_to_one(self.capacity[order])
            return np.asarray((np.take_along_axis(net, order, axis=1) * taken).sum(axis=1))
        full = int(self._whole)
        if full == net.shape[1]:
            return np.asarray(net.mean(axis=1))
        net.partition(full, axis=1)
        cheapest = net[:, :full].sum(axis=1) + net[:, full] * (self._whole - full)
        return np.asarray(cheapest / self._whole)

    def fills(self, places: Places, prices: Numbers) -> Numbers:
        """How much of each target the rows would take at these prices, one unit each."""
        order = np.argsort(self.costs[places] - prices, axis=1, kind="stable")
        taken = np.empty(order.shape)
        np.put_along_axis(taken, order, _up_to_one(self.capacity[order]), axis=1)
        return taken

    def paid(self, prices: Numbers) -> float:
        """Σ ν_j v_j, what all targets pay together."""
        return float(self.weights @ prices)


def _up_to_one(offered: Numbers) -> Numbers:
    """How much of each offer is taken, from the first on, until there is one unit."""
    before = np.cumsum(offered, axis=1) - offered
    return np.clip(1.0 - before, 0.0, offered)
