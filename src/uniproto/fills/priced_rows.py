"""Rows against priced targets: the cheapest unit of mass each could collect at those prices.

For prices v ≥ 0 this is BotAvg_i(C + v) of the duality bounds. The certificate sums it, the swap
search and exact gains rule candidates out by it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uniproto.fills.fill_kernels import Lists
from uniproto.fills.lazy_fills import list_length
from uniproto.fills.priced_kernels import cheapest_units, cheapest_units_of_rows, mass_taken
from uniproto.geometry.lists import CpuLists, lists_of
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import available_cores, pieces_of, side_by_side

_LIST_FACTOR = 8  # prices make targets beyond a row's own neighbourhood worth a look
_MOST_ENTRIES = 10**8  # beyond these, longer lists take more time than they are worth
_ROWS_PER_PIECE = 2048
_ENTRIES_PER_PIECE = 2**24  # of whole rows, in double precision


class PricedRows:
    """Neighbour lists of some rows, for evaluating them under many sets of prices.

    Lists may be truncated: values are then lower bounds, as everything that uses them needs.
    `longest` makes them as long as they may be, for prices that are far apart: a target that is
    not listed counts as if it had none.
    """

    def __init__(
        self,
        problem: Problem,
        rows: NDArray[np.intp],
        progress: Progress,
        *,
        longest: bool = False,
    ) -> None:
        self.problem, self.rows = problem, rows
        self.offer, self.need = problem.masses.offer, problem.masses.need
        entry = problem.costs.dtype.itemsize + 4
        affordable = max(1, problem.memory // 2 // (max(1, len(rows)) * entry))
        usual = list_length(problem.masses)
        longer = max(usual, _MOST_ENTRIES // max(1, len(rows)))
        if not longest:
            longer = min(_LIST_FACTOR * usual, longer)
        length = min(longer, affordable, problem.n)
        costs, columns = lists_of(
            CpuLists() if not problem.lists.exact else problem.lists,
            problem.costs,
            rows,
            length,
            problem.memory,
            progress,
        )
        complete = length == problem.n
        self._lists = Lists(
            costs=costs,
            columns=columns,
            kept=np.zeros(len(rows), np.int64),
            rest=np.zeros(len(rows), np.int64),
            stop=np.full(len(rows), length, np.int64),
            tail=np.full(len(rows), np.inf) if complete else costs[:, -1].astype(np.float64),
        )

    def values(
        self, positions: NDArray[np.intp], prices: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Lower bounds of the rows' values at these prices, in the costs' own precision."""

        def compute(piece: slice) -> NDArray[np.float64]:
            return cheapest_units(self._lists, positions[piece], prices, self.offer, self.need)

        found = list(side_by_side(compute, pieces_of(len(positions), _ROWS_PER_PIECE)))
        return np.concatenate(found) if found else np.empty(0)

    def taken(
        self, positions: NDArray[np.intp], prices: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The units each target gives when all these rows collect their cheapest unit."""

        def compute(piece: slice) -> NDArray[np.int64]:
            return mass_taken(self._lists, positions[piece], prices, self.offer, self.need)

        step = max(_ROWS_PER_PIECE, -(-len(positions) // available_cores()))
        found = side_by_side(compute, pieces_of(len(positions), step))
        return sum(found, np.zeros(len(prices), np.int64)) / self.need


def exact_values(
    problem: Problem, rows: NDArray[np.intp], prices: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The rows' values over the whole target, in double precision."""
    offer, need = problem.masses.offer, problem.masses.need

    def compute(piece: slice) -> NDArray[np.float64]:
        block = problem.costs.exact_block(rows[piece])
        return cheapest_units_of_rows(block, prices, offer, need)

    affordable = problem.memory // (64 * available_cores())  # several copies of 8 bytes
    at_once = max(1, min(_ENTRIES_PER_PIECE, affordable) // problem.n)
    found = list(side_by_side(compute, pieces_of(len(rows), at_once)))
    return np.concatenate(found) if found else np.empty(0)
