"""Entropic partial optimal transport in the log domain (line 3 of the paper's Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_TOLERANCE = 1e-6  # the paper's stopping threshold
_PAPER_ITERATIONS = ((200, 100), (1000, 1000), (4000, 2000))  # most rows of the source, and steps
_LEAST_TAKEN = float(np.finfo(np.float64).tiny)
_LOWEST_EXPONENT = -1e300  # the logarithm of no mass, finite so that differences are numbers


@dataclass(frozen=True)
class EntropicPlan:
    """The plan γ, whose rows sum to 1, and how far it got.

    `violation` is the share of its mass that is above the capacity of its column; `converged` says
    whether the steps settled, with every column within capacity.
    """

    plan: NDArray[np.float64]
    converged: bool
    iterations: int
    violation: float


def iterations_for(m: int) -> int:
    """How many steps the paper allows for a source of m rows.

    >>> [iterations_for(m) for m in (128, 1000, 4000, 5000)]
    [100, 1000, 2000, 4000]
    """
    return next((steps for most, steps in _PAPER_ITERATIONS if m <= most), 4000)


def entropic_plan(
    costs: NDArray[Any], capacity: NDArray[np.float64], reg: float, iterations: int = 1000
) -> EntropicPlan:
    """min ⟨C, γ⟩ + λ⟨γ, ln γ⟩ over γ ≥ 0 with row sums 1 and column sums at most `capacity`.

    γ_ij = exp((f_i + g_j − C_ij)/λ). Sinkhorn's alternating projections: each step sets the row
    potentials f so that rows are exact, then the column potentials g ≤ 0 so that no column is
    above its capacity (g_j = 0 where target j has mass to spare). All steps are at λ itself and
    start from g = 0, so a small λ needs many: g falls by λ times a logarithm in each. Everything
    stays in logarithms, so that no λ and no scale of costs overflows.

    >>> result = entropic_plan(np.array([[0.0, 1.0]]), np.array([0.5, 1.0]), reg=0.01)
    >>> result.plan.round(3).tolist(), result.converged
    ([[0.5, 0.5]], True)
    >>> entropic_plan(np.array([[0.0, 1.0]]), np.array([0.5, 1.0]), 0.01, iterations=9).violation
    0.5
    """
    plan = np.zeros(costs.shape)
    offered = capacity > 0
    costs = np.asarray(costs, dtype=np.float64)[:, offered]
    capacity = capacity[offered]
    prices, settled, steps = _alternate(costs, capacity, reg, iterations)  # −g
    part = _shares(costs, prices, reg)
    plan[:, offered] = part
    taken = part.sum(axis=0)
    within = bool((taken <= capacity * (1 + _TOLERANCE) + _TOLERANCE).all())
    above = float(np.maximum(taken - capacity, 0.0).sum()) / len(costs)
    return EntropicPlan(plan, settled and within, steps, above)


def _alternate(
    costs: NDArray[np.float64],
    capacity: NDArray[np.float64],
    reg: float,
    iterations: int,
) -> tuple[NDArray[np.float64], bool, int]:
    """Row and column updates in turn; returns the prices, whether they settled, the steps taken."""
    log_capacity = np.log(capacity)
    prices = np.zeros(len(capacity))
    for step in range(1, iterations + 1):
        log_taken = _log_taken(costs, prices, reg)
        updated = np.maximum(0.0, prices + reg * (log_taken - log_capacity))
        settled = bool((np.abs(updated - prices) <= _TOLERANCE * reg).all())
        prices = updated
        if settled:
            return prices, True, step
    return prices, False, iterations


def _exponents(
    costs: NDArray[np.float64], prices: NDArray[np.float64], reg: float
) -> NDArray[np.float64]:
    """−(C + prices)/λ, up to a constant that makes 0 the largest of every row."""
    exponent = costs + prices
    exponent -= exponent.min(axis=1, keepdims=True)  # first: large numbers swallow the logarithm
    with np.errstate(over="ignore"):
        exponent /= -reg
    return np.maximum(exponent, _LOWEST_EXPONENT, out=exponent)


def _shares(
    costs: NDArray[np.float64], prices: NDArray[np.float64], reg: float
) -> NDArray[np.float64]:
    """The plan these prices lead to, rows normalised."""
    shares = _exponents(costs, prices, reg)
    np.exp(shares, out=shares)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares


def _log_taken(
    costs: NDArray[np.float64], prices: NDArray[np.float64], reg: float
) -> NDArray[np.float64]:
    """The logarithm of what that plan takes of every column; −∞ where it does not matter."""
    taken = _shares(costs, prices, reg).sum(axis=0)
    lost = (taken < _LEAST_TAKEN) & (prices > 0)  # too little for a number, not for its logarithm
    with np.errstate(divide="ignore"):
        logarithms = np.log(taken)
    if lost.any():
        exponent = _exponents(costs, prices, reg)
        exponent -= np.log(np.exp(exponent).sum(axis=1, keepdims=True))
        some = exponent[:, lost]
        largest = some.max(axis=0)
        logarithms[lost] = np.log(np.exp(some - largest).sum(axis=0)) + largest
    return logarithms
