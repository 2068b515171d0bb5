"""Lazy greedy coverage, the engine of k-medoids and facility location.

Every target j is served by its cheapest prototype at c_j = min_{i∈P} C_ij, capped by a start value.
Both methods maximise the saving Σ_j ν_j (start − c_j), which is monotone and submodular: a gain
computed earlier bounds today's from above, so only the rows with the highest bounds are computed
again, and the picks equal those of a scan of every row (Minoux 1978). Gains that differ by rounding
alone count as ties, which go to the lowest row.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import EVERY, block_rows, row_blocks
from uniproto.geometry.costs import Costs
from uniproto.methods.contract import Picks
from uniproto.methods.picking import first_best, pick_greedily
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import njit
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import available_cores, parallel_for, parallel_map, pieces_of

_FIRST_BATCH = 64


def pick_by_coverage(problem: Problem, progress: Progress, start: float | None = None) -> Picks:
    """Greedy picks, with the target mass each prototype serves as its learned weight.

    `start` is what an unserved target costs; default: the largest cost of the problem.
    """
    coverage = Coverage(problem, progress, start)
    rows, gains = pick_greedily(problem, coverage, progress)
    return Picks(rows, gains, coverage.served(), notes={"evaluated_rows": coverage.evaluated})


class Coverage:
    """What the prototypes added so far save, and an upper bound on what every row would add."""

    def __init__(self, problem: Problem, progress: Progress, start: float | None = None) -> None:
        self.costs = costs = problem.costs
        self.target_weights = problem.masses.weights
        m, n = costs.shape
        fits = m * n * costs.dtype.itemsize <= problem.memory
        self._matrix = np.empty((m, n), costs.dtype) if fits else None
        self.served_at = np.full(n, costs.ceiling)  # c_j
        self.server = np.zeros(n, np.intp)  # which pick serves target j; the first, at first
        self.picked = self.evaluated = 0
        self._rounding = 16 * float(np.finfo(costs.dtype).eps)  # of a gain, relative
        self.bounds, largest = np.zeros(m), 0.0
        blocks = list(costs.column_blocks())
        with progress.stage("coverage", m * len(blocks)) as advance:
            for columns in blocks:
                read = partial(self._read, costs.read(EVERY, columns), columns)
                for count, top in parallel_map(read, row_blocks(m, columns.stop - columns.start)):
                    largest = max(largest, top)
                    advance(count)
        start = largest if start is None else start
        self.bounds -= costs.ceiling - start
        self.served_at[:] = start

    def best(self, free: NDArray[np.intp]) -> int:
        bounds = self.bounds[free]
        stale = np.full(len(free), self.picked > 0)
        batch = _FIRST_BATCH
        while True:
            best = bounds[~stale].max(initial=-np.inf)
            slack = max(0.0, best) * self._rounding
            waiting = np.flatnonzero(stale & (bounds >= best - slack))
            if not waiting.size:
                break
            if len(waiting) > batch:
                waiting = waiting[np.argpartition(-bounds[waiting], batch)[:batch]]
            bounds[waiting] = self._gains(free[waiting])
            stale[waiting] = False
            batch *= 2
        self.bounds[free] = bounds
        return int(free[first_best(bounds, slack)])

    def add(self, row: int) -> float:
        block = self._block(np.array([row]))
        gain = self._savings(block, EVERY)[0]
        costs = block[0]
        nearer = costs < self.served_at
        self.served_at[nearer] = costs[nearer]
        self.server[nearer] = self.picked
        self.picked += 1
        return float(gain)

    def served(self) -> NDArray[np.float64]:
        """The target mass each prototype serves, in pick order."""
        served = np.bincount(self.server, self.target_weights, minlength=self.picked)
        return served.astype(np.float64)

    def _read(self, column_costs: Costs, columns: slice, rows: slice) -> tuple[int, float]:
        """Read some costs, add what they save to the bounds; returns their rows and the largest."""
        block = column_costs.block(rows)
        if self._matrix is not None:
            self._matrix[rows, columns] = block
        self.bounds[rows] += self._savings(block, columns)
        return len(block), float(block.max())

    def _block(self, rows: NDArray[np.intp]) -> NDArray[Any]:
        return self.costs.block(rows) if self._matrix is None else self._matrix[rows]

    def _savings(self, block: NDArray[Any], columns: slice) -> NDArray[np.float64]:
        block = np.ascontiguousarray(block)  # or the loop is several times as slow
        served_at, weights = self.served_at[columns], self.target_weights[columns]
        return _savings(block, np.arange(len(block)), served_at, weights)

    def _gains(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        self.evaluated += len(rows)
        if self._matrix is not None:
            return _savings(self._matrix, rows, self.served_at, self.target_weights)

        gains, mine = np.zeros(len(rows)), self.costs.restrict(rows, EVERY)
        for columns in mine.column_blocks():
            column_costs = mine.read(EVERY, columns)

            def compute(
                part: slice, column_costs: Costs = column_costs, columns: slice = columns
            ) -> None:
                gains[part] += self._savings(column_costs.block(part), columns)

            step = min(block_rows(column_costs.shape[1]), -(-len(rows) // available_cores()))
            parallel_for(compute, pieces_of(len(rows), step))
        return gains


# Sums may be reordered, so that the loop runs on vector registers; nothing else is relaxed.
@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def _savings(
    costs: NDArray[Any],
    rows: NDArray[np.intp],
    served_at: NDArray[np.float64],
    target_weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Σ_j ν_j max(0, c_j − C_ij) for some rows i."""
    savings = np.empty(len(rows))
    for t in range(len(rows)):
        row, total = costs[rows[t]], 0.0
        for j in range(len(row)):
            total += target_weights[j] * max(0.0, served_at[j] - row[j])
        savings[t] = total
    return savings
