"""What some methods need of a problem, and a clear error where it is missing."""

from __future__ import annotations

import numpy as np

from uniproto.errors import invalid
from uniproto.geometry.blocks import EVERY, row_blocks
from uniproto.geometry.costs import FEATURE_METRICS, Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem


def need_features(problem: Problem, method: str) -> FeatureCosts:
    """The problem's feature rows; a matrix of costs alone is refused."""
    if isinstance(problem.costs, FeatureCosts):
        return problem.costs
    raise invalid(
        "metric",
        f"must be one of {', '.join(FEATURE_METRICS)} for method={method!r}, which works on "
        "feature rows",
        repr(problem.costs.metric),
        "Pass the features, or a method that works on costs: 'uniproto', 'kmedoids', "
        "'facility_location' or 'kcenter'.",
    )


def need_one_set(problem: Problem, method: str) -> None:
    """Refuse a target that is not the source itself."""
    if not (problem.same_set or _is_distance_matrix(problem.costs)):
        raise invalid(
            "target",
            f"must be the source itself for method={method!r} (a matrix: square, symmetric, zero "
            "diagonal)",
            f"a target of its own, m={problem.m} and n={problem.n}",
            "Leave the target out, or use method='kmedoids', which takes any target.",
        )


def _is_distance_matrix(costs: Costs) -> bool:
    """Whether a matrix is square and symmetric with a zero diagonal, up to rounding."""
    m, n = costs.shape
    if m != n or isinstance(costs, FeatureCosts):
        return False
    tolerance = 4 * np.sqrt(np.finfo(costs.dtype).eps) * costs.ceiling
    for part in row_blocks(m, n):
        block = costs.block(part)
        asymmetry = np.abs(block - costs.block(EVERY, part).T).max()
        if max(asymmetry, np.diagonal(block, part.start).max()) > tolerance:
            return False
    return True


def library_seed(problem: Problem) -> int:
    """The problem's seed as the 32-bit number other libraries take."""
    return int(np.random.default_rng(problem.seed).integers(2**31))
