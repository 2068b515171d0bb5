"""Exact, incremental and entropic partial plans, against an independent LP solver."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from uniproto import SolverError, UniprotoError
from uniproto.problem.masses import Masses, integer_masses
from uniproto.transport import incremental
from uniproto.transport.entropic import entropic_plan
from uniproto.transport.exact import import_ot, partial_plan, verify_flow
from uniproto.transport.incremental import IncrementalPlan
from uniproto.transport.proof import prove, reduced_costs

properties = settings(deadline=None, max_examples=40, derandomize=True)


def lp_cost(costs: np.ndarray, masses: Masses) -> float:
    """The same partial transport as a linear program, per unit of need, by HiGHS."""
    rows, n = costs.shape
    solved = linprog(
        costs.ravel(),
        A_eq=sp.kron(sp.eye_array(rows), np.ones((1, n))),
        b_eq=np.ones(rows),
        A_ub=sp.kron(np.ones((1, rows)), sp.eye_array(n)),
        b_ub=masses.offer / masses.need,
        method="highs",
    )
    assert solved.status == 0, solved.message
    return solved.fun


@st.composite
def transport_problems(draw: st.DrawFn) -> tuple[np.ndarray, Masses]:
    """Costs of at most k rows, so that all or only some of the target is used."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    k, n = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    rows = draw(st.integers(1, k))
    if draw(st.booleans()):
        costs = rng.random((rows, n)) * draw(st.sampled_from([1.0, 100.0]))
    else:
        costs = rng.integers(0, 3, (rows, n)).astype(float)  # many optimal plans
    weights = None
    kind = draw(st.sampled_from(["uniform", "uneven", "heavy", "zeros"]))
    if kind != "uniform":
        weights = rng.dirichlet(np.full(n, 0.2 if kind == "heavy" else 1.0))
        if kind == "zeros":
            weights = weights * (np.arange(n) % 2 == 0)
        weights = weights / weights.sum()
    return costs, integer_masses(k, n, weights)


def assert_feasible(plan: sp.csr_array, masses: Masses) -> None:
    assert plan.dtype == np.int64
    assert (plan.data >= 0).all()
    assert (plan.sum(axis=1) == masses.need).all()
    assert (plan.sum(axis=0) <= masses.offer).all()


def assert_prices_prove_optimality(
    prices: np.ndarray, cost: float, left_over: np.ndarray, costs: np.ndarray, masses: Masses
) -> None:
    """Dual feasibility, complementary slackness and strong duality.

    With u_i = min_j C_ij + v_j every plan costs at least Σ_i u_i − Σ_j offer_j·v_j (per need).
    """
    scale = max(1.0, costs.max())
    assert (prices >= 0).all()
    if left_over.any():
        assert np.abs(prices[left_over > 0]).max() <= 1e-9 * scale
    potentials = (costs + prices).min(axis=1)
    bound = potentials.sum() - (masses.offer / masses.need) @ prices
    assert bound == pytest.approx(cost / masses.need, abs=1e-8 * scale * len(costs))


@properties
@given(transport_problems())
def test_exact_plan_is_optimal_and_its_prices_prove_it(problem) -> None:
    costs, masses = problem
    plan = partial_plan(costs, masses.offer, masses.need)
    assert_feasible(plan.masses, masses)
    assert plan.cost == pytest.approx(float(plan.masses.multiply(costs).sum()), rel=1e-12)
    assert plan.cost / masses.need == pytest.approx(lp_cost(costs, masses), rel=1e-8, abs=1e-8)
    left_over = masses.offer - plan.masses.sum(axis=0)
    assert_prices_prove_optimality(plan.prices, plan.cost, left_over, costs, masses)


@properties
@given(transport_problems())
def test_incremental_plan_is_optimal_after_every_row(problem) -> None:
    costs, masses = problem
    plan = IncrementalPlan(masses.offer, masses.need, len(costs))
    before = 0.0
    for row in range(len(costs)):
        rise = plan.add(costs[row])
        exact = partial_plan(costs[: row + 1], masses.offer, masses.need)
        scale = max(1.0, costs.max())
        assert before + rise == pytest.approx(exact.cost / masses.need, abs=1e-9 * scale)
        before += rise
        held = plan.masses()
        assert held.shape == (row + 1, len(masses.offer))
        assert_feasible(held, masses)
        cost = float(held.multiply(costs[: row + 1]).sum())
        assert cost == pytest.approx(exact.cost, rel=1e-9, abs=1e-9)
        assert (plan.unclaimed == masses.offer - held.sum(axis=0)).all()
        assert_prices_prove_optimality(plan.prices, cost, plan.unclaimed, costs[: row + 1], masses)


