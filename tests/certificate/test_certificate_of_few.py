"""The certificate where prototypes are few and targets many: thresholds, candidates, every row.

`test_certificate.py` has what holds of every certificate. Here the ways that large problems take
are forced on small ones, of which the truth is known.
"""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from tests.bounds import most_proven

import uniproto
from uniproto.algorithm import transport_cost
from uniproto.certificate import candidate_search, row_groups
from uniproto.certificate.ascent import certify
from uniproto.certificate.bound import proven_bound
from uniproto.certificate.candidate_search import sample_of
from uniproto.certificate.row_bounds import RowBounds, bound_by_rows, largest_fall
from uniproto.certificate.thresholds import threshold_values
from uniproto.fills.priced_fills import cheapest_units_of_rows, exact_values
from uniproto.geometry.costs import FEATURE_METRICS
from uniproto.geometry.gpu_lists import GpuLists
from uniproto.problem.problem import Problem
from uniproto.runtime import compiling

METRICS = [*FEATURE_METRICS, "precomputed", "similarity"]


@pytest.fixture
def few_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the way of large problems, with few candidates and looks at samples first."""
    monkeypatch.setattr("uniproto.certificate.ascent._LISTED_COSTS", 0)
    monkeypatch.setattr(candidate_search, "_CANDIDATES", 4)
    monkeypatch.setattr(candidate_search, "_PER_PROTOTYPE", 2)
    monkeypatch.setattr(candidate_search, "_LOOKED_AT", 1)
    monkeypatch.setattr(candidate_search, "_FIRST_STEPS", 20)
    monkeypatch.setattr(candidate_search, "_STEPS", 30)


def rows_of(metric: str, draw: np.random.Generator, m: int, n: int, dtype: Any) -> tuple[Any, Any]:
    if metric in ("precomputed", "similarity"):
        return np.abs(draw.normal(size=(m, n))).astype(dtype), None
    source, target = draw.normal(size=(m, 3)) + 1, draw.normal(size=(n, 3)) + 1
    return source.astype(dtype), target.astype(dtype)


def optimum(problem: Problem, choices: Any) -> float:
    costs = problem.costs.exact_block(slice(None))
    return min(transport_cost(costs, list(choice), problem.masses) for choice in choices)


# Thresholds


@given(st.integers(0, 10**6), st.sampled_from([np.float32, np.float64]))
@example(720, np.float32)  # masses so uneven that one step would divide by nothing
@settings(max_examples=60, deadline=None)
def test_thresholds_bound_the_cheapest_unit(seed: int, dtype: type) -> None:
    """From below always, and closely; whatever the masses, ties, prices and first guesses are."""
    draw = np.random.default_rng(seed)
    n, k = int(draw.integers(1, 400)), int(draw.integers(1, 9))
    costs = draw.choice([draw.pareto(1.0, (3, n)), draw.integers(0, 4, (3, n))]).astype(dtype)
    prices = draw.choice([np.zeros(n), draw.random(n), 1e3 * draw.random(n)])
    weights = draw.choice([np.ones(n), 10.0 ** draw.uniform(-10, 0, n)])
    masses = uniproto.problem.masses.integer_masses(k, n, weights / weights.sum())
    true = cheapest_units_of_rows(costs.astype(float), prices, masses.offer, masses.need)
    capacity = masses.offer / masses.need
    for first in (np.full(3, np.nan), true, true + 1e6, true - 1e6):
        values, thresholds = np.empty(3), first.copy()
        threshold_values(costs, prices, capacity, np.inf, values, thresholds)
        slack = 1e-9 * (1 + np.abs(true))
        assert (values <= true + slack).all()
        assert (values >= true - 0.02 * (np.abs(thresholds) + 1)).all()


# Every row


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_no_row_is_worth_less_than_its_bound(metric: str, dtype: type, weighted: bool) -> None:
    draw = np.random.default_rng(3)
    source, target = rows_of(metric, draw, 40, 60, dtype)
    weights = draw.random(60) if weighted else None
    problem = Problem(source, target, metric=metric, target_weights=weights).with_k(5)
    bounds = RowBounds(problem, np.arange(40))
    for prices in (np.zeros(60), draw.random(60), 5 * draw.random(60)):
        bounds.update(prices)
        true = exact_values(problem, np.arange(40), prices)
        assert (bounds.values <= true * (1 + 1e-12)).all()
        near = 0.01 * problem.costs.ceiling + 3 * problem.costs.rounding
        np.testing.assert_allclose(bounds.values, true, atol=near)


@pytest.mark.parametrize("metric", ["euclidean", "l1"])
@pytest.mark.parametrize("shape", ["spread", "copies", "far out"])
def test_rows_in_groups(metric: str, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows share a list of targets, also if some are copies or one lies far out."""
    monkeypatch.setattr(row_groups, "_FEWEST_ROWS", 1)
    draw = np.random.default_rng(1)
    points = draw.normal(size=(300, 3)).astype(np.float32)
    if shape == "copies":
        points = points[draw.integers(0, 9, 300)]
    if shape == "far out":
        points[7] += 1e5
    problem = Problem(points, metric=metric).with_k(10)
    bounds = RowBounds(problem, np.arange(300))
    assert bounds.groups is not None
    assert bounds.groups.radius.max() < 10  # the row that lies far out has a group of its own
    for prices in (np.zeros(300), draw.random(300)):
        bounds.update(prices)
        true = exact_values(problem, np.arange(300), prices)
        assert (bounds.values <= true).all()
        level = float(np.median(true))
        bounds.update(prices, None, level)
        assert (bounds.values <= true).all()
    assert np.median(true - bounds.values) < 0.02 * np.median(true)


