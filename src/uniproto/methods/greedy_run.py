"""The state of a greedy run: its picks so far, and the checkpoint they are saved to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.methods.contract import Picks
from uniproto.methods.picking import Pool
from uniproto.problem.problem import Problem
from uniproto.runs.checkpoint import SEARCHING, SavedPicks
from uniproto.transport.exact import partial_plan
from uniproto.transport.incremental import IncrementalPlan


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
