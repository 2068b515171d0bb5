"""What an honest bound cannot exceed."""

from __future__ import annotations

from typing import Any

from uniproto.certificate.bound import proven_bound
from uniproto.problem.problem import Problem


def most_proven(problem: Problem, prices: Any) -> float:
    """What these prices prove, with the rounding that `proven_bound` has taken off given back."""
    scale = problem.costs.ceiling + abs(prices).max()
    return proven_bound(problem, prices) + 2 * problem.costs.rounding + 1e-9 * float(scale)