def test_what_is_known_at_other_prices() -> None:
    draw = np.random.default_rng(2)
    for seed in range(20):
        problem = Problem(draw.random((6, 30)), metric="precomputed").with_k(4)
        before, after = draw.random(30), draw.random(30)
        capacity = problem.masses.offer / problem.masses.need
        rows = np.arange(6)
        known = exact_values(problem, rows, before) - largest_fall(before, after, capacity)
        assert (known <= exact_values(problem, rows, after)).all(), seed


# The search


@pytest.mark.parametrize("metric", METRICS)
def test_never_above_the_optimum(metric: str, few_of_many: None) -> None:
    for seed, dtype in enumerate((np.float16, np.float32, np.float64)):
        draw = np.random.default_rng(seed)
        source, target = rows_of(metric, draw, 9, 14, dtype)
        weights = 10.0 ** draw.uniform(-10, 0, 14) if seed else None
        selection = uniproto.select(
            source, 3, target, metric=metric, target_weights=weights, certify=True
        )
        problem = Problem(source, target, metric=metric, target_weights=weights).with_k(3)
        best = optimum(problem, itertools.combinations(range(9), 3))
        found = selection.certificate
        assert 0 <= found.lower_bound <= best * (1 + 1e-12)
        if found.proof is None:  # else comparing sets has proven more than prices do
            assert proven_bound(problem, found.prices) >= found.lower_bound * (1 - 1e-9)


@pytest.mark.parametrize("case", ["initial", "exclude", "groups", "sparse", "k = 1", "k = m"])
def test_conditions(case: str, few_of_many: None) -> None:
    draw = np.random.default_rng(6)
    source: Any = draw.normal(size=(9, 4))
    k, options, choices = 3, {}, itertools.combinations(range(9), 3)
    if case == "initial":
        options, choices = (
            {"include": [4]},
            ((4, *two) for two in itertools.combinations([0, 1, 2, 3, 5, 6, 7, 8], 2)),
        )
    if case == "exclude":
        options, choices = {"exclude": [0, 5]}, itertools.combinations([1, 2, 3, 4, 6, 7, 8], 3)
    if case == "groups":
        options = {"groups": uniproto.Groups([0] * 5 + [1] * 4, budgets={0: 2, 1: 1})}
        choices = (
            (*two, one) for two in itertools.combinations(range(5), 2) for one in range(5, 9)
        )
    if case == "sparse":
        source = sp.csr_matrix(source * (draw.random((9, 4)) < 0.6) + np.eye(9, 4))
    if case.startswith("k"):
        k = 1 if case == "k = 1" else 9
        choices = itertools.combinations(range(9), k)
    selection = uniproto.select(source, k, metric="euclidean", certify=True, **options)
    problem = Problem(source, metric="euclidean", **options).with_k(k)
    best = optimum(problem, choices)
    assert 0 <= selection.certificate.lower_bound <= best * (1 + 1e-12)
    if case == "k = 1":
        assert selection.certificate.lower_bound == pytest.approx(best, rel=1e-6)


