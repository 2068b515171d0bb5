"""A certificate of quality: no choice of k prototypes can cost less than this.

For any prices v ≥ 0 on the targets and any admissible set P of k rows, weak duality gives

    k · OT(P)  ≥  Σ over P of BotAvg_i(C + v) − Σ_j k ν_j v_j
               ≥  (sum of the k smallest BotAvg_i(C + v)) − Σ_j k ν_j v_j,

where BotAvg_i(C + v) is the cheapest unit of mass row i can collect when target j offers k ν_j at
cost C_ij + v_j. Constraints enter through which rows may be summed: excluded rows never are, given
rows always are, and with groups each group contributes its own quota. Where all but c of the k rows
must be among those to keep, P sums at least the k − c smallest values of those and the c smallest
of all that are left then.

`proven_bound` evaluates this in double precision over whole rows and subtracts every rounding
error. `ascent.py` finds prices that make the bound high.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from uniproto.fills.priced_fills import exact_values
from uniproto.geometry.costs import Costs
from uniproto.geometry.rounded_costs import LeastCosts
from uniproto.problem.keep import is_kept, least_kept
from uniproto.problem.problem import Problem
from uniproto.runtime.compiling import working_time

_MOST_EXACT_ENTRIES = 10**9  # costs recomputed for the last evaluation; beyond, bounds are used
_SPARE_ROWS = 64  # computed exactly at a time, in addition to twice the number summed
_MOST_ROUNDS = 8


@dataclass(frozen=True)
class Quota:
    """Rows (positions in a common list) of which `count` are summed, besides the given ones.

    With `of_the_rest`, rows that an earlier quota sums are left out.
    """

    given: NDArray[np.intp]
    free: NDArray[np.intp]
    count: int
    of_the_rest: bool = False

    def smallest(self, values: NDArray[np.float64], summed: NDArray[np.intp]) -> NDArray[np.intp]:
        """The free rows of smallest values; `summed` are those of earlier quotas."""
        free = np.setdiff1d(self.free, summed) if self.of_the_rest else self.free
        if self.count == 0:
            return free[:0]
        return free[np.argpartition(values[free], self.count - 1)[: self.count]]


def admissible_rows(problem: Problem) -> tuple[NDArray[np.intp], list[Quota]]:
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
        quotas.append(Quota(np.arange(start, middle), np.arange(middle, end), k - len(given)))
        start = end
    if problem.keep is not None:
        quotas = _with_kept(problem, np.concatenate(rows), quotas[0])
    return np.concatenate(rows), quotas


def _with_kept(problem: Problem, rows: NDArray[np.intp], every: Quota) -> list[Quota]:
    """The rows that must be among those to keep, and the others, which may be."""
    assert problem.keep is not None
    earlier = is_kept(problem.keep, rows)
    least = least_kept(problem.keep) - int(earlier[every.given].sum())
    least = min(max(least, 0), every.count)
    kept = Quota(every.given, every.free[earlier[every.free]], least)
    return [kept, Quota(every.given[:0], every.free, every.count - least, of_the_rest=True)]


def proven_bound(
    problem: Problem,
    prices: NDArray[np.float64],
    bounds: NDArray[np.float64] | None = None,
    *,
    deadline: float = math.inf,
) -> float:
    """The lower bound these prices prove, rounded down; at least 0, as no cost is negative.

    `bounds` are lower bounds of all rows' values, from which the rows worth computing exactly are
    chosen, until the deadline; without them every row is computed exactly.
    """
    rows, quotas = admissible_rows(problem)
    exactly = problem.changed(costs=cast(Costs, LeastCosts(problem.costs)))
    values = np.full(len(rows), -np.inf) if bounds is None else bounds.copy()
    allowed = len(rows) if bounds is None else _MOST_EXACT_ENTRIES // problem.n
    total = -math.fsum(problem.masses.offer / problem.masses.need * prices)
    summed = np.empty(0, np.intp)
    for quota in quotas:
        total += math.fsum(exact_values(exactly, rows[quota.given], prices))
        if quota.count == 0:
            continue
        order = quota.free[np.argsort(values[quota.free], kind="stable")]
        step, computed = len(order) if bounds is None else 2 * quota.count + _SPARE_ROWS, 0
        if np.isneginf(values[order]).sum() > min(allowed, _MOST_ROUNDS * step):
            return 0.0  # rows without a bound could be summed
        for _ in range(_MOST_ROUNDS):
            lowest = order[computed : computed + min(step, allowed)]
            values[lowest] = exact_values(exactly, rows[lowest], prices)
            computed, allowed = computed + len(lowest), allowed - len(lowest)
            if computed == len(order) or allowed == 0 or working_time() > deadline:
                break
            if computed >= quota.count:
                exact = np.partition(values[order[:computed]], quota.count - 1)
                if values[order[computed]] >= exact[quota.count - 1]:
                    break  # all summed rows have exact values
        summed = np.append(summed, smallest := quota.smallest(values, summed))
        total += math.fsum(values[smallest])
    return rounded_down(problem, prices, total)


def rounded_down(problem: Problem, prices: NDArray[np.float64], total: float) -> float:
    """The bound from a sum of the k smallest values, less all rounding errors; at least 0."""
    margin = _rounding_of_sums(problem, prices, total)
    if problem.target_weights is not None:  # integer masses differ slightly from them
        moved = np.abs(problem.masses.weights - problem.target_weights).sum() / 2
        rounded = 4 * float(np.finfo(np.float64).eps)  # both, and so their difference
        margin += (float(moved) + rounded) * problem.costs.ceiling
    return max(float(np.nextafter(total / problem.k - margin, -np.inf)), 0.0)


def _rounding_of_sums(problem: Problem, prices: NDArray[np.float64], total: float) -> float:
    """An upper bound on the rounding error, from the size of the summed terms.

    The values of the summed rows are sums of costs and prices, at least 0 unless a price is less.
    """
    capacity = problem.masses.offer / problem.masses.need
    paid = abs(total + float(capacity @ prices)) + float(capacity @ np.abs(prices))
    magnitude = paid / problem.k + 2 * max(0.0, -float(prices.min()))
    return (problem.n + 64) * float(np.finfo(np.float64).eps) * magnitude
