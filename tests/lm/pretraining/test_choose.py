"""The choices under lax, against the plain NumPy ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uniproto.algorithm import fill_costs, uniprot
from uniproto.lm.batches.kernels import pick_by_coverage
from uniproto.lm.pretraining import choose
from uniproto.problem.masses import integer_masses
from uniproto.transport import entropic

POOL = 24  # one size for all: a size of its own is a compilation of its own
pick_by_fills = jax.jit(choose.pick_by_fills, static_argnums=2)
pick_medoids = jax.jit(choose.pick_medoids, static_argnums=2)
pick_by_entropic_fills = jax.jit(choose.pick_by_entropic_fills, static_argnums=(2, 3, 4))
entropic_claims = jax.jit(choose.entropic_claims, static_argnums=(3, 4))


@st.composite
def problems(draw):
    """Whole costs, often tied, and which rows are usable."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    values = draw(st.sampled_from([2, 5, 100, 2**26]))
    costs = random.integers(0, values, (POOL, POOL))
    if draw(st.booleans()):  # a pool against itself
        costs = np.triu(costs, 1) + np.triu(costs, 1).T
    if draw(st.booleans()):  # copies of one example
        costs[draw(st.integers(0, POOL - 1))] = costs[0]
    usable = random.random(POOL) >= draw(st.sampled_from([0.0, 0.0, 0.2]))
    return costs, usable


@given(problems(), st.sampled_from([1, 7, 8, 12]))
@settings(max_examples=60, deadline=None)
def test_fills_pick_the_rows_of_the_algorithm_ties_included(problem, keep):
    costs, usable = problem
    rows = np.flatnonzero(usable)
    keep = min(keep, 7) if len(rows) < 12 else keep
    picks = pick_by_fills(jnp.asarray(costs, jnp.int32), jnp.asarray(usable), keep)
    plain = costs[np.ix_(rows, rows)].astype(float)
    expected, expected_costs = uniprot(plain, keep, integer_masses(keep, len(rows)))
    assert picks.rows.tolist() == rows[expected].tolist()
    assert float(picks.cost) == pytest.approx(np.mean(expected_costs), rel=1e-5, abs=1e-5)


@given(problems(), st.sampled_from([1, 7, 12]))
@settings(max_examples=30, deadline=None)
def test_medoids_are_those_of_the_batch_selector(problem, keep):
    costs, usable = problem
    rows = np.flatnonzero(usable)
    keep = min(keep, 7) if len(rows) < 12 else keep
    held = np.where(usable[:, None] & usable, costs, 0)
    picks = pick_medoids(jnp.asarray(held, jnp.int32), jnp.asarray(usable), keep)
    expected = pick_by_coverage(costs[np.ix_(rows, rows)].astype(float), keep)
    assert picks.tolist() == rows[expected].tolist()


def test_integer_costs_order_as_the_costs_and_never_overflow():
    random = np.random.default_rng(0)
    costs = random.random((POOL, POOL)).astype(np.float32) * 3
    costs[2, :] = costs[:, 2] = np.nan
    usable = np.arange(POOL) != 2
    whole, unit = choose.integer_costs(jnp.asarray(costs), jnp.asarray(usable))
    whole = np.asarray(whole).astype(np.int64)
    assert (whole[2] == 0).all()
    assert whole.max() * POOL < 2**31
    assert np.allclose(whole[usable][:, usable] * float(unit), costs[usable][:, usable], atol=1e-6)


def clustered_costs(seed):
    random = np.random.default_rng(seed)
    points = random.normal(size=(6, 5))[random.integers(6, size=POOL)]
    points = points + 0.3 * random.normal(size=(POOL, 5))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    return np.clip(1 - points @ points.T, 0, 2).astype(np.float32)


@pytest.mark.parametrize("iterations", [20, 200])
@pytest.mark.parametrize("picked", [0, 1, 5, 12])
def test_entropic_claims_are_those_of_the_plain_solver(iterations, picked):
    costs = clustered_costs(picked)
    capacity = np.full(POOL, 12 / POOL)
    capacity[3] = 0.0
    rows = np.arange(12) < picked
    claims = entropic_claims(
        jnp.asarray(costs[:12]), jnp.asarray(rows), jnp.asarray(capacity), 0.01, iterations
    )
    expected = np.zeros(POOL)
    if picked:
        expected = entropic.entropic_plan(costs[:picked], capacity, 0.01, iterations).plan.sum(0)
    assert np.allclose(claims, expected, atol=2e-3)


