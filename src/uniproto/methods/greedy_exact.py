"""The classical greedy algorithm: picks compared by the exact rise of the optimal cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uniproto.fills.priced_fills import PricedRows
from uniproto.geometry.costs import Costs
from uniproto.methods.contract import Picks
from uniproto.methods.pool import Pool
from uniproto.methods.trail import Trail
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.transport.incremental import IncrementalPlan


def pick_by_exact_gains(problem: Problem, pool: Pool, progress: Progress) -> Picks:
    """Each pick raises the cost of the exact plan the least.

    f is submodular, so a rise computed earlier is a lower bound of today's. So is the value of a
    row at the prices of today's plan: f(x | P) ≤ TopAvg(S_x − v). Candidates are tried from the
    lowest bound up, until no bound is below the best rise.
    """
    trail = Trail(problem)
    costs, plan = problem.costs, trail.replayed_plan(pool)
    priced = PricedRows(problem, pool.rows, progress)
    bounds = np.full(len(pool.rows), -np.inf)
    with progress.stage("picking", trail.wanted) as advance:
        while trail.wanted:
            pool.require_free(problem.k - trail.wanted)
            looked_at = pool.positions()
            today = priced.values(looked_at, plan.prices) - costs.rounding
            bounds[looked_at] = np.maximum(bounds[looked_at], today)
            position = _lowest_rise(plan, costs, pool.rows, looked_at, bounds)
            exact = plan.add(costs.exact_block(pool.rows[position : position + 1])[0])
            pool.take(position)
            trail.add(pool.rows[position], exact)
            advance(1)
    return trail.finish(kept=plan.masses())


def _lowest_rise(
    plan: IncrementalPlan,
    costs: Costs,
    rows: NDArray[np.intp],
    looked_at: NDArray[np.intp],
    bounds: NDArray[np.float64],
) -> int:
    """The position of lowest exact rise, ties to the lowest; `bounds` is tightened on the way."""
    best, winner = np.inf, -1
    for position in looked_at[np.argsort(bounds[looked_at], kind="stable")].tolist():
        if bounds[position] > best:
            break
        row = costs.exact_block(rows[position : position + 1])[0]
        # A hair above the best, so that an equal rise is still computed and its index compared.
        limit = best + 1e-12 * abs(best)
        rise = plan.trial(row, limit=limit)
        bounds[position] = max(bounds[position], min(rise, limit))
        if (rise, position) < (best, winner):
            best, winner = rise, position
    return winner
