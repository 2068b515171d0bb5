"""Exchanges in compiled code: exact plans of allowed rows, as good as `Exchanges` finds."""

from __future__ import annotations

import numpy as np
import pytest

import uniproto
from uniproto import Problem
from uniproto.methods.search import cell_plan
from uniproto.methods.search.cell_plan import CellPlan, RowCosts
from uniproto.methods.search.exchanges import Exchanges
from uniproto.problem.allowed import Allowed
from uniproto.runtime.budget import Budget
from uniproto.transport.prototypes import transport


def posed(seed: int) -> tuple[Problem, np.ndarray]:
    """A problem, weighted or with given rows now and then, and rows to begin from."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(150, 400)), int(rng.integers(2, 30))
    source = rng.normal(size=(n, 3)) + 4 * rng.integers(3, size=(n, 1))
    target = None if seed % 2 else rng.normal(size=(200, 3)) + 4 * rng.integers(3, size=(200, 1))
    of_targets = rng.integers(1, 9, n if target is None else 200) if seed % 3 == 0 else None
    given = rng.choice(n, min(k - 1, 3), replace=False).tolist() if seed % 4 == 0 else ()
    problem = Problem(source, target, target_weights=of_targets, include=given).with_k(k)
    free = rng.choice(problem.candidates, k - len(given), replace=False)
    return problem, np.concatenate([problem.initial, free])


def descended(problem: Problem, rows: np.ndarray, plan: CellPlan) -> float:
    own = np.arange(problem.n) if problem.same_set else np.empty(0, np.intp)
    plan.descend_all(own, lambda: True)
    given = len(problem.initial)
    assert plan.rows[:given].tolist() == problem.initial.tolist()
    assert np.isin(plan.rows[given:], problem.candidates).all()
    assert len(np.unique(plan.rows)) == problem.k
    solved = transport(problem, plan.rows)
    assert solved.is_exact
    assert plan.cost == pytest.approx(solved.cost, rel=1e-9)
    return plan.cost


@pytest.mark.parametrize("seed", range(24))
def test_the_plan_stays_exact_and_ends_near_to_what_exchanges_find(seed: int) -> None:
    problem, rows = posed(seed)
    costs = RowCosts(problem).hold()
    plan = CellPlan(problem, rows, costs, Budget())
    begun = plan.cost
    found = descended(problem, rows, plan)
    other = CellPlan(problem, rows, costs, Budget())
    Exchanges(other, Allowed(problem), lambda: True).descend_all()
    assert found <= begun
    assert (begun - found) > 0.8 * (begun - other.cost)


@pytest.mark.parametrize("seed", [1, 2, 6])
def test_it_goes_on_where_work_or_room_has_run_out(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, rows = posed(seed)
    costs = RowCosts(problem).hold()
    usual = descended(problem, rows, CellPlan(problem, rows, costs, Budget()))
    monkeypatch.setattr(cell_plan, "_WORK_AT_ONCE", 1.0)  # one place at a time
    monkeypatch.setattr(cell_plan, "_REFILLED", 3)
    plan, enlarged = CellPlan(problem, rows, costs, Budget()), CellPlan._make_room
    plan.cells.unused[1] = plan._spare.unused[1] = 5
    calls: list[None] = []
    monkeypatch.setattr(CellPlan, "_make_room", lambda plan: calls.append(enlarged(plan)))
    assert descended(problem, rows, plan) == pytest.approx(usual, rel=0.1)
    assert calls


def test_it_ends_where_it_is_told_to() -> None:
    problem, rows = posed(3)
    plan = CellPlan(problem, rows, RowCosts(problem).hold(), Budget())
    plan.descend_all(np.arange(problem.n), lambda: False)
    assert plan.rows.tolist() == rows.tolist()


@pytest.mark.parametrize("seed", range(3))
def test_blocks_side_by_side_choose_no_row_twice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    centres = 5 * rng.normal(size=(20, 3))
    target = centres[rng.integers(20, size=1500)] + rng.normal(size=(1500, 3))
    source = centres[rng.integers(20, size=500)] + rng.normal(size=(500, 3))
    chosen = uniproto.select(source, 320, target)
    assert len(np.unique(chosen.indices)) == 320