@properties
@given(transport_problems())
def test_a_trial_tells_the_rise_and_changes_nothing(problem) -> None:
    costs, masses = problem
    plan = IncrementalPlan(masses.offer, masses.need, len(costs))
    for row in range(len(costs) - 1):
        plan.add(costs[row])

    def state() -> list:
        return [plan.rows, plan.masses().toarray(), plan.unclaimed.copy(), plan.prices.copy()]

    before = state()
    told = [plan.trial(costs[-1]) for _ in range(2)]
    plan.trial(costs[-1][::-1])  # another row tried in between must leave no trace either
    for kept, now in zip(before, state(), strict=True):
        np.testing.assert_array_equal(kept, now)
    assert told == [plan.add(costs[-1])] * 2


@pytest.mark.parametrize("kind", ["random", "tied"])
def test_incremental_plan_finds_room_for_more_arcs(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    masses = integer_masses(12, 31)
    costs = rng.random((12, 31)) if kind == "random" else rng.integers(0, 2, (12, 31)) * 1.0
    growths = []
    grow = incremental._with_more_arcs
    monkeypatch.setattr(
        incremental, "_with_more_arcs", lambda state: growths.append(1) or grow(state)
    )
    plan = IncrementalPlan(masses.offer, masses.need, 12)
    few = 4  # far fewer than any plan of 12 rows needs
    plan._state = plan._state._replace(
        following=np.arange(1, few + 1),
        holder=np.empty(few, np.int64),
        mass=np.empty(few, np.int64),
    )
    rises = [plan.add(row) for row in costs]
    assert len(growths) > 1
    exact = partial_plan(costs, masses.offer, masses.need)
    assert sum(rises) == pytest.approx(exact.cost / masses.need, rel=1e-9)
    assert_feasible(plan.masses(), masses)


@pytest.mark.parametrize("seed", range(20))
def test_rounding_never_leads_the_incremental_plan_in_circles(seed: int) -> None:
    """Distances have few digits in common with their sums: reduced costs of 0 come out as ±ulp.

    An early version walked such a cycle for ever (euclidean costs of single-precision features).
    """
    rng = np.random.default_rng(seed)
    rows, n = 15, 46
    source = rng.normal(size=(rows, 6)).astype(np.float32).astype(np.float64)
    target = rng.normal(size=(n, 6)).astype(np.float32).astype(np.float64)
    costs = np.sqrt(((source[:, None] - target) ** 2).sum(axis=2))
    masses = integer_masses(rows, n)
    plan = IncrementalPlan(masses.offer, masses.need, rows)
    total = sum(plan.add(row) for row in costs)
    exact = partial_plan(costs, masses.offer, masses.need).cost / masses.need
    assert total == pytest.approx(exact, rel=1e-9)


def test_too_little_mass_is_refused() -> None:
    with pytest.raises(SolverError, match=r"3 rows need 6 units .* offer 5.* fewer rows") as caught:
        partial_plan(np.ones((3, 5)), np.ones(5, np.int64), need=2)
    assert isinstance(caught.value, UniprotoError)
    assert isinstance(caught.value, RuntimeError)


def test_an_empty_answer_of_the_solver_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """POT answers marginals that disagree by rounding with an all-zero plan and a warning."""

    def gives_up(supply, demand, costs, **options):
        log = {"result_code": 1, "warning": None, "u": supply * 0, "v": demand * 0}
        return np.zeros_like(costs), log

    monkeypatch.setattr(import_ot(), "emd", gives_up)
    with pytest.raises(SolverError, match="misses the marginals"):
        partial_plan(np.ones((2, 4)), np.ones(4, np.int64), need=2)


def test_a_plan_that_is_not_optimal_is_refused() -> None:
    supply, demand = np.array([2.0]), np.array([1.0, 1.0])
    fine = {"result_code": 1, "warning": None}
    verify_flow(supply, demand, supply, demand, fine)  # a good plan passes
    stopped = {"result_code": 3, "warning": "numItermax reached"}
    with pytest.raises(SolverError, match="numItermax reached"):
        verify_flow(supply, demand, supply, demand, stopped)
    with pytest.raises(SolverError, match="misses the marginals"):
        verify_flow(supply, demand[::-1] * 0, supply, demand, fine)


@properties
@given(transport_problems(), st.sampled_from([0.02, 0.1, 1.0]))
def test_entropic_plan_has_exact_rows_and_columns_within_capacity(problem, reg: float) -> None:
    costs, masses = problem
    capacity = masses.offer / masses.need
    solved = entropic_plan(costs, capacity, reg * max(costs.max(), 1e-3), iterations=3000)
    assert (solved.plan >= 0).all()
    np.testing.assert_allclose(solved.plan.sum(axis=1), 1, rtol=1e-12)
    assert (solved.plan[:, capacity == 0] == 0).all()
    if solved.converged:
        assert (solved.plan.sum(axis=0) <= capacity * (1 + 1e-6) + 1e-6).all()


def projected(costs, capacity, reg: float, iterations: int) -> np.ndarray:
    """Bregman projections of exp(−C/λ), as the paper's solver makes them, in plain numbers.

    Dykstra's algorithm: a projection on an inequality must take back what it did the time before.
    """
    plan, correction = np.exp(-costs / reg), np.ones_like(costs)
    for _ in range(iterations):
        plan = plan / plan.sum(axis=1, keepdims=True)
        before = plan * correction
        plan = before * np.minimum(1.0, capacity / before.sum(axis=0))
        correction = before / plan
    return plan / plan.sum(axis=1, keepdims=True)


@properties
@given(transport_problems(), st.sampled_from([0.05, 0.2, 1.0]), st.sampled_from([1, 2, 20, 100]))
def test_entropic_steps_are_bregman_projections(problem, reg: float, iterations: int) -> None:
    """As many steps as were asked for, all of them at λ: the plan is the same after each."""
    costs, masses = problem
    capacity = masses.offer / masses.need
    offered = capacity > 0
    reg = reg * max(costs.max(), 1e-3)
    solved = entropic_plan(costs, capacity, reg, iterations)
    expected = projected(costs[:, offered], capacity[offered], reg, iterations)
    # Where the steps settle to a millionth, ours end.
    np.testing.assert_allclose(solved.plan[:, offered], expected, rtol=1e-3, atol=1e-5)
    above = np.maximum(solved.plan.sum(axis=0) - capacity, 0).sum() / len(costs)
    assert solved.violation == pytest.approx(above, abs=1e-12)
    assert solved.iterations == iterations or solved.converged


@pytest.mark.parametrize("reg", [0.01, 0.1])
def test_entropic_plan_converges_to_that_of_pot(reg: float) -> None:
    """The solver the paper names, on the question it is asked: all rows' mass, capped columns."""
    import ot

    rng = np.random.default_rng(29)
    costs, capacity = rng.random((6, 20)), np.full(20, 8 / 20)
    expected = ot.partial.entropic_partial_wasserstein(
        np.ones(6), capacity, costs, reg, m=6.0, numItermax=100_000, stopThr=1e-14
    )
    solved = entropic_plan(costs, capacity, reg, iterations=100_000)
    np.testing.assert_allclose(solved.plan, expected, atol=2e-5)


def test_few_steps_at_a_small_strength_leave_mass_above_capacity() -> None:
    """The paper's pretraining: 20 steps at λ = 0.01, 128 examples, 64 kept."""
    rng = np.random.default_rng(31)
    points = rng.normal(size=(128, 32))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    costs, capacity = 1 - points @ points.T, np.full(128, 0.5)
    violations = [
        entropic_plan(costs[:63], capacity, 0.01, iterations).violation
        for iterations in (20, 100, 1000, 4000)
    ]
    assert violations == sorted(violations, reverse=True)
    assert violations[0] > 0.05
    assert violations[-1] < 1e-3


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("reg", [1.0, 1e-1, 1e-2, 1e-3])
def test_entropic_plan_stays_finite_on_every_scale(reg: float, scale: float) -> None:
    """λ from 1 to 1e-3 on costs from 1e-6 to 1e6: warnings are errors here, so no overflow."""
    rng = np.random.default_rng(17)
    costs = rng.random((4, 11)) * scale
    weights = rng.dirichlet(np.full(11, 0.3))
    masses = integer_masses(5, 11, weights)
    capacity = masses.offer / masses.need
    solved = entropic_plan(costs, capacity, reg, iterations=400)
    assert np.isfinite(solved.plan).all()
    np.testing.assert_allclose(solved.plan.sum(axis=1), 1, rtol=1e-12)
    assert 1 <= solved.iterations <= 400
    if solved.converged:
        assert (solved.plan.sum(axis=0) <= capacity * (1 + 1e-6) + 1e-6).all()
    if scale <= 1e-3 * reg:  # next to so strong an entropy all costs are equal: easy
        assert solved.converged


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e6])
@pytest.mark.parametrize("reg", [1e-3, 1e-6])
def test_entropic_rows_sum_to_one_however_large_the_exponents(reg: float, offset: float) -> None:
    """The largest exponent is taken off before the logarithm: beside 1e12 it would be lost."""
    rng = np.random.default_rng(23)
    costs = rng.random((7, 300)) + offset
    capacity = np.full(300, 8 / 300)
    for iterations in (1, 30, 500):
        plan = entropic_plan(costs, capacity, reg, iterations).plan
        assert (plan >= 0).all()
        np.testing.assert_allclose(plan.sum(axis=1), 1, rtol=1e-12)


