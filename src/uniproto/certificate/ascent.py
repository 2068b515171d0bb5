"""The search for prices that prove a high lower bound.

Where neighbour lists of all rows are short, steps over those come first (`ListAscent`).
Elsewhere, and where they end far below the cost, the bound is raised against few candidate rows
(`candidate_search.py`). The bound that is reported is computed once more, by `proven_bound`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.certificate.bound import Quota, admissible_rows, proven_bound
from uniproto.certificate.candidate_search import Found, Start, search
from uniproto.certificate.certificate import SHIFTED, Certificate
from uniproto.certificate.first_prices import cell_prices, coarse_prices
from uniproto.fills.priced_fills import PricedRows
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import working_time
from uniproto.runtime.progress import Progress

_LISTED_COSTS = 5_000_000  # m · n up to which steps over lists of all rows are worth their time
_LARGEST_COST = 1e32  # that `search`, in single precision, has room to add up
_TIMES_A_LOOK = 2.2  # a time limit that leaves as much for steps, and a little to spare
_LONGER = 1.5  # times a time limit that was too short is the least that is worth a try
_LOOSE = 0.05  # a bound this far below the cost is worth another search


def certify(
    problem: Problem,
    cost: float,
    prices: NDArray[np.float64],
    *,
    rows: NDArray[np.intp] | None = None,
    plan: sp.csr_array | None = None,
    proven: tuple[str, float] | None = None,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Search for the best bound, aiming at `cost`.

    `prices` are any to begin with: of the optimal plan, or those of an earlier search, which
    then goes on. `rows` are the prototypes in hand and `plan` their plan: the better half of
    what is known about where to begin. The search ends at the time limit; the look at every row
    that makes its prices a proof may take as long again. `proven` is a proof that these rows are
    the best, and the bound that it leaves: then there is nothing to search for.
    """
    relative = problem.costs.metric not in SHIFTED
    if proven is not None:
        why, least = proven
        return Certificate(least, cost, prices, True, 0, 0.0, relative, proof=why)
    begin = working_time()
    deadline = np.inf if time_limit is None else begin + time_limit
    progress = progress or Progress(shown=False)
    tried: list[Found] = []
    if cost > 0:
        start = _start(problem, cost, prices, rows, plan)
        tried = _tried(problem, cost, start, deadline, progress)
    none = np.zeros(problem.n)  # no prices prove a bound of 0: no cost is negative
    found = [(0.0, none)]
    last = 2 * deadline - begin
    for each in tried:
        bound = proven_bound(problem, each.prices, each.values, deadline=last)
        found.append((bound, each.prices))
    bound, best = max(found, key=lambda pair: pair[0])
    return Certificate(
        lower_bound=bound,
        cost=cost,
        prices=best,
        converged=not tried or tried[-1].converged,
        steps=sum(each.steps for each in tried),
        seconds=working_time() - begin,
        relative=relative,
        limit_needed=None if bound > 0 else _limit_needed(tried, time_limit),
    )


def _limit_needed(tried: list[Found], time_limit: float | None) -> float | None:
    """The time limit for a bound where there was no time for one, in two digits."""
    looks = [each.look for each in tried if each.look is not None]
    if not looks or time_limit is None:
        return None
    needed = max(_TIMES_A_LOOK * looks[-1], _LONGER * time_limit, 1.0)
    unit = 10.0 ** max(math.floor(math.log10(needed)) - 1, 0)
    return math.ceil(needed / unit) * unit


def _start(
    problem: Problem,
    cost: float,
    prices: NDArray[np.float64],
    rows: NDArray[np.intp] | None,
    plan: sp.csr_array | None,
) -> Start:
    if rows is None or plan is None:
        return Start((prices,), np.full(problem.n, cost), problem.initial)
    of_cells, scale = cell_prices(problem, rows, plan)
    return Start((of_cells, prices), scale, rows)


