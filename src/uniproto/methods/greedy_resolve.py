"""Greedy picks with the plan `resolve`: after each pick the exact plan of the whole set."""

from __future__ import annotations

import numpy as np

from uniproto.fills.lazy_fills import LazyFills
from uniproto.methods.contract import Picks
from uniproto.methods.pool import Pool
from uniproto.methods.trail import Trail
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


def pick_resolve(problem: Problem, pool: Pool, progress: Progress) -> Picks:
    """Each pick is compared by its fill, then the plan is re-solved with it.

    The residual of the exact plan only shrinks, so stale fill costs remain lower bounds and the
    lazy search returns the picks of the full scan.
    """
    trail = Trail(problem)
    costs, plan = problem.costs, trail.replayed_plan(pool)
    fills, looked_at = None, pool.positions()
    with progress.stage("picking", trail.wanted) as advance:
        while trail.wanted:
            pool.require_free(problem.k - trail.wanted)
            if fills is None or pool.sampled:
                looked_at = pool.positions()
                fills = LazyFills(problem, pool.rows[looked_at], plan.unclaimed, 1)
            found, cost = fills.cheapest()
            position = int(looked_at[found])
            plan.add(costs.exact_block(pool.rows[position : position + 1])[0])
            ruled_out = pool.take(position)
            fills.accept(found)
            fills.forbid(np.flatnonzero(np.isin(looked_at, ruled_out)))
            trail.add(pool.rows[position], cost)
            advance(1)
    return trail.finish(kept=plan.masses())
