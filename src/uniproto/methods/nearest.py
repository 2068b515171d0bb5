"""The most similar rows: to any target, to all of them on average, or to each in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import EVERY, row_blocks
from uniproto.geometry.costs import Costs
from uniproto.methods.contract import Picks
from uniproto.methods.picking import nearest_rows, pick_in_order
from uniproto.problem.allowed import Pool
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import parallel_for


@dataclass(frozen=True)
class NearestToAny:
    """The k rows with the nearest target: min_j C_ij over targets of positive weight.

    All k may serve one target that has many rows close to it. Gains are β − min_j C_ij.

    >>> import uniproto
    >>> uniproto.select([[0.0], [0.2], [7.0]], 2, [[0.0], [9.0]], metric="euclidean",
    ...                 method="nearest_to_any").indices
    array([0, 1])
    """

    name: ClassVar[str] = "nearest_to_any"
    draws: ClassVar[bool] = False

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        lowest = np.full(problem.m, np.inf)
        wanted = problem.masses.weights > 0

        def look(rows: slice, costs: NDArray[np.float64], columns: slice) -> None:
            np.minimum(lowest[rows], costs[:, wanted[columns]].min(axis=1, initial=np.inf),
                       out=lowest[rows])  # fmt: skip

        _look_at_costs(problem, progress, look)
        if problem.same_set and problem.costs.metric != "dot":
            lowest[wanted] = 0.0  # to itself, without rounding
        return pick_in_order(problem, problem.costs.ceiling - lowest)


@dataclass(frozen=True)
class NearestOnAverage:
    """The k rows of smallest mean cost Σ_j ν_j C_ij: typical of the target, and all alike.

    With the cosine of gradients this is what LESS computes at a single checkpoint. Gains are
    β − Σ_j ν_j C_ij.

    >>> import uniproto
    >>> uniproto.select([[0.0], [4.0], [5.0]], 2, [[0.0], [9.0]], metric="sqeuclidean",
    ...                 method="nearest_on_average").indices
    array([1, 2])
    """

    name: ClassVar[str] = "nearest_on_average"
    draws: ClassVar[bool] = False

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        mean = np.zeros(problem.m)
        weights = problem.masses.weights

        def look(rows: slice, costs: NDArray[np.float64], columns: slice) -> None:
            mean[rows] += costs @ weights[columns]

        _look_at_costs(problem, progress, look)
        return pick_in_order(problem, problem.costs.ceiling - mean)


_AT_ONCE = 1000  # nearest rows of a target that are found together


@dataclass(frozen=True)
class NearestInTurn:
    """Targets take turns: each takes its nearest row that is not yet chosen, until there are k.

    Targets without weight take none. With the cosine of hidden states weighted by position
    (`uniproto.lm.hidden_states` with `pooling="position"`) this is RDS+. Gains are β − C_ij of the
    row and the target that took it, and of given rows β − min_j C_ij.

    >>> import uniproto
    >>> uniproto.select([[0.0], [0.2], [7.0]], 2, [[0.0], [9.0]], metric="euclidean",
    ...                 method="nearest_in_turn").indices
    array([0, 2])

    Reference: Ivison, Zhang, Brahman, Koh, Dasigi, "Large-scale data selection for instruction
    tuning", 2025.
    """

    name: ClassVar[str] = "nearest_in_turn"
    draws: ClassVar[bool] = False

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        pool = Pool(problem, lazy=True)
        rows: list[int] = problem.initial.tolist()
        targets = np.flatnonzero(problem.masses.weights > 0)
        costs = problem.costs.block(problem.initial, targets).min(axis=1).tolist()
        targets = targets[: problem.k - len(rows)]  # no others get a turn
        turns = cycle(range(len(targets)))
        turn = next(turns, 0)
        while len(rows) < problem.k:
            pool.require_free()
            free = pool.rows[pool.free]
            near, far = nearest_rows(problem.costs, free, targets, _AT_ONCE, progress)
            places = np.searchsorted(pool.rows, near).tolist()
            lists = list(map(zip, places, far.tolist()))
            while len(rows) < problem.k:
                admitted = (at for at in lists[turn] if pool.free[at[0]] and pool.admits(at[0]))
                position, cost = next(admitted, (-1, 0.0))
                if position < 0:  # this list is used up: what is nearest now?
                    break
                pool.take(position)
                rows.append(int(pool.rows[position]))
                costs.append(cost)
                turn = next(turns)
        return Picks(np.array(rows, np.intp), problem.costs.ceiling - np.array(costs))


def _look_at_costs(
    problem: Problem,
    progress: Progress,
    look: Callable[[slice, NDArray[np.float64], slice], None],
) -> None:
    """Show every cost once, in blocks of doubles, to a function of rows, costs and columns."""
    blocks = list(problem.costs.column_blocks())
    with progress.stage("similarities", problem.m * len(blocks)) as advance:
        for columns in blocks:
            part = problem.costs.read(EVERY, columns)

            def read(rows: slice, part: Costs = part, columns: slice = columns) -> None:
                look(rows, part.block(rows).astype(np.float64), columns)

            parallel_for(read, row_blocks(*part.shape))
            advance(problem.m)