def _tried(
    problem: Problem, cost: float, start: Start, deadline: float, progress: Progress
) -> list[Found]:
    """What one search after the other finds, each from where the last one ended."""
    may_search = problem.costs.ceiling < _LARGEST_COST
    if problem.m * problem.n > _LISTED_COSTS:
        return [search(problem, cost, start, deadline, progress)] if may_search else []
    ascent = ListAscent(problem, progress)
    none = np.zeros(problem.n)
    tried = [_over_lists(ascent, cost, (none, *start.prices), deadline, progress)]

    def may_end() -> bool:
        close = tried[-1].total >= (1 - _LOOSE) * problem.k * cost
        return close or working_time() > deadline

    if may_end():
        return tried
    coarse = coarse_prices(problem, ascent.rows)
    if coarse is not None:
        ascent = ListAscent(problem, progress, longest=True)
        starts = (tried[-1].prices, coarse)
        tried.append(_over_lists(ascent, cost, starts, deadline, progress))
        if may_end():
            return tried
    if not may_search:
        return tried
    again = replace(start, prices=(start.prices[0], tried[-1].prices))
    tried.append(search(problem, cost, again, deadline, progress))
    starts = (tried[-2].prices, tried[-1].prices)
    return [*tried, _over_lists(ascent, cost, starts, deadline, progress)]


def _over_lists(
    ascent: ListAscent,
    cost: float,
    starts: tuple[NDArray[np.float64], ...],
    deadline: float,
    progress: Progress,
) -> Found:
    """Steps over lists of all rows, from the best of these prices."""
    best, total, steps, converged = ascent.climb(starts, cost, deadline, progress)
    return Found(best, ascent.bounds_at(best), total, steps, converged)


# --- subgradient steps on the prices of the targets, over neighbour lists of every row ------------
# Lists may be truncated: an unlisted target costs at least as much as the last entry, so the steps
# are cheap and every value is still a valid bound. Slow where lists are long, which is where each
# prototype represents many targets; where they are short, the way to the last per cent.


_MOST_STEPS = 2000
_LEAST_NEW, _MOST_NEW = 0.01, 0.1  # the share of the newest subgradient in a step's direction
_PATIENCE = 6  # steps without progress before they are shortened
_SHORTENED, _LENGTHENED = 2 / 3, 1.1
_SHORTEST_STEP, _LONGEST_STEP = 3e-4, 2.0
_TINY = np.finfo(np.float64).tiny
_FEWEST_ACTIVE = 2000  # rows of a group that steps look at, where it has as many
_FIRST_ROUND = 8  # steps before every row is looked at again; each round is twice as long


