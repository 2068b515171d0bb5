"""Exact partial optimal transport by network simplex, with dual prices, checked every time."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import SolverError

_ITERATIONS = 100_000_000


@dataclass(frozen=True)
class Plan:
    """An optimal plan in whole masses, its total cost, and the price of each target.

    `prices` are optimal dual variables v ≥ 0 of the target capacities: a target with mass left
    over has price 0. `potentials` are those of the rows: u_i ≤ C_ij + v_j, with equality wherever
    mass flows.
    """

    masses: sp.csr_array
    cost: float
    prices: NDArray[np.float64]
    potentials: NDArray[np.float64]


def partial_plan(costs: NDArray[Any], offer: NDArray[np.int64], need: int) -> Plan:
    """Cheapest way for every row to take `need` units where target j offers `offer[j]`.

    min ⟨C, γ⟩ over γ ≥ 0 with row sums `need` and column sums at most `offer` (the cost form of
    f(P) in the paper). Target mass nobody takes goes to a free dummy row.

    >>> plan = partial_plan(np.array([[0.0, 1.0, 2.0]]), np.array([1, 1, 1]), 2)
    >>> plan.cost, plan.masses.toarray().tolist()
    (1.0, [[1, 1, 0]])
    """
    ot = import_ot()
    rows, n = costs.shape
    spare = int(offer.sum()) - rows * need
    if spare < 0:
        raise SolverError(
            f"{rows} rows need {rows * need} units of mass but the targets offer "
            f"{int(offer.sum())}. Take fewer rows."
        )
    supply = np.full(rows + (spare > 0), float(need))
    full = np.ascontiguousarray(costs, dtype=np.float64)
    if spare > 0:
        supply[-1] = spare
        full = np.vstack([full, np.zeros((1, n))])
    demand = offer.astype(np.float64)
    flow, log = ot.emd(supply, demand, full, numItermax=_ITERATIONS, log=True)
    flow = np.rint(flow)
    verify_flow(flow.sum(axis=1), flow.sum(axis=0), supply, demand, log)
    masses = sp.csr_array(flow[:rows].astype(np.int64))
    cost = float(masses.multiply(full[:rows]).sum())
    # The dummy row is free: with its potential at 0 the prices of the targets are at least 0.
    floor = float(log["u"][-1]) if spare > 0 else -float(log["v"].max())
    prices, potentials = -(log["v"] + floor), log["u"][:rows] - floor
    return Plan(masses, cost, np.maximum(prices, 0.0), potentials)


def sparse_plan(costs: sp.coo_array, offer: NDArray[np.int64], need: int) -> Plan:
    """The same over the stored arcs alone, for as many rows as claim everything offered.

    The arcs must admit a plan. Targets that offer nothing are left out, because the solver can go
    round in circles on them; their price is 0.
    """
    ot = import_ot()
    offered = np.flatnonzero(offer)
    part = sp.coo_array(sp.csc_array(costs)[:, offered])
    supply, demand = np.full(costs.shape[0], float(need)), offer[offered].astype(np.float64)
    flow, log = ot.emd(supply, demand, part, numItermax=_ITERATIONS, log=True)
    flow = sp.coo_array(flow)
    masses = np.rint(flow.data)
    plan = sp.csr_array((masses, (flow.row, offered[flow.col])), shape=costs.shape)
    verify_flow(plan.sum(axis=1), plan.sum(axis=0)[offered], supply, demand, log)
    plan.eliminate_zeros()
    cost = float(plan.multiply(sp.csr_array(costs)).sum())
    floor = -float(log["v"].max())
    prices = np.zeros(len(offer))
    prices[offered] = -(log["v"] + floor)
    return Plan(plan.astype(np.int64), cost, prices, log["u"] - floor)


def verify_flow(
    row_sums: NDArray[Any],
    column_sums: NDArray[Any],
    supply: NDArray[Any],
    demand: NDArray[Any],
    log: dict[str, Any],
) -> None:
    """Refuse a plan that is not optimal or does not carry the mass asked for.

    The solver answers marginals that disagree by rounding with an all-zero plan and only a
    warning, so its word is checked against the plan itself.
    """
    moved = np.array_equal(row_sums, supply) and np.array_equal(column_sums, demand)
    if log["result_code"] != 1 or not moved:
        raise SolverError(
            "The exact transport solver did not return an optimal plan "
            f"({log['warning'] or 'the plan misses the marginals'}). Check the costs for values of "
            "very different magnitude, or rescale them."
        )


def import_ot() -> ModuleType:
    """POT, without the deep-learning frameworks it would load on sight."""
    for framework in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{framework}", "1")
    import ot

    return ot
