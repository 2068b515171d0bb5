"""The plan of few prototypes by prices on them: the same as by network simplex, and proven."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

import uniproto
from uniproto.problem.masses import integer_masses
from uniproto.problem.problem import Problem
from uniproto.transport import prototypes
from uniproto.transport.exact import partial_plan
from uniproto.transport.few import few_plan


def assert_optimal(costs: np.ndarray, weights: np.ndarray | None = None) -> None:
    """Costs are n × k."""
    n, k = costs.shape
    masses = integer_masses(k, n, None if weights is None else weights / weights.sum())
    plan = few_plan(costs, masses.offer, masses.need)
    best = partial_plan(costs.T, masses.offer, masses.need)
    assert plan is not None
    assert plan.is_proven
    assert plan.cost == pytest.approx(best.cost, rel=1e-11)
    assert (plan.masses.sum(axis=1) == masses.need).all()
    assert (plan.masses.sum(axis=0) == masses.offer).all()
    assert plan.masses.data.min() > 0
    # The duals are feasible, and tight wherever mass flows.
    slack = costs.T + plan.prices - plan.potentials[:, None]
    assert slack.min() >= -1e-9 * np.abs(costs).max()
    flow = plan.masses.tocoo()
    assert np.abs(slack[flow.row, flow.col]).max() <= 1e-9 * np.abs(costs).max()


@settings(max_examples=60, deadline=None)
@given(
    k=st.integers(1, 9),
    per=st.integers(5, 60),
    rest=st.integers(0, 8),
    spread=st.sampled_from([1.0, 1e-150, 1e150]),
    weighted=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_same_cost_as_network_simplex(
    k: int, per: int, rest: int, spread: float, weighted: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    costs = spread * np.abs(
        rng.normal(size=(k * per + rest, 1, 3)) - 2 * rng.normal(size=(1, k, 3))
    ).sum(axis=2)
    weights = rng.lognormal(0, 2, size=len(costs)) if weighted else None
    assert_optimal(costs, weights)


def test_one_target_with_most_of_the_mass() -> None:
    """The prices are far off then, and the band of ties must reach all targets."""
    rng = np.random.default_rng(5)
    shifts = rng.normal(size=(15, 1, 3)) - 2 * rng.normal(size=(1, 2, 3))
    assert_optimal(np.abs(shifts).sum(axis=2), rng.lognormal(0, 2, size=15))


def test_a_far_outlier_gets_its_share() -> None:
    rng = np.random.default_rng(0)
    points = np.vstack([rng.normal(size=(2000, 2)), [[1e4, 1e4]]])
    chosen = points[[3, 500, 1999, 2000]]
    assert_optimal(np.linalg.norm(points[:, None] - chosen[None], axis=2))


def test_weights_over_ten_orders_of_magnitude() -> None:
    rng = np.random.default_rng(1)
    assert_optimal(rng.random((900, 5)), 10.0 ** rng.uniform(-10, 0, 900))


def test_targets_without_weight_get_a_price_that_keeps_everybody_away() -> None:
    rng = np.random.default_rng(2)
    weights = rng.random(600)
    weights[::3] = 0
    assert_optimal(rng.random((600, 4)), weights)


def test_ties_are_solved_or_left_to_another_solver() -> None:
    """Whole numbers tie everywhere; equal costs leave nothing to go by."""
    rng = np.random.default_rng(3)
    assert_optimal(rng.integers(0, 4, (800, 6)).astype(float))
    masses = integer_masses(3, 90)
    assert few_plan(np.ones((90, 3)), masses.offer, masses.need) is None


def test_a_selection_takes_this_way_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(4).normal(size=(6000, 3))
    problem = Problem(points, metric="euclidean").with_k(40)
    rows = np.arange(0, 6000, 150)
    quick = prototypes.transport(problem, rows)
    monkeypatch.setattr(prototypes, "FEW", 0)
    slow = prototypes.transport(problem, rows)
    assert quick.is_exact
    assert slow.is_exact
    assert quick.cost == pytest.approx(slow.cost, rel=1e-12)
    certified = uniproto.select(points[:600], 4, metric="euclidean", certify=True)
    assert certified.certificate is not None
    assert certified.certificate.lower_bound <= certified.cost


def test_more_targets_than_other_solvers_take() -> None:
    """Half a million targets, which used to get an upper bound instead of a cost."""
    points = np.random.default_rng(5).normal(size=(500_000, 2)).astype(np.float32)
    cost = uniproto.cost(points, [0, 17, 400_000], metric="euclidean")
    problem = Problem(points, metric="euclidean").with_k(3)
    solved = prototypes.transport(problem, np.array([0, 17, 400_000]))
    assert solved.is_exact
    assert cost == solved.cost
    assert (np.abs(solved.plan.sum(axis=1) - 1 / 3) <= 1e-12).all()


def test_the_cost_of_given_rows() -> None:
    points = np.random.default_rng(6).normal(size=(200, 3))
    chosen = uniproto.select(points, 7)
    assert uniproto.cost(points, chosen.indices) == chosen.cost
    other = np.random.default_rng(7).normal(size=(90, 3))
    against = uniproto.select(points, 7, other, metric="l1")
    assert uniproto.cost(points, against.indices, other, metric="l1") == against.cost
    with refused("rows", uniproto.InvalidInputError):
        uniproto.cost(points, [3, 3])
    with refused("rows", uniproto.InvalidInputError):
        uniproto.cost(points, [])
