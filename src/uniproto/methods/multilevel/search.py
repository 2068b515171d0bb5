"""The multilevel search: greedy on a sample, free centres on a larger one, then all rows.

Free centres balanced on a sample find the cells; each centre becomes the nearest row of the pool,
and on all targets each prototype gives way to the best row of its cell. Where time is given, the
centres are then relocated one by one and started anew, and what is better on the sample is tried
on all rows. Every pass over all rows costs k · n, never m · n.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import INTERRUPTED, Method, Picks
from uniproto.methods.multilevel.best_rows import settle, snapped
from uniproto.methods.multilevel.centres import as_points, have_centres, move_centres
from uniproto.methods.multilevel.level import Assigned, Level, are_points, sampled
from uniproto.methods.multilevel.relocation import relocate
from uniproto.problem.problem import Problem
from uniproto.runs.checkpoint import SEARCHING, SavedPicks
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import Transport, transport

_GREEDY_ROWS, _GREEDY_ROWS_EACH = 5_000, 20  # in all, or for each prototype
_CENTRE_ROWS, _CENTRE_ROWS_EACH = 20_000, 200
_RELOCATION_ROWS, _RELOCATION_ROWS_EACH = 40_000, 400
_STARTS = 2  # on the sample, of which the better one goes on
_STEPS = 30  # of the centres
_ROUNDS = 4  # of settling on all rows
_FRUITLESS = 30  # trials in a row, after which centres start anew
_LEAST_GAIN = 1e-6  # of the cost


def pick_multilevel(
    problem: Problem, greedy: Method, seconds: float | None, progress: Progress
) -> Picks:
    """The best rows found: by the search as such, or by as much of it as fits into some seconds.

    Ctrl-C ends the search and keeps the best rows so far, once there are any.
    """
    search = _Search(problem, greedy, seconds, progress)
    if not search.resume():
        search.begin()
    interrupted = False
    try:
        search.save()
        search.settle()
        if seconds is not None:
            search.improve()
    except KeyboardInterrupt:
        interrupted = True
    return search.picks(interrupted)


@dataclass(frozen=True)
class _Start:
    """Prototypes of a level, and what they cost it once each is a row."""

    found: Assigned
    value: float


@dataclass
class _Search:
    problem: Problem
    greedy: Method
    seconds: float | None
    progress: Progress
    stages: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = time.perf_counter()
        self.random = np.random.default_rng(self.problem.seed)
        self.greedy_rows: NDArray[np.intp] | None = None  # where they are those of all rows
        self.whole = Level(self.problem)
        self.rounds, self.by_centres = 0, False

    @property
    def time_left(self) -> float:
        spent = time.perf_counter() - self.started
        return np.inf if self.seconds is None else self.seconds - spent

    def begin(self) -> None:
        """The first prototypes: from a sample to all rows."""
        level, rows = self._level(_CENTRE_ROWS, _CENTRE_ROWS_EACH)
        with self.progress.stage("centres on a sample", _STARTS + 1) as advance:
            start = self._started(level)
            advance(1)
            for _ in range(_STARTS - 1):
                if self.time_left > 0:
                    start = min(start, self._started(level), key=_value)
                advance(1)
            self.by_centres = are_points(start.found.prototypes)
            self.best = self._on_all_rows(rows, start.found)
            advance(1)
        self._note("sample")

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
        self.rounds = int(before.state["rounds"])
        self.by_centres = bool(before.state["by_centres"])
        self.best = self.whole.assign(rows, prices=before.costs)
        self._note("resumed")
        return True

    def save(self) -> None:
        """Keep the best rows and their prices: what a killed run goes on from."""
        if self.problem.checkpoint is not None:
            rows, state = self.best.prototypes.astype(np.int64), {"rounds": float(self.rounds)}
            state["by_centres"] = float(self.by_centres)
            saved = SavedPicks(rows, self.best.prices, None, SEARCHING, state)
            self.problem.checkpoint.write(saved, now=True)

    def settle(self) -> None:
        """Let each prototype give way to the best row of its cell, on all targets."""
        with self.progress.stage("settling on all rows", _ROUNDS) as advance:
            advance(self.rounds, self._cost)
            while self.rounds < _ROUNDS and self.time_left > 0:
                settled = settle(self.whole, self.best, 1)
                ended = settled is self.best
                self.best, self.rounds = settled, _ROUNDS if ended else self.rounds + 1
                self.save()
                advance(1, self._cost)
        self._note("settled")

    def improve(self) -> None:
        """Relocate centres and start anew in turn, until the time is over."""
        level, rows = self._level(
            _RELOCATION_ROWS, _RELOCATION_ROWS_EACH, keep=self.best.prototypes
        )
        start = np.searchsorted(rows, self.best.prototypes)
        now = best = level.assign(as_points(level, start) if self.by_centres else start)
        seconds = max(0, int(self.time_left))
        with self.progress.stage("improving", seconds) as advance:
            shown = 0
            while self.time_left > 0:
                now = relocate(level, now, self.random, self._goes_on)
                if now.value < best.value * (1 - _LEAST_GAIN):
                    best = now
                    self._try_on_all_rows(rows, best)
                advance(seconds - int(max(0.0, self.time_left)) - shown, self._cost)
                shown = seconds - int(max(0.0, self.time_left))
                if self.time_left > 0:
                    now = self._started(level).found
                    if are_points(now.prototypes) != self.by_centres:
                        now = best
        self._note("improved")

    def _goes_on(self, failed: int) -> bool:
        return failed < _FRUITLESS and self.time_left > 0

    def _level(
        self, size: int, each: int, keep: NDArray[np.intp] | None = None
    ) -> tuple[Level, NDArray[np.intp]]:
        part, rows = sampled(self.problem, max(size, each * self.problem.k), self.random, keep)
        return Level(part), rows

    def _started(self, level: Level) -> _Start:
        """From the picks of the greedy algorithm on a part of a level to what they become.

        Centres, where the pool is the target and rows are near them; rows elsewhere.
        """
        size = max(_GREEDY_ROWS, _GREEDY_ROWS_EACH * self.problem.k)
        part, places = sampled(level.problem, size, self.random)
        alone = part.changed(checkpoint=None)  # what is saved are rows of this search
        picked = places[self.greedy.pick(alone, Progress(False)).rows]
        if part is self.problem:
            self.greedy_rows = picked
        from_picks = level.assign(picked)
        if not have_centres(self.problem.costs):
            rows = settle(level, from_picks, _STEPS)
            return _Start(rows, rows.value)
        centres = move_centres(level, level.assign(as_points(level, picked)), _STEPS)
        near = level.assign(self._snapped(level.problem, centres))
        if self.problem.same_set and near.value < from_picks.value:
            return _Start(centres, near.value)
        rows = min(settle(level, from_picks, _STEPS), settle(level, near, _STEPS), key=_value)
        return _Start(rows, rows.value)

    def _on_all_rows(self, rows: NDArray[np.intp], found: Assigned) -> Assigned:
        """The prototypes of a level as rows of the pool, against all targets."""
        free = are_points(found.prototypes)
        chosen = self._snapped(self.problem, found) if free else rows[found.prototypes]
        return self.whole.assign(chosen, prices=found.prices)

    def _snapped(self, problem: Problem, found: Assigned) -> NDArray[np.intp]:
        return snapped(problem, found.prototypes[len(problem.initial) :])

    def _try_on_all_rows(self, rows: NDArray[np.intp], found: Assigned) -> None:
        trial = self._on_all_rows(rows, found)
        for _ in range(_ROUNDS):
            before = trial.value
            trial = settle(self.whole, trial, 1, self.best.value)
            if trial.value >= before or self.time_left <= 0:
                break
        if trial.value < self.best.value * (1 - _LEAST_GAIN):
            self.best = trial
            self._note("improved")
            self.save()

    @property
    def _cost(self) -> str:
        return f"cost {self.best.value * self.whole.unit:.6g}"

    def _note(self, stage: str) -> None:
        seconds = round(time.perf_counter() - self.started, 3)
        cost = self.best.value * self.whole.unit
        self.stages.append({"stage": stage, "cost": cost, "seconds": seconds})

    def picks(self, interrupted: bool) -> Picks:
        """The best rows, given ones first, then by what each costs, with their exact plan."""
        rows = self.best.prototypes.astype(np.intp)
        solved = transport(self.problem, rows)
        if self.greedy_rows is not None:  # small enough to know that it is no worse
            greedy = transport(self.problem, self.greedy_rows)
            if greedy.cost < solved.cost:
                rows, solved = self.greedy_rows, greedy
        held = _held_costs(self.problem, rows, solved)
        given = len(self.problem.initial)
        order = np.concatenate([np.arange(given), given + np.argsort(held[given:], kind="stable")])
        plan = Transport(solved.cost, solved.plan[order], solved.is_exact, solved.prices)
        notes: dict[str, Any] = {"stages": self.stages}
        if self.problem.checkpoint is not None:
            resumed = self.stages[0]["stage"] == "resumed"
            notes["resumed_from_pick"] = self.problem.k if resumed else 0
        if interrupted:
            notes["interrupted"] = INTERRUPTED
        gains = self.problem.costs.ceiling - held[order]
        return Picks(rows[order], gains, notes=notes, transport=plan)


def _value(found: Assigned | _Start) -> float:
    return found.value


def _held_costs(problem: Problem, rows: NDArray[np.intp], solved: Transport) -> NDArray[np.float64]:
    """What each prototype's share of the targets costs it, for a unit of mass."""
    plan, k = solved.plan, len(rows)
    held = np.empty(k)
    for place, row in enumerate(rows):
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        costs = problem.costs.exact_block(np.array([row]), plan.indices[part])[0]
        held[place] = k * float(costs @ plan.data[part])
    return held
