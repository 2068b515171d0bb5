"""The greedy picks of UniPROT: one function per plan, and one for exact gains.

Each compares candidates by what one more prototype would cost, takes the cheapest, and brings the
plan up to date.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import warn_of_data
from uniproto.fills.lazy_fills import LazyFills
from uniproto.fills.priced_fills import PricedRows
from uniproto.geometry.costs import Costs
from uniproto.geometry.lists import lists_of
from uniproto.methods.contract import Picks
from uniproto.methods.greedy_run import GreedyRun
from uniproto.methods.picking import Pool
from uniproto.problem.problem import Problem
from uniproto.runs.checkpoint import SavedLists
from uniproto.runtime.compiling import njit
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import parallel_map, pieces_of
from uniproto.transport.entropic import entropic_plan
from uniproto.transport.incremental import IncrementalPlan

_PICKS_AT_ONCE = 64  # between reports of progress
_ROWS_PER_PIECE = 1024
_WRONG_PLAN = 0.25  # of an entropic plan's mass: where more is in excess, picks mean little


def pick_extend(problem: Problem, pool: Pool, progress: Progress) -> Picks:
    """Each pick takes its cheapest fill out of what is unclaimed, once and for all."""
    run = GreedyRun(problem)
    for _ in run.replay(pool):
        pass
    if pool.sampled:
        return _pick_from_samples(problem, pool, run, progress)
    missing = run.missing
    if missing == 0:
        return run.finish()
    saved = None if problem.checkpoint is None else SavedLists(problem.checkpoint)
    fills = LazyFills(problem, pool.rows, run.unclaimed, missing, progress, saved)
    fills.forbid(np.flatnonzero(~pool.free))
    everyone = np.arange(len(pool.rows))
    with progress.stage("picking", missing) as advance:
        while run.missing:
            first = fills.picked
            last = min(first + _PICKS_AT_ONCE, missing)
            if pool.thinning:
                _pick_and_thin(fills, pool, everyone, last)
            else:
                fills.pick_and_claim(last)
            new = fills.picks[first:]
            run.add(pool.rows[new], fills.pick_costs[first:].copy(), fills.plan(first))
            advance(len(new))
    return run.finish(recomputed_rows=fills.recomputed)


def _pick_and_thin(fills: LazyFills, pool: Pool, everyone: NDArray[np.intp], last: int) -> None:
    """Pick one row after the other, because each rules out some of the rest."""
    while fills.picked < last:
        found, _ = _pass_over_twins(fills, pool, everyone)
        fills.pick_and_claim(fills.picked + 1)
        fills.forbid(pool.take(found))


def _pass_over_twins(
    fills: LazyFills, pool: Pool, considered: NDArray[np.intp]
) -> tuple[int, float]:
    """The cheapest row that is no near-duplicate of a pick; rows on the way are ruled out.

    `considered` are the positions that the fills count from 0.
    """
    while True:
        pool.require_free()
        found, cost = fills.cheapest()
        if pool.admits(int(considered[found])):
            return found, cost
        fills.forbid(np.array([found]))


def _pick_from_samples(problem: Problem, pool: Pool, run: GreedyRun, progress: Progress) -> Picks:
    with progress.stage("picking", run.missing) as advance:
        while run.missing:
            pool.require_free()
            sample = pool.positions()
            fills = LazyFills(problem, pool.rows[sample], run.unclaimed, 1)
            fills.pick_and_claim(1)
            position = int(sample[fills.picks[0]])
            pool.take(position)
            run.add(pool.rows[position], fills.pick_costs, fills.plan())
            advance(1)
    return run.finish()


def pick_resolve(problem: Problem, pool: Pool, progress: Progress) -> Picks:
    """Each pick is compared by its fill, then the plan is re-solved with it.

    The residual of the exact plan only shrinks, so stale fill costs remain lower bounds and the
    lazy search returns the picks of the full scan.
    """
    run = GreedyRun(problem)
    costs, plan = problem.costs, run.replayed_plan(pool)
    fills, considered = None, pool.positions()
    with progress.stage("picking", run.missing) as advance:
        while run.missing:
            pool.require_free()
            if fills is None or pool.sampled:
                considered = pool.positions()
                fills = LazyFills(problem, pool.rows[considered], plan.unclaimed, 1)
            found, cost = _pass_over_twins(fills, pool, considered)
            position = int(considered[found])
            plan.add(costs.exact_block(pool.rows[position : position + 1])[0])
            ruled_out = pool.take(position)
            fills.accept(found)
            fills.forbid(np.flatnonzero(np.isin(considered, ruled_out)))
            run.add(pool.rows[position], cost)
            advance(1)
    return run.finish(plan=plan.masses())


def pick_by_exact_gains(problem: Problem, pool: Pool, progress: Progress) -> Picks:
    """Each pick raises the cost of the exact plan the least.

    f is submodular, so a rise computed earlier is a lower bound of today's. So is the value of a
    row at the prices of today's plan: f(x | P) ≤ TopAvg(S_x − v). Candidates are tried from the
    lowest bound up, until no bound is below the best rise.
    """
    run = GreedyRun(problem)
    costs, plan = problem.costs, run.replayed_plan(pool)
    priced = PricedRows(problem, pool.rows, progress)
    bounds = np.full(len(pool.rows), -np.inf)
    with progress.stage("picking", run.missing) as advance:
        while run.missing:
            pool.require_free()
            considered = pool.positions()
            today = priced.values(considered, plan.prices) - costs.rounding
            bounds[considered] = np.maximum(bounds[considered], today)
            position = _lowest_rise(plan, costs, pool.rows, considered, bounds)
            exact = plan.add(costs.exact_block(pool.rows[position : position + 1])[0])
            pool.take(position)
            run.add(pool.rows[position], exact)
            advance(1)
    return run.finish(plan=plan.masses())


def _lowest_rise(
    plan: IncrementalPlan,
    costs: Costs,
    rows: NDArray[np.intp],
    considered: NDArray[np.intp],
    bounds: NDArray[np.float64],
) -> int:
    """The position of lowest exact rise, ties to the lowest; `bounds` is tightened on the way."""
    best, winner = np.inf, -1
    for position in considered[np.argsort(bounds[considered], kind="stable")].tolist():
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


def pick_entropic(
    problem: Problem, pool: Pool, progress: Progress, reg: float, iterations: int
) -> Picks:
    """Each pick is compared by its fill of what the entropic plan leaves unclaimed.

    An entropic plan that has not converged may give mass back, so a stale fill cost bounds
    nothing: every candidate is evaluated before each pick.
    """
    run = GreedyRun(problem)
    masses, costs = problem.masses, problem.costs
    capacity = masses.offer / masses.need
    unconverged, violation = 0, 0.0
    sorted_costs, sorted_columns = _sorted_rows(problem, pool, progress)
    held = np.empty((problem.k, problem.n))
    held[: len(problem.initial)] = costs.exact_block(problem.initial)
    picked = len(problem.initial)
    for position in run.replay(pool):
        held[picked] = costs.exact_block(pool.rows[position : position + 1])[0]
        picked += 1
    with progress.stage("picking", run.missing) as advance:
        while run.missing:
            pool.require_free()
            unclaimed = capacity
            if picked:
                solved = entropic_plan(held[:picked], capacity, reg, iterations)
                unconverged += not solved.converged
                violation = max(violation, solved.violation)
                unclaimed = np.maximum(capacity - solved.plan.sum(axis=0), 0.0)
            considered = pool.positions()
            found = _fills(sorted_costs, sorted_columns, considered, unclaimed)
            position = int(considered[np.argmin(found)])
            held[picked] = costs.exact_block(pool.rows[position : position + 1])[0]
            picked += 1
            pool.take(position)
            run.add(pool.rows[position], found.min())
            advance(1)
    if violation > _WRONG_PLAN:
        warn_of_data(
            f"Entropic plans did not converge (up to {violation:.0%} of their mass is beyond what "
            "targets take), and the rows may be worse than random ones: "
            f"reg={reg:g} is small beside costs of up to {costs.ceiling:.3g}. "
            "Raise reg or iterations, or use plan='extend'."
        )
    return run.finish(unconverged_plans=unconverged, marginal_violation=violation)


def _sorted_rows(
    problem: Problem, pool: Pool, progress: Progress
) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Every candidate's targets from near to far: the paper's m × n memory for sorted rows."""
    m, n = len(pool.rows), problem.n
    require_memory(
        m * n * (problem.costs.dtype.itemsize + 4),
        problem.memory,
        f"plan=Entropic(…) holds {m} × {n} sorted costs",
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

    return np.concatenate(list(parallel_map(scan, pieces_of(len(positions), _ROWS_PER_PIECE))))


@njit(cache=True, nogil=True)
def _scan_fills(
    costs: NDArray[Any],
    columns: NDArray[np.int32],
    positions: NDArray[np.intp],
    unclaimed: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Fill costs (of one unit) of some candidates, over their whole sorted rows.

    `fill_kernels.fill_cost` drops claimed targets from its lists; here they may become free again.
    """
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
