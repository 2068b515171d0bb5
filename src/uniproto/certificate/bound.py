"""A certificate of quality: no choice of k prototypes can cost less than this.

For any prices v ≥ 0 on the targets and any admissible set P of k rows, weak duality gives

    k · OT(P)  ≥  Σ over P of BotAvg_i(C + v) − Σ_j k ν_j v_j
               ≥  (sum of the k smallest BotAvg_i(C + v)) − Σ_j k ν_j v_j,

where BotAvg_i(C + v) is the cheapest unit of mass row i can collect when target j offers k ν_j at
cost C_ij + v_j. The right side is concave in v; subgradient steps raise it, starting from the
prices of the plan in hand. Constraints enter through which rows may be summed: excluded rows are
left out, given rows are always in, and with groups each group contributes its own quota.

The steps use truncated neighbour lists (what is not listed costs at least the last entry), so
they are cheap and still valid. The bound that is reported comes from one last evaluation in
double precision over whole rows, with every rounding error taken off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.coarse_prices import coarse_prices
from uniproto.fills.priced_rows import PricedRows, exact_values
from uniproto.geometry.blocks import EVERY, Rows
from uniproto.geometry.costs import Costs
from uniproto.geometry.distances import NEAR
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress

_MOST_STEPS = 2000
_LEAST_NEW, _MOST_NEW = 0.01, 0.1  # the share of the newest subgradient in a step's direction
_PATIENCE = 6  # steps without progress before they are shortened
_SHORTENED, _LENGTHENED = 2 / 3, 1.1
_SHORTEST_STEP, _LONGEST_STEP = 3e-4, 2.0
_TINY = np.finfo(np.float64).tiny
_LOOSE = 0.1  # a bound this far below the cost is worth a second search
_FEWEST_ACTIVE = 2000  # rows of a group that steps look at, where it has as many
_FIRST_ROUND = 8  # steps before every row is looked at again; each round is twice as long
_MOST_EXACT_ENTRIES = 10**9  # costs computed anew for the last evaluation; else bounds must do
_SPARE_ROWS = 64  # computed exactly at a time, besides twice as many as are summed
_MOST_ROUNDS = 8
SHIFTED = ("dot", "similarity")  # their costs have an arbitrary zero: only differences mean much


@dataclass(frozen=True)
class Certificate:
    """No k admissible prototypes have an optimal-transport cost below `lower_bound`.

    `gap` is cost / lower_bound − 1 (0 when they meet, otherwise infinite when the bound is 0); for
    metrics whose zero is arbitrary (`dot`, `similarity`) look at `absolute_gap`, cost −
    lower_bound.
    `prices` prove the bound: anyone can put them into the formula. `converged` says whether the
    search ended by itself rather than at the time limit.
    """

    lower_bound: float
    cost: float
    prices: NDArray[np.float64]
    converged: bool
    steps: int
    seconds: float
    relative: bool = True

    @property
    def absolute_gap(self) -> float:
        return max(self.cost - self.lower_bound, 0.0)

    @property
    def gap(self) -> float:
        if self.cost <= self.lower_bound:
            return 0.0
        return self.cost / self.lower_bound - 1 if self.lower_bound > 0 else np.inf

    def __str__(self) -> str:
        gap = f"gap {self.gap:.2%}" if self.relative else f"absolute gap {self.absolute_gap:.4g}"
        return (
            f"cost {self.cost:.6g}; no choice can be below {self.lower_bound:.6g} ({gap}"
            f"{'' if self.converged else ', stopped early'})"
        )


def certify(
    problem: Problem,
    cost: float,
    prices: NDArray[np.float64],
    *,
    time_limit: float | None = None,
    progress: Progress | None = None,
) -> Certificate:
    """Search for the best bound, starting from `prices`, aiming at `cost`."""
    begin = time.perf_counter()
    deadline = np.inf if time_limit is None else begin + time_limit
    progress = progress or Progress(shown=False)
    ascent = _Ascent(problem, progress)
    # The plan's prices suit its own prototypes, sometimes so well that none are better.
    starts = (np.zeros_like(prices), prices)
    best, value, steps, converged = ascent.climb(starts, cost, deadline, progress)
    if value < (1 - _LOOSE) * problem.k * cost and time.perf_counter() < deadline:
        coarse = coarse_prices(problem, ascent.rows)
        if coarse is not None:
            ascent = _Ascent(problem, progress, longest=True)
            best, _, more, converged = ascent.climb((best, coarse), cost, deadline, progress)
            steps += more
    # With no prices the bound is simple and never negative: a floor for every search.
    candidates = (best, np.zeros_like(best))
    bounds = [proven_bound(problem, v, ascent.bounds_at(v)) for v in candidates]
    winner = int(np.argmax(bounds))
    return Certificate(
        lower_bound=bounds[winner],
        cost=cost,
        prices=candidates[winner],
        converged=converged,
        steps=steps,
        seconds=time.perf_counter() - begin,
        relative=problem.costs.metric not in SHIFTED,
    )


@dataclass(frozen=True)
class _Quota:
    """Rows (positions in a common list) of which `count` are summed, besides the given ones."""

    given: NDArray[np.intp]
    free: NDArray[np.intp]
    count: int


def _admissible(problem: Problem) -> tuple[NDArray[np.intp], list[_Quota]]:
    """The rows a bound may sum, and how many of each group."""
    if problem.groups:
        parts = [
            (g.source_rows[g.problem.initial], g.source_rows[g.problem.candidates], g.problem.k)
            for g in problem.groups
        ]
    else:
        parts = [(problem.initial, problem.candidates, problem.k)]
    rows: list[NDArray[np.intp]] = []
    quotas = []
    start = 0
    for given, free, k in parts:
        rows += [given, free]
        middle, end = start + len(given), start + len(given) + len(free)
        quotas.append(_Quota(np.arange(start, middle), np.arange(middle, end), k - len(given)))
        start = end
    return np.concatenate(rows), quotas


class _Ascent:
    """Subgradient steps on the bound, over truncated lists, evaluating few rows per step.

    If no price falls by more than d, no row's value falls by more than d. So a value computed
    earlier, less the largest falls of prices since, still bounds the row from below, and only
    rows whose bound is among the smallest need to be computed again.
    """

    def __init__(self, problem: Problem, progress: Progress, *, longest: bool = False) -> None:
        self.problem = problem
        self.rows, self.quotas = _admissible(problem)
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
                if steps >= _MOST_STEPS or time.perf_counter() > deadline:
                    return best_prices, best, steps, False
                active = self._activate()
                most = _MOST_STEPS if self.active.all() else round_steps
                most = min(most, _MOST_STEPS - steps)
                prices, taken, settled = self._ascend(prices, active, cost, most, deadline, advance)
                steps, round_steps = steps + taken, 2 * round_steps

    def _activate(self) -> list[_Quota]:
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
        quotas: list[_Quota],
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
            if time.perf_counter() > deadline:
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
        """A lower bound of every row's value at these prices."""
        self._note(prices)
        self._compute(np.arange(len(self.values)))
        return self.values.copy()

    def _evaluate(
        self, prices: NDArray[np.float64], quotas: list[_Quota]
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


def proven_bound(
    problem: Problem,
    prices: NDArray[np.float64],
    bounds: NDArray[np.float64] | None = None,
    *,
    least: bool = True,
) -> float:
    """The lower bound these prices prove, rounded down; at least 0, as no cost is negative.

    `bounds` are lower bounds of all rows' values, from which the rows worth computing exactly are
    chosen; without them every row is computed exactly. `least=False` takes costs as they are
    computed, rather than the least they may really be, and rounds up: no honest bound from these
    prices is above that, whatever the order in which it was computed.
    """
    rows, quotas = _admissible(problem)
    costs = problem.costs
    exactly = problem.changed(costs=cast(Costs, LeastCosts(costs))) if least else problem
    values = np.full(len(rows), -np.inf) if bounds is None else bounds - costs.rounding
    allowed = len(rows) if bounds is None else _MOST_EXACT_ENTRIES // problem.n
    total = -math.fsum(problem.masses.offer / problem.masses.need * prices)
    for quota in quotas:
        total += math.fsum(exact_values(exactly, rows[quota.given], prices))
        if quota.count == 0:
            continue
        order = quota.free[np.argsort(values[quota.free], kind="stable")]
        step, computed = len(order) if bounds is None else 2 * quota.count + _SPARE_ROWS, 0
        for _ in range(_MOST_ROUNDS):
            lowest = order[computed : computed + min(step, allowed)]
            values[lowest] = exact_values(exactly, rows[lowest], prices)
            computed, allowed = computed + len(lowest), allowed - len(lowest)
            if computed == len(order) or allowed == 0:
                break
            if computed >= quota.count:
                exact = np.partition(values[order[:computed]], quota.count - 1)
                if values[order[computed]] >= exact[quota.count - 1]:
                    break  # no row is summed of which only a bound is known
        total += math.fsum(np.partition(values[quota.free], quota.count - 1)[: quota.count])
    if not least:
        return total / problem.k + _rounding_of_sums(problem, prices, total)
    return rounded_down(problem, prices, total)


def rounded_down(problem: Problem, prices: NDArray[np.float64], total: float) -> float:
    """The bound that a sum of the k smallest values proves, whatever rounding did; at least 0."""
    margin = _rounding_of_sums(problem, prices, total)
    if problem.target_weights is not None:  # whole masses differ from them by a hair
        moved = np.abs(problem.masses.weights - problem.target_weights).sum() / 2
        margin += float(moved) * problem.costs.ceiling
    return max(float(np.nextafter(total / problem.k - margin, -np.inf)), 0.0)


def _rounding_of_sums(problem: Problem, prices: NDArray[np.float64], total: float) -> float:
    """How far rounding may put the bound off, by what is summed: costs that no row pays are not.

    The values of the summed rows are sums of costs and prices, at least 0 unless a price is less.
    """
    capacity = problem.masses.offer / problem.masses.need
    paid = abs(total + float(capacity @ prices)) + float(capacity @ np.abs(prices))
    magnitude = paid / problem.k + 2 * max(0.0, -float(prices.min()))
    return (problem.n + 64) * float(np.finfo(np.float64).eps) * magnitude


class LeastCosts:
    """Costs of which each is the least that the rounding of double precision leaves possible."""

    def __init__(self, costs: Costs) -> None:
        self.costs, self.shape = costs, costs.shape

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        return extreme_costs(self.costs, self.costs.exact_block(rows, columns), -1)


def extreme_costs(costs: Costs, block: NDArray[np.float64], side: int) -> NDArray[np.float64]:
    """The least (`side` −1) or the most (+1) that costs in double precision may really be.

    Also of what `exact_block` gives for them in blocks of another shape, hence twice the error.
    """
    if costs.rounding == 0:
        return block
    # `rounding` is that of the costs' own precision.
    shrunk = float(np.finfo(np.float64).eps / np.finfo(costs.dtype).eps)
    if costs.metric == "euclidean":
        error = _error_of_squares(costs, block**2, shrunk * costs.rounding**2, costs.ceiling**2)
        return np.sqrt(np.maximum(block**2 + side * error, 0.0))
    error = _error_of_squares(costs, block, shrunk * costs.rounding, costs.ceiling)
    return np.maximum(block + side * error, 0.0)


def _error_of_squares(
    costs: Costs, squares: NDArray[np.float64], most: float, ceiling: float
) -> NDArray[np.float64] | float:
    """Twice how far squared distances may be off; `most` holds for the largest, `ceiling`.

    Where those that lost digits are computed from differences, none is off by more than a share
    of itself, and by what preparing the rows has rounded.
    """
    if not (isinstance(costs, FeatureCosts) and costs.settles_near_ones):
        return 2 * most
    relative = most / ceiling
    own = relative * (2 * squares / NEAR + np.sqrt(squares * ceiling)) + relative**2 * ceiling
    return np.asarray(2 * np.minimum(most, own))
