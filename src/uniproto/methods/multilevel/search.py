"""The search: several starts, exact exchanges, and prototypes moved elsewhere.

It starts from the picks of the greedy algorithm, from free centres that begin there, and from
others that begin at random rows. From each, single exchanges lead to rows that no likely one
improves. From the best of these, prototypes are moved elsewhere one by one, and what
is better is kept; where that leads nowhere for long, it starts anew.

How far it goes is counted in work, not by the clock: the same seed leads to the same rows. Seconds
let the very same search go on, so that more of them never lead to worse rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import INTERRUPTED, Method, Picks
from uniproto.methods.multilevel.best_rows import (
    as_points,
    have_centres,
    move_centres,
    settle,
    snapped,
)
from uniproto.methods.multilevel.gpu_level import level_of
from uniproto.methods.multilevel.level import Assigned, Level, sampled
from uniproto.methods.multilevel.local_search import LEAST_GAIN, Candidates, LocalSearch
from uniproto.methods.picking import Pool
from uniproto.problem.problem import Problem
from uniproto.runs.checkpoint import SEARCHING, SavedPicks
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import blas_on_one_core, parallel_map
from uniproto.transport.prototypes import Transport, transport

_WORK, _WORK_EACH_ROW = 2.5e8, 5.0e4  # of exchanges: two to three nanoseconds each
_LEAST_WORK = 5e8
_MORE_STARTS, _WORK_OF_STARTS = 4, 0.5  # at random rows, while less than this share of it is done
_MOST_ROWS, _MOST_ROWS_EACH = 40_000, 400  # that prototypes are moved among: of more, a sample
_FRUITLESS = 60  # relocations in a row, after which it starts anew
_FRUITLESS_STARTS = 20  # in a row, after which every single exchange is tried

_WORTH_A_TRIAL = 1e-6  # of the cost in a sample: what is better by less is not tried on all rows

Rows = NDArray[np.intp]
GoesOn = Callable[[], bool]
Keep = Callable[[LocalSearch, str], bool]


class Start(NamedTuple):
    """Rows to start from, and prices that nearly balance them on all targets, where known."""

    rows: Rows
    prices: NDArray[np.float64] | None = None


def search(problem: Problem, greedy: Method, seconds: float | None, progress: Progress) -> Picks:
    """The best rows found, by the usual work, or by as much more as fits into some seconds.

    Ctrl-C ends the search and keeps the best rows so far, once there are any.
    """
    run = _Search(problem, seconds or 0.0, _usual_work(problem), progress)
    if not run.resume():
        if run.is_large:
            run.starts = first_rows(problem, greedy, 0.0, progress)
        else:
            run.starts = first_rows(run.candidates.problem_from_held, greedy, run.work, progress)
    run.improve()
    return run.picks(in_order=False)


def go_on(problem: Problem, rows: Rows, seconds: float, progress: Progress) -> Picks:
    """The search for some seconds from these rows on, which it never makes worse."""
    run = _Search(problem, seconds, 0.0, progress)
    run.starts = [Start(rows)]
    run.improve()
    return run.picks(in_order=True)


def _usual_work(problem: Problem) -> float:
    return max(_LEAST_WORK, _WORK + _WORK_EACH_ROW * problem.n) * problem.effort


class _Search:
    """The best rows so far, and how much longer to look for better ones."""

    def __init__(self, problem: Problem, seconds: float, work: float, progress: Progress) -> None:
        self.problem, self.seconds, self.work, self.progress = problem, seconds, work, progress
        self.began = time.perf_counter()
        self.starts: list[Start] = []
        self.best, self.prices = Start(np.empty(0, np.intp))
        self.cost = np.inf
        self.stages: list[dict[str, Any]] = []
        self.resumed, self.interrupted, self.work_done = False, False, 0.0
        self.local: LocalSearch | None = None
        size = max(_MOST_ROWS, _MOST_ROWS_EACH * problem.k)
        self.is_large = size < max(problem.m, problem.n)

    @cached_property
    def candidates(self) -> Candidates:
        return Candidates(self.problem)

    @property
    def time_left(self) -> float:
        return self.seconds - (time.perf_counter() - self.began)

    def resume(self) -> bool:
        """Go on from where a run that was killed had come, if there was one."""
        checkpoint = self.problem.checkpoint
        before = checkpoint.read() if checkpoint is not None else None
        if checkpoint is None or before is None or before.stage != SEARCHING:
            return False
        rows, given = before.rows.astype(np.intp), self.problem.initial
        allowed = np.isin(rows[len(given) :], self.problem.candidates).all()
        if len(rows) != self.problem.k or not allowed or (rows[: len(given)] != given).any():
            raise checkpoint.refused("its rows are not k of those that may be chosen")
        self.starts, self.resumed = [Start(rows)], True
        self.work_done = float(before.state["work"])
        return True

    def improve(self) -> None:
        """Exchange rows as long as work or seconds allow."""
        self.best, self.prices = self.starts[0]
        if len(self.problem.initial) == self.problem.k:
            return
        stage = self.progress.stage("improving", max(1, int(self.seconds)))
        with blas_on_one_core(), stage as advance:
            try:
                if not self.is_large:
                    self._exchange()
                elif self.time_left > 0:
                    self._exchange_in_sample()
            except KeyboardInterrupt:
                self.interrupted = True  # rows and cost are whole at every moment
                if self.local is not None and not self.is_large:
                    self._keep(self.local, "interrupted")
            advance(max(1, int(self.seconds)))

    def _exchange(self) -> None:
        """Improve every start by exchanges, then the best one by relocations."""
        local = LocalSearch(self.problem, self.best, self.candidates)
        self.local = local
        local.work_elsewhere += self.work_done
        for rows in self._every_start(local):
            local.start(rows)
            self._keep(local, "start")
            goes_on = self._until(local, local.work + self.work / 3)
            local.descend(range(self.problem.k), goes_on)
            self._keep(local, "exchanges")
        self._save(local)
        local.start(self.best)
        self._relocate(local, self._until(local, self.work), self._keep)

    def _every_start(self, local: LocalSearch) -> Iterator[Rows]:
        """The rows to start from, and others after them as long as work is left."""
        yield from (start.rows for start in self.starts)
        random = np.random.default_rng([self.problem.seed, 3])
        for _ in range(_MORE_STARTS):
            if local.work >= _WORK_OF_STARTS * self.work:
                return
            rows = self._another_start(local, random)
            if len(rows) == local.k:
                yield rows

    def _exchange_in_sample(self) -> None:
        """Relocations in a sample of the rows; what is better there is tried on all."""
        level = level_of(self.problem)
        self.cost = level.assign(self.best).value * level.unit
        random = np.random.default_rng([self.problem.seed, 2])
        size = max(_MOST_ROWS, _MOST_ROWS_EACH * self.problem.k)
        part, rows = sampled(self.problem, size, random, self.best)
        local = LocalSearch(part, np.searchsorted(rows, self.best), Candidates(part))
        self.local = local
        best = local.cost

        def keep(local: LocalSearch, stage: str) -> bool:
            nonlocal best
            if local.cost >= best * (1 - _WORTH_A_TRIAL):
                return False
            best = local.cost
            found = settled(level, rows[local.rows], below=self.cost / level.unit)
            if found.value * level.unit < self.cost * (1 - LEAST_GAIN):
                self.best, self.prices = _start_at(level, found)
                self.cost = found.value * level.unit
                self._note(stage)
                self._save(local)
            return True

        goes_on = self._until(local, 0.0)
        local.descend(range(self.problem.k), goes_on)
        keep(local, "exchanges")
        self._relocate(local, goes_on, keep)

    def _relocate(self, local: LocalSearch, goes_on: GoesOn, keep: Keep) -> None:
        """Move prototypes elsewhere; start anew where that leads nowhere; in the end try all."""
        share = min(1.0, self.problem.effort)
        most, most_starts = (max(2, round(share * n)) for n in (_FRUITLESS, _FRUITLESS_STARTS))
        random = np.random.default_rng([self.problem.seed, 1])
        fruitless = fruitless_starts = 0
        best, best_cost = local.rows.copy(), local.cost
        while goes_on() and fruitless_starts < most_starts:
            if fruitless < most:
                fruitless = 0 if local.relocate(random, goes_on) else fruitless + 1
            else:
                rows = self._another_start(local, random)
                fruitless, fruitless_starts = 0, fruitless_starts + 1
                if len(rows) == local.k:
                    local.start(rows)
                    local.descend(range(local.k), goes_on)
            if local.cost < best_cost * (1 - LEAST_GAIN):
                best, best_cost, fruitless_starts = local.rows.copy(), local.cost, 0
                keep(local, "relocation")
        if goes_on():
            local.start(best)
            while local.visit_all(goes_on):
                local.descend(range(local.k), goes_on)
                keep(local, "every exchange")

    def _another_start(self, local: LocalSearch, random: np.random.Generator) -> Rows:
        rows = rows_apart(local.candidates, random)
        if len(rows) == local.k and centres_pay(local.problem, max(self.work, _WORK)):
            rows = near_centres(level_of(local.problem), rows)
            local.work_elsewhere += work_of_centres(local.problem)
        return rows

    def _until(self, local: LocalSearch, work: float) -> GoesOn:
        """Whether less work than that is done, or time is left."""
        return lambda: local.work < work or self.time_left > 0

    def _keep(self, local: LocalSearch, stage: str) -> bool:
        """Note rows that are better than the best so far; whether they are."""
        if not local.cost < self.cost * (1 - LEAST_GAIN):
            return False
        self.best, self.prices, self.cost = local.rows.copy(), None, local.cost
        self._note(stage)
        if self.seconds:
            self._save(local)
        return True

    def _save(self, local: LocalSearch) -> None:
        """Keep the best rows: what a killed run goes on from."""
        if self.problem.checkpoint is not None:
            rows, state = self.best.astype(np.int64), {"work": local.work}
            saved = SavedPicks(rows, np.zeros(len(rows)), None, SEARCHING, state)
            self.problem.checkpoint.write(saved, now=True)

    def _note(self, stage: str) -> None:
        seconds = round(time.perf_counter() - self.began, 3)
        self.stages.append({"stage": stage, "cost": self.cost, "seconds": seconds})

    def picks(self, *, in_order: bool) -> Picks:
        """The best rows with their exact plan; given ones first, the others by what each costs.

        `in_order` leaves every row at its place.
        """
        rows, given = self.best, len(self.problem.initial)
        solved = transport(self.problem, rows, prices=self.prices)
        held = _held_costs(self.problem, rows, solved)
        order = np.arange(len(rows))
        if not in_order:
            order[given:] = given + np.argsort(held[given:], kind="stable")
        plan = Transport(solved.cost, solved.plan[order], solved.is_exact, solved.prices)
        notes: dict[str, Any] = {"stages": self.stages}
        if in_order:
            notes["exchanged"] = len(np.setdiff1d(rows, self.starts[0].rows))
        if self.problem.checkpoint is not None:
            notes["resumed_from_pick"] = self.problem.k if self.resumed else 0
        if self.interrupted:
            notes["interrupted"] = INTERRUPTED
        gains = self.problem.costs.ceiling - held[order]
        return Picks(rows[order], gains, notes=notes, transport=plan)


def _held_costs(problem: Problem, rows: Rows, solved: Transport) -> NDArray[np.float64]:
    """What each prototype's share of the targets costs it, for a unit of mass."""
    plan, k = solved.plan, len(rows)

    def of(place: int) -> float:
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        costs = problem.costs.exact_block(rows[place : place + 1], plan.indices[part])[0]
        return k * float(costs @ plan.data[part])

    return np.array(list(parallel_map(of, range(k))))


