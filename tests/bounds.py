"""Weights of every kind, and what an honest bound cannot exceed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from uniproto.certificate.bound import admissible_rows, exact_values
from uniproto.problem.problem import Problem


def most_proven(problem: Problem, prices: Any) -> float:
    """What these prices prove with costs as they are computed, nothing taken off for rounding.

    `proven_bound` takes the least that costs may really be: no honest bound is above this.
    """
    rows, quotas = admissible_rows(problem)
    total = -math.fsum(problem.masses.offer / problem.masses.need * prices)
    for quota in quotas:
        total += math.fsum(exact_values(problem, rows[quota.given], prices))
        if quota.count:
            values = np.sort(exact_values(problem, rows[quota.free], prices))
            total += math.fsum(values[: quota.count])
    size = problem.costs.ceiling + float(np.abs(prices).max())
    return total / problem.k + 1e-13 * size


def weights_of(kind: str, rng: np.random.Generator, n: int) -> np.ndarray | None:
    """Weights of n targets: uniform, uneven, heavy or with zeros."""
    if kind == "uniform":
        return None
    weights = rng.random(n) + 0.05
    if kind == "heavy":  # one target alone holds the mass of more than one prototype
        weights[0] = 3 * weights.sum()
    if kind == "zeros":
        weights[1 : 1 + n // 3] = 0.0
    return weights
