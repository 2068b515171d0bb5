"""Exact partial optimal transport by network simplex, with a dual proof of every plan.

The solver (POT's) stops at a tolerance that depends on the largest cost and on 1. So it is given
costs scaled by a power of two, which changes none of their digits, and its plan is not taken on
trust: a dual proof, made from the plan alone, says how far from optimal it can be. Where costs of
very different magnitude leave a gap, the plan is solved again for the reduced costs of that
proof: they are as small as the gap, which is what the solver's tolerance then refers to. Where
that does not help either, because costs in use span more digits than a number has, the plan is
built path by path, which takes longer and looks at nothing but costs in use.
"""

from __future__ import annotations

import importlib.util
import math
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import SolverError
from uniproto.transport.proof import ArcCosts, Proof, prove, reduced_costs

_ITERATIONS = 100_000_000
_MOST_ROUNDS = 12
_MASS_BITS = 20
_SCALE = 10  # the solver gets costs up to about 2^10, next to which its tolerance of 1 is small


@dataclass(frozen=True)
class Plan:
    """An optimal plan in whole masses, its total cost, and the price of each target.

    `prices` are optimal dual variables v ≥ 0 of the target capacities: a target with mass left
    over has price 0. `potentials` are those of the rows: u_i ≤ C_ij + v_j, with equality wherever
    mass flows. `gap` is how much more than the cheapest plan this one can cost at most, and
    `is_proven` whether that is nothing but rounding.
    """

    masses: sp.csr_array
    cost: float
    prices: NDArray[np.float64]
    potentials: NDArray[np.float64]
    gap: float
    is_proven: bool


def partial_plan(costs: NDArray[Any], offer: NDArray[np.int64], need: int) -> Plan:
    """Cheapest way for every row to take `need` units where target j offers `offer[j]`.

    min ⟨C, γ⟩ over γ ≥ 0 with row sums `need` and column sums at most `offer` (the cost form of
    f(P) in the paper). Unclaimed target mass goes to a free dummy row.

    >>> plan = partial_plan(np.array([[0.0, 1.0, 2.0]]), np.array([1, 1, 1]), 2)
    >>> plan.cost, plan.masses.toarray().tolist()
    (1.0, [[1, 1, 0]])
    """
    rows, n = costs.shape
    spare = int(offer.sum()) - rows * need
    if spare < 0:
        raise SolverError(
            f"{rows} rows need {rows * need} units of mass but the targets offer "
            f"{int(offer.sum())}. Take fewer rows."
        )
    offered = np.flatnonzero(offer)
    supply = np.full(rows + (spare > 0), need)
    full = np.ascontiguousarray(costs, dtype=np.float64)
    part = full[:, offered]
    if spare > 0:
        supply[-1] = spare
        part = np.vstack([part, np.zeros((1, len(offered)))])
    masses, proof = _solve(part, supply, offer[offered], _dense_flow)
    if not proof.holds:
        masses, proof = _solve_by_paths(part, offer[offered], rows, need)
    # The dummy row is free: with its potential at 0 the prices of the targets are at least 0.
    floor = float(proof.potentials[-1]) if spare > 0 else float(proof.prices.min())
    potentials = proof.potentials[:rows] - floor
    # A target without mass gets the lowest price at which no row claims it.
    prices = np.maximum((potentials[:, None] - full).max(axis=0), 0.0)
    prices[offered] = np.maximum(proof.prices - floor, 0.0)
    return _plan(_spread(masses[:rows], offered, n), prices, potentials, proof)


def sparse_plan(costs: sp.coo_array, offer: NDArray[np.int64], need: int) -> Plan:
    """The same over the stored arcs alone, for as many rows as claim everything offered.

    The arcs must admit a plan. Targets that offer nothing have price 0.
    """
    offered = np.flatnonzero(offer)
    part = sp.csr_array(sp.csc_array(costs)[:, offered])
    masses, proof = _solve(part, np.full(costs.shape[0], need), offer[offered], _sparse_flow)
    floor = float(proof.prices.min())
    prices = np.zeros(len(offer))
    prices[offered] = proof.prices - floor
    masses = _spread(masses, offered, len(offer))
    return _plan(masses, prices, proof.potentials - floor, proof)