# --- where it starts: greedy picks, free centres, and rows apart from each other ------------------
# Where rows are many, both begin on a sample: centres become the nearest rows of the whole pool,
# and on all targets each prototype gives way to the best row of its cell. A pass over all rows
# then costs k · n, never m · n.


_GREEDY_ROWS, _GREEDY_ROWS_EACH = 5_000, 20  # in all, or for each prototype
_CENTRE_ROWS, _CENTRE_ROWS_EACH = 20_000, 200
_STEPS = 30  # of the centres
_ROUNDS = 4  # of settling on all rows, where they are many


def first_rows(problem: Problem, greedy: Method, work: float, progress: Progress) -> list[Start]:
    """Rows to start from, the likeliest first and greedy picks last.

    `work` is what may be spent on each of them; where it is 0, only the best start is wanted.
    """
    random = np.random.default_rng(problem.seed)
    size = max(_CENTRE_ROWS, _CENTRE_ROWS_EACH * problem.k)
    part, rows = (
        (problem, np.arange(problem.m)) if problem.limits else sampled(problem, size, random)
    )
    level = level_of(part)
    with progress.stage("starting", 2) as advance:
        picked = _picked(level, greedy, random)
        advance(1)
        if part is not problem or (work == 0 and problem.limits is None):
            starts = [_from_sample(problem, level, rows, picked)]
        elif centres_pay(problem, work):
            starts = [Start(near_centres(level, picked)), Start(picked)]
        else:
            starts = [Start(picked)]
        advance(1)
    return starts