def test_a_plan_cut_short_does_not_claim_to_have_converged() -> None:
    rng = np.random.default_rng(19)
    costs, capacity = rng.random((6, 14)), np.full(14, 6 / 14)
    hasty = entropic_plan(costs, capacity, reg=1e-3, iterations=3)
    assert not hasty.converged
    assert hasty.iterations == 3
    assert (hasty.plan.sum(axis=0) > capacity * 1.01).any()  # and indeed it has not
    patient = entropic_plan(costs, capacity, reg=0.1, iterations=5000)
    assert patient.converged
    assert patient.iterations < 5000


@pytest.mark.parametrize("exponent", [-900, -54, -27, 40, 900])
def test_a_power_of_two_changes_no_digit_of_the_exact_plan(exponent: int) -> None:
    """The solver's tolerance is absolute: costs of 1e-16 used to count as equal."""
    points = np.random.default_rng(0).normal(size=(120, 5))
    costs = ((points[:12, None] - points) ** 2).sum(axis=2)
    masses = integer_masses(12, 120)
    plan = partial_plan(costs, masses.offer, masses.need)
    scaled = partial_plan(np.ldexp(costs, exponent), masses.offer, masses.need)
    assert scaled.is_proven
    assert scaled.cost == np.ldexp(plan.cost, exponent)
    np.testing.assert_array_equal(scaled.masses.toarray(), plan.masses.toarray())
    np.testing.assert_array_equal(scaled.prices, np.ldexp(plan.prices, exponent))