class ListAscent:
    """Subgradient steps on the bound, over truncated lists, evaluating few rows per step.

    If no price falls by more than d, no row's value falls by more than d. So a value computed
    earlier, less the largest falls of prices since, still bounds the row from below, and only
    rows whose bound is among the smallest need to be computed again.
    """

    def __init__(self, problem: Problem, progress: Progress, *, longest: bool = False) -> None:
        self.problem = problem
        self.rows, self.quotas = admissible_rows(problem)
        self.priced = PricedRows(problem, self.rows, progress, longest=longest)
        self.capacity = problem.masses.offer / problem.masses.need
        m = len(self.rows)
        self.values = np.full(m, -np.inf)
        self.fallen_then = np.zeros(m)
        self.fallen = 0.0
        self.prices = np.zeros(problem.n)
        self.active = np.zeros(m, bool)  # rows that steps look at

    def climb(
        self,
        starts: Sequence[NDArray[np.float64]],
        cost: float,
        deadline: float,
        progress: Progress,
    ) -> tuple[NDArray[np.float64], float, int, bool]:
        """Raise the bound, from the best start, towards the cost in hand.

        Returns the best prices, the bound there (times k), the steps taken and whether they
        settled.

        Of many rows few are ever summed. So steps are taken as if there were none but the
        active ones, which are cheap to evaluate. Between rounds of steps every row is: that value
        counts, and rows that should have been summed become active.
        """
        values = [self._evaluate(prices, self.quotas)[0] for prices in starts]
        prices = best_prices = starts[int(np.argmax(values))]
        best, steps, round_steps, settled = max(values), 0, _FIRST_ROUND, False
        with progress.stage("certificate: raising the bound", _MOST_STEPS) as advance:
            while True:
                value, summed = self._evaluate(prices, self.quotas)
                if value > best:
                    best, best_prices = value, prices
                if settled and self.active[summed].all():
                    return best_prices, best, steps, True
                if steps >= _MOST_STEPS or working_time() > deadline:
                    return best_prices, best, steps, False
                active = self._activate()
                most = _MOST_STEPS if self.active.all() else round_steps
                most = min(most, _MOST_STEPS - steps)
                prices, taken, settled = self._ascend(prices, active, cost, most, deadline, advance)
                steps, round_steps = steps + taken, 2 * round_steps

    def _activate(self) -> list[Quota]:
        """The quotas among active rows, joined by those of the smallest values."""
        for quota in self.quotas:
            likely = min(max(_FEWEST_ACTIVE, 4 * quota.count), len(quota.free))
            bounds = self._bounds(quota.free)
            self.active[quota.given] = True
            self.active[quota.free[np.argpartition(bounds, likely - 1)[:likely]]] = True
        return [replace(quota, free=quota.free[self.active[quota.free]]) for quota in self.quotas]

    def _ascend(
        self,
        start: NDArray[np.float64],
        quotas: list[Quota],
        cost: float,
        most_steps: int,
        deadline: float,
        advance: Callable[[int], None],
    ) -> tuple[NDArray[np.float64], int, bool]:
        """Steps from the best prices so far; returns them, how many were taken, if they settled.

        A subgradient at a kink of the bound points along one of its faces. The running average of
        many, weighted so as to be short, points along the ridge between them.
        """
        k, capacity = self.problem.k, self.capacity
        best_prices = start
        best, summed = self._evaluate(start, quotas)
        direction = self.priced.taken(summed, start) - capacity
        length, waited = 1.0, 0
        for step in range(most_steps):
            scale = float(direction @ direction)
            if scale == 0.0 or length < _SHORTEST_STEP or best >= k * cost * (1 - 1e-9):
                return best_prices, step, True
            if working_time() > deadline:
                return best_prices, step, False
            stride = length * (k * cost - best) / scale
            prices = np.maximum(best_prices + stride * direction, 0.0)
            value, summed = self._evaluate(prices, quotas)
            slope = self.priced.taken(summed, prices) - capacity
            if value > best + 1e-7 * abs(best):
                best, best_prices, waited = value, prices, 0
                if slope @ direction > 0:  # it still goes uphill there
                    length = min(_LENGTHENED * length, _LONGEST_STEP)
            else:
                waited += 1
                if waited == _PATIENCE:
                    length, waited = _SHORTENED * length, 0
            change = slope - direction
            shortest = -float(direction @ change) / max(float(change @ change), _TINY)
            direction += min(max(shortest, _LEAST_NEW), _MOST_NEW) * change
            advance(1)
        return best_prices, most_steps, False

    def bounds_at(self, prices: NDArray[np.float64]) -> NDArray[np.float64]:
        """A lower bound of every row's value at these prices, whatever the costs have lost."""
        self._note(prices)
        self._compute(np.arange(len(self.values)))
        return self.values - self.problem.costs.rounding

    def _evaluate(
        self, prices: NDArray[np.float64], quotas: list[Quota]
    ) -> tuple[float, NDArray[np.intp]]:
        """The bound (times k) at these prices, and the rows it sums."""
        self._note(prices)
        parts = []
        for quota in quotas:
            self._compute(quota.given)
            parts += [quota.given, self._smallest(quota.free, quota.count)]
        summed = np.concatenate(parts)
        return float(self.values[summed].sum() - self.capacity @ prices), summed

    def _note(self, prices: NDArray[np.float64]) -> None:
        self.fallen += max(0.0, float((self.prices - prices).max()))
        self.prices = prices

    def _bounds(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """What is known of the rows' values without computing them again."""
        return self.values[rows] - (self.fallen - self.fallen_then[rows])

    def _smallest(self, rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
        """The rows with the `count` smallest values, computing no more of them than needed."""
        if count == 0:
            return rows[:0]
        bounds = self._bounds(rows)
        likely = min(len(rows), count + count // 2)
        order = np.argpartition(bounds, likely - 1) if likely < len(rows) else np.arange(len(rows))
        self._compute(rows[order[:likely]])
        limit = np.partition(self.values[rows[order[:likely]]], count - 1)[count - 1]
        rest = rows[order[likely:]]
        rest = rest[bounds[order[likely:]] < limit]
        self._compute(rest)
        computed = np.concatenate([rows[order[:likely]], rest])
        return computed[np.argpartition(self.values[computed], count - 1)[:count]]

    def _compute(self, rows: NDArray[np.intp]) -> None:
        self.values[rows] = self.priced.values(rows, self.prices)
        self.fallen_then[rows] = self.fallen
