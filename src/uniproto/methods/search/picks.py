"""The rows that a search has found, as picks: in order, and with their exact plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import Optimum, Picks
from uniproto.methods.search.exact_plan import Rows
from uniproto.methods.search.prove import proof_of_cost
from uniproto.methods.search.stage import Stage
from uniproto.problem.problem import Problem
from uniproto.runtime.threads import parallel_map
from uniproto.transport.prototypes import Transport, transport

_SECONDS_OF_PLAN = 5e-8  # of few prototypes, for each of them and each target
_PAIRS_AT_ONCE = 5_000_000  # of prototypes and targets, whose plan takes a second or two
_SAMPLE = 5_000  # rows that tell what each prototype pays, where time is up


def picks_of_stage(stage: Stage, notes: dict[str, Any], *, in_order: bool) -> Picks:
    """The best rows; their plan is left for later where it takes long or time is up."""
    problem, paid = stage.problem, stage.paid
    pairs = problem.k * problem.n
    if stage.are_few and stage.budget.seconds_left >= _SECONDS_OF_PLAN * pairs:
        paid = None
    elif paid is None and pairs > _PAIRS_AT_ONCE:
        paid = _paid_in_sample(problem, stage.rows)
    return picks_of(
        problem,
        stage.rows,
        stage.proof,
        notes,
        prices=stage.prices,
        paid=paid,
        in_order=in_order,
    )


def picks_of(
    problem: Problem,
    rows: Rows,
    proof: Optimum | None,
    notes: dict[str, Any],
    *,
    prices: NDArray[np.float64] | None = None,
    paid: NDArray[np.float64] | None = None,
    in_order: bool = False,
) -> Picks:
    """The rows with their exact plan; given ones first, the others by what each costs.

    With what each has `paid`, about, the plan is left until somebody asks for it. `in_order` leaves
    every row at its place.
    """
    solved = None
    if paid is None:
        solved = transport(problem, rows, prices=prices)
        paid = _held_costs(problem, rows, solved)
    order, given = np.arange(len(rows)), len(problem.initial)
    if not in_order:
        order[given:] = given + np.argsort(paid[given:], kind="stable")
    if solved is not None:
        solved = replace(solved, plan=solved.plan[order])
    return Picks(
        rows[order],
        problem.costs.ceiling - paid[order],
        notes=notes,
        transport=solved,
        proof=None if proof is None or solved is None else proof_of_cost(proof, solved),
    )


def _paid_in_sample(problem: Problem, rows: Rows) -> NDArray[np.float64]:
    """What each prototype's share costs it for a unit of mass, about, where time is up."""
    from uniproto.methods.search.starts import sampled

    random = np.random.default_rng([problem.seed, 2])
    part, numbers = sampled(problem, _SAMPLE, random, rows)
    chosen = np.searchsorted(numbers, rows)
    return _held_costs(part, chosen, transport(part, chosen))


def _held_costs(problem: Problem, rows: Rows, solved: Transport) -> NDArray[np.float64]:
    """What each prototype's share of the targets costs it, for a unit of mass."""
    plan, k = solved.plan, len(rows)

    def of(place: int) -> float:
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        costs = problem.costs.exact_block(rows[place : place + 1], plan.indices[part])[0]
        return k * float(costs @ plan.data[part])

    return np.array(list(parallel_map(of, range(k))))