@pytest.mark.parametrize("rows", [12, 9])
@pytest.mark.parametrize("large", [1e9, 1e13, 1e100, 1e280])
def test_costs_that_no_plan_pays_take_no_digit_away(large: float, rows: int) -> None:
    rng = np.random.default_rng(1)
    costs = rng.random((rows, 120))
    forbidden = rng.random(costs.shape) < 0.05
    masses = integer_masses(12, 120)
    low, high = (
        partial_plan(np.where(forbidden, value, costs), masses.offer, masses.need)
        for value in (1e3, large)
    )
    assert high.is_proven
    assert not high.masses.toarray()[forbidden].any()
    assert high.cost == pytest.approx(low.cost, rel=1e-14)


def test_costs_in_use_may_span_more_digits_than_a_number_has() -> None:
    rng = np.random.default_rng(2)
    masses = integer_masses(8, 30)
    for rows in (5, 8):
        costs = 10.0 ** rng.uniform(-200, 200, (rows, 30))
        plan = partial_plan(costs, masses.offer, masses.need)
        assert plan.is_proven
        assert_feasible(plan.masses, masses)
        by_paths = IncrementalPlan(masses.offer, masses.need, rows)
        rises = sum(by_paths.add(row) for row in costs)
        assert plan.cost / masses.need == pytest.approx(rises, rel=1e-12)


def test_a_plan_that_could_be_cheaper_is_not_proven() -> None:
    costs = np.array([[0.0, 1.0], [1.0, 2.0 + 1e-9]])
    straight, crossed = (sp.csr_array(np.eye(2, dtype=np.int64)[::way]) for way in (1, -1))
    assert prove(costs, crossed).holds
    proof = prove(costs, straight)
    assert not proof.holds
    assert proof.gap >= 1e-9
    reduced = reduced_costs(costs, proof)
    assert reduced.min() >= 0
    assert partial_plan(reduced, np.array([1, 1]), 1).masses.toarray().tolist() == [[0, 1], [1, 0]]
