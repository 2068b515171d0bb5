"""Exchanges in blocks of neighbouring prototypes, where the plan of all of them takes too long.

The prototypes of a block and what they hold of the targets are a problem of their own: what lowers
its cost lowers that of all. The costliest prototypes come first, and the search ends once a wave
of blocks gains next to nothing for its work.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.geometry.matrix_costs import MatrixCosts
from uniproto.methods.search.assigner import Assigner, members, targets_are_rows
from uniproto.methods.search.cell_plan import CellPlan, RowCosts
from uniproto.methods.search.centres import centres, have_centres
from uniproto.methods.search.exact_plan import Rows
from uniproto.methods.search.exchanges import Exchanges
from uniproto.methods.search.gpu_assigner import row_costs_of
from uniproto.problem.allowed import Allowed
from uniproto.problem.masses import Masses
from uniproto.problem.problem import Problem, places_among
from uniproto.runtime.budget import Budget
from uniproto.runtime.threads import parallel_map, pieces_of

_PAIRS, _FEWEST, _MOST = 200_000, 12, 120  # prototypes and targets in a block; prototypes
_IN_WAVE = 16  # blocks that are improved side by side
_LEAST = 0.01  # of the cost, for as much work as all so far: what waves must gain at least
_WORK_EACH, _WORK_OF_BLOCK = 2.5e7, 1e9  # of a prototype of a block, and of a block, at most
_OWN = 32  # rows of each cell that are tried, where targets are rows
_NEAREST = 64  # rows around each cell, where targets are not rows themselves
_MOST_NUMBERS = 4_000_000  # of rows around a block's cells and its targets, whose costs are held
_CHEAPEST = 12  # and where nothing is near, but some cost it least


class Blocks:
    """k rows, what each holds of the targets in whole units of mass, and what they cost.

    Where each holds its share, the cost is that of a plan. Where each holds whole cells, blocks are
    only about as heavy as their shares, and costs are approximate.
    """

    def __init__(
        self,
        problem: Problem,
        rows: Rows,
        held: sp.csr_array,
        budget: Budget,
        *,
        cost: float | None = None,
        to_end: bool = False,
    ) -> None:
        """`cost`: of a plan, where `held` is none.

        `to_end`: blocks are improved as long as the budget lasts, whatever they gain.
        """
        self.problem, self.budget = problem, budget
        self._least = 0.0 if to_end else _LEAST
        self.rows = rows.copy()
        pieces = held.indptr[1:-1]
        self._targets = np.split(held.indices, pieces)
        self._masses = np.split(held.data, pieces)
        self._allowed = Allowed(problem)
        self._in_wave = _IN_WAVE if self._allowed.is_free else 1
        self._costs, self._one_set = row_costs_of(problem), targets_are_rows(problem)
        self._own = [self._own_costs(place) for place in range(len(rows))]
        self._has_changed = np.ones(len(rows), np.bool_)  # since it was last in a block
        self.cost = float(self.paid.mean()) if cost is None else cost

    def improve(self) -> bool:
        """Improve the blocks, the costliest first, as long as that pays; whether it did to the end.

        The next time blocks are those around the rows that were exchanged.
        """
        around = None if self._one_set else self._rows_around()
        blocks, begun, before = list(self._blocks()), self.budget.done, self.cost
        self._has_changed[:] = False
        for begin in range(0, len(blocks), self._in_wave):
            wave = self._with_rows(blocks[begin : begin + self._in_wave], around)
            for found in self._all_improved(wave):
                self._has_changed[found.places] = self.rows[found.places] != found.rows
                self.rows[found.places] = found.rows
                held = members(found.by, len(found.places))
                for mine, place in zip(held, found.places, strict=True):
                    self._targets[place] = found.targets[mine]
                    self._masses[place] = found.masses[mine]
                    self._own[place] = found.costs[mine]
                self.cost -= found.gain
                self.budget.spend(found.work)
            share = (self.budget.done - begun) / max(self.budget.done, 1.0)
            if self.budget.is_spent or before - self.cost < self._least * self.cost * share:
                return False
        return bool(self._has_changed.any())

    @property
    def paid(self) -> NDArray[np.float64]:
        """What the targets of each place cost it, for a unit of mass."""
        own = zip(self._own, self._masses, strict=True)
        paid = [costs @ masses for costs, masses in own]
        return np.array(paid) * (self.problem.k / self.problem.masses.total)

    def _own_costs(self, place: int) -> NDArray[np.float64]:
        """What the targets of a place cost it."""
        row, targets = self.rows[place : place + 1], self._targets[place]
        parts = pieces_of(len(targets), block_rows(1, itemsize=8))
        found = [self.problem.costs.block(row, targets[part])[0] for part in parts]
        return np.concatenate(found, dtype=np.float64) if found else np.empty(0)

    def _blocks(self) -> Iterator[NDArray[np.intp]]:
        """Places near to each other, around each that has changed, the costliest first."""
        problem = self.problem
        k, n = problem.k, problem.n
        most = max(_FEWEST, min(_MOST, math.isqrt(_PAIRS * k // n)))
        size = -(-k // -(-k // most))  # the same for all
        nearest_target = np.zeros(k, np.intp)
        for place, costs in enumerate(self._own):
            if len(costs):
                nearest_target[place] = self._targets[place][np.argmin(costs)]
        left, rows = np.ones(k, np.bool_), self.rows.copy()
        for place in np.argsort(-self.paid, kind="stable").tolist():
            if left[place] and self._has_changed[place]:
                free = np.flatnonzero(left)
                apart = self._costs.column(int(nearest_target[place]), rows[free])
                some = min(size, len(free)) - 1
                block = np.union1d(free[np.argpartition(apart, some)[: some + 1]], [place])
                left[block] = False
                yield block

    def _rows_around(self) -> NDArray[np.intp] | None:
        """Candidates near the middle of each cell, one cell to a column; None for costs alone."""
        problem = self.problem
        if not have_centres(problem.costs):
            return None
        cells, most = np.zeros(problem.n, np.int32), np.zeros(problem.n, np.int64)
        for place, (targets, masses) in enumerate(zip(self._targets, self._masses, strict=True)):
            more = masses > most[targets]
            cells[targets[more]], most[targets[more]] = place, masses[more]
        assigner = Assigner(problem)
        points = centres(assigner, cells, np.ones(problem.n), problem.k)
        return assigner.nearest_rows(points, _NEAREST)

    def _with_rows(
        self, places: list[NDArray[np.intp]], around: NDArray[np.intp] | None
    ) -> list[Block]:
        """Blocks with what they hold and the rows to try there, none in two of them."""
        blocks = list(parallel_map(lambda own: self._with_near(own, around), places))
        is_taken = np.zeros(self.problem.m, np.bool_)
        is_taken[self.rows] = True
        for position, block in enumerate(blocks):
            near = block.rows[~is_taken[block.rows]]
            is_taken[near] = True
            rows = np.sort(np.concatenate([near, self.rows[block.places]]))
            blocks[position] = block._replace(rows=rows)
        return blocks

    def _with_near(self, places: NDArray[np.intp], around: NDArray[np.intp] | None) -> Block:
        """A block with what it holds, and rows near to that."""
        by = np.repeat(np.arange(len(places)), [len(self._targets[place]) for place in places])
        every = np.concatenate([self._targets[place] for place in places])
        masses = np.concatenate([self._masses[place] for place in places])
        targets, numbers = np.unique(every, return_inverse=True)
        offer = np.bincount(numbers, masses, len(targets)).astype(np.int64)
        if self._one_set or not len(targets):
            cells, largest = np.empty(len(targets), np.int32), np.argsort(masses, kind="stable")
            cells[numbers[largest]] = by[largest]
            near = _nearest_to_middle(self.problem, targets, cells, len(places))
        elif around is not None:
            count = max(_CHEAPEST, _MOST_NUMBERS // (len(places) * len(targets)))
            near = np.unique(around[:count, places])
        else:
            held = sp.csr_array((masses, (by, numbers)), (len(places), len(targets)))
            near = _cheap_rows(self.problem, targets, held)
        return Block(places, near, targets, offer)

    def _all_improved(self, wave: list[Block]) -> list[ImprovedBlock]:
        """Blocks after exchanges; as many side by side as tables of costs fit into memory."""
        largest = max(4 * len(block.rows) * len(block.targets) for block in wave)
        at_once = max(1, self.problem.memory // max(2 * largest, 1))
        parts = pieces_of(len(wave), at_once)
        return [found for part in parts for found in parallel_map(self._improved, wave[part])]

    def _improved(self, block: Block) -> ImprovedBlock:
        """A block after exchanges among its rows."""
        problem, (places, near, targets, offer) = self.problem, block
        if not len(targets):
            nothing = np.empty(0, np.intp)
            return ImprovedBlock(places, self.rows[places], *3 * (nothing,), np.empty(0), 0.0, 0.0)
        table = self._costs.table(near, targets) if self._allowed.is_free else None
        held = None if table is None else MatrixCosts(table, "precomputed", 0.0)
        part = problem.among(near, targets, offer / offer.sum(), held).changed(_k=len(places))
        if not self._allowed.is_free:
            part = _allowed_beside(self._allowed, part, near, np.delete(self.rows, places))
        are_shares = int(offer.sum()) == len(places) * problem.masses.need
        if are_shares:
            part.masses = Masses(offer, problem.masses.need)
        alone = Budget(min(_WORK_EACH * len(places), _WORK_OF_BLOCK), self.budget.deadline)
        goes_on, begun = alone.part(math.inf), np.searchsorted(near, self.rows[places])
        if table is not None:
            plan = CellPlan(part, begun, RowCosts(part, table, self._costs.unit), alone)
            before = plan.cost
            row_of_target = places_among(near, targets) if self._one_set else np.empty(0, np.intp)
            plan.descend_all(row_of_target, goes_on)
        else:
            plan = CellPlan(part, begun, RowCosts(part).hold(), alone)
            before = plan.cost
            Exchanges(plan, Allowed(part), goes_on).descend_all()
        whole = np.arange(len(targets)), plan.cell_of_target.astype(np.int64), offer
        found, by, masses = plan.shares if are_shares else whole
        costs = plan.cells.costs[found, by] * plan.row_costs.unit
        gain = (before - plan.cost) * float(offer.sum() / problem.masses.total)
        if are_shares:  # what is held need not be the best plan of the rows before
            paid = sum(float(self._own[place] @ self._masses[place]) for place in places)
            gain = (paid - float(costs @ masses)) / problem.masses.total
        work = alone.done + (0.0 if table is None else self._costs.work(*table.shape))
        rows = near[plan.rows]
        return ImprovedBlock(places, rows, by, targets[found], masses, costs, gain, work)


class Block(NamedTuple):
    """Places near to each other, rows to try there, and how much they hold of which targets."""

    places: NDArray[np.intp]
    rows: Rows
    targets: Rows
    offer: NDArray[np.int64]


class ImprovedBlock(NamedTuple):
    """Places, their rows and what they hold: which of them, of which target, how much, at what
    cost; the gain, and the work.
    """

    places: NDArray[np.intp]
    rows: Rows
    by: NDArray[np.integer]
    targets: Rows
    masses: NDArray[np.int64]
    costs: NDArray[np.float64]
    gain: float
    work: float


def _allowed_beside(allowed: Allowed, part: Problem, numbers: Rows, others: Rows) -> Problem:
    """The part of a problem among rows with these numbers, as its other prototypes allow it."""
    rules, candidates, problem = {}, part.candidates, allowed.problem
    for name in ("limits", "keep"):
        rule = getattr(problem, name)
        if rule is not None:
            counts, among = rule.counts(others), getattr(part, name)
            least = np.maximum(rule.least - counts, 0)
            rules[name] = replace(among, least=least, most=rule.most - counts)
    if problem.twin_distance is not None and len(others):
        barred = np.concatenate([allowed.near(row) for row in others.tolist()])
        candidates = candidates[~np.isin(numbers[candidates], barred)]
    return part.changed(candidates=candidates, **rules)


def _nearest_to_middle(problem: Problem, targets: Rows, cells: NDArray[np.int32], k: int) -> Rows:
    """Of the targets of each cell those that are nearest to its middle, where it has many."""
    if len(targets) <= _OWN * k or not have_centres(problem.costs):
        return targets
    weights = np.full(len(targets), 1 / len(targets))
    part = Assigner(problem.among(problem.candidates[:1], targets, weights))
    points = centres(part, cells, np.ones(len(targets)), k)
    costs: Any = problem.costs
    own = costs.block_of_points(points, targets)[cells, np.arange(len(targets))]
    order = np.lexsort((own, cells))
    rank = np.arange(len(targets)) - np.searchsorted(cells[order], cells[order])
    return np.sort(targets[order[rank < _OWN]])


def _cheap_rows(problem: Problem, targets: Rows, held: sp.csr_array) -> Rows:
    """The candidates that cost each of some cells least, where nothing but costs is known."""
    rows = problem.candidates
    pieces = pieces_of(len(rows), block_rows(len(targets)))
    blocks = [(held @ problem.costs.block(rows[part], targets).T).T for part in pieces]
    totals, count = np.concatenate(blocks), min(len(rows), _CHEAPEST)
    return np.unique(rows[np.argpartition(totals, count - 1, axis=0)[:count]])
