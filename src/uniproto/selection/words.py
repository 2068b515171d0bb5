"""What a selection's cost means, in words: the median, the mean, and what makes most of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import printable
from uniproto.features.preparation import Preparation
from uniproto.geometry.distances import L1_DISTANCE, SQUARES
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import is_sparse
from uniproto.geometry.metrics import metric_label
from uniproto.report.targets import arc_costs, costs_of_targets, typical_cost
from uniproto.report.words import counted, figure

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection

_MOST_COLUMNS = 15  # shown in a summary
_FEW = 20  # at most one in so many rows are few
_ARCS_AT_ONCE = 65_536


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
    if details.proof is not None:
        lines.append(f"  the least possible      {details.proof}")
    if certificate is not None:
        lines.append(f"  certificate             {certificate}")
    lines.append(
        f"  each represents         {_share(n / k)} targets' worth of mass, on average "
        f"{_share(selection.plan.nnz / k)} different ones"
    )
    if (why := details.note("metric_from")) is not None:
        lines.append(f"  metric                  {details.metric}, as {why}")
    if (search := details.note("search")) is not None:
        lines.append(f"  search                  {search}: {details.note('why')}")
    if details.note("interrupted") is not None:
        lines.append("  stopped early           the best rows at that moment were kept")
    if selection.group_costs:
        costs = ", ".join(f"{label}: {cost:.4g}" for label, cost in selection.group_costs.items())
        lines.append(f"  cost within groups      {costs}")
        groups = () if selection._problem is None else selection._problem.groups
        if groups and (others := n - sum(len(group.target_rows) for group in groups)):
            lines.append(f"  without a prototype     {counted(others, 'target')} of other groups")
    if details.preparation is not None:
        columns = details.preparation.table().split("\n")
        if (more := len(columns) - _MOST_COLUMNS) > 0:
            columns = [*columns[:_MOST_COLUMNS], f"… and {more} more"]
        lines.append("  columns                 " + f"\n{'':26}".join(columns))
    spent = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in details.timings.items())
    lines.append(f"  time                    {spent}")
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
    most = most or _one_column(selection, problem, arcs)
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


def _one_column(selection: Selection, problem: Problem, arcs: NDArray[np.float64]) -> str:
    """The column that makes most of the cost, if one of several does."""
    costs: Any = problem.costs
    if not isinstance(costs, FeatureCosts) or is_sparse(costs.source, costs.target):
        return ""
    if costs.distance not in (SQUARES, L1_DISTANCE):
        return ""
    prepared, width = selection.details.preparation, costs.source.shape[1]
    named = selection.given.columns
    names, widths = [f"column {number}" for number in range(width)], [1] * width
    if len(named) == width:
        names = [repr(name) for name in named]
    if isinstance(prepared, Preparation):
        names = [repr(column.name) for column in prepared.columns]
        widths = [column.width for column in prepared.columns]
    if len(names) < 2 or sum(widths) != width:
        return ""
    plan, made = selection.plan, np.zeros(width)
    rows = selection.indices[np.repeat(np.arange(selection.k), np.diff(plan.indptr))]
    for begin in range(0, len(rows), _ARCS_AT_ONCE):
        part = slice(begin, begin + _ARCS_AT_ONCE)
        source, target = costs.source[rows[part]], costs.target[plan.indices[part]]
        apart = np.abs(np.asarray(source, np.float64) - target)
        apart = apart if costs.distance is L1_DISTANCE else apart**2
        whole, paid = apart.sum(axis=1), plan.data[part] * arcs[part]
        made += np.divide(paid, whole, out=np.zeros_like(paid), where=whole > 0) @ apart
    if not made.sum() > 0:
        return ""
    shares = np.add.reduceat(made, np.cumsum([0, *widths[:-1]])) / made.sum()
    most = int(np.argmax(shares))
    # Of two columns one always makes more than half.
    is_most = shares[most] > (1 + 1 / len(names)) / 2
    return f"{names[most]} makes {shares[most]:.0%} of it" if is_most else ""