def centres_pay(problem: Problem, work: float) -> bool:
    """Whether free centres are to be had on all rows, for so much work."""
    if problem.limits is not None or not have_centres(problem.costs):
        return False
    return work_of_centres(problem) <= work


def work_of_centres(problem: Problem) -> float:
    """About how much work it is to move free centres until they stay put."""
    costs: Any = problem.costs
    return _STEPS / 2 * problem.n * problem.k * (10 + costs.source.shape[1] / 10)


def near_centres(level: Level, rows: Rows) -> Rows:
    """The rows nearest to free centres that start at these rows."""
    return snapped(level, _centres(level, rows).prototypes[len(level.problem.initial) :])


def rows_apart(candidates: Candidates, random: np.random.Generator) -> Rows:
    """Random rows, each likelier the farther targets are from those drawn before.

    Near-duplicates and limits of sources may leave fewer than k.
    """
    problem, pool = candidates.problem, Pool(candidates.problem, lazy=True)
    weights = problem.masses.weights
    rows: list[int] = problem.initial.tolist()
    nearest = candidates.columns(problem.initial).min(axis=1) if rows else np.ones(problem.n)
    while len(rows) < problem.k and pool.free.any():
        worth = weights * nearest
        worth = worth if worth.any() else weights
        target = random.choice(problem.n, p=worth / worth.sum())
        apart = candidates.to_target(target)
        free = np.flatnonzero(pool.free)
        place = int(free[np.argmin(apart[problem.candidates[free]])])
        if pool.admits(place):
            pool.take(place)
            rows.append(int(problem.candidates[place]))
            nearest = np.minimum(nearest, candidates.columns(np.array(rows[-1:]))[:, 0])
    return np.array(rows, np.intp)


