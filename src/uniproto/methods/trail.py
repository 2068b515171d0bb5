"""What a greedy run has picked so far, from the given prototypes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.methods.contract import Picks
from uniproto.problem import Problem
from uniproto.transport.exact import partial_plan


class Trail:
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
        self._kept: list[sp.csr_array] = []
        if problem.initial.size:
            masses, costs = problem.masses, problem.costs.exact_block(problem.initial)
            plan = partial_plan(costs, masses.offer, masses.need)
            self.unclaimed = (offer - plan.masses.sum(axis=0)).astype(narrow)
            self._costs.append(plan.masses.multiply(costs).sum(axis=1) / masses.need)
            self._kept.append(plan.masses)

    @property
    def rows(self) -> NDArray[np.intp]:
        return np.concatenate(self._rows).astype(np.intp)

    @property
    def wanted(self) -> int:
        """How many picks are still to be made."""
        return self.problem.k - sum(map(len, self._rows))

    def add(self, rows: Any, costs: Any, kept: sp.csr_array | None = None) -> None:
        """Note new picks; `kept` holds the mass they claimed, where claims are final."""
        self._rows.append(np.atleast_1d(rows))
        self._costs.append(np.atleast_1d(costs))
        if kept is not None:
            self._kept.append(kept)

    def finish(self, kept: sp.csr_array | None = None, **notes: Any) -> Picks:
        """The answer; `kept` replaces the claims where the plan was re-solved."""
        if kept is None and sum(part.shape[0] for part in self._kept) == self.problem.k:
            kept = sp.csr_array(sp.vstack(self._kept))
        return Picks(
            rows=self.rows,
            gains=self.problem.costs.ceiling - np.concatenate(self._costs),
            kept=kept,
            notes=notes,
        )
