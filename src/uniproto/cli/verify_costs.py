"""Whether the plan, the costs and the gains of a result are those of its rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from uniproto.cli.verify_check import SUMS, Check, groups_by_label

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection

_SHARES = 1e-9  # how far rounding puts sums of shares off, as a share of what they should be


def plan_check(selection: Selection, problem: Problem) -> Check:
    import numpy as np

    plan, weights = selection.plan, problem.masses.weights
    with np.errstate(all="ignore"):
        rows_off = np.abs(plan.sum(axis=1) * problem.k - 1).max()
        columns_off = np.abs(plan.sum(axis=0) - weights).max() / weights.max()
    return Check(
        f"the plan gives every chosen row 1/{problem.k} and every target its weight",
        bool((plan.data >= 0).all() and rows_off <= _SHARES and columns_off <= _SHARES),
    )


def cost_checks(selection: Selection, problem: Problem, slack: float) -> Iterator[Check]:
    """The cost of the plan as it is written, and of the best plan of these rows.

    Tolerances are those of the costs in use: one that no plan pays, however large, has no say.
    """
    import numpy as np

    from uniproto.transport.prototypes import transport

    found, tolerance = _cost_of_plan(selection, problem)
    tolerance += slack
    yield Check(
        "the plan costs what is written",
        abs(found - selection.cost) <= tolerance,
        f"{selection.cost:.10g} written, {found:.10g} found",
    )
    best = transport(problem, selection.indices)
    if not (best.is_exact or selection.cost_is_exact):
        return  # then no exact solve fits, and the cost is the plan's
    tolerance += SUMS * best.cost
    yield Check(
        "no plan of these rows costs less",
        best.is_exact == selection.cost_is_exact
        and abs(best.cost - selection.cost) <= 2 * tolerance,
        f"{best.cost:.10g} by another exact solve",
    )
    wrong = []
    for label, group in groups_by_label(problem):
        inside = np.flatnonzero(np.isin(group.source_rows, selection.indices))
        cost = math.nan
        if len(inside) == group.problem.k:
            cost = transport(group.problem, inside).cost
        allowed = 2 * tolerance + SUMS * cost
        if not abs(cost - selection.group_costs[label]) <= allowed:
            wrong.append(str(label))
    if problem.groups:
        yield Check("the groups cost what is written", not wrong, ", ".join(wrong))


def _cost_of_plan(selection: Selection, problem: Problem) -> tuple[float, float]:
    """What the plan costs, and how far rounding may put that off."""
    import numpy as np

    from uniproto.geometry.rounded_costs import extreme_costs

    plan = selection.plan
    found, tolerance = 0.0, 0.0
    with np.errstate(all="ignore"):  # a plan that somebody has edited can hold anything
        for place, row in enumerate(selection.indices):
            part = slice(plan.indptr[place], plan.indptr[place + 1])
            costs = problem.costs.exact_block(np.array([row]), plan.indices[part])
            least, most = (extreme_costs(problem.costs, costs, side)[0] for side in (-1, 1))
            found += float(costs[0] @ plan.data[part])
            tolerance += float((most - least) @ plan.data[part])
    return found, tolerance + SUMS * found


def gain_checks(
    manifest: dict[str, Any], selection: Selection, problem: Problem, slack: float
) -> Iterator[Check]:
    """Whether the gains fit the costs of these rows; not for shards, which have gains of their own.

    `pick_checks` compares the gains of small selections one by one.
    """
    from uniproto.selection.saved_record import gain_errors

    if manifest["arguments"].get("engine") != "ray":
        errors = gain_errors(selection, problem, slack)
        yield Check("the gains can be those of these rows", not errors, "; ".join(errors))


def sums_check(selection: Selection) -> Check:
    """What must hold of every selection; learned weights can be checked no further."""
    from uniproto.selection.saved_record import require_sums

    claim = "its numbers are those of a selection"
    try:
        require_sums(selection)
    except ValueError as error:
        return Check(claim, False, str(error))
    return Check(claim, True)
