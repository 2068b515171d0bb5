"""The search for prices that prove a high lower bound.

Where neighbour lists of all rows are short, steps over those come first (`list_ascent.py`).
Elsewhere, and where they end far below the cost, the bound is raised against few candidate rows
(`candidate_search.py`). The bound that is reported is computed once more, by `proven_bound`.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.certificate.bound import proven_bound
from uniproto.certificate.candidate_search import Found, Start, search
from uniproto.certificate.certificate import SHIFTED, Certificate
from uniproto.certificate.first_prices import cell_prices, coarse_prices
from uniproto.certificate.list_ascent import ListAscent
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
