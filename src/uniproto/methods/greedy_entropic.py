"""Greedy picks with the plan `entropic`: the paper's Algorithm 1 as printed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from uniproto.geometry.lists import lists_of
from uniproto.methods.contract import Picks
from uniproto.methods.pool import Pool
from uniproto.methods.trail import Trail
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import pieces_of, side_by_side
from uniproto.transport.entropic import entropic_plan

_ROWS_PER_PIECE = 1024


def pick_entropic(
    problem: Problem, pool: Pool, progress: Progress, reg: float, iterations: int
) -> Picks:
    """Each pick is compared by its fill of what the entropic plan leaves unclaimed.

    An entropic plan that has not converged may give mass back, so a stale fill cost bounds
    nothing: every candidate is evaluated before each pick.
    """
    trail = Trail(problem)
    masses, costs = problem.masses, problem.costs
    capacity = masses.offer / masses.need
    unconverged = 0
    sorted_costs, sorted_columns = _sorted_rows(problem, pool, progress)
    held = np.empty((problem.k, problem.n))
    held[: len(problem.initial)] = costs.exact_block(problem.initial)
    picked = len(problem.initial)
    for position in trail.replay(pool):
        held[picked] = costs.exact_block(pool.rows[position : position + 1])[0]
        picked += 1
    with progress.stage("picking", trail.wanted) as advance:
        while trail.wanted:
            pool.require_free(picked)
            unclaimed = capacity
            if picked:
                solved = entropic_plan(held[:picked], capacity, reg, iterations)
                unconverged += not solved.converged
                unclaimed = np.maximum(capacity - solved.plan.sum(axis=0), 0.0)
            looked_at = pool.positions()
            found = _fills(sorted_costs, sorted_columns, looked_at, unclaimed)
            position = int(looked_at[np.argmin(found)])
            held[picked] = costs.exact_block(pool.rows[position : position + 1])[0]
            picked += 1
            pool.take(position)
            trail.add(pool.rows[position], found.min())
            advance(1)
    return trail.finish(unconverged_plans=unconverged)


def _sorted_rows(
    problem: Problem, pool: Pool, progress: Progress
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Every candidate's targets from near to far: the paper's m × n memory for sorted rows."""
    m, n = len(pool.rows), problem.n
    require_memory(
        m * n * (problem.costs.dtype.itemsize + 4),
        problem.memory,
        f"plan='entropic' holds {m} × {n} sorted costs",
        "Use plan='extend', whose memory does not grow with the matrix, or fewer rows.",
    )
    return lists_of(problem.lists, problem.costs, pool.rows, n, problem.memory, progress)


def _fills(
    costs: NDArray[Any],
    columns: NDArray[np.int32],
    positions: NDArray[np.intp],
    unclaimed: NDArray[np.float64],
) -> NDArray[np.float64]:
    def scan(piece: slice) -> NDArray[np.float64]:
        return _scan_fills(costs, columns, positions[piece], unclaimed)

    return np.concatenate(list(side_by_side(scan, pieces_of(len(positions), _ROWS_PER_PIECE))))


@njit(cache=True, nogil=True)
def _scan_fills(
    costs: NDArray[Any],
    columns: NDArray[np.int32],
    positions: NDArray[np.intp],
    unclaimed: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Fill costs (of one unit) of some candidates, over their whole sorted rows."""
    values = np.empty(len(positions))
    for t in range(len(positions)):
        row_costs, row_columns = costs[positions[t]], columns[positions[t]]
        missing, total = 1.0, 0.0
        for position in range(len(row_columns)):
            taken = min(unclaimed[row_columns[position]], missing)
            total += row_costs[position] * taken
            missing -= taken
            if missing <= 0:
                break
        values[t] = total
    return values
