"""The best rows of all on a line, by dynamic programming over their order.

The plan in the order of the line is optimal, so the q-th prototype from the left takes the q-th
block of target mass. Each block wants a row near its median (its mean, for squares), and costs
rise from there to both sides; so of k rows, each is among the k nearest ranks on either side:
farther away, a nearer row would be free.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from uniproto.problem.allowed import Allowed
from uniproto.problem.masses import Masses
from uniproto.problem.problem import Problem
from uniproto.transport.line import Line, carried, line_of

_MOST_WORK = 20_000_000  # pairs of a block and a row

Numbers = NDArray[np.float64]


def can_solve_on_line(problem: Problem) -> Line | None:
    """The line, where the rows lie on one and nothing but given rows stands in the way."""
    if not Allowed(problem).is_free:
        return None
    among = len(problem.initial) + len(problem.candidates)
    ranks = among if len(problem.initial) else min(among, 2 * problem.k + 2)
    if problem.k * ranks > _MOST_WORK:
        return None
    return line_of(problem.costs)


def best_on_line(problem: Problem, line: Line) -> tuple[NDArray[np.intp], float]:
    """The k rows that cost least, from left to right, and a cost that no k rows are below."""
    rows = np.concatenate([problem.initial, problem.candidates])
    ranked = rows[np.lexsort((rows, line.source[rows]))]
    places = line.source[ranked]
    forced = np.flatnonzero(np.isin(ranked, problem.initial))
    k, count = problem.k, len(ranked)
    # best[i]: the least cost of the blocks so far, taken by some of the first `begin` + i rows.
    begin, best = 0, np.zeros(count + 1)
    if len(forced):
        best[forced[0] + 1 :] = np.inf
    taken: list[tuple[int, NDArray[np.intp]]] = []
    for block in _blocks(line, problem.masses):
        low, high = 0, count
        if not len(forced):
            middle = int(np.searchsorted(places, block.middle))
            low, high = max(0, middle - k - 1), min(count, middle + k + 1)
        before = np.arange(low, high)  # as many rows come before the one that takes the block
        known = np.clip(before - begin, 0, len(best) - 1)
        costs = np.where(before < begin, np.inf, best[known])
        costs = costs + block.costs(places[low:high])
        best, chosen = _least_so_far(costs, forced - low)
        taken.append((low, chosen))
        begin = low
    at, found = count, np.empty(k, np.intp)
    for place in range(k - 1, -1, -1):
        low, chosen = taken[place]
        at = low + int(chosen[min(at - low, len(chosen) - 1)])
        found[place] = ranked[at]
    return found, _rounded_down(problem, line, float(best[-1]) / k)


def _rounded_down(problem: Problem, line: Line, cost: float) -> float:
    """What is left of the least cost of whole masses, whatever was rounded.

    Every sum is one of costs relative to a block's own middle, so its rounding is a share of it.
    """
    least = cost * (1 - 8 * (problem.n + problem.k + 64) * float(np.finfo(np.float64).eps))
    if problem.target_weights is None:
        return least
    return least - carried(line, problem.masses, problem.target_weights, problem.k, cost)


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


def _blocks(line: Line, masses: Masses) -> Iterator[_Block]:
    """The k blocks of target mass, from left to right."""
    order = np.argsort(line.target, kind="stable")
    targets, ends = line.target[order], np.cumsum(masses.offer[order])
    for edge in range(0, masses.total, masses.need):
        first, last = np.searchsorted(ends, (edge + 1, edge + masses.need))
        inside = np.minimum(ends[first : last + 1], edge + masses.need)
        held = np.diff(inside, prepend=edge) / masses.need
        yield _Block(targets[first : last + 1], held, line.power)


class _Block:
    """A prototype's worth of target mass, and what a row would pay for it.

    Coordinates are relative to the block's median, to keep precision.
    """

    def __init__(self, targets: Numbers, masses: Numbers, power: int) -> None:
        self.power, self._masses = power, masses
        self._held = np.concatenate([[0.0], np.cumsum(masses)])
        half = np.searchsorted(self._held[1:], self._held[-1] / 2)
        self._origin = float(targets[min(half, len(targets) - 1)])
        self._targets = targets - self._origin
        self._moments = np.concatenate([[0.0], np.cumsum(masses * self._targets)])
        self._mean = self._moments[-1] / self._held[-1] if power == 2 else 0.0
        self.middle = self._origin + self._mean

    def costs(self, places: Numbers) -> Numbers:
        """What rows at these places would pay."""
        x = places - self._origin
        if self.power == 2:
            spread = self._masses @ (self._targets - self._mean) ** 2
            return np.asarray((x - self._mean) ** 2 + spread)
        at = np.searchsorted(self._targets, x, side="right")
        held, moment = self._held[at], self._moments[at]
        below = x * held - moment
        above = (self._moments[-1] - moment) - x * (self._held[-1] - held)
        return np.asarray(below + above)
