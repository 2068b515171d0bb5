"""The candidates still free, and which of them to look at before the next pick."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from uniproto.problem.problem import Problem


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
