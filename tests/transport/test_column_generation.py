"""Exact plans without the dense matrix, and greedy picks by exact gains without every solve.

Both leave most of the work out by duality; both must answer like the plain computation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.bounds import weights_of

import uniproto
from uniproto import Greedy
from uniproto.algorithm import uniprot
from uniproto.geometry.costs import FEATURE_METRICS
from uniproto.problem.problem import Problem
from uniproto.transport import prototypes
from uniproto.transport.exact import partial_plan
from uniproto.transport.prototypes import Transport, transport

MOST_SOLVES = 200  # of one transport: far more than the arcs of these problems allow


@pytest.fixture
def one_arc_at_a_time(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Start from one arc per target and add few per round; counts the arcs of every solve."""
    monkeypatch.setattr(prototypes, "_DENSE_ENTRIES", 0)
    monkeypatch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    monkeypatch.setattr(prototypes, "_NEAREST", 1)
    monkeypatch.setattr(prototypes, "_ADDED", 1)
    monkeypatch.setattr(prototypes, "_TARGETS_PER_PIECE", 7)
    arcs: list[int] = []
    solve = prototypes.sparse_plan

    def counted(costs: sp.coo_array, *arguments: Any) -> Any:
        arcs.append(costs.nnz)
        assert len(arcs) < MOST_SOLVES, "column generation does not end"
        return solve(costs, *arguments)

    monkeypatch.setattr(prototypes, "sparse_plan", counted)
    return arcs


def assert_optimal(problem: Problem, rows: np.ndarray, solved: Transport) -> None:
    """The cost of the dense solve, a plan with the right marginals, and prices that prove it."""
    costs = problem.costs.exact_block(rows)
    masses = problem.masses
    dense = partial_plan(costs, masses.offer, masses.need).cost / masses.total
    slack = 1e-9 * max(dense, problem.costs.ceiling)
    assert solved.is_exact
    assert solved.cost == pytest.approx(dense, abs=slack)
    np.testing.assert_allclose(solved.plan.sum(axis=1), np.full(problem.k, 1 / problem.k))
    np.testing.assert_allclose(solved.plan.sum(axis=0), masses.weights, rtol=1e-9, atol=1e-15)
    assert solved.plan.data.min() > 0
    assert solved.plan.multiply(costs).sum() == pytest.approx(dense, abs=slack)
    # With these prices every row pays its cheapest target: the dual reaches the cost.
    assert solved.prices is not None
    assert solved.prices.min() >= 0
    paid = (costs + solved.prices)[:, masses.offer > 0].min(axis=1).mean()
    assert paid - masses.weights @ solved.prices == pytest.approx(dense, abs=10 * slack)


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("kind", ["uniform", "uneven", "heavy", "zeros"])
def test_equals_the_dense_solve(kind: str, kept: bool, one_arc_at_a_time: list[int]) -> None:
    rounds = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        m, n = int(rng.integers(2, 12)), int(rng.integers(2, 25))
        k = int(rng.integers(1, m + 1))
        costs = rng.random((m, n)) if seed % 3 else rng.integers(0, 3, (m, n)).astype(float)
        given = {"metric": "precomputed", "target_weights": weights_of(kind, rng, n)}
        problem = Problem(costs, **given).with_k(k)
        rows = rng.permutation(m)[:k]
        plan = None
        if kept:  # a plan as bad as any: that of other costs
            other = rng.random((k, n))
            plan = partial_plan(other, problem.masses.offer, problem.masses.need).masses
        del one_arc_at_a_time[:]
        assert_optimal(problem, rows, transport(problem, rows, plan))
        rounds += len(one_arc_at_a_time)
        assert all(arcs <= k * n for arcs in one_arc_at_a_time)
    assert rounds > 12  # arcs were added more than once


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_features(metric: str, one_arc_at_a_time: list[int]) -> None:
    for dtype in (np.float32, np.float64):
        rng = np.random.default_rng(3)
        examples = rng.normal(size=(4, 5))
        source = examples[np.arange(12) % 4] + rng.normal(size=(12, 5)) * 1e-3
        target = rng.normal(size=(30, 5))
        problem = Problem(source.astype(dtype), target.astype(dtype), metric=metric).with_k(6)
        rows = np.array([0, 1, 4, 7, 10, 11])
        del one_arc_at_a_time[:]
        assert_optimal(problem, rows, transport(problem, rows))


