"""Exchange single prototypes of any selection for better ones, guided by the plan's prices."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.fills.priced_fills import PricedRows
from uniproto.methods.contract import INTERRUPTED, Picks
from uniproto.problem.problem import Problem
from uniproto.runs.checkpoint import IMPROVING, SavedPicks
from uniproto.runtime.progress import Progress
from uniproto.transport.incremental import IncrementalPlan

_FIRST_TRIALS = 3  # candidates tried for each prototype in the first round
_MORE_TRIALS = 4  # how many times as many in the next, once a round finds nothing
_IMPROVEMENT = 1e-9


def memory_of_exchanges(problem: Problem) -> int:
    """The memory that exchanges take, in bytes: the plan's k × n costs, twice."""
    return 16 * problem.k * problem.n


def improve(problem: Problem, picks: Picks, seconds: float, progress: Progress) -> Picks:
    """Exchange prototypes as long as that lowers the exact cost; it never rises.

    Visits the prototypes in turn. Without prototype p, the exact plan of the others has prices v,
    and any x in its place adds at least BotAvg_x(C + v): candidates are tried from the lowest
    such bound up, and given up as soon as they are known to be no better than p. Where the bounds
    leave nothing to try for any prototype, no single exchange can improve the set.
    """
    begin = time.perf_counter()
    state = _State(place=len(problem.initial))
    if problem.checkpoint is not None:
        state = _State(**(problem.checkpoint.state(IMPROVING) or asdict(state)))
    deadline = begin + seconds - state.seconds
    search = _Exchanges(problem, picks.rows, progress)
    notes = dict(picks.notes)
    with progress.stage("improving", int(seconds)) as advance:
        advance(int(state.seconds))
        try:
            _exchange(search, state, deadline, advance)
        except KeyboardInterrupt:  # the rows are whole at every moment, the plan may not be
            notes["interrupted"] = INTERRUPTED
            search = _Exchanges(problem, search.rows, Progress(False))
    masses = search.plan.masses()
    held = masses.multiply(search.costs).sum(axis=1) / problem.masses.need
    return Picks(
        rows=search.rows,
        gains=problem.costs.ceiling - np.asarray(held).ravel(),
        plan=sp.csr_array(masses),
        notes={**notes, "exchanged": state.exchanged},
    )


@dataclass
class _State:
    """How far it has come; with the rows, all that a resumed run needs."""

    place: int
    trials: int = _FIRST_TRIALS  # candidates tried for each prototype in this round
    quiet: int = 0  # places in a row without an exchange
    exhaustive: bool = True  # whether all of them had every candidate worth a trial tried
    exchanged: int = 0
    seconds: float = 0.0


def _exchange(
    search: _Exchanges, state: _State, deadline: float, advance: Callable[[int], None]
) -> None:
    """Visit one prototype after the other until none can be exchanged, or the time is over."""
    given, k = len(search.problem.initial), search.problem.k
    last, checkpoint = time.perf_counter(), search.problem.checkpoint
    while k > given and (now := time.perf_counter()) < deadline:
        advance(int(state.seconds + now - last) - int(state.seconds))
        state.seconds, last = state.seconds + now - last, now
        improved, complete = search.visit(state.place, state.trials, deadline)
        state.exchanged += improved
        state.exhaustive = (state.exhaustive and complete) or improved
        state.quiet = 0 if improved else state.quiet + 1
        state.place = state.place + 1 if state.place + 1 < k else given
        if state.quiet == k - given:  # a whole round without an exchange
            if state.exhaustive:
                return
            state.trials, state.quiet, state.exhaustive = state.trials * _MORE_TRIALS, 0, True
        if checkpoint is not None:
            saved = SavedPicks(search.rows[given:].astype(np.int64), np.zeros(k - given), None)
            checkpoint.write(replace(saved, stage=IMPROVING, state=asdict(state)))


class _Exchanges:
    """The prototypes, their exact plan, and the candidates that could take a place."""

    def __init__(self, problem: Problem, rows: NDArray[np.intp], progress: Progress) -> None:
        self.problem, self.rows = problem, rows.copy()
        self.costs = problem.costs.exact_block(self.rows)
        self.plan = IncrementalPlan(problem.masses.offer, problem.masses.need, problem.k)
        self.cost = sum(self.plan.add(row) for row in self.costs)
        self.priced = PricedRows(problem, problem.candidates, progress)
        self.everyone = np.arange(len(problem.candidates))
        # How many prototypes rule each candidate out, by being it or too close to it.
        self.ruled_out = np.zeros(len(problem.candidates), np.int64)
        for row in self.rows:
            self.ruled_out[self._too_close(int(row))] += 1

    def visit(self, place: int, trials: int, deadline: float) -> tuple[bool, bool]:
        """Give a place to the best of its likeliest candidates.

        Returns whether that changed it, and whether every candidate worth a trial had one.
        """
        worth = self.plan.remove(place)
        own = self._too_close(int(self.rows[place]))
        self.ruled_out[own] -= 1
        bounds = self.priced.values(self.everyone, self.plan.prices) - self.problem.costs.rounding
        bounds[self.ruled_out > 0] = np.inf
        if self.problem.limits is not None:
            allowed = self.problem.limits.may_replace(self.rows, place)
            bounds[~allowed[self.problem.candidates]] = np.inf
        best, winner, winning_costs = worth - _IMPROVEMENT * self.cost, -1, self.costs[place]
        likely = min(trials + 1, len(bounds))  # the present holder may be among them
        order = np.argpartition(bounds, likely - 1)[:likely]
        tried_all = True
        for position in order[np.argsort(bounds[order], kind="stable")].tolist():
            if bounds[position] >= best:
                break
            row = int(self.problem.candidates[position])
            if row == self.rows[place]:
                continue
            costs = self.problem.costs.exact_block(np.array([row]))[0]
            rise = self.plan.trial(costs, place, best)
            if rise < best:
                best, winner, winning_costs = rise, row, costs
            if time.perf_counter() > deadline:
                break
        else:
            tried_all = likely == len(bounds)
        self.cost += self.plan.add(winning_costs, place) - worth
        if winner >= 0:
            self.rows[place], self.costs[place] = winner, winning_costs
        self.ruled_out[self._too_close(int(self.rows[place]))] += 1
        return winner >= 0, tried_all

    def _too_close(self, row: int) -> NDArray[np.intp]:
        itself = np.flatnonzero(self.problem.candidates == row)
        return np.union1d(self.problem.twins(row), itself).astype(np.intp)
