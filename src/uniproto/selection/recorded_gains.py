"""The gains of a saved selection: what can be said of them from the problem and the rows alone.

How a pick was made cannot always be made again: where costs tie but for rounding, another machine
may claim other targets. What theory says of the gains of every run can be checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.problem.problem import Problem
from uniproto.selection.selection import Selection

_ALL_TOGETHER = ("random", "kmeans", "fasterpam")  # methods that have no gains
_COVERAGE = ("kmedoids", "facility_location")
_TOLERANCE = 1e-8  # of sums and solvers, as a share of the largest cost
_ROUNDINGS = 16  # of single numbers, and so many add up

Numbers = NDArray[np.float64]
Rows = NDArray[np.intp]


def doubts_about_gains(
    selection: Selection, problem: Problem, *, slack: float = 0.0, exact_lists: bool = True
) -> list[str]:
    """What the gains of a selection say that cannot be. `slack` is how far costs may be off.

    For `uniproto`, what a pick cost is β − its gain. It took one unit of target mass, at most what
    every target offers, so it cost no less than the cheapest such unit and no more than the
    dearest. All picks together cost what a plan of these rows costs: the best one with exact gains
    and after polishing, else one that is no better. Without samples of candidates, every pick costs
    at least as much as the one before. k-medoids and facility location save what they save; other
    methods have no gains, or have their own objective, of which nothing is known here.

    >>> import uniproto
    >>> points = [[0.0], [1.0], [5.0], [6.0]]
    >>> selection = uniproto.select(points, 2, metric="euclidean")
    >>> doubts_about_gains(selection, selection._problem)
    []
    >>> selection.gains[0] += 1
    >>> doubts_about_gains(selection, selection._problem)
    ['pick 1 cost less than it can', 'the picks cost less than their best plan']
    """
    gains, costs = selection.gains, problem.costs
    if selection.method in _ALL_TOGETHER:
        return [] if not gains.any() else [f"{selection.method} has no gains"]
    single = costs.rounding + float(np.finfo(costs.dtype).eps) * costs.ceiling
    tolerance = _ROUNDINGS * single + _TOLERANCE * costs.ceiling + slack
    doubts: list[str] = []
    for part, places, rows, best in _parts(selection, problem):
        if selection.method == "uniproto":
            paid = costs.ceiling - gains[places]
            found = _of_fills(part, rows, paid, best, selection.options, tolerance, exact_lists)
        elif selection.method in _COVERAGE:
            found = _of_coverage(part, rows, gains[places], tolerance)
        else:
            found = iter(())
        doubts += (text.format(*(places + 1)) for text in found)
    return doubts


def _parts(
    selection: Selection, problem: Problem
) -> Iterator[tuple[Problem, Rows, Rows, float | None]]:
    """Every separate selection: its problem, the places of its picks, their rows, the best cost."""
    rows, exact = selection.indices, selection.cost_is_exact
    if not problem.groups:
        yield problem, np.arange(len(rows)), rows.astype(np.intp), selection.cost if exact else None
        return
    for group, cost in zip(problem.groups, selection.group_costs.values(), strict=True):
        places = np.flatnonzero(np.isin(rows, group.source_rows))
        local = {int(row): number for number, row in enumerate(group.source_rows)}
        own = np.array([local[int(row)] for row in rows[places]], np.intp)
        yield group.problem, places, own, cost if exact else None


def _of_fills(
    problem: Problem,
    rows: Rows,
    paid: Numbers,
    best: float | None,
    options: Mapping[str, Any],
    tolerance: float,
    exact_lists: bool,
) -> Iterator[str]:
    """Doubts about what the picks of `uniproto` cost; `{0}` stands for the rank of the first."""
    polished = bool(options["polish"])
    if options["plan"] == "entropic" and not polished:
        # A plan that has not converged may leave less than a unit: no unit to compare with.
        if not ((paid >= -tolerance) & (paid <= problem.costs.ceiling + tolerance)).all():
            yield "a pick cost what no row costs"
        return
    for place, row in enumerate(rows):
        cheapest, dearest = _unit_costs(problem, row)
        if not paid[place] >= cheapest - tolerance:
            yield f"pick {{{place}}} cost less than it can"
        elif not paid[place] <= dearest + tolerance:
            yield f"pick {{{place}}} cost more than it can"
    if best is not None and len(paid):
        if paid.mean() < best - tolerance:
            yield "the picks cost less than their best plan"
        elif (polished or options["gains"] == "exact") and paid.mean() > best + tolerance:
            yield "the picks cost more than their best plan"
    if not polished and options["candidates"] == "all" and exact_lists:
        given = len(problem.initial)
        for place in (np.flatnonzero(np.diff(paid[given:]) < -2 * tolerance) + given).tolist():
            yield f"pick {{{place + 1}}} cost less than pick {{{place}}}"


def _unit_costs(problem: Problem, row: int) -> tuple[float, float]:
    """The cheapest and the dearest unit of target mass for a row."""
    costs = problem.costs.exact_block(np.array([row]))[0].astype(np.float64)
    order = np.argsort(costs)
    found = []
    for way in (order, order[::-1]):
        offered = problem.masses.offer[way]
        left = problem.masses.need - (np.cumsum(offered) - offered)
        found.append(float(costs[way] @ np.clip(left, 0, offered)) / problem.masses.need)
    return found[0], found[1]


def _of_coverage(problem: Problem, rows: Rows, gains: Numbers, tolerance: float) -> Iterator[str]:
    """Doubts about savings: every target is served by the cheapest row so far.

    What the first row saves depends on what an unserved target is said to cost.
    """
    served: Numbers | None = None
    for place, row in enumerate(rows):
        costs = problem.costs.exact_block(np.array([row]))[0].astype(np.float64)
        if served is None:
            served, holds = costs, gains[place] >= -tolerance
        else:
            saved = np.maximum(served - costs, 0) @ problem.masses.weights
            served, holds = np.minimum(served, costs), abs(gains[place] - saved) <= tolerance
        if not holds:
            yield f"pick {{{place}}} saved something else"
