"""The loop shared by the methods that add one prototype at a time."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.pool import Pool
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


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
