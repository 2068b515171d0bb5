"""One stage of the search: what it looks at, its budget, and the best rows it has found."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import Method, Optimum
from uniproto.methods.search.exact_plan import LEAST_GAIN, CostsOfRows, ExactPlan, Rows
from uniproto.problem.problem import Problem
from uniproto.runs.checkpoint import SEARCHING, SavedPicks
from uniproto.runtime.budget import Budget
from uniproto.transport.prototypes import FEW

_WORK, _WORK_EACH_ROW = 5.0e8, 5.0e4  # of a stage, at most
PICKED_FROM = 3  # rows for each prototype that greedy picks are chosen from
FRUITLESS = 8  # starts in a row: then the search ends, or tries every single exchange
_EFFORT = 1.0  # times the usual work: less in tests that are not about the search


class Log:
    """What the search found when, over all stages."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._began = time.perf_counter()

    def note(self, stage: str, cost: float) -> None:
        seconds = round(time.perf_counter() - self._began, 3)
        self.entries.append({"stage": stage, "cost": cost, "seconds": seconds})


class Stage:
    """The search of a sample, or of all rows, and the best rows so far."""

    def __init__(
        self,
        problem: Problem,
        greedy: Method,
        budget: Budget,
        random: np.random.Generator,
        log: Log,
        *,
        is_sample: bool = False,
        to_end: bool = False,
    ) -> None:
        """`to_end`: the search uses up the budget's seconds."""
        self.problem, self.greedy, self.budget, self.random = problem, greedy, budget, random
        self.log, self.is_sample, self.to_end = log, is_sample, to_end
        self.begun: Rows | None = None  # rows to begin from
        self.is_carried = False  # they are the best of a sample
        self.rows = np.empty(0, np.intp)
        self.cost = np.inf
        self.prices: NDArray[np.float64] | None = None  # that balance the rows, nearly
        self.paid: NDArray[np.float64] | None = None  # for each prototype, about
        self.proof: Optimum | None = None

    @property
    def are_few(self) -> bool:
        """Whether prototypes are so few that prices of all of them are found quickly."""
        return self.problem.k <= FEW

    @property
    def are_cells(self) -> bool:
        """Whether the plan of all of them is kept in cells."""
        from uniproto.transport.cells import cells_suit  # what is compiled loads late

        return self.are_few and cells_suit(self.problem.k, self.problem.n)

    @property
    def goes_on_in_samples(self) -> bool:
        """Whether what is left of the seconds is for samples, as all rows take long."""
        return self.to_end and self.is_carried and self.are_few and not self.are_cells

    @property
    def effort(self) -> float:
        """The share of the usual work that this stage may do."""
        return self.problem.effort * _EFFORT

    @property
    def work(self) -> float:
        """The work that this stage may do at most."""
        return (_WORK + _WORK_EACH_ROW * self.problem.n) * self.effort

    def keep(
        self, rows: Rows, cost: float, kind: str, prices: NDArray[np.float64] | None = None
    ) -> None:
        """Note rows that are better than the best so far."""
        if cost < self.cost * (1 - LEAST_GAIN):
            self.rows, self.cost = rows.astype(np.intp), cost
            self.prices, self.paid = prices, None
            self.log.note(kind, cost)

    def save(self) -> None:
        """Keep the best rows: what a killed run goes on from."""
        if self.problem.checkpoint is not None:
            rows, state = self.rows.astype(np.int64), {"work": self.budget.done}
            saved = SavedPicks(rows, np.zeros(len(rows)), None, SEARCHING, state)
            self.problem.checkpoint.write(saved, now=True)

    def resumed(self) -> Rows | None:
        """The rows that a run which was killed had come to, if there was one."""
        checkpoint = self.problem.checkpoint
        before = checkpoint.read() if checkpoint is not None else None
        if checkpoint is None or before is None or before.stage != SEARCHING:
            return None
        rows, given = before.rows.astype(np.intp), self.problem.initial
        allowed = np.isin(rows[len(given) :], self.problem.candidates).all()
        if len(rows) != self.problem.k or not allowed or (rows[: len(given)] != given).any():
            raise checkpoint.refused("its rows are not k of those that may be chosen")
        return rows


class Beginning(NamedTuple):
    """Where exchanges begin: an exact plan of the first rows."""

    plan: ExactPlan
    costs: CostsOfRows
    others: list[Rows]  # to begin from as well, the best first
    floor: float  # work before which gains are not asked for
    improved: Callable[[Rows], Rows]  # random rows, made better without a plan