def largest_violation(costs, picks, iterations):
    """Of the plans that lead to these picks: one before every pick but the first."""
    capacity = np.full(len(costs), len(picks) / len(costs))
    plans = (
        entropic.entropic_plan(costs[picks[:i]], capacity, 0.01, iterations)
        for i in range(1, len(picks))
    )
    return max(plan.violation for plan in plans)


@pytest.mark.parametrize("left_out", [None, 4])
def test_entropic_picks_are_those_of_the_algorithm(left_out):
    usable = np.arange(POOL) != left_out
    rows = np.flatnonzero(usable)
    for seed in range(5):
        costs = np.random.default_rng(seed).random((POOL, POOL)).astype(np.float32)
        costs[~usable], costs[:, ~usable] = np.nan, np.nan
        picks = pick_by_entropic_fills(jnp.asarray(costs), jnp.asarray(usable), 12, 0.01, 20)
        expected, expected_costs = uniprot(
            costs[np.ix_(rows, rows)].astype(float),
            12,
            integer_masses(12, len(rows)),
            "entropic",
            reg=0.01,
            iterations=20,
        )
        assert picks.rows.tolist() == rows[expected].tolist()
        assert float(picks.cost) == pytest.approx(np.mean(expected_costs), rel=1e-3)
        assert float(picks.violation) == pytest.approx(
            largest_violation(costs[np.ix_(rows, rows)].astype(float), expected, 20), rel=1e-3
        )


def test_where_entropic_fills_tie_the_pick_is_one_of_the_cheapest():
    """Of a pool against itself, two examples nearest to each other have equal fills.

    Which of them has the smaller rounding error differs between float32 and float64.
    """
    for seed in range(5):
        costs = clustered_costs(seed)
        picks = pick_by_entropic_fills(jnp.asarray(costs), jnp.ones(POOL, bool), 12, 0.01, 20)
        rows, exact, masses = picks.rows.tolist(), costs.astype(float), integer_masses(12, POOL)
        capacity = masses.offer / masses.need
        for position, row in enumerate(rows):
            claims = np.zeros(POOL)
            if position:
                plan = entropic.entropic_plan(exact[rows[:position]], capacity, 0.01, 20).plan
                claims = plan.sum(axis=0)
            free = (i for i in range(POOL) if i not in rows[:position])
            found = dict(fill_costs(exact, free, np.maximum(capacity - claims, 0), 1.0))
            assert found[row] <= min(found.values()) + 1e-4


def test_falls_are_those_of_greats():
    random = np.random.default_rng(0)
    features = random.normal(size=(POOL, 8)).astype(np.float32)
    anchors, rate, keep = [1, 5, 9], 0.05, 10
    products = features @ features.T
    falls = []
    for i in range(POOL):
        others = [v for v in anchors if v != i]
        falls.append(products[i, others].mean())
    falls, expected = np.array(falls), []
    for _ in range(keep):
        row = max(set(range(POOL)) - set(expected), key=lambda i: falls[i])
        expected.append(row)
        falls = falls - rate * products[row]
    usable = jnp.ones(POOL, bool)
    pick_greats = jax.jit(choose.pick_greats, static_argnums=3)
    picks = pick_greats(jnp.asarray(products), jnp.asarray(anchors), usable, keep, rate)
    assert picks.tolist() == expected


def test_the_largest_come_first_and_equals_in_order():
    values = jnp.array([1.0, jnp.nan, 3.0, 3.0, jnp.inf, 2.0])
    usable = jnp.isfinite(values)
    assert choose.pick_largest(values, usable, 4).tolist() == [2, 3, 5, 0]


def test_usable_rows_have_finite_scores_and_where_asked_a_direction():
    losses = jnp.array([1.0, jnp.nan, 1.0, 1.0])
    products = jnp.diag(jnp.array([1.0, 1.0, 0.0, jnp.inf]))
    assert choose.usable_rows(losses, products).tolist() == [True, False, True, False]
    usable = choose.usable_rows(losses, products, direction=True)
    assert usable.tolist() == [True, False, False, False]