@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_costs_that_are_all_the_same(constant: float, one_arc_at_a_time: list[int]) -> None:
    problem = Problem(np.full((5, 12), constant), metric="precomputed").with_k(3)
    solved = transport(problem, np.array([4, 0, 2]))
    assert solved.cost == pytest.approx(constant)
    assert_optimal(problem, np.array([4, 0, 2]), solved)


def test_a_few_targets_that_are_sent_to_nearly_every_prototype(
    one_arc_at_a_time: list[int],
) -> None:
    """Each round adds more arcs than the one before: one for each prototype would be hundreds."""
    points = np.random.default_rng(0).normal(size=(500, 6))
    problem = Problem(points).with_k(498)
    assert_optimal(problem, np.arange(498), transport(problem, np.arange(498)))
    assert len(one_arc_at_a_time) < 40


def test_a_selection_of_usual_size() -> None:
    """Above the size where the dense solve is quicker, with no constant changed."""
    points = np.random.default_rng(4).normal(size=(4500, 4))
    problem = Problem(points, metric="euclidean").with_k(50)
    selection = uniproto.select(points, 50, metric="euclidean")
    assert prototypes._DENSE_ENTRIES < 50 * 4500
    solved = transport(problem, selection.indices)
    assert_optimal(problem, selection.indices, solved)
    assert selection.cost == pytest.approx(solved.cost, rel=1e-9)
    assert selection.cost_is_exact


