"""Where the search begins with up to 300 prototypes, whose plan is one of cells."""

from __future__ import annotations

import math

import numpy as np

from uniproto.methods.search.cell_plan import CellPlan
from uniproto.methods.search.centres import move_to_medoids
from uniproto.methods.search.exact_plan import Rows
from uniproto.methods.search.gpu_assigner import assigner_of, row_costs_of
from uniproto.methods.search.stage import Beginning, Stage
from uniproto.methods.search.starts import (
    centres_pay,
    greedy_picks,
    near_centres,
    work_of_centres,
)

_ROUNDS = 8  # of medoids, where the rows come from a sample
_FLOOR, _FLOOR_EACH = 1e8, 3.2e6  # work before which gains are not asked for: and for each of k
_MOST_EACH = 60  # of which so many count
_FLOOR_ROWS, _MOST_TIMES = 2_500, 3  # with more rows as many times that work, at most
_FEW_ROWS, _OF_FEW = 4_000, 0.7  # with fewer, less: turns are cheap there; but that much


def begin_on_cells(stage: Stage) -> Beginning:
    """Begin where the last stage ended, or at greedy picks and free centres, the better first."""
    part, budget = stage.problem, stage.budget
    costs, pays = row_costs_of(part).hold(), centres_pay(part, stage.work)
    held = costs.problem_from_held
    assigner = assigner_of(held)

    def improved(rows: Rows) -> Rows:
        if not pays:
            return rows
        budget.spend(work_of_centres(part))
        return near_centres(assigner, rows, budget.part(math.inf))

    prices, others = None, []
    if stage.begun is None:
        first = greedy_picks(held, stage.greedy, stage.random).rows
        if pays:
            both = first, improved(first)
            first, *others = sorted(both, key=lambda rows: assigner.assign(rows).value)
    elif stage.is_carried:
        found = assigner.assign(stage.begun)
        found = move_to_medoids(assigner, found, _ROUNDS, budget.part(stage.work))
        first, prices = found.prototypes.astype(np.intp), found.prices * assigner.unit
    else:
        first = stage.begun
    plan = CellPlan(part, first, costs, budget, prices)
    stage.keep(plan.rows, plan.cost, "start")
    times = min(max(1, part.n / _FLOOR_ROWS), _MOST_TIMES)
    times *= min(1.0, max(_OF_FEW, math.sqrt(part.n / _FEW_ROWS)))
    floor = (_FLOOR + _FLOOR_EACH * min(part.k, _MOST_EACH)) * times
    return Beginning(plan, costs, others, floor, improved)
