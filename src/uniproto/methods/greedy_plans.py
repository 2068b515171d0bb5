"""The greedy picks of UniPROT: one function per plan, and one for exact gains.

Each compares candidates by what one more prototype would cost, takes the cheapest, and brings the
plan up to date.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import (
    quoted,
    warn_of_data,
)
from uniproto.fills.lazy_fills import LazyFills
from uniproto.fills.priced_fills import PricedRows
from uniproto.geometry.costs import Costs
from uniproto.geometry.lists import lists_of
from uniproto.methods.contract import Picks
from uniproto.problem.allowed import Pool
from uniproto.problem.problem import Problem
from uniproto.runs.checkpoint import SEARCHING, SavedLists, SavedPicks
from uniproto.runtime.compiling import njit
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import parallel_map, pieces_of
from uniproto.transport.entropic import entropic_plan
from uniproto.transport.exact import partial_plan
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
            f"reg={reg:g} is small compared with costs of up to {costs.ceiling:.3g}. "
            f"Raise {quoted('reg')} or {quoted('iterations')}, or use the plan 'extend'."
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


# --- the state of a greedy run, and the checkpoint its picks are saved to -------------------------


class GreedyRun:
    """Rows, their costs and the mass each holds, in pick order.

    Given prototypes come first, with their joint exact plan.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        # Narrow numbers, where they suffice, keep the unclaimed masses in the nearest cache.
        offer = problem.masses.offer
        narrow = np.int16 if offer.max() <= np.iinfo(np.int16).max else np.int64
        self.unclaimed: NDArray[Any] = offer.astype(narrow)
        self._rows: list[NDArray[Any]] = [problem.initial]
        self._costs: list[NDArray[Any]] = []
        self._plans: list[sp.csr_array] = []
        if problem.initial.size:
            masses, costs = problem.masses, problem.costs.exact_block(problem.initial)
            plan = partial_plan(costs, masses.offer, masses.need)
            self.unclaimed = (offer - plan.masses.sum(axis=0)).astype(narrow)
            self._costs.append(plan.masses.multiply(costs).sum(axis=1) / masses.need)
            self._plans.append(plan.masses)

        before = problem.checkpoint.read() if problem.checkpoint else None
        if before is not None and before.stage == SEARCHING:
            before = None  # rows of another search say nothing of these picks
        if before is not None:
            self._require_fit(before)
        self.resumed = np.empty(0, np.intp) if before is None else before.rows.astype(np.intp)
        if before is not None:
            self._rows.append(self.resumed)
            self._costs.append(before.costs)
            if before.plan is not None:
                self._plans.append(before.plan)
                claimed = before.plan.sum(axis=0)
                self.unclaimed = (self.unclaimed - claimed).astype(self.unclaimed.dtype)

    def _require_fit(self, before: SavedPicks) -> None:
        """Refuse picks that this problem cannot have led to; a file can hold any numbers."""
        problem = self.problem
        assert problem.checkpoint is not None
        if len(before.rows) > problem.k - len(problem.initial):
            raise problem.checkpoint.refused(f"it holds more picks than the {problem.k} wanted")
        if not np.isin(before.rows, problem.candidates).all():
            raise problem.checkpoint.refused("its rows are not those that may be chosen")
        if before.plan is None:
            return
        masses, plan = problem.masses, before.plan
        if plan.shape[1] != problem.n or (plan.sum(axis=1) != masses.need).any():
            raise problem.checkpoint.refused("its masses are not what each pick needs")
        if (plan.sum(axis=0) > self.unclaimed).any():
            raise problem.checkpoint.refused("its picks claim more mass than there is")

    def replay(self, pool: Pool) -> Iterator[int]:
        """Positions picked in an earlier run, in order; the pool moves on as it did then."""
        for row in self.resumed:
            if pool.sampled:
                pool.positions()  # draws the sample this pick was made from
            position = int(np.searchsorted(pool.rows, row))
            pool.take(position)
            yield position

    def replayed_plan(self, pool: Pool) -> IncrementalPlan:
        """The exact plan of given prototypes and of those picked in an earlier run."""
        masses, costs = self.problem.masses, self.problem.costs
        plan = IncrementalPlan(masses.offer, masses.need, self.problem.k)
        for row in self.problem.initial:
            plan.add(costs.exact_block(np.array([row]))[0])
        for position in self.replay(pool):
            plan.add(costs.exact_block(pool.rows[position : position + 1])[0])
        return plan

    @property
    def rows(self) -> NDArray[np.intp]:
        return np.concatenate(self._rows).astype(np.intp)

    @property
    def missing(self) -> int:
        """How many picks are still to be made."""
        return self.problem.k - sum(map(len, self._rows))

    def add(self, rows: Any, costs: Any, plan: sp.csr_array | None = None) -> None:
        """Add new picks; `plan` holds the mass they claimed, where claims are final."""
        self._rows.append(np.atleast_1d(rows))
        self._costs.append(np.atleast_1d(costs))
        if plan is not None:
            self._plans.append(plan)
        self._save()

    def _save(self, *, now: bool = False) -> None:
        if self.problem.checkpoint is None:
            return
        given = len(self.problem.initial)
        rows = self.rows[given:].astype(np.int64)
        costs = np.concatenate(self._costs)[given:]
        plan = sp.csr_array(sp.vstack(self._plans))[given:] if self._plans else None
        if plan is not None and plan.shape[0] != len(rows):  # re-solved, not claimed for good
            plan = None
        self.problem.checkpoint.write(SavedPicks(rows, costs, plan), now=now)

    def finish(self, plan: sp.csr_array | None = None, **notes: Any) -> Picks:
        """The result; `plan` replaces the claims where it was re-solved."""
        self._save(now=True)
        notes = {**self.problem.lists.notes(), **notes}
        if self.problem.checkpoint is not None:
            notes["resumed_from_pick"] = len(self.resumed)
        if plan is None and sum(part.shape[0] for part in self._plans) == self.problem.k:
            plan = sp.csr_array(sp.vstack(self._plans))
        return Picks(
            rows=self.rows,
            gains=self.problem.costs.ceiling - np.concatenate(self._costs),
            plan=plan,
            notes=notes,
        )
