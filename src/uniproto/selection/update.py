"""Selections that live on: as few changes as possible when the data have changed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InfeasibleError, InvalidInputError, require_int
from uniproto.methods.contract import Picks
from uniproto.methods.greedy import Greedy
from uniproto.methods.grouped import pick
from uniproto.methods.uniproto import UniProto
from uniproto.problem.groups import SourceLimits
from uniproto.problem.keep import keep_all_but, kept_in_words
from uniproto.problem.problem import Problem
from uniproto.report.targets import arc_costs, costs_of_targets
from uniproto.report.words import aligned, counted, number_column
from uniproto.runtime.progress import Progress
from uniproto.selection.details import details_of
from uniproto.selection.prototypes import targets_of
from uniproto.transport.prototypes import transport

if TYPE_CHECKING:
    from uniproto.methods.updating import Step, Updates
    from uniproto.selection.selection import Selection

CLOSE = 0.01  # of a fresh selection's cost: what an update comes as close as, if it may choose
_SAMPLED = 5_000  # rows and targets, on which is measured what each change saves
_STEPS_BACK = 3  # in which fewer changes are tried, once enough are known

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Change:
    """A prototype that left, and the one that came in its place; either may be None.

    `left` is a row of the earlier source, `came` one of the new. `targets` are those that the
    newcomer represents. `saved` is what taking back this one change would cost, and `error` the
    standard error of that over the targets; None where it cannot be taken back, because the row
    that left is not in the new data (`gone`) or the number of prototypes has changed.
    """

    left: int | None
    came: int | None
    gone: bool
    targets: NDArray[np.intp]
    saved: float | None = None
    error: float | None = None

    @property
    def is_clear(self) -> bool:
        """Whether it saves more than twice the standard error, or could not be avoided."""
        return self.saved is None or self.error is None or self.saved > 2 * self.error


@dataclass(frozen=True)
class Point:
    """The least cost found with at most `changes` changes."""

    changes: int
    cost: float


@dataclass(frozen=True)
class Updated:
    """How a selection was made from an earlier one.

    `earlier` are the prototypes of the earlier one, as rows of its source, and `found` the same as
    rows of the new source (-1: not there any more). At most `allowed` of the rows are others.
    `curve` says what fewer or more changes cost, on `measured_on` targets; `fresh` is the cost of
    a fresh selection on the same targets and how many changes it makes, where there was one.
    """

    earlier: Rows
    found: Rows
    allowed: int
    curve: tuple[Point, ...]
    fresh: Point | None
    measured_on: int
    changes: tuple[Change, ...] = ()

    def rule(self, problem: Problem) -> SourceLimits:
        """The rule that the rows obey."""
        return keep_all_but(self.allowed, self.found[self.found >= 0], problem.k, problem.m)

    def condition(self, k: int) -> str:
        """The same in words, of any choice of k rows."""
        return kept_in_words(max(k - self.allowed, 0), int((self.found >= 0).sum()))

    @property
    def newcomers(self) -> int:
        """How many of the prototypes were none before."""
        return sum(change.came is not None for change in self.changes)

    def in_words(self, k: int) -> str:
        """How many prototypes stay, and why others do not."""
        stay = k - self.newcomers
        words = f"{stay:,} of {counted(len(self.earlier), 'prototype')} "
        words += "stays" if stay == 1 else "stay"
        if gone := int((self.found < 0).sum()):
            words += f", {gone:,} {'is' if gone == 1 else 'are'} not in the new data"
        if self.fresh is not None:
            words += f"; a fresh selection would change {self.fresh.changes:,}"
        return words

    def table(self, n: int) -> str:
        """A line for each number of changes; `n` is the number of targets."""
        least = self.curve[-1].cost if self.fresh is None else self.fresh.cost
        last = None if self.fresh is None else self.fresh.changes
        curve = [point for point in self.curve if point.changes != last or last == self.allowed]
        points = [(str(point.changes), point.cost) for point in curve]
        if self.fresh is not None:
            points.append((f"{self.fresh.changes} (fresh)", self.fresh.cost))
        columns = {
            "changes": [name for name, _ in points],
            "cost": number_column([(cost, None) for _, cost in points]),
            "above the last": [
                f"{cost / least - 1:.1%}" if least > 0 else "–" for _, cost in points
            ],
            "": ["chosen" if name == str(self.allowed) else "" for name, _ in points],
        }
        some = f"\n\nCosts are those on a sample of {self.measured_on:,} targets."
        return aligned(columns) + (some if self.measured_on < n else "")


def updated(
    selection: Selection,
    problem: Problem,
    found: Rows,
    *,
    changes: int | None = None,
    k: int | None = None,
    seconds: float | None = None,
    progress: bool | None = None,
) -> Selection:
    """A selection for a new problem; `found` are the rows in it of the earlier prototypes."""
    begin = time.perf_counter()
    if problem._group_labels is not None:
        raise InvalidInputError(
            "cannot be updated, as their budgets follow from the new target. Update the "
            "selection of each group by itself, or use Limits(…).",
            parameter="groups",
        )
    question = problem.with_k(selection.k if k is None else k)
    may_stay = np.isin(found, np.concatenate([question.initial, question.candidates]))
    found = np.where(may_stay, found, -1).astype(np.intp)
    run = _Updating(question, np.sort(found[found >= 0]), seconds, Progress(progress))
    if changes is None:
        allowed = run.as_good_as_fresh()
    else:
        allowed = run.within(require_int("changes", changes, least=0), len(found))
    picks = _in_order(run.best, question.initial, found)
    made = Updated(
        earlier=selection.indices.astype(np.intp),
        found=found,
        allowed=allowed,
        curve=run.curve(),
        fresh=run.fresh,
        measured_on=run.updates.measured.n,
    )
    made = replace(made, changes=_changes(question, made, picks))
    question = question.changed(keep=made.rule(question))
    details = details_of(
        question,
        UniProto(seconds=seconds),
        picks,
        {"update": time.perf_counter() - begin},
        updated=made,
    )
    return type(selection)(
        indices=picks.rows.astype(np.int64),
        weights=np.full(question.k, 1 / question.k),
        details=details,
        problem=question,
        picks=picks,
    )


class _Updating:
    """The search for an update: the best rows that are known for every number of changes."""

    def __init__(
        self, problem: Problem, old: Rows, seconds: float | None, progress: Progress
    ) -> None:
        self.problem, self.old, self.seconds, self.progress = problem, old, seconds, progress
        self.least = max(problem.k - len(old), len(np.setdiff1d(problem.initial, old)))
        self.fresh: Point | None = None
        self.steps: dict[int, Step] = {}
        self.best: Picks
        self.updates: Updates

    def within(self, changes: int, earlier: int) -> int:
        """Find the best rows with at most `changes` changes; returns the number of changes."""
        if changes < self.least:
            raise InfeasibleError(
                f"must be at least {self.least}, as {self.problem.k} rows are wanted and "
                f"{len(self.old)} of {counted(earlier, 'prototype')} can stay (got {changes}). "
                "Raise it; if prototypes are there with other values, name a column of 'ids'.",
                parameter="changes",
            )
        allowed = min(changes, self.problem.k)
        self._walk(allowed, self.old)
        self.best = self._improved(allowed)
        return allowed

    def as_good_as_fresh(self) -> int:
        """Find the fewest changes that come close to a fresh selection; returns their number."""
        picks, _ = pick(self.problem, UniProto(seconds=self.seconds), self.progress)
        fresh, cost = picks.rows.astype(np.intp), self._cost(picks)
        most = self._changes_of(fresh)
        measured, goal = self._walk(most, fresh), cost + CLOSE * abs(cost)
        self.fresh = Point(most, measured)
        for step in self.updates.steps_back(fresh, measured + CLOSE * abs(measured)):
            self._note(step)
        enough = min(
            count
            for count, step in self.steps.items()
            if step.cost <= measured + CLOSE * abs(measured)
        )
        found = self._improved(enough)
        while self._cost(found) > goal and enough < most:  # which the sample did not show
            enough += 1
            found = self._improved(enough)
        self.best, enough = found, self._changes_of(found.rows)
        for _ in range(0 if self.updates.is_large else _STEPS_BACK):
            if enough <= self.least or self._cost(found := self._improved(enough - 1)) > goal:
                break
            self.best, enough = found, self._changes_of(found.rows)
        return max(enough, self.least)

    def curve(self) -> tuple[Point, ...]:
        """The least cost for every number of changes that was tried."""
        points: list[Point] = []
        for count in sorted(self.steps):
            least = points[-1].cost if points else np.inf
            points.append(Point(count, min(least, self.steps[count].cost)))
        return tuple(points)

    def _walk(self, most: int, fresh: Rows) -> float:
        """Change up to `most` rows, or until that is close to a fresh selection; its cost."""
        from uniproto.methods.updating import Step, Updates  # whose compiled loops load with it

        self.updates, measured = Updates(self.problem, self.old, self.least, fresh), -np.inf
        if fresh is not self.old:
            measured = self.updates.cost_of(fresh)
            self._note(Step(most, fresh, measured))
        for step in self.updates.steps(most):
            self._note(step)
            if step.cost <= measured + CLOSE * abs(measured):
                break
        return measured

    def _note(self, step: Step) -> None:
        known = self.steps.get(step.changes)
        if known is None or step.cost < known.cost:
            self.steps[step.changes] = step

    def _improved(self, changes: int) -> Picks:
        """The usual search under the rule, from the best rows for `changes` changes."""
        from uniproto.methods.search.search import search
        from uniproto.methods.updating import Step

        known = [step for count, step in self.steps.items() if count <= changes]
        start = min(known, key=lambda step: step.cost).rows
        keep = keep_all_but(changes, self.old, self.problem.k, self.problem.m)
        asked = self.problem.changed(keep=keep)
        found = search(asked, Greedy(), self.seconds, self.progress, start)
        if not self.updates.is_large:
            self._note(Step(changes, found.rows, self._cost(found)))
        return found

    def _changes_of(self, rows: Rows) -> int:
        return len(np.setdiff1d(rows, self.old))

    def _cost(self, picks: Picks) -> float:
        return (picks.transport or transport(self.problem, picks.rows)).cost


def _in_order(picks: Picks, given: Rows, found: Rows) -> Picks:
    """Given rows first, then those that stay in the order they had, and newcomers last."""
    ranked = enumerate([*given.tolist(), *found.tolist()])
    rank = {row: place for place, row in reversed(list(ranked))}
    last = len(given) + len(found)
    order = sorted(range(len(picks.rows)), key=lambda place: rank.get(int(picks.rows[place]), last))
    solved = picks.transport and replace(picks.transport, plan=picks.transport.plan[order])
    plan = None if picks.plan is None else picks.plan[order]
    return replace(
        picks, rows=picks.rows[order], gains=picks.gains[order], plan=plan, transport=solved
    )


def _changes(problem: Problem, made: Updated, picks: Picks) -> tuple[Change, ...]:
    """Who left and who came: each in the place of the one that would serve its targets best."""
    from scipy.optimize import linear_sum_assignment  # takes 0.2 s to import

    plan = (picks.transport or transport(problem, picks.rows)).plan
    new = np.flatnonzero(~np.isin(picks.rows, made.found))
    left = np.flatnonzero(~np.isin(made.found, picks.rows))
    there = left[made.found[left] >= 0]
    costs = np.empty((len(there), len(new)))
    for column, place in enumerate(new.tolist()):
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        block = problem.costs.exact_block(made.found[there], plan.indices[part])
        costs[:, column] = block @ plan.data[part]
    paired, places = linear_sum_assignment(costs)
    pairs: list[tuple[Any, Any]] = list(
        zip(there[paired].tolist(), new[places].tolist(), strict=True)
    )
    saved: list[tuple[float, float]] = []
    if len(made.found) == problem.k:
        backs = [(int(made.found[out]), came) for out, came in pairs]
        saved = _savings(problem, picks.rows, backs)
    unpaired = np.setdiff1d(left, there[paired]).tolist(), np.setdiff1d(new, new[places]).tolist()
    pairs += zip_longest(*unpaired)
    changes = [
        Change(
            None if out is None else int(made.earlier[out]),
            None if came is None else int(picks.rows[came]),
            out is not None and bool(made.found[out] < 0),
            _served(plan, came),
            *saving,
        )
        for (out, came), saving in zip_longest(pairs, saved, fillvalue=(None, None))
    ]
    return tuple(sorted(changes, key=lambda change: -(change.saved or 0.0)))


def _served(plan: Any, place: int | None) -> Rows:
    """The targets of a prototype; none where nothing came."""
    return np.empty(0, np.intp) if place is None else targets_of(plan, place)[0]


def _savings(
    problem: Problem, rows: Rows, backs: list[tuple[int, int]]
) -> list[tuple[float, float]]:
    """What it costs to give each place back to an old row, and the standard error over targets."""
    from uniproto.methods.search.starts import sampled

    if not backs:
        return []
    random = np.random.default_rng([problem.seed, 7])
    always = np.union1d(rows, [old for old, _ in backs])
    part, numbers = sampled(problem, _SAMPLED, random, always)
    weights = part.masses.weights

    def costs(chosen: Rows) -> NDArray[np.float64]:
        plan = transport(part, chosen).plan
        return np.nan_to_num(costs_of_targets(plan, arc_costs(part, chosen, plan), weights))

    places = np.searchsorted(numbers, rows)
    now, found = costs(places), []
    for old, place in backs:
        back = places.copy()
        back[place] = np.searchsorted(numbers, old)
        more = costs(back) - now
        mean = float(weights @ more)
        found.append((mean, float(np.sqrt((weights**2) @ (more - mean) ** 2))))
    return found


# --- the record of an update in a manifest --------------------------------------------------------


def record_of(made: Updated) -> dict[str, Any]:
    """What a manifest says."""
    return {
        "earlier": made.earlier.tolist(),
        "found": made.found.tolist(),
        "allowed": made.allowed,
        "curve": [[point.changes, point.cost] for point in made.curve],
        "fresh": made.fresh and [made.fresh.changes, made.fresh.cost],
        "measured_on": made.measured_on,
        "changes": [
            {
                "left": change.left,
                "came": change.came,
                "gone": change.gone,
                "saved": change.saved,
                "error": change.error,
            }
            for change in made.changes
        ],
    }


def from_record(record: Mapping[str, Any], rows: NDArray[np.int64], plan: Any) -> Updated:
    """The same of a saved selection, of these rows and with this plan; ValueError if damaged."""

    def points(pairs: Any) -> tuple[Point, ...]:
        return tuple(Point(int(changes), float(cost)) for changes, cost in pairs)

    place: dict[Any, int | None] = {None: None}
    place |= {int(row): at for at, row in enumerate(rows)}
    changes = [
        Change(
            one["left"],
            one["came"],
            bool(one["gone"]),
            _served(plan, place[one["came"]]),
            one["saved"],
            one["error"],
        )
        for one in record["changes"]
    ]
    return Updated(
        earlier=np.array(record["earlier"], np.intp),
        found=np.array(record["found"], np.intp),
        allowed=int(record["allowed"]),
        curve=points(record["curve"]),
        fresh=next(iter(points([record["fresh"]] if record["fresh"] else [])), None),
        measured_on=int(record["measured_on"]),
        changes=tuple(changes),
    )
