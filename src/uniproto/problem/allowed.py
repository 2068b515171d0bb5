"""Which rows may be chosen together: one answer for every method, for proofs and for `verify`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from uniproto.geometry.twins import TwinFinder
    from uniproto.problem.groups import SourceLimits
    from uniproto.problem.problem import Problem

Rows = NDArray[np.intp]


class Allowed:
    """The conditions of a problem on its rows.

    Candidates only, no row twice, no near-duplicates, limits of sources kept. Given rows are
    always in their places.

    >>> from uniproto.problem.problem import Problem
    >>> problem = Problem([[0.0], [0.1], [5.0]], min_distance=1, metric="euclidean").with_k(2)
    >>> allowed = Allowed(problem)
    >>> allowed.beside(np.array([0]), problem.candidates)
    array([2])
    """

    def __init__(self, problem: Problem) -> None:
        self.problem, self.given = problem, len(problem.initial)
        self._is_free = np.zeros(problem.m, np.bool_)
        self._is_free[problem.candidates] = True
        self._near: dict[int, Rows] = {}

    @property
    def limits(self) -> tuple[SourceLimits, ...]:
        """Every rule on how many rows may come from where."""
        return self.problem.rules

    @property
    def is_free(self) -> bool:
        """Whether any set of different candidates is allowed."""
        return self.problem.twin_distance is None and not self.limits

    def beside(self, chosen: Rows, rows: Rows) -> Rows:
        """Those of `rows` that may be added to the chosen ones."""
        before = self._is_free[chosen]
        self._is_free[chosen] = False
        rows = rows[self._is_free[rows]]
        self._is_free[chosen] = before
        for rule in self.limits:
            is_open = rule.open_sources(rule.counts(chosen), self.problem.k - len(chosen))
            rows = rows[is_open[rule.source_of_row[rows]]]
        if self.problem.twin_distance is not None and len(rows):
            near = np.concatenate([rows[:0], *(self.near(row) for row in chosen.tolist())])
            rows = rows[~np.isin(rows, near)]
        return rows

    def instead(self, chosen: Rows, place: int, rows: Rows) -> Rows:
        """Those of `rows` that may stand at a place, but for the one that does."""
        others = np.delete(chosen, place)
        found = self.beside(others, rows)
        return found[found != chosen[place]]

    def near(self, row: int) -> Rows:
        """The rows too close to one to be chosen with it; found once."""
        if row not in self._near:
            distance = self.problem.twin_distance
            close = () if distance is None else self.problem.costs.twins(row, distance)
            self._near[row] = np.flatnonzero(close)
        return self._near[row]

    def sets(self, sets: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of these sets of k rows, one to a line with the given rows first, are allowed."""
        fine = np.ones(len(sets), np.bool_)
        distance = self.problem.twin_distance
        if distance is not None:
            rows = np.unique(sets)
            places = np.searchsorted(rows, sets)
            near = [np.isin(rows, self.near(row)) for row in rows.tolist()]
            close = np.array(near, np.bool_).reshape(len(rows), len(rows))  # there may be no sets
            close |= close.T
            for first in range(sets.shape[1]):
                for second in range(max(first + 1, self.given), sets.shape[1]):
                    fine &= ~close[places[:, first], places[:, second]]
        for rule in self.limits:
            sources = rule.source_of_row[sets]
            for source, (low, high) in enumerate(zip(rule.least, rule.most, strict=True)):
                count = (sources == source).sum(axis=1)
                fine &= (count >= low) & (count <= high)
        return fine


class Pool:
    """Candidates that may still be picked, one after the other. Positions count them from 0.

    A pick rules out its near-duplicates and, where sources have limits, rows of other sources.
    With `lazy` near-duplicates are looked for only when they are about to be picked: `admits`.
    """

    def __init__(
        self,
        problem: Problem,
        sample_size: Callable[[int, int], int] | None = None,
        *,
        lazy: bool = False,
    ) -> None:
        self.problem, self.rows = problem, problem.candidates
        self.free = np.ones(len(self.rows), np.bool_)
        self.sampled = sample_size is not None
        self._size = sample_size(len(self.rows), problem.k) if sample_size else len(self.rows)
        self._random = np.random.default_rng(problem.seed)
        self._left = problem.k
        self._chosen: TwinFinder | None = None
        if lazy and problem.twin_distance is not None:
            self._chosen = problem.costs.twin_finder(problem.twin_distance)
        self._limits = Allowed(problem).limits
        self._counts = [np.zeros(len(rule.least), np.int64) for rule in self._limits]
        for row in problem.initial:
            self.free[self._note(int(row))] = False
        for rule, counts in zip(self._limits, self._counts, strict=True):
            self.free &= rule.open_sources(counts, self._left)[rule.source_of_row[self.rows]]

    @property
    def thinning(self) -> bool:
        """Whether a pick can rule out other candidates."""
        return self.problem.twin_distance is not None or bool(self._limits)

    def positions(self) -> Rows:
        """What to look at now, ascending: every free row, or a fresh random sample of them."""
        free = np.flatnonzero(self.free)
        if self.sampled and len(free) > self._size:
            free = np.sort(self._random.choice(free, self._size, replace=False))
        return free

    def admits(self, position: int) -> bool:
        """Whether a row may be picked; one that is a near-duplicate of a pick never may again."""
        if self._chosen is not None and self._chosen.has_twin_of(int(self.rows[position])):
            self.free[position] = False
        return bool(self.free[position])

    def take(self, position: int) -> Rows:
        """Note a pick; returns the positions it rules out, itself among them."""
        ruled_out = np.append(self._note(int(self.rows[position])), position)
        self.free[ruled_out] = False
        return ruled_out

    def _note(self, row: int) -> Rows:
        """Count a row as chosen; returns the positions it rules out, unless lazy."""
        self._left -= 1
        ruled_out = [np.empty(0, np.intp)]
        for rule, counts in zip(self._limits, self._counts, strict=True):
            before = rule.open_sources(counts, self._left + 1)
            counts[rule.source_of_row[row]] += 1
            closed = before & ~rule.open_sources(counts, self._left)
            if closed.any():
                ruled_out.append(np.flatnonzero(closed[rule.source_of_row[self.rows]]))
        if self._chosen is not None:
            self._chosen.note(row)
        elif self.problem.twin_distance is not None:
            ruled_out.append(self.problem.twins(row))
        return np.concatenate(ruled_out)

    def require_free(self) -> None:
        """Refuse to go on when near-duplicates have used up the pool."""
        if not self.free.any():
            raise self.problem.too_few_distinct(self.problem.k - self._left)
