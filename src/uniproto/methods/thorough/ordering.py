"""The order of rows that were found together, and what each of them adds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.methods.contract import Optimum, Picks
from uniproto.methods.thorough.starts import pick_greedily
from uniproto.methods.thorough.table import Table
from uniproto.problem.problem import Problem
from uniproto.transport.line import line_of, plan_on_line
from uniproto.transport.prototypes import transport

_ROUNDING = 5e-5  # of the cost: what proves less would be shown with a gap of 0.01 %
_MOST_COSTS = 4_000_000  # of the rows: beyond, the greedy algorithm would take seconds


def picks_of(
    problem: Problem, rows: NDArray[np.intp], proof: Optimum | None, notes: dict[str, Any]
) -> Picks:
    """Rows in the order in which the greedy algorithm picks them among themselves.

    Their gains are what each adds then. Rows on a line with more targets than that come by what
    they pay in the best plan, the cheapest first. A proof is one of this cost or none.
    """
    free = np.setdiff1d(rows, problem.initial)
    line = line_of(problem.costs) if problem.k * problem.n > _MOST_COSTS else None
    if line is None:
        table = Table(problem.changed(candidates=free))
        picked = pick_greedily(table)
        ordered, paid = table.rows[picked.places], picked.costs * table.unit
        masses = np.zeros((problem.k, problem.n), np.int64)
        masses[:, np.flatnonzero(problem.masses.offer)] = picked.masses
        plan = sp.csr_array(masses)
    else:
        ordered = np.concatenate([problem.initial, free])
        costs = plan_on_line(line, ordered, problem.masses)[1]
        by_cost = np.argsort(costs[len(problem.initial) :], kind="stable")
        ordered = np.concatenate([problem.initial, free[by_cost]])
        plan, costs = plan_on_line(line, ordered, problem.masses)
        paid = costs / problem.masses.need
    solved = transport(problem, ordered, plan)
    if proof is not None:
        holds = solved.is_exact and proof.least >= (1 - _ROUNDING) * solved.cost
        proof = replace(proof, least=min(proof.least, solved.cost)) if holds else None
    return Picks(
        rows=ordered,
        gains=problem.costs.ceiling - paid,
        plan=plan,
        transport=solved,
        proof=proof,
        notes=notes,
    )
