"""Exchanges in blocks of neighbouring prototypes, where the plan of all of them takes too long.

The prototypes of a block and the targets in their cells are a problem of their own: what lowers
its cost lowers that of all. The costliest prototypes come first, and the search ends once a wave
of blocks gains next to nothing for its work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.methods.search.assigner import Assigner, members, targets_are_rows
from uniproto.methods.search.cell_plan import CellPlan, RowCosts
from uniproto.methods.search.centres import centres, have_centres
from uniproto.methods.search.exact_plan import Rows
from uniproto.methods.search.exchanges import Exchanges
from uniproto.problem.allowed import Allowed
from uniproto.problem.problem import Problem
from uniproto.runtime.budget import Budget
from uniproto.runtime.threads import parallel_map, pieces_of

_PAIRS, _FEWEST = 100_000, 12  # prototypes and targets in a block; prototypes at least
_IN_WAVE = 2  # blocks that are improved side by side
_LEAST = 0.004  # of the cost, for as much work as all before: what a wave must gain at least
_WORK_EACH = 2.5e7  # of a prototype of a block, at most
_NEAREST = 64  # rows around each cell, where targets are not rows themselves
_MOST_NUMBERS = 4_000_000  # of rows around a block's cells and its targets, whose costs are held
_CHEAPEST = 12  # and where nothing is near, but some cost it least


class Blocks:
    """k rows, the place that each target belongs to, and what they cost, about."""

    def __init__(
        self, problem: Problem, rows: Rows, cells: NDArray[np.int32], cost: float, budget: Budget
    ) -> None:
        self.problem, self.budget, self.cost = problem, budget, cost
        self.rows, self.cells = rows.copy(), cells.copy()
        self._in_wave = _IN_WAVE if Allowed(problem).is_free else 1

    def improve(self) -> bool:
        """Improve the blocks, the costliest first, as long as that pays; whether it did to the end.

        The next time blocks are others.
        """
        problem, pays = self.problem, False
        own = _own_costs(problem, self.rows, self.cells)
        around = None if targets_are_rows(problem) else _rows_around(problem, self.cells)
        blocks = list(_blocks(problem, self.rows, self.cells, own))
        for begin in range(0, len(blocks), self._in_wave):
            if self.budget.is_spent:
                return pays
            wave, before = blocks[begin : begin + self._in_wave], self.budget.done
            gained = 0.0
            for found in list(parallel_map(lambda block: self._improved(block, around), wave)):
                self.rows[found.block], self.cells[found.targets] = found.rows, found.cells
                gained += found.gain
                self.budget.spend(found.work)
            self.cost -= gained
            pays = pays or gained > 0
            work = self.budget.done - before
            if gained < _LEAST * self.cost * work / max(before, 1.0):
                return False
        return pays

    @property
    def paid(self) -> NDArray[np.float64]:
        """What the targets of each place cost it, for a unit of mass."""
        own = self.problem.masses.weights * _own_costs(self.problem, self.rows, self.cells)
        paid = np.bincount(self.cells, own, minlength=self.problem.k)
        return np.asarray(self.problem.k * paid, np.float64)

    def _improved(self, block: NDArray[np.intp], around: NDArray[np.intp] | None) -> ImprovedBlock:
        """A block after exchanges among its rows."""
        problem, rows, cells = self.problem, self.rows, self.cells
        is_there = np.zeros(problem.k, np.bool_)
        is_there[block] = True
        targets = np.flatnonzero(is_there[cells] & (problem.masses.offer > 0))
        if not len(targets):
            return ImprovedBlock(block, rows[block], targets, cells[targets], 0.0, 0.0)
        weights = problem.masses.weights[targets]
        if targets_are_rows(problem):
            near = targets
        elif around is not None:
            count = max(_CHEAPEST, _MOST_NUMBERS // (len(block) * len(targets)))
            near = np.unique(around[:count, block])
        else:
            near = _cheap_rows(problem, targets, np.searchsorted(block, cells[targets]), weights)
        others = rows[~is_there]
        numbers = np.union1d(near[~np.isin(near, others)], rows[block])
        part = _part_of(problem, rows[block], others, numbers, targets, weights)
        alone = Budget(_WORK_EACH * len(block), self.budget.deadline)
        plan = CellPlan(part, np.searchsorted(numbers, rows[block]), RowCosts(part), alone)
        before = plan.cost
        Exchanges(plan, Allowed(part), alone.part(math.inf)).descend_all()
        gain = (before - plan.cost) * float(weights.sum())
        found = block[plan.cell_of_target].astype(np.int32)
        return ImprovedBlock(block, numbers[plan.rows], targets, found, gain, alone.done)


class ImprovedBlock(NamedTuple):
    """Places and their rows, targets and their places, what was gained, and the work it took."""

    block: NDArray[np.intp]
    rows: Rows
    targets: Rows
    cells: NDArray[np.int32]
    gain: float
    work: float


def _own_costs(problem: Problem, rows: Rows, cells: NDArray[np.int32]) -> NDArray[np.float64]:
    """What each target costs the prototype of its cell."""
    own = np.empty(problem.n)
    for place, targets in enumerate(members(cells, len(rows))):
        for part in pieces_of(len(targets), block_rows(1, itemsize=8)):
            own[targets[part]] = problem.costs.block(rows[place : place + 1], targets[part])[0]
    return own


def _blocks(
    problem: Problem, rows: Rows, cells: NDArray[np.int32], own: NDArray[np.float64]
) -> Iterator[NDArray[np.intp]]:
    """Places that are near to each other, from the costliest one on; every place once."""
    k, n = problem.k, problem.n
    size = min(k, max(_FEWEST, math.isqrt(_PAIRS * k // n)))
    paid = np.bincount(cells, problem.masses.weights * own, minlength=k)
    ranked = np.lexsort((own, cells))
    filled, first = np.unique(cells[ranked], return_index=True)
    nearest_target = np.zeros(k, np.intp)
    nearest_target[filled] = ranked[first]
    left = np.ones(k, np.bool_)
    for place in np.argsort(-paid, kind="stable").tolist():
        if left[place]:
            free = np.flatnonzero(left)
            apart = problem.costs.block(rows[free], nearest_target[place : place + 1])[:, 0]
            block = np.union1d(free[np.argsort(apart, kind="stable")[:size]], [place])
            left[block] = False
            yield block


def _rows_around(problem: Problem, cells: NDArray[np.int32]) -> NDArray[np.intp] | None:
    """Candidates near the middle of each cell, one cell to a column; None for costs alone."""
    if not have_centres(problem.costs):
        return None
    assigner = Assigner(problem)
    points = centres(assigner, cells, np.ones(problem.n), problem.k)
    return assigner.nearest_rows(points, _NEAREST)


def _part_of(
    problem: Problem,
    chosen: Rows,
    others: Rows,
    numbers: Rows,
    targets: Rows,
    weights: NDArray[np.float64],
) -> Problem:
    """The problem of a block: its rows and targets, and what its other prototypes leave allowed."""
    uniform = problem.target_weights is None
    given = chosen[np.isin(chosen, problem.initial)]
    allowed = Allowed(problem)
    free = numbers
    if problem.twin_distance is not None and len(others):
        barred = np.concatenate([allowed.near(row) for row in others.tolist()])
        free = numbers[~np.isin(numbers, barred)]
    part = problem.among(numbers, targets, None if uniform else weights / weights.sum())
    rules = {}
    for name in ("limits", "keep"):
        rule = getattr(problem, name)
        if rule is not None:
            counts, among = rule.counts(others), getattr(part, name)
            least = np.maximum(rule.least - counts, 0)
            rules[name] = replace(among, least=least, most=rule.most - counts)
    candidates = np.setdiff1d(np.intersect1d(free, problem.candidates), given)
    return part.changed(
        _k=len(chosen),
        initial=np.searchsorted(numbers, given),
        candidates=np.searchsorted(numbers, np.union1d(candidates, np.setdiff1d(chosen, given))),
        **rules,
    )


def _cheap_rows(
    problem: Problem, targets: Rows, cells: NDArray[np.intp], weights: NDArray[np.float64]
) -> Rows:
    """The candidates that cost each of some cells least, where nothing but costs is known."""
    rows, k = problem.candidates, int(cells.max()) + 1
    membership = sp.csr_array((weights, (cells, np.arange(len(targets)))), (k, len(targets)))
    pieces = pieces_of(len(rows), block_rows(len(targets)))
    blocks = [(membership @ problem.costs.block(rows[part], targets).T).T for part in pieces]
    totals, count = np.concatenate(blocks), min(len(rows), _CHEAPEST)
    return np.unique(rows[np.argpartition(totals, count - 1, axis=0)[:count]])
