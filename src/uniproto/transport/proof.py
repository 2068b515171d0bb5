"""Dual proof of a transport plan: how far it can be from optimal, from its own arcs.

For any prices v, with u_i = min_j (C_ij + v_j), a plan that moves all mass costs

    ⟨C, γ⟩ − (Σ_i need_i u_i − Σ_j offer_j v_j)  =  Σ_ij γ_ij (C_ij + v_j − u_i)  ≥  0

more than the least any plan can cost. Every term on the right is at least 0, so the sum has no
cancellation: it is small only where the plan is as good as optimal.

The prices come from the plan: its arcs are made tight, and rows pull each other down until no arc
is below 0 (Bellman and Ford, on the rows). They are sums and differences of costs in use, so a
cost that no plan would pay, however large, takes no digit away.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.runtime.threads import parallel_map, pieces_of

TOLERANCE = 1e-12  # a gap below this share of the cost proves a plan optimal
EXACT = 1e-9  # and one below this, whatever was rounded, that its cost is exact
_MOST_PASSES = 1000
_NEGLIGIBLE = 0.05  # of what the gap may be
_COSTS_AT_ONCE = 1_000_000
_EPS = float(np.finfo(np.float64).eps)

ArcCosts: TypeAlias = NDArray[np.float64] | sp.csr_array  # every arc, or only those that are stored


@dataclass(frozen=True)
class Proof:
    """What a plan costs, dual variables with u_i ≤ C_ij + v_j, and the gap that they leave.

    `rounding` is how much wider it may be: prices far larger than the cost hide differences.
    """

    cost: float
    potentials: NDArray[np.float64]
    prices: NDArray[np.float64]
    gap: float
    rounding: float

    @property
    def holds(self) -> bool:
        return self.gap <= TOLERANCE * self.cost and self.rounding <= EXACT * self.cost


def prove(
    costs: ArcCosts, plan: sp.csr_array, potentials: NDArray[np.float64] | None = None
) -> Proof:
    """The gap of a plan in whole masses, which claims everything of every target.

    `potentials` that are nearly optimal save work.

    >>> costs = np.array([[0.0, 1.0], [1.0, 5.0]])
    >>> prove(costs, sp.csr_array(np.eye(2, dtype=int))).gap
    3.0
    >>> prove(costs, sp.csr_array(np.eye(2, dtype=int)[::-1])).gap
    0.0
    """
    by_target = sp.csc_array(plan)
    holders, masses, begins = by_target.indices, by_target.data, by_target.indptr[:-1]
    targets = np.repeat(np.arange(plan.shape[1]), np.diff(by_target.indptr))
    used = arc_costs(costs, holders, targets)
    cost = math.fsum(used * masses)
    negligible, of_row = 8 * _EPS * cost / float(masses.sum()), plan.sum(axis=1)
    potentials = np.zeros(plan.shape[0]) if potentials is None else potentials - potentials.max()
    for _ in range(min(plan.shape[0] + 1, _MOST_PASSES)):
        prices = np.minimum.reduceat(potentials[holders] - used, begins)
        lowered = np.minimum(potentials, _cheapest(costs, prices))
        fall = potentials - lowered
        potentials = lowered
        if (fall <= np.maximum(negligible, 4 * _EPS * np.abs(potentials))).all():
            break
        if fall @ of_row <= _NEGLIGIBLE * TOLERANCE * cost:  # rounding alone can go on for long
            break
    prices = np.minimum.reduceat(potentials[holders] - used, begins)
    potentials = _cheapest(costs, prices)
    untight = np.maximum(used + prices[targets] - potentials[holders], 0.0)
    summed = used + np.abs(prices[targets]) + np.abs(potentials[holders])
    rounding = 4 * _EPS * float(summed @ masses)
    return Proof(cost, potentials, prices, math.fsum(untight * masses), rounding)


def reduced_costs(costs: ArcCosts, proof: Proof) -> ArcCosts:
    """C_ij + v_j − u_i of every arc, none above what decides: the same plans are optimal for them.

    An optimal plan has reduced costs that sum to at most the gap of the plan in hand. It moves a
    whole unit over each of its arcs, so an arc of more than the gap is in none.
    """
    u, v = proof.potentials, proof.prices
    if isinstance(costs, np.ndarray):
        return np.clip(costs + v - u[:, None], 0.0, 2 * proof.gap)
    rows = np.repeat(np.arange(costs.shape[0]), np.diff(costs.indptr))
    values = np.clip(costs.data + v[costs.indices] - u[rows], 0.0, 2 * proof.gap)
    return sp.csr_array((values, costs.indices, costs.indptr), shape=costs.shape)


def arc_costs(costs: ArcCosts, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[np.float64]:
    """The costs of single arcs."""
    return np.asarray(costs[rows, columns], dtype=np.float64).ravel()


def _cheapest(costs: ArcCosts, prices: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each row pays for its cheapest target."""
    if isinstance(costs, np.ndarray):
        pieces = pieces_of(costs.shape[1], max(1, _COSTS_AT_ONCE // costs.shape[0]))
        lowest = parallel_map(lambda part: (costs[:, part] + prices[part]).min(axis=1), pieces)
        return np.min(list(lowest), axis=0)
    priced = costs.data + prices[costs.indices]
    return np.asarray(np.minimum.reduceat(priced, costs.indptr[:-1]))