@pytest.mark.parametrize("method", ["uniproto", "random"])
@pytest.mark.parametrize("kind", ["uniform", "heavy", "zeros"])
def test_an_upper_bound_where_no_exact_solve_fits(
    kind: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    costs, weights = rng.random((30, 40)), weights_of(kind, rng, 40)
    given: dict[str, Any] = {"metric": "precomputed", "target_weights": weights, "method": method}
    exact = uniproto.select(costs, 6, **given)
    assert exact.cost_is_exact
    monkeypatch.setattr(prototypes, "_DENSE_ENTRIES", 0)
    monkeypatch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    monkeypatch.setattr(prototypes, "LARGEST_TARGET", 0)
    bounded = uniproto.select(costs, 6, **given)
    assert not bounded.cost_is_exact
    assert "at most" in bounded.summary()
    assert sorted(bounded.indices) == sorted(exact.indices)  # ordered by what each costs
    assert exact.cost * (1 - 1e-12) <= bounded.cost <= costs.max()
    np.testing.assert_allclose(bounded.plan.sum(axis=1), np.full(6, 1 / 6))
    np.testing.assert_allclose(bounded.plan.sum(axis=0), exact.plan.sum(axis=0), atol=1e-12)
    cost = bounded.plan.multiply(costs[bounded.indices]).sum()
    assert cost == pytest.approx(bounded.cost, rel=1e-9)
    # Without the plan's prices the certificate starts from none, and holds all the same.
    certificate = bounded.certify()
    assert certificate.lower_bound <= exact.cost
    assert certificate.cost == bounded.cost


# Exact gains


def assert_exact_gains(source: Any, k: int, target: Any = None, **given: Any) -> None:
    """The picks of the plain algorithm, one by one, or others that rise by as little."""
    problem = Problem(source, target, **given).with_k(k)
    selection = uniproto.select(source, k, target, **given, method=Greedy(gains="exact"))
    picks, rises = uniprot(
        problem.costs.exact_block(slice(None)),
        k,
        problem.masses,
        gains="exact",
        initial=tuple(problem.initial.tolist()),
        exclude=tuple(given.get("exclude") or ()),
    )
    slack = 1e-10 * problem.costs.ceiling
    found = selection.details.beta - selection.details.gains
    np.testing.assert_allclose(found, rises, rtol=1e-9, atol=slack)
    if problem.costs.rounding == 0 or not _has_ties(rises, slack):
        assert selection.indices.tolist() == picks


def _has_ties(rises: list[float], slack: float) -> bool:
    """Whether any two rises are so close that rounding could have ordered the picks."""
    return bool((np.diff(np.sort(rises)) <= slack).any()) if len(rises) > 1 else False


@pytest.mark.parametrize("length", [1, 3, 1000])
@pytest.mark.parametrize("kind", ["uniform", "uneven", "heavy", "zeros"])
def test_exact_gains_of_random_costs(
    kind: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uniproto.fills.priced_fills.list_length", lambda masses: length)
    monkeypatch.setattr("uniproto.fills.priced_fills._LIST_FACTOR", 1)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        m, n, k = int(rng.integers(5, 20)), int(rng.integers(3, 25)), int(rng.integers(2, 6))
        rows = rng.permutation(m).tolist()
        assert_exact_gains(
            rng.random((m, n)),
            k,
            metric="precomputed",
            target_weights=weights_of(kind, rng, n),
            include=rows[: seed % 3],
            exclude=rows[m - seed % 2 :],
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_exact_gains_of_near_duplicates(metric: str, dtype: type) -> None:
    """Bounds from rounded lists are told apart by less than their rounding; rises are exact."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        examples = rng.normal(size=(4, 30))
        source, target = (
            (examples[rng.integers(4, size=rows)] + rng.normal(size=(rows, 30)) * 1e-3).astype(
                dtype
            )
            for rows in (20, 25)
        )
        assert_exact_gains(source, 5, target, metric=metric)


@pytest.mark.parametrize("large", [1e9, 1e13])
def test_large_costs_that_no_plan_pays_do_not_hide_what_is_missing(
    large: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arcs were once priced to 1e-10 of the largest cost: 12 % too much was called exact."""
    rng = np.random.default_rng(0)
    costs = rng.random((40, 400))
    costs[rng.random(costs.shape) < 0.01] = large
    problem = Problem(costs, metric="precomputed").with_k(40)
    rows = np.arange(40)
    dense = prototypes.transport(problem, rows)
    monkeypatch.setattr(prototypes, "_DENSE_ENTRIES", 0)
    monkeypatch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    listed = prototypes.transport(problem, rows)
    assert dense.is_exact
    assert listed.is_exact
    assert listed.cost == pytest.approx(dense.cost, rel=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
def test_plans_of_many_prototypes_come_from_cells(
    weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    weights = rng.integers(0, 5, 900) if weighted else None
    problem = Problem(rng.normal(size=(900, 5)), target_weights=weights, metric="l1").with_k(30)
    rows = rng.choice(900, 30, replace=False)
    monkeypatch.setattr(prototypes, "_DENSE_ENTRIES", 0)
    monkeypatch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    by_columns = transport(problem, rows)
    monkeypatch.setattr(prototypes, "FEW", 0)
    monkeypatch.setattr(prototypes, "_by_column_generation", lambda *given: pytest.fail("columns"))
    by_cells = transport(problem, rows)
    assert_optimal(problem, rows, by_cells)
    assert by_cells.cost == pytest.approx(by_columns.cost, rel=1e-12)


def test_a_plan_over_few_arcs_is_exact_only_if_it_is_proven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prototypes, "_DENSE_ENTRIES", 0)
    monkeypatch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    solve = prototypes.sparse_plan
    monkeypatch.setattr(
        prototypes, "sparse_plan", lambda *given: replace(solve(*given), gap=1e-6, is_proven=False)
    )
    problem = Problem(np.random.default_rng(0).random((5, 40)), metric="precomputed").with_k(5)
    assert not prototypes.transport(problem, np.arange(5)).is_exact