def settled(level: Level, rows: Rows, prices: Any = None, below: float = np.inf) -> Assigned:
    """Let each prototype give way to the best row of its cell, on all targets."""
    return settle(level, level.assign(rows, prices=prices), _ROUNDS, below)


def _picked(level: Level, greedy: Method, random: np.random.Generator) -> Rows:
    """The picks of the greedy algorithm on a level, or on a part of it."""
    part, places = level.problem, np.arange(level.problem.m)
    if part.limits is None:
        size = max(_GREEDY_ROWS, _GREEDY_ROWS_EACH * part.k)
        part, places = sampled(part, size, random)
    alone = part.changed(checkpoint=None)  # what is saved are rows of the whole search
    return places[greedy.pick(alone, Progress(False)).rows]


def _centres(level: Level, rows: Rows) -> Assigned:
    return move_centres(level, level.assign(as_points(level, rows)), _STEPS)


def _from_sample(problem: Problem, level: Level, rows: Rows, picked: Rows) -> Start:
    """What greedy picks on a sample become: free centres, then the best rows of all."""
    whole, found, given = level_of(problem), level.assign(picked), len(problem.initial)
    chosen, prices = rows[picked], found.prices
    if have_centres(problem.costs):
        centres = _centres(level, picked)
        near = level.assign(snapped(level, centres.prototypes[given:]))
        if near.value < found.value:
            chosen, prices = snapped(whole, centres.prototypes[given:]), centres.prices
    else:
        better = settle(level, found, _STEPS)
        chosen, prices = rows[better.prototypes], better.prices
    return _start_at(whole, settled(whole, chosen, prices))


def _start_at(level: Level, found: Assigned) -> Start:
    return Start(found.prototypes.astype(np.intp), found.prices * level.unit)
