"""Improving: single exchanges that lower the exact cost, until none does or time is up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.bounds import weights_of

import uniproto
from uniproto import Entropic, Greedy
from uniproto.algorithm import transport_cost
from uniproto.errors import InvalidInputError
from uniproto.geometry.costs import FEATURE_METRICS
from uniproto.methods.search import search as search_module
from uniproto.methods.search.search import search
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress

GREEDY = Greedy()
LONG = 60.0  # seconds, more than any of these problems needs


def best_exchange(problem: Problem, rows: list[int]) -> float:
    """The lowest cost that exchanging one row, not a given one, leads to."""
    costs = problem.costs.exact_block(slice(None))
    best = np.inf
    for place in range(len(problem.initial), problem.k):
        others = [row for position, row in enumerate(rows) if position != place]
        barred = {row for other in others for row in problem.candidates[problem.twins(other)]}
        for row in problem.candidates.tolist():
            if row not in rows and row not in barred:
                best = min(best, transport_cost(costs, [*others, row], problem.masses))
    return best


def assert_local_optimum(problem: Problem, selection: uniproto.Selection) -> None:
    slack = 2e-9 * selection.cost + 1e-12 * problem.costs.ceiling
    assert best_exchange(problem, selection.indices.tolist()) >= selection.cost - slack


def assert_improved(
    source: Any, k: int, target: Any = None, **given: Any
) -> tuple[uniproto.Selection, int]:
    """The cost never rises, and leaves no exchange that lowers it; the result and its exchanges."""
    plain = uniproto.select(source, k, target, **given, method=GREEDY)
    improved = plain.improve(LONG)
    problem = Problem(source, target, **given).with_k(k)
    assert improved.cost <= plain.cost * (1 + 1e-9) + 1e-12 * problem.costs.ceiling
    assert_local_optimum(problem, improved)
    rows = improved.indices.tolist()
    assert len(set(rows)) == k
    assert rows[: len(problem.initial)] == problem.initial.tolist()
    assert set(rows) <= {*problem.initial.tolist(), *problem.candidates.tolist()}
    np.testing.assert_allclose(improved.plan.sum(axis=1), np.full(k, 1 / k))
    np.testing.assert_allclose(improved.plan.sum(axis=0), problem.masses.weights, atol=1e-15)
    # What the prototypes hold in the plan adds up to its cost.
    held = improved.details.beta - improved.details.gains
    assert held.mean() == pytest.approx(improved.cost, rel=1e-9, abs=1e-9 * improved.details.beta)
    exchanged: int = improved.details.notes["exchanged"]
    same = sorted(rows) == sorted(plain.indices.tolist())
    assert exchanged > 0 or same or improved.cost < plain.cost  # the start was a better one
    return improved, exchanged


def assert_improved_from_anywhere(problem: Problem, rng: np.random.Generator) -> int:
    """The same from a random choice, which leaves more to do; returns the exchanges made."""
    costs = problem.costs.exact_block(slice(None))
    given = len(problem.initial)
    free = rng.permutation(problem.candidates)[: problem.k - given]
    first = np.concatenate([problem.initial, free])
    picks = search(problem, GREEDY, LONG, Progress(shown=False), first)
    rows = picks.rows.tolist()
    assert len(set(rows)) == problem.k
    assert rows[:given] == problem.initial.tolist()
    assert set(rows[given:]) <= set(problem.candidates.tolist())
    before, after = (transport_cost(costs, list(r), problem.masses) for r in (first, rows))
    slack = 2e-9 * after + 1e-12 * problem.costs.ceiling
    assert after <= before + slack
    assert best_exchange(problem, rows) >= after - slack
    assert picks.transport is not None
    plan = picks.transport.plan
    np.testing.assert_allclose(plan.sum(axis=0), problem.masses.weights, atol=1e-15)
    np.testing.assert_allclose(plan.sum(axis=1), np.full(problem.k, 1 / problem.k))
    exchanged: int = picks.notes["exchanged"]
    assert exchanged > 0 or rows == first.tolist()
    return exchanged


@pytest.mark.parametrize("kind", ["uniform", "uneven", "heavy", "zeros"])
def test_no_exchange_improves(kind: str) -> None:
    exchanged = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        m, n, k = int(rng.integers(4, 14)), int(rng.integers(2, 14)), int(rng.integers(1, 5))
        costs = rng.random((m, n)) if seed % 3 else rng.integers(0, 4, (m, n)).astype(float)
        given = {"metric": "precomputed", "target_weights": weights_of(kind, rng, n)}
        assert_improved(costs, k, **given)
        exchanged += assert_improved_from_anywhere(Problem(costs, **given).with_k(k), rng)
    assert exchanged > 12


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_features(metric: str, dtype: type) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        source, target = rng.normal(size=(14, 4)), rng.normal(size=(11, 4))
        if seed == 2:  # near-duplicates
            source[:10] = source[0] + rng.normal(size=(10, 4)) * 1e-4
        source, target = source.astype(dtype), target.astype(dtype)
        assert_improved(source, 4, target, metric=metric)
        assert_improved_from_anywhere(Problem(source, target, metric=metric).with_k(4), rng)


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_bounds_from_single_precision_rule_nothing_better_out(metric: str) -> None:
    """Of one prototype the bound is its cost: near-duplicates differ by less than its rounding."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        source = (rng.normal(size=20) + rng.normal(size=(40, 20)) * 1e-4).astype(np.float32)
        target = rng.normal(size=(12, 20)).astype(np.float32)
        assert_improved_from_anywhere(Problem(source, target, metric=metric).with_k(1), rng)


