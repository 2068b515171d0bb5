"""The exact transport between uniformly weighted prototypes and the whole target."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import InfeasibleError
from uniproto.memory import budget_bytes
from uniproto.problem import Problem
from uniproto.transport.exact import partial_plan


@dataclass(frozen=True)
class Transport:
    """Who stands for whom: `plan[p, j]` is the share of all mass that prototype p and target j
    exchange. Rows sum to 1/k, columns to the target weights.
    """

    cost: float
    plan: sp.csr_array
    is_exact: bool
    prices: NDArray[np.float64] | None = None  # optimal dual prices of the targets, if exact


def transport(
    problem: Problem, rows: NDArray[np.intp], kept: sp.csr_array | None = None
) -> Transport:
    """The optimal plan of these prototypes; where it does not fit in memory, the kept plan.

    The kept plan is feasible, so its cost is an upper bound: `is_exact` is then False.
    """
    masses, costs = problem.masses, problem.costs
    if 4 * 8 * len(rows) * problem.n <= budget_bytes():  # costs, flow and the solver's arcs
        exact = partial_plan(costs.exact_block(rows), masses.offer, masses.need)
        shares = _shares(exact.masses, masses.total)
        return Transport(exact.cost / masses.total, shares, True, exact.prices)
    if kept is None:
        raise InfeasibleError(
            f"Not enough memory for the exact plan of {len(rows)} prototypes over {problem.n} "
            "targets, and this method keeps no plan of its own. Use fewer prototypes or targets."
        )
    total = 0.0
    for position, row in enumerate(rows):
        line = kept[[position]]
        total += float(costs.exact_block(np.array([row]), line.indices)[0] @ line.data)
    return Transport(total / masses.total, _shares(kept, masses.total), False)


def _shares(masses: sp.csr_array, total: int) -> sp.csr_array:
    return sp.csr_array((masses.data / total, masses.indices, masses.indptr), shape=masses.shape)
