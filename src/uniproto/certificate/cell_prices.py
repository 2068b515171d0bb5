"""Prices to start from, read off the plan of the prototypes in hand.

A prototype collects its unit of mass from its cell, and pays the cell's mean cost. Were every
target worth that much (a price of so much less), each prototype would break even, and so, about,
would any other row in the middle of some cell. A target far outside pays for its own distance:
otherwise a row beside it would look like a bargain.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.problem.problem import Problem
from uniproto.runtime.threads import parallel_map

_RADIUS = 0.8  # of a cell's mass lies within its radius


def cell_prices(
    problem: Problem, rows: NDArray[np.intp], plan: sp.csr_array
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Prices of the targets, and the mean cost of each one's cell.

    A target that several prototypes share has the mean of each.
    """

    def worths(place: int) -> tuple[NDArray[np.float64], float]:
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        costs = problem.costs.exact_block(rows[place : place + 1], plan.indices[part])[0]
        masses = plan.data[part]
        mean = float(costs @ masses / masses.sum())
        return mean + np.maximum(costs - _quantile(costs, masses, _RADIUS), 0.0), mean

    found = list(parallel_map(worths, range(len(rows))))
    held = np.bincount(plan.indices, plan.data, problem.n)
    held[held == 0] = 1.0  # nothing is offered there, and no price matters
    means = np.repeat([mean for _, mean in found], np.diff(plan.indptr))

    def averaged(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(plan.indices, plan.data * values, problem.n) / held

    worth = averaged(np.concatenate([worth for worth, _ in found]))
    return worth.max() - worth, averaged(means)


def _quantile(values: NDArray[np.float64], masses: NDArray[np.float64], share: float) -> float:
    order = np.argsort(values)
    within = np.searchsorted(np.cumsum(masses[order]), share * masses.sum())
    return float(values[order[min(int(within), len(values) - 1)]])
