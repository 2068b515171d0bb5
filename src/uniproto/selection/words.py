"""What a selection's cost means, in words: the median, the mean, and what makes most of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import printable
from uniproto.geometry.metrics import metric_label
from uniproto.report.columns import absence, absent_levels, column_shares
from uniproto.report.targets import arc_costs, costs_of_targets, typical_cost
from uniproto.report.words import counted, figure

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection

_MOST_COLUMNS = 25  # shown in a summary
_FEW = 20  # a share of one row in this number, or less, is small


def summary(selection: Selection, problem: Problem | None) -> str:
    """A few lines for people."""
    details, certificate = selection.details, selection.certificate
    (m, n), k = details.shape, selection.k
    metric = metric_label(details.metric, details.bandwidth)
    lines = [
        f"{k} prototypes of {m:,} source rows for {n:,} targets ({details.method}, {metric})",
        f"  optimal-transport cost  {'exactly' if selection.cost_is_exact else 'at most'} "
        f"{selection.cost:.6g}",
        f"  in words                {selection.in_words()}",
    ]
    if details.updated is not None:
        lines.append(f"  since the last one      {details.updated.in_words(k)}")
    if details.proof is not None:
        lines.append(f"  the least possible      {details.proof}")
    if certificate is not None:
        rule = "" if details.updated is None else details.updated.condition(k)
        words = str(certificate).replace("no choice can", f"no choice{rule} can")
        lines.append(f"  certificate             {words}")
    weighing = np.count_nonzero(selection.plan.sum(axis=0))  # rows without a vector weigh nothing
    lines.append(
        f"  each represents         {_share(weighing / k)} targets by weight, on average parts of "
        f"{_share(selection.plan.nnz / k)} different ones"
    )
    if (why := details.note("metric_from")) is not None:
        lines.append(f"  metric                  {details.metric}, as {why}")
    if details.note("interrupted") is not None:
        lines.append("  stopped early           the best rows at that moment were kept")
    if selection.group_costs:
        costs = ", ".join(f"{label}: {cost:.4g}" for label, cost in selection.group_costs.items())
        lines.append(f"  cost within groups      {costs}")
        groups = () if selection._problem is None else selection._problem.groups
        if groups and (others := n - sum(len(group.target_rows) for group in groups)):
            lines.append(f"  without a prototype     {counted(others, 'target')} of other groups")
    if details.preparation is not None:
        shares: dict[str, float] = {}
        if problem is not None:
            arcs = arc_costs(problem, selection.indices, selection.plan)
            shares = column_shares(problem, selection.indices, selection.plan, arcs)
            missed = absent_levels(problem, selection.indices)
            if missed:
                lines.append(f"  without a prototype     {absence(missed)}")
        columns = details.preparation.table(shares).split("\n")
        if (more := len(columns) - _MOST_COLUMNS) > 0:
            columns = [*columns[:_MOST_COLUMNS], f"… and {more} more"]
        lines.append("  columns                 " + f"\n{'':26}".join(columns))
    spent = [f"{name} {took:.3g} s" for name, took in details.timings.items() if took >= 0.001]
    lines.append(f"  time                    {', '.join(spent) or 'below 1 ms'}")
    return "\n".join(map(printable, "\n".join(lines).split("\n")))  # a record may say anything


def _share(targets: float) -> str:
    """How many targets, in digits: thousands are never written as powers of ten."""
    return figure(targets) if targets >= 1000 else f"{targets:.4g}"


def distance_in_words(selection: Selection, problem: Problem | None) -> str:
    """How far rows are from their prototypes, and what makes most of that, if something does."""
    mean = figure(selection.cost, 3)
    if problem is None:
        return f"the mean distance of a row from its prototype is {mean}"
    arcs = arc_costs(problem, selection.indices, selection.plan)
    weights = problem.masses.weights
    each = costs_of_targets(selection.plan, arcs, weights)
    typical = figure(typical_cost(each, weights), 3)
    words = f"a typical row is {typical} from its prototype, the mean is {mean}"
    most = _few_rows(np.sort((weights * each)[weights > 0])[::-1])
    shares = column_shares(problem, selection.indices, selection.plan, arcs)
    most = most or _one_column(shares, named=bool(problem.given.columns))
    return f"{words} ({most})" if most else words


def _few_rows(paid: NDArray[np.float64]) -> str:
    """How few rows make half of the cost or more, if they are few.

    >>> _few_rows(np.array([9.0] + [0.1] * 30))
    'one row makes 75% of it'
    """
    if not paid.sum() > 0:
        return ""
    made = np.cumsum(paid) / paid.sum()
    few = int(np.searchsorted(made, 0.5)) + 1
    if few * _FEW > len(paid):
        return ""
    rows = "one row makes" if few == 1 else f"{few:,} rows make"
    return f"{rows} {made[few - 1]:.0%} of it"


def _one_column(shares: Mapping[str, float], *, named: bool) -> str:
    """The column that makes most of the cost, if one of several does."""
    if len(shares) < 2:
        return ""
    most = max(shares, key=lambda name: shares[name])
    # Of two columns one always makes more than half.
    is_most = shares[most] > (1 + 1 / len(shares)) / 2
    return f"{repr(most) if named else most} makes {shares[most]:.0%} of it" if is_most else ""
