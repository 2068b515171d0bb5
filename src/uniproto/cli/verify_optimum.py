"""Whether a method leads to the rows of a result again, and whether bounds and optima hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from uniproto.cli.verify_check import SUMS, Check, recorded_method, recorded_options, same

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection

_PROVEN_ENTRIES = 200_000_000  # costs up to which a bound is proven in double precision
_BOUND = 1e-3  # how far rounding on another machine puts a bound off that is not
_OPTIMUM = 1e-8  # how far the search and rounding put an optimum off
_REPEATED_ENTRIES = 4_000_000  # costs up to which a selection is made again
_REPEATED_ROWS = 100  # and prototypes
# Methods whose every pick is the best by its gain.
_GREEDY = ("uniproto", "kmedoids", "facility_location")


def pick_checks(
    manifest: dict[str, Any], selection: Selection, problem: Problem
) -> Iterator[Check]:
    """Whether the options on record lead to these rows, where finding out takes a moment.

    Polishing and a time budget end by the clock, the multilevel search adds up in an order that
    hangs on the number of cores; approximate lists and shards have their own picks.
    """
    import numpy as np

    from uniproto.select import run_method

    options, method = recorded_options(manifest), recorded_method(manifest)
    by_clock = options.polish or options.seconds is not None or options.search == "multilevel"
    alike = not by_clock and options.engine == "local" and options.lists == "exact"
    m, n = selection.shape
    if not alike or m * n > _REPEATED_ENTRIES or selection.k > _REPEATED_ROWS:
        return
    again = run_method(problem, method, progress=False)
    if _is_found_together(selection.notes) and set(again.indices) != set(selection.indices):
        # Another machine may round differently, and a search of many trials then end elsewhere.
        as_good = selection.cost <= again.cost * (1 + _OPTIMUM)
        yield Check(
            "the options on record lead to nothing better",
            as_good,
            f"{again.cost:.10g} on this machine",
        )
        return
    different = np.flatnonzero(again.indices != selection.indices)
    off = 4 * problem.costs.rounding + SUMS * problem.costs.ceiling
    claim = "the options on record lead to these rows"
    if len(different):
        first = different[0]
        # Of two rows that add the same, another machine may round the other one up.
        is_tie = bool(abs(again.gains[first] - selection.gains[first]) <= off)
        found = f"row {again.indices[first]} at rank {first + 1}"
        found += " adds the same" if is_tie else ""
        yield Check(claim, is_tie and method.name in _GREEDY, found)
    else:
        yield Check(claim, True)
        yield Check(
            "and to these gains and weights",
            bool((np.abs(again.gains - selection.gains) <= off).all())
            and np.allclose(again.weights, selection.weights, rtol=1e-6, atol=0),
        )


def _is_found_together(notes: dict[str, Any]) -> bool:
    """Whether rows are those of the thorough search, in some group at least."""
    parts = [part for part in notes.values() if isinstance(part, dict)]
    return any(part.get("search") == "thorough" for part in [notes, *parts])


def certificate_checks(
    manifest: dict[str, Any], selection: Selection, problem: Problem, slack: float
) -> Iterator[Check]:
    from uniproto.certificate.bound import proven_bound
    from uniproto.certificate.certificate import SHIFTED
    from uniproto.certificate.row_bounds import bound_by_rows

    certificate = selection.certificate
    if selection.proof is not None:
        yield _optimum(manifest, selection, problem, slack)
    if certificate is None:
        return
    prices, bound = certificate.prices, certificate.lower_bound
    found = f"{bound:.10g} written"
    if selection.proof is None or certificate.proof is None:  # else it is the cost, proven above
        try:
            if problem.m * problem.n <= _PROVEN_ENTRIES:
                proven = proven_bound(problem, prices, least=False)
            else:  # in double precision it would take hours
                proven = bound_by_rows(problem, prices)
                slack = max(slack, _BOUND * bound)
                found += f", compared to {_BOUND:.1%} in single precision"
        except OverflowError:
            proven = -math.inf
        yield Check(
            f"no choice of {problem.k} rows can be below the lower bound: the prices prove it",
            bound <= proven + slack,
            f"{found}, {proven:.10g} proven",
        )
    yield Check("the lower bound is not above the cost", bound <= selection.cost)
    record = manifest["certificate"]
    gap = certificate.gap if math.isfinite(certificate.gap) else None
    yield Check(
        "the gap is that of the cost and the bound",
        same(record["gap"], gap)
        and same(record["absolute_gap"], certificate.absolute_gap)
        and record["relative"] == (problem.costs.metric not in SHIFTED),
    )


def _optimum(
    manifest: dict[str, Any], selection: Selection, problem: Problem, slack: float
) -> Check:
    """Whether the search on record proves again that no rows cost less, and these cost no more."""
    from uniproto.select import run_method

    method = recorded_method(manifest)
    claim = f"no choice of {problem.k} rows costs less: the same search proves it again"
    if manifest["arguments"].get("engine") == "ray" or problem.groups:
        return Check(claim, False, "no search over all rows at once is on record")
    again = run_method(problem, method, progress=False)
    if again.proof is None:
        return Check(claim, False, "it ended without a proof")
    same = abs(again.cost - selection.cost) <= _OPTIMUM * again.cost + slack
    found = f"{selection.cost:.10g} written, {again.cost:.10g} proven"
    return Check(claim, same, found)
