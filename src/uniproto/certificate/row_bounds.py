"""Lower bounds of every row's value at given prices, which make a certificate a proof.

Each bound comes from a threshold (`thresholds.py`), over costs in their own precision, lowered by
their rounding error. Three things save work without loss of rigour:

- If costs obey the triangle inequality and rows have few features, rows that lie close together
  share one list of targets: those that the middle row could take if it were closer by the radius of
  the group. Middle rows are bounded first, and a group is skipped if its middle row is so expensive
  that none of the others can matter.
- From one set of prices to the next, no value falls by more than the largest fall of the prices of
  one unit of mass.
- On a GPU, whole rows are summed.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.bound import admissible_rows, proven_bound
from uniproto.certificate.gpu_rows import gpu_rows
from uniproto.certificate.row_groups import Bounded, row_groups
from uniproto.certificate.thresholds import (
    lower_to_least,
    own_lengths,
    rows_per_block,
    threshold_values,
)
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import working_time
from uniproto.runtime.progress import Advance, unseen
from uniproto.runtime.threads import parallel_map, pieces_of

_CORRECTIONS = 2  # of thresholds on a GPU, for the lowest rows
_LOW_ROWS, _LOW_SHARE = 10, 50  # their number: 10 per prototype, and one row in 50


class RowBounds:
    """Bounds of the values of some rows, for successive sets of prices."""

    def __init__(self, problem: Problem, rows: NDArray[np.intp]) -> None:
        self.problem, self.rows = problem, rows
        self.capacity = problem.masses.offer / problem.masses.need
        self.values = np.full(len(rows), -np.inf)
        self.thresholds = np.full(len(rows), np.nan)
        self.prices = np.zeros(problem.n)
        self.gpu = gpu_rows(problem)
        self.groups = row_groups(problem, rows) if self.gpu is None else None

    def sample(self, draw: np.random.Generator, count: int) -> NDArray[np.intp]:
        """About `count` random positions, in whole groups if there are any."""
        if self.groups is None:
            return np.sort(draw.permutation(len(self.rows))[:count])
        return self.groups.sample(draw, count)

    def share_of(self, places: NDArray[np.intp]) -> float:
        """The work for these positions, as a share of that for every row."""
        if self.groups is None:
            return len(places) / len(self.rows)
        return len(np.unique(self.groups.group_of[places])) / len(self.groups.middles)

    def costs_of(self, places: NDArray[np.intp]) -> NDArray[Any]:
        """The costs of the rows at these positions, up to rounding."""
        if self.groups is None:
            return self.problem.costs.block(self.rows[places])
        return self.groups.costs_of(places)

    def update(
        self,
        prices: NDArray[np.float64],
        places: NDArray[np.intp] | None = None,
        level: float = np.inf,
        deadline: float = np.inf,
        advance: Advance = unseen,
    ) -> bool:
        """Bound the rows at these positions (default: all) at these prices.

        The bounds of other rows are lowered by the largest fall of prices. Rows known to be above
        `level` are skipped; with −∞, all rows that have a bound, for which the bound of a group's
        middle row suffices. Returns whether there was time for all.
        """
        self.values -= largest_fall(self.prices, prices, self.capacity)
        np.nextafter(self.values, -np.inf, out=self.values)  # covers the rounding of the difference
        self.prices = prices
        places = np.arange(len(self.rows)) if places is None else places
        left = places[self.values[places] <= level]
        advance(len(places) - len(left))
        if self.gpu is not None:
            work = self._on_gpu(left)
        elif self.groups is None:
            work = self._of_rows(left, level)
        else:
            known = self.values, self.thresholds
            work = self.groups.values(left, prices, self.capacity, level, *known)
        share = 1.0 if self.groups is None else 0.5  # groups yield every row twice
        for some, values, thresholds in work:
            self.values[some] = np.fmax(self.values[some], values)  # a NaN proves nothing
            self.thresholds[some] = thresholds
            advance(len(some) * share)
            if working_time() > deadline:
                work.close()
                return False
        return True

    def _of_rows(self, places: NDArray[np.intp], level: float) -> Generator[Bounded]:
        """Row by row, over all targets."""
        costs = self.problem.costs

        def compute(piece: slice) -> Bounded:
            some = places[piece]
            values = np.empty(len(some))
            thresholds = self.thresholds[some]
            rows = self.rows[some]
            block = costs.block(rows)
            lower_to_least(costs, block, own_lengths(costs, rows))
            threshold_values(block, self.prices, self.capacity, np.inf, values, thresholds, level)
            return some, values, thresholds

        yield from parallel_map(compute, pieces_of(len(places), rows_per_block(self.problem)))

    def _on_gpu(self, places: NDArray[np.intp]) -> Generator[Bounded]:
        """All rows by guessed thresholds, then the lowest again by corrected ones."""
        low = max(_LOW_ROWS * self.problem.k, len(places) // _LOW_SHARE)
        if low < len(places):
            yield from self._of_thresholds(places, 0)
            places = places[np.argpartition(self.values[places], low)[:low]]
        yield from self._of_thresholds(places, _CORRECTIONS)

    def _of_thresholds(self, places: NDArray[np.intp], corrections: int) -> Generator[Bounded]:
        assert self.gpu is not None
        for part, values, thresholds in self.gpu.values(
            self.rows[places], self.prices, corrections
        ):
            yield places[part], values, thresholds


def bound_by_rows(problem: Problem, prices: NDArray[np.float64]) -> float:
    """The lower bound these prices prove, from one pass over every row; at least 0."""
    rows, _ = admissible_rows(problem)
    prices = prices - min(0.0, float(prices.min()))  # which proves the same
    bounds = RowBounds(problem, rows)
    bounds.update(prices)
    return proven_bound(problem, prices, bounds.values)


def largest_fall(
    before: NDArray[np.float64], after: NDArray[np.float64], capacity: NDArray[np.float64]
) -> float:
    """The largest fall in the price of one unit of mass, rounded up."""
    falls = before - after
    order = np.argsort(-falls, kind="stable")
    held = np.cumsum(capacity[order])
    taken = np.diff(np.minimum(held, 1.0), prepend=0.0)
    fall = float(falls[order] @ taken)
    size = float(np.abs(before).max() + np.abs(after).max())
    return fall + (len(falls) + 64) * float(np.finfo(np.float64).eps) * size