def relaxed_optimum(costs: np.ndarray, k: int) -> float:
    """The best bound that any prices prove: the linear program they are dual to."""
    m, n = costs.shape
    share = k / n
    pairs = m * n
    equal = sp.vstack(
        [
            sp.hstack([sp.kron(sp.eye(m), np.ones((1, n))), -sp.eye(m)]),  # a unit for each chosen
            sp.hstack([sp.kron(np.ones((1, m)), sp.eye(n)), sp.csr_matrix((n, m))]),
            sp.hstack([sp.csr_matrix((1, pairs)), np.ones((1, m))]),
        ]
    )
    right = np.concatenate([np.zeros(m), np.full(n, share), [k]])
    below = sp.hstack([sp.eye(pairs), -share * sp.kron(sp.eye(m), np.ones((n, 1)))])
    bounds = [(0, None)] * pairs + [(0, 1)] * m
    objective = np.concatenate([costs.ravel(), np.zeros(m)])
    solved = linprog(
        objective, A_ub=below, b_ub=np.zeros(pairs), A_eq=equal, b_eq=right, bounds=bounds
    )
    return float(solved.fun) / k


def test_close_to_the_linear_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uniproto.certificate.ascent._LISTED_COSTS", 0)
    for seed in range(2):
        points = np.random.default_rng(seed).normal(size=(60, 2))
        selection = uniproto.select(points, 4, metric="euclidean", certify=True)
        problem = Problem(points, metric="euclidean").with_k(4)
        best = relaxed_optimum(problem.costs.exact_block(slice(None)), 4)
        assert 0.98 * best <= selection.certificate.lower_bound <= best * (1 + 1e-9)


