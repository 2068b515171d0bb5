"""The search for prices that prove a high lower bound.

If neighbour lists of all rows are short, subgradient steps over those come first (`ListAscent`).
Otherwise, or if they end far below the cost, the bound is raised against a few candidate rows
(`candidate_search.py`). The reported bound is evaluated by `proven_bound`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.certificate.bound import Quota, admissible_rows, proven_bound
from uniproto.certificate.candidate_search import AscentStart, FoundPrices, search
from uniproto.certificate.certificate import SHIFTED, Certificate
from uniproto.certificate.first_prices import cell_prices, coarse_prices
from uniproto.fills.priced_fills import PricedRows
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import working_time
from uniproto.runtime.progress import Progress

_LISTED_COSTS = 5_000_000  # the largest m · n for steps over lists of all rows
_LARGEST_COST = 1e32  # that `search` can sum in single precision
_TIMES_A_LOOK = 2.2  # the time limit to suggest, in units of a pass over every row
_LONGER = 1.5  # the least factor on a time limit that was too short
_LOOSE = 0.05  # the relative gap from which another search is tried


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

    `prices` are the initial ones: those of the optimal plan, or of an earlier search, which is then
    continued. `rows` are the prototypes and `plan` their plan, from which better initial prices are
    derived. The search ends at the time limit; the final pass over every row, which makes the
    prices a proof, may take as long again. `proven` is an existing proof that these rows are
    optimal, with its bound; then there is no search.
    """
    relative = problem.costs.metric not in SHIFTED
    if proven is not None:
        why, least = proven
        return Certificate(least, cost, prices, True, 0, 0.0, relative, proof=why)
    begin = working_time()
    deadline = np.inf if time_limit is None else begin + time_limit
    progress = progress or Progress(shown=False)
    tried: list[FoundPrices] = []
    if cost > 0:
        start = _start(problem, cost, prices, rows, plan)
        tried = _tried(problem, cost, start, deadline, progress)
    none = np.zeros(problem.n)  # proves a bound of 0, as no cost is negative
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


def _limit_needed(tried: list[FoundPrices], time_limit: float | None) -> float | None:
    """A sufficient time limit if there was no time for a bound, rounded to two digits."""
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
) -> AscentStart:
    if rows is None or plan is None:
        return AscentStart((prices,), np.full(problem.n, cost), problem.initial)
    of_cells, scale = cell_prices(problem, rows, plan)
    return AscentStart((of_cells, prices), scale, rows)


def _tried(
    problem: Problem, cost: float, start: AscentStart, deadline: float, progress: Progress
) -> list[FoundPrices]:
    """The results of successive searches, each continuing from the last one."""
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
) -> FoundPrices:
    """Steps over lists of all rows, from the best of these prices."""
    best, total, steps, converged = ascent.climb(starts, cost, deadline, progress)
    return FoundPrices(best, ascent.bounds_at(best), total, steps, converged)


# --- subgradient steps on the prices of the targets, over neighbour lists of every row ------------
# Lists may be truncated: an unlisted target costs at least as much as the last entry, so the steps
# are cheap and every value is still a valid bound. Steps are slow if lists are long, that is, if
# each prototype represents many targets; if they are short, they close the gap to the last per
# cent.


_MOST_STEPS = 2000
_LEAST_NEW, _MOST_NEW = 0.01, 0.1  # the share of the newest subgradient in a step's direction
_PATIENCE = 6  # steps without progress before they are shortened
_SHORTENED, _LENGTHENED = 2 / 3, 1.1
_SHORTEST_STEP, _LONGEST_STEP = 3e-4, 2.0
_TINY = np.finfo(np.float64).tiny
_FEWEST_ACTIVE = 2000  # active rows of a group, if it has as many
_FIRST_ROUND = 8  # steps between evaluations of every row; each round is twice as long


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
        self.active = np.zeros(m, bool)  # rows that steps evaluate

    def climb(
        self,
        starts: Sequence[NDArray[np.float64]],
        cost: float,
        deadline: float,
        progress: Progress,
    ) -> tuple[NDArray[np.float64], float, int, bool]:
        """Raise the bound, from the best of the initial prices, towards the given cost.

        Returns the best prices, the bound there (times k), the number of steps and whether they
        converged.

        Few rows are ever summed. So steps evaluate the active rows only. Between rounds of steps
        every row is evaluated, which gives the actual bound, and rows that should have been summed
        become active.
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
        """Activate the rows of smallest values; returns the quotas among active rows."""
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
        """Steps from the best prices; returns prices, number of steps and whether they converged.

        A subgradient at a kink of the bound belongs to one of the adjacent faces. A running average
        of subgradients, weighted to be short, points along the ridge between them.
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
                if slope @ direction > 0:  # still ascending
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
        """A lower bound of every row's value at these prices, including rounding."""
        self._note(prices)
        self._compute(np.arange(len(self.values)))
        return self.values - self.problem.costs.rounding

    def _evaluate(
        self, prices: NDArray[np.float64], quotas: list[Quota]
    ) -> tuple[float, NDArray[np.intp]]:
        """The bound (times k) at these prices, and the rows it sums."""
        self._note(prices)
        parts: list[NDArray[np.intp]] = []
        for quota in quotas:
            self._compute(quota.given)
            free = quota.free
            if quota.of_the_rest:
                free = np.setdiff1d(free, np.concatenate(parts))
            parts += [quota.given, self._smallest(free, quota.count)]
        summed = np.concatenate(parts)
        return float(self.values[summed].sum() - self.capacity @ prices), summed

    def _note(self, prices: NDArray[np.float64]) -> None:
        self.fallen += max(0.0, float((self.prices - prices).max()))
        self.prices = prices

    def _bounds(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Lower bounds of the rows' values from earlier evaluations."""
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
