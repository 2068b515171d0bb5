"""What greedy methods share: the pool of free candidates, and the loop that adds the best one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


class Pool:
    """Rows that may still be chosen. Positions count the problem's candidates from 0."""

    def __init__(
        self, problem: Problem, sample_size: Callable[[int, int], int] | None = None
    ) -> None:
        self.problem = problem
        self.rows = problem.candidates
        self.free = np.ones(len(self.rows), np.bool_)
        self.sampled = sample_size is not None
        self._size = sample_size(len(self.rows), problem.k) if sample_size else len(self.rows)
        self._random = np.random.default_rng(problem.seed)
        for row in problem.initial:
            self.free[problem.twins(int(row))] = False

    @property
    def thinning(self) -> bool:
        """Whether a pick can rule out other candidates."""
        return self.problem.twin_distance is not None

    def positions(self) -> NDArray[np.intp]:
        """What to look at now, ascending: every free row, or a fresh random sample of them."""
        free = np.flatnonzero(self.free)
        if self.sampled and len(free) > self._size:
            free = np.sort(self._random.choice(free, self._size, replace=False))
        return free

    def take(self, position: int) -> NDArray[np.intp]:
        """Note a pick; returns the positions it rules out, itself among them."""
        twins = self.problem.twins(int(self.rows[position]))
        ruled_out = np.union1d(twins, [position]).astype(np.intp)
        self.free[ruled_out] = False
        return ruled_out

    def require_free(self, picked: int) -> None:
        """Refuse to go on when near-duplicates have used up the pool."""
        if not self.free.any():
            raise self.problem.too_few_distinct(picked)


class Objective(Protocol):
    """What a greedy method climbs: a function of the prototypes added so far."""

    def best(self, free: NDArray[np.intp]) -> int:
        """The row of `free` (ascending, never empty) to add next; ties go to the lowest."""
        ...

    def add(self, row: int) -> float:
        """Add a prototype; returns what it added to the objective."""
        ...


def first_best(values: NDArray[Any], slack: float) -> int:
    """The first position whose value is the largest, or below it by rounding alone.

    Two rows can be equally good by symmetry, such as the two members of a cluster: which is
    taken must not hang on the last digit.

    >>> first_best(np.array([0.5, 1.0 - 1e-16, 1.0]), slack=1e-15)
    1
    """
    return int(np.argmax(values >= values.max() - slack))


def pick_greedily(
    problem: Problem, objective: Objective, progress: Progress
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The given prototypes, then the best free candidate until there are k: rows and gains."""
    from threadpoolctl import threadpool_limits

    pool = Pool(problem)
    rows: list[int] = problem.initial.tolist()
    # A pick is too little work to share among cores: waiting threads would cost more than they do.
    blas = threadpool_limits(limits=1, user_api="blas")
    with blas, progress.stage("picking", problem.k - len(rows)) as advance:
        gains = [objective.add(row) for row in rows]
        while len(rows) < problem.k:
            pool.require_free(len(rows))
            row = objective.best(pool.rows[pool.free])
            pool.take(int(np.searchsorted(pool.rows, row)))
            rows.append(row)
            gains.append(objective.add(row))
            advance(1)
    return np.array(rows, np.intp), np.array(gains, np.float64)