def spread_over_orders(n: int, clusters: int, seed: int = 0) -> np.ndarray:
    """Clusters whose costs span five orders of magnitude."""
    draw = np.random.default_rng(seed)
    return np.concatenate(
        [
            draw.normal(size=(n // clusters, 3)) * 10.0 ** (-5 * place / (clusters - 1))
            + draw.normal(size=3) * 10
            for place in range(clusters)
        ]
    )


@pytest.mark.slow
def test_clusters_of_very_different_sizes() -> None:
    points = spread_over_orders(600, 6)
    selection = uniproto.select(points, 30, metric="euclidean", certify=True)
    assert selection.certificate.gap < 0.1


@pytest.mark.parametrize("case", ["copies", "ties", "a far row", "weights"])
def test_odd_cells(case: str, few_of_many: None) -> None:
    draw = np.random.default_rng(7)
    points = draw.normal(size=(120, 2))
    weights = None
    if case == "copies":
        points = points[draw.integers(0, 6, 120)]
    if case == "ties":
        points = draw.integers(0, 3, (120, 2)).astype(float)
    if case == "a far row":
        points[5] = 1e7
    if case == "weights":
        weights = 10.0 ** draw.uniform(-10, 0, 120)
    selection = uniproto.select(points, 6, metric="euclidean", target_weights=weights, certify=True)
    problem = Problem(points, metric="euclidean", target_weights=weights).with_k(6)
    found = selection.certificate
    assert 0 <= found.lower_bound <= selection.cost
    assert proven_bound(problem, found.prices) >= found.lower_bound * (1 - 1e-9)


def test_the_same_search_twice_and_a_search_that_goes_on(few_of_many: None) -> None:
    points = np.random.default_rng(9).normal(size=(300, 2))
    selection = uniproto.select(points, 6, metric="euclidean")
    first, second = (selection.certify() for _ in range(2))
    assert first.lower_bound == second.lower_bound
    np.testing.assert_array_equal(first.prices, second.prices)
    problem = Problem(points, metric="euclidean").with_k(6)
    further = certify(
        problem, selection.cost, first.prices, rows=selection.indices, plan=selection.plan
    )
    assert further.lower_bound >= first.lower_bound * (1 - 1e-12)


@pytest.mark.slow
def test_the_time_limit_leaves_time_for_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uniproto.certificate.ascent._LISTED_COSTS", 0)
    points = np.random.default_rng(10).normal(size=(1500, 3)).astype(np.float32)
    selection = uniproto.select(points, 10, metric="euclidean")
    clock = iter(np.arange(0, 1e6, 0.1))  # a tenth of a second passes whenever somebody looks
    monkeypatch.setattr(compiling, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    found = selection.certify(seconds=10.0)
    assert next(clock) < 60
    assert 0 < found.lower_bound <= selection.cost
    assert math.isfinite(found.gap)


@pytest.fixture
def torch_as_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs on a GPU, on torch's processor tensors."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(
        "uniproto.geometry.gpu_lists._upload", lambda rows: torch.from_numpy(np.array(rows))
    )


@pytest.mark.parametrize("metric", FEATURE_METRICS)
@pytest.mark.parametrize("weighted", [False, True])
def test_rows_on_a_gpu(metric: str, weighted: bool, torch_as_gpu: None) -> None:
    draw = np.random.default_rng(12)
    source, target = rows_of(metric, draw, 50, 400, np.float32)
    weights = draw.random(400) if weighted else None
    problem = Problem(source, target, metric=metric, target_weights=weights).with_k(8)
    problem = problem.changed(lists=GpuLists())
    bounds = RowBounds(problem, np.arange(50))
    assert bounds.gpu is not None
    for prices in (np.zeros(400), draw.random(400)):
        bounds.update(prices)
        true = exact_values(problem, np.arange(50), prices)
        assert (bounds.values <= true).all()
        near = 0.02 * problem.costs.ceiling + 3 * problem.costs.rounding
        np.testing.assert_allclose(bounds.values, true, atol=near)


def test_a_search_on_a_gpu(torch_as_gpu: None, few_of_many: None) -> None:
    points = np.random.default_rng(13).normal(size=(500, 6)).astype(np.float32)
    selection = uniproto.select(points, 5, metric="euclidean")
    problem = Problem(points, metric="euclidean").with_k(5)
    own = {"rows": selection.indices, "plan": selection.plan}
    here = certify(problem, selection.cost, np.zeros(500), **own)
    there = certify(problem.changed(lists=GpuLists()), selection.cost, np.zeros(500), **own)
    assert there.lower_bound == pytest.approx(here.lower_bound, rel=0.03)
    assert there.lower_bound <= most_proven(problem, there.prices)


def test_thresholds_that_run_away_prove_nothing(torch_as_gpu: None) -> None:
    """A target of next to no weight, just below the threshold, looks like a very low density."""
    far, n = 1e27, 8192
    targets, weights = np.zeros((n, 1), np.float32), np.zeros(n)
    targets[0::2], targets[1] = far**0.5, (0.9 * far) ** 0.5
    weights[0::2], weights[3::2], weights[1] = 0.25 / 4096, 0.75 / 4095, 1e-13
    rows = np.full((2000, 1), 10 * far**0.5, np.float32)
    rows[:2] = 0
    problem = Problem(rows, targets, metric="sqeuclidean", target_weights=weights).with_k(2)
    problem, prices = problem.changed(lists=GpuLists()), np.zeros(n)
    assert bound_by_rows(problem, prices) <= most_proven(problem, prices)


def test_a_sample_of_the_targets_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uniproto.certificate.ascent._LISTED_COSTS", 0)
    draw = np.random.default_rng(15)
    points, weights = draw.normal(size=(400, 3)).astype(np.float32), draw.random(400)
    selection = uniproto.select(points, 5, metric="euclidean", target_weights=weights)
    problem = Problem(points, metric="euclidean", target_weights=weights).with_k(5)
    own = {"rows": selection.indices, "plan": selection.plan}
    at_once = certify(problem, selection.cost, np.zeros(400), **own)
    monkeypatch.setattr("uniproto.certificate.candidate_search._SAMPLED", 100)
    monkeypatch.setattr("uniproto.certificate.candidate_search._SAMPLED_EACH", 20)
    sample = sample_of(problem)
    assert sample is not None
    assert sample.problem.n <= 100
    found = certify(problem, selection.cost, np.zeros(400), **own)
    assert found.lower_bound >= 0.97 * at_once.lower_bound
    assert found.lower_bound <= most_proven(problem, found.prices)
    assert found.lower_bound <= selection.cost


@pytest.fixture
def sample_first(few_of_many: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uniproto.certificate.candidate_search._SAMPLED", 20)
    monkeypatch.setattr("uniproto.certificate.candidate_search._SAMPLED_EACH", 4)


@pytest.mark.slow
def test_never_above_the_optimum_after_a_sample(torch_as_gpu: None, sample_first: None) -> None:
    points = np.random.default_rng(24).normal(size=(70, 3)).astype(np.float32)
    selection = uniproto.select(points, 2, metric="euclidean")
    problem = Problem(points, metric="euclidean").with_k(2)
    best = optimum(problem, itertools.combinations(range(70), 2))
    own = {"rows": selection.indices, "plan": selection.plan}
    for each in (problem, problem.changed(lists=GpuLists())):
        assert sample_of(each) is not None
        found = certify(each, selection.cost, np.zeros(70), **own)
        assert 0.8 * best < found.lower_bound <= best