@pytest.mark.parametrize("kind", ["uniform", "heavy"])
def test_given_and_excluded_rows_are_honoured(kind: str) -> None:
    exchanged = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        costs, rows = rng.random((12, 9)), rng.permutation(12).tolist()
        given = {
            "metric": "precomputed",
            "target_weights": weights_of(kind, rng, 9),
            "include": rows[: seed % 4],
            "exclude": rows[8 + seed % 4 :],
        }
        assert_improved(costs, 4, **given)
        exchanged += assert_improved_from_anywhere(Problem(costs, **given).with_k(4), rng)
    assert exchanged > 12


def test_nothing_to_exchange() -> None:
    costs = np.random.default_rng(0).random((6, 8))
    given = {"metric": "precomputed", "method": GREEDY}
    for options in ({"include": [4, 2, 0]}, {"exclude": [0, 1, 2]}):
        selection = uniproto.select(costs, 3, **given, **options).improve(LONG)
        assert selection.details.notes["exchanged"] == 0
    assert sorted(uniproto.select(costs, 6, **given).improve(LONG).indices) == list(range(6))


def test_one_prototype_is_the_best_row() -> None:
    costs = np.random.default_rng(1).random((50, 30))
    method = Greedy(sample=0.9)
    selection = uniproto.select(costs, 1, metric="precomputed", method=method, seed=3).improve(LONG)
    assert selection.indices.tolist() == [int(costs.mean(axis=1).argmin())]


@pytest.mark.parametrize("distinct", ["auto", 0.5])
def test_near_duplicates_stay_apart(distinct: str | float) -> None:
    exchanged = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        centres = rng.normal(size=(10, 2)) * 3
        points = np.vstack([centres, centres + 1e-3, rng.normal(size=(10, 2))])
        given = {"metric": "euclidean", "min_distance": distinct}
        selection, made = assert_improved(points, 5, **given)
        exchanged += made
        problem = Problem(points, **given).with_k(5)
        chosen = points[selection.indices]
        apart = np.linalg.norm(chosen[:, None] - chosen[None], axis=2)[np.triu_indices(5, 1)]
        assert apart.min() > problem.twin_distance
    assert exchanged > 0


def test_groups_keep_their_numbers_and_no_group_gets_worse() -> None:
    exchanged = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        points, labels = rng.normal(size=(24, 2)), np.arange(24) % 3
        given = {
            "groups": uniproto.Groups(labels, budgets={0: 4, 1: 2, 2: 1}),
            "metric": "euclidean",
        }
        given |= {"include": [3, 4], "exclude": [0, 1, 2]}
        plain = uniproto.select(points, 7, **given, method=GREEDY)
        improved = plain.improve(LONG)
        rows = improved.indices
        assert np.bincount(labels[rows]).tolist() == [4, 2, 1]
        assert rows[:2].tolist() == [3, 4]
        assert not set(rows.tolist()) & {0, 1, 2}
        for label, cost in plain.group_costs.items():
            assert improved.group_costs[label] <= cost * (1 + 1e-9)
        exchanged += sorted(rows) != sorted(plain.indices)
    assert exchanged > 3


@pytest.mark.parametrize("method", [GREEDY, Greedy(plan=Entropic()), "kmedoids", "protodash"])
def test_after_any_method(method: Any) -> None:
    points = np.random.default_rng(4).normal(size=(30, 3))
    plain = uniproto.select(points, 6, method=method)
    improved = plain.improve(LONG)
    assert improved.cost <= plain.cost * (1 + 1e-9)
    assert improved.details.method == plain.details.method
    assert improved.weights.tolist() == [1 / 6] * 6
    replaced = set(improved.indices.tolist()) - set(plain.indices.tolist())
    assert improved.details.notes["improved"]["replaced"] == len(replaced)
    assert_local_optimum(Problem(points).with_k(6), improved)


def test_a_proof_outlives_improving_in_vain(tmp_path: Path) -> None:
    best = uniproto.select([[0.0], [1.0], [5.0], [6.0]], 2, metric="euclidean")
    assert best.improve(1).details.proof == best.details.proof is not None
    best.save(tmp_path / "out")
    with pytest.raises(InvalidInputError, match="no longer holds the data"):
        uniproto.Selection.load(tmp_path / "out").improve(1)


def test_it_lowers_the_cost_and_the_certificate_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_module, "_go_on", lambda *_: None)  # which would use up the seconds
    points = np.random.default_rng(5).normal(size=(300, 3))
    plain = uniproto.select(points, 10, metric="euclidean", method=GREEDY, certify=True)
    improved = plain.improve(LONG)
    improved.certify()
    assert improved.cost < 0.99 * plain.cost
    assert improved.certificate.gap < plain.certificate.gap
    assert plain.certificate.lower_bound <= improved.cost


def test_no_time_is_no_exchange() -> None:
    points = np.random.default_rng(7).normal(size=(500, 8))
    plain = uniproto.select(points, 50, method=GREEDY)
    shortest = plain.improve(1e-9)
    assert shortest.details.notes["exchanged"] == 0
    assert shortest.cost == pytest.approx(plain.cost, rel=1e-9)
    assert shortest.indices.tolist() == plain.indices.tolist()
