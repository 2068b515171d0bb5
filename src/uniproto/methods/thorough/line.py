"""The best rows of all on a line, by dynamic programming over their order.

The plan in the order of the line is optimal, so the q-th prototype from the left takes the q-th
block of target mass. Each block wants a row near its median (its mean, for squares), and costs
rise from there to both sides; so of k rows, each is among the k nearest ranks on either side:
farther away, a nearer row would be free.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uniproto.problem.masses import Masses
from uniproto.problem.problem import Problem
from uniproto.transport.line import Line, line_of

_MOST_WORK = 20_000_000  # pairs of a block and a row

Numbers = NDArray[np.float64]


def can_solve_on_line(problem: Problem) -> Line | None:
    """The line, where the rows lie on one and nothing but given rows stands in the way."""
    if problem.twin_distance is not None or problem.limits is not None:
        return None
    among = len(problem.initial) + len(problem.candidates)
    ranks = among if len(problem.initial) else min(among, 2 * problem.k + 2)
    if problem.k * ranks > _MOST_WORK:
        return None
    return line_of(problem.costs)


def best_on_line(problem: Problem, line: Line) -> NDArray[np.intp]:
    """The k rows that cost least, from left to right."""
    rows = np.concatenate([problem.initial, problem.candidates])
    ranked = rows[np.lexsort((rows, line.source[rows]))]
    places = line.source[ranked]
    forced = np.flatnonzero(np.isin(ranked, problem.initial))
    blocks = _Blocks(line, problem.masses)
    k, count = problem.k, len(ranked)
    # best[i]: the least cost of the blocks so far, taken by some of the first `begin` + i rows.
    begin, best = 0, np.zeros(count + 1)
    if len(forced):
        best[forced[0] + 1 :] = np.inf
    taken: list[tuple[int, NDArray[np.intp]]] = []
    for block in range(k):
        low, high = 0, count
        if not len(forced):
            middle = int(np.searchsorted(places, blocks.middle[block]))
            low, high = max(0, middle - k - 1), min(count, middle + k + 1)
        before = np.arange(low, high)  # as many rows come before the one that takes the block
        known = np.clip(before - begin, 0, len(best) - 1)
        costs = np.where(before < begin, np.inf, best[known])
        costs = costs + blocks.costs(block, places[low:high])
        best, chosen = _least_so_far(costs, forced - low)
        taken.append((low, chosen))
        begin = low
    at, found = count, np.empty(k, np.intp)
    for block in range(k - 1, -1, -1):
        low, chosen = taken[block]
        at = low + int(chosen[min(at - low, len(chosen) - 1)])
        found[block] = ranked[at]
    return found


def _least_so_far(costs: Numbers, forced: NDArray[np.intp]) -> tuple[Numbers, NDArray[np.intp]]:
    """For i rows in turn the least of their costs and where it is; no forced row is passed over.

    The first entry is that of no row at all.
    """
    least = np.full(len(costs) + 1, np.inf)
    where = np.zeros(len(costs) + 1, np.intp)
    begins = [0, *forced.tolist()]
    for begin, end in zip(begins, [*forced.tolist(), len(costs)], strict=True):
        if begin < end:
            part = np.minimum.accumulate(costs[begin:end])
            least[begin + 1 : end + 1] = part
            is_new = np.concatenate([[True], part[1:] < part[:-1]])
            news = np.where(is_new, np.arange(begin, end), 0)
            where[begin + 1 : end + 1] = np.maximum.accumulate(news)
    return least, where


class _Blocks:
    """The k blocks of target mass, and what a row would pay for one."""

    def __init__(self, line: Line, masses: Masses) -> None:
        order = np.argsort(line.target, kind="stable")
        self.power, self.need = line.power, float(masses.need)
        self._origin = float(np.median(line.target))
        self._targets = line.target[order] - self._origin
        offer = masses.offer[order]
        ends = np.cumsum(offer)
        self._mass = np.concatenate([[0], ends]).astype(np.float64)
        self._moment = np.concatenate([[0.0], np.cumsum(offer * self._targets)])
        k = int(masses.total // masses.need)
        edges = masses.need * np.arange(k + 1)
        at = np.minimum(np.searchsorted(ends, edges, side="left"), len(ends) - 1)
        self._edges = edges.astype(np.float64)
        self._edge_moments = self._moment[at] + (self._edges - self._mass[at]) * self._targets[at]
        self._means = np.diff(self._edge_moments) / self.need
        half = edges[:-1] + masses.need / 2
        medians = self._targets[np.minimum(np.searchsorted(ends, half), len(ends) - 1)]
        self.middle = self._origin + (medians if self.power == 1 else self._means)

    def costs(self, block: int, places: Numbers) -> Numbers:
        """The cost of the block's mass at each place, less what is the same for all places."""
        x = places - self._origin
        if self.power == 2:
            return np.asarray(self.need * (x - self._means[block]) ** 2)
        at = np.searchsorted(self._targets, x, side="right")
        left, right = self._edges[block : block + 2]
        left_moment, right_moment = self._edge_moments[block : block + 2]
        mass, moment = self._mass[at], self._moment[at]
        moment = np.where(mass < left, left_moment, np.where(mass > right, right_moment, moment))
        mass = np.clip(mass, left, right)
        below = x * (mass - left) - (moment - left_moment)
        above = (right_moment - moment) - x * (right - mass)
        return np.asarray(below + above)
