"""The classical greedy algorithm: picks compared by the exact rise of the optimal cost."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import Picks
from uniproto.methods.lazy_fills import LazyFills, list_length
from uniproto.methods.pool import Pool
from uniproto.methods.trail import Trail
from uniproto.problem import Problem
from uniproto.progress import Progress
from uniproto.transport.incremental import IncrementalPlan


def pick_by_exact_gains(problem: Problem, pool: Pool, progress: Progress) -> Picks:
    """Each pick raises the cost of the exact plan the least.

    f is submodular, so an exact rise computed earlier is a lower bound of today's: candidates
    wait in a heap under their last known rise and only the top one is computed again.
    """
    trail = Trail(problem)
    masses, costs = problem.masses, problem.costs
    plan = IncrementalPlan(masses.offer, masses.need, problem.k)
    for row in problem.initial:
        plan.add(costs.exact_block(np.array([row]))[0])
    # The fill of the untouched target is the rise beside no other prototype: the first bound.
    bounds = LazyFills(
        costs, pool.rows, masses.offer.copy(), masses.need, 1, list_length(masses), progress
    ).values
    # Bounds come from single-precision costs, rises from double: step below the difference.
    bounds = bounds - 1e-5 * costs.ceiling if costs.dtype == np.float32 else bounds - 1e-9

    def rise(position: int) -> float:
        return plan.trial(costs.exact_block(pool.rows[position : position + 1])[0])

    with progress.stage("picking", trail.wanted) as advance:
        while trail.wanted:
            pool.require_free(problem.k - trail.wanted)
            position = _lowest(bounds, pool.positions(), rise)
            exact = plan.add(costs.exact_block(pool.rows[position : position + 1])[0])
            pool.take(position)
            trail.add(pool.rows[position], exact)
            advance(1)
    return trail.finish(kept=plan.masses())


def _lowest(
    bounds: NDArray[np.float64], positions: NDArray[np.intp], rise: Callable[[int], float]
) -> int:
    """The position of lowest rise, ties to the lowest; `bounds` is tightened on the way."""
    heap = [(bounds[position], int(position), False) for position in positions]
    heapq.heapify(heap)
    while True:
        _, position, exact = heap[0]
        if exact:
            return position
        bounds[position] = rise(position)
        heapq.heapreplace(heap, (bounds[position], position, True))