def solve_arcs(
    costs: sp.csr_array, supply: NDArray[np.int64], demand: NDArray[np.int64]
) -> sp.csr_array | None:
    """The cheapest way to move all supply over the stored arcs; None where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # solvers warn where there is no plan
        try:
            return _solve(costs, supply, demand, _sparse_flow)[0]
        except SolverError:
            return None


Flow = Callable[[ArcCosts, NDArray[np.float64], NDArray[np.float64]], tuple[sp.csr_array, Any]]


def _solve(
    costs: ArcCosts, supply: NDArray[np.int64], demand: NDArray[np.int64], flow: Flow
) -> tuple[sp.csr_array, Proof]:
    """The best plan found, in whole masses, and its proof.

    Targets that offer nothing must be left out: the solver can go round in circles on them.
    """
    best: tuple[sp.csr_array, Proof] | None = None
    reduced = costs
    # Of masses beyond some 10^8 the solver says that there is no plan.
    scale = max(0, int(supply.sum()).bit_length() - _MASS_BITS)
    for _ in range(_MOST_ROUNDS):
        found, log = flow(_scaled(reduced), np.ldexp(supply, -scale), np.ldexp(demand, -scale))
        moved = np.rint(np.ldexp(found.data, scale))
        masses = sp.csr_array((moved, found.indices, found.indptr), found.shape)
        verify_flow(masses.sum(axis=1), masses.sum(axis=0), supply, demand, log)
        masses.eliminate_zeros()
        proof = prove(costs, masses.astype(np.int64))
        if best is None or proof.gap < best[1].gap:
            best = masses.astype(np.int64), proof
        elif not proof.holds:
            break
        if proof.holds:
            break
        reduced = reduced_costs(costs, proof)
    assert best is not None
    return best


def _solve_by_paths(
    costs: NDArray[np.float64], offer: NDArray[np.int64], rows: int, need: int
) -> tuple[sp.csr_array, Proof]:
    """The plan by cheapest augmenting paths; a row of `costs` after `rows` takes what is left."""
    from uniproto.transport.incremental import IncrementalPlan  # loads Numba: seldom needed

    growing = IncrementalPlan(offer, need, rows)
    for row in costs[:rows]:
        growing.add(row)
    masses = growing.masses()
    if len(costs) > rows:
        masses = sp.csr_array(sp.vstack([masses, sp.csr_array(growing.unclaimed[None])]))
    return masses, prove(costs, masses)


def _scaled(costs: ArcCosts) -> ArcCosts:
    """The costs times a power of two, the largest about 2^10."""
    values = costs if isinstance(costs, np.ndarray) else costs.data
    _, exponent = math.frexp(float(values.max()))
    scaled = np.ldexp(values, _SCALE - exponent)
    if isinstance(costs, np.ndarray):
        return scaled
    return sp.csr_array((scaled, costs.indices, costs.indptr), shape=costs.shape)


def _dense_flow(
    costs: ArcCosts, supply: NDArray[np.float64], demand: NDArray[np.float64]
) -> tuple[sp.csr_array, Any]:
    flow, log = import_ot().emd(supply, demand, costs, numItermax=_ITERATIONS, log=True)
    return sp.csr_array(flow), log


def _sparse_flow(
    costs: ArcCosts, supply: NDArray[np.float64], demand: NDArray[np.float64]
) -> tuple[sp.csr_array, Any]:
    arcs = sp.coo_array(costs)
    flow, log = import_ot().emd(supply, demand, arcs, numItermax=_ITERATIONS, log=True)
    return sp.csr_array(flow), log


def _spread(masses: sp.csr_array, columns: NDArray[np.intp], n: int) -> sp.csr_array:
    """The masses in their places among all n targets."""
    shape = (masses.shape[0], n)
    return sp.csr_array((masses.data, columns[masses.indices], masses.indptr), shape=shape)


def _plan(
    masses: sp.csr_array,
    prices: NDArray[np.float64],
    potentials: NDArray[np.float64],
    proof: Proof,
) -> Plan:
    gap = proof.gap + proof.rounding
    return Plan(masses, proof.cost, prices, potentials, gap, proof.holds)


def verify_flow(
    row_sums: NDArray[Any],
    column_sums: NDArray[Any],
    supply: NDArray[Any],
    demand: NDArray[Any],
    log: dict[str, Any],
) -> None:
    """Raise for a plan that is not optimal or does not carry the required mass.

    Where marginals disagree by rounding, the solver returns an all-zero plan and only a warning,
    so the plan itself is checked.
    """
    moved = np.array_equal(row_sums, supply) and np.array_equal(column_sums, demand)
    if log["result_code"] != 1 or not moved:
        raise SolverError(
            "The exact transport solver did not return an optimal plan "
            f"({log['warning'] or 'the plan misses the marginals'}). Check the costs for values of "
            "very different magnitude, or rescale them."
        )


@cache
def import_ot() -> ModuleType:
    """POT's linear programs, without the rest of it, which takes two seconds to load.

    Nor are the deep-learning frameworks loaded that it would use on sight. While its part loads,
    `ot` is an empty package; a later `import ot` loads all of it.
    """
    for framework in ("PYTORCH", "JAX", "CUPY", "TENSORFLOW"):
        os.environ.setdefault(f"POT_BACKEND_DISABLE_{framework}", "1")
    whole = importlib.util.find_spec("ot")
    if whole is None or "ot" in sys.modules:
        return importlib.import_module("ot.lp")
    sys.modules["ot"] = importlib.util.module_from_spec(whole)
    try:
        return importlib.import_module("ot.lp")
    finally:
        del sys.modules["ot"]
