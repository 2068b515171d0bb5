"""Greedy picks with the plan `extend`: earlier rows stay, the newcomer claims its fill."""

from __future__ import annotations

import numpy as np

from uniproto.fills.lazy_fills import LazyFills
from uniproto.methods.contract import Picks
from uniproto.methods.pool import Pool
from uniproto.methods.trail import Trail
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import finish

_PICKS_AT_ONCE = 64  # between reports of progress


def pick_extend(problem: Problem, pool: Pool, progress: Progress) -> Picks:
    """Each pick takes its cheapest fill out of what is unclaimed, once and for all."""
    trail = Trail(problem)
    finish(trail.replay(pool))
    if pool.sampled:
        return _pick_from_samples(problem, pool, trail, progress)
    wanted = trail.wanted
    if wanted == 0:
        return trail.finish()
    fills = LazyFills(problem, pool.rows, trail.unclaimed, wanted, progress)
    fills.forbid(np.flatnonzero(~pool.free))
    with progress.stage("picking", wanted) as advance:
        while trail.wanted:
            first = fills.picked
            if pool.thinning:
                pool.require_free(problem.k - trail.wanted)
            fills.pick_and_claim(min(first + (1 if pool.thinning else _PICKS_AT_ONCE), wanted))
            new = fills.picks[first:]
            if pool.thinning:  # near-duplicates of the pick are ruled out before the next
                fills.forbid(pool.take(int(new[0])))
            trail.add(pool.rows[new], fills.pick_costs[first:].copy(), fills.kept(first))
            advance(len(new))
    return trail.finish(recomputed_rows=fills.recomputed)


def _pick_from_samples(problem: Problem, pool: Pool, trail: Trail, progress: Progress) -> Picks:
    with progress.stage("picking", trail.wanted) as advance:
        while trail.wanted:
            pool.require_free(problem.k - trail.wanted)
            sample = pool.positions()
            fills = LazyFills(problem, pool.rows[sample], trail.unclaimed, 1)
            fills.pick_and_claim(1)
            position = int(sample[fills.picks[0]])
            pool.take(position)
            trail.add(pool.rows[position], fills.pick_costs, fills.kept())
            advance(1)
    return trail.finish()
