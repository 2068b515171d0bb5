"""The paper's theorems as properties of the code.

f(P) = β·|P| − objective_cost(P) is the paper's submodular form, h(P) = |P|·g(P) its super-additive
one. Problems are tiny, so that every set can be looked at and the optimum found by brute force.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from uniproto import Compute
from uniproto.algorithm import exact_rises, fill, fill_costs, objective_cost, uniprot
from uniproto.fills.lazy_fills import LazyFills
from uniproto.problem.masses import Masses, integer_masses
from uniproto.problem.problem import Problem
from uniproto.transport.entropic import entropic_plan
from uniproto.transport.exact import partial_plan
from uniproto.transport.incremental import IncrementalPlan

ROUNDING = 1e-9
PLANS = ("extend", "resolve", "entropic")
properties = settings(deadline=None, max_examples=40, derandomize=True)


@dataclass(frozen=True)
class Tiny:
    """A problem small enough to look at every set of prototypes."""

    costs: np.ndarray
    k: int
    weights: np.ndarray | None
    beta: float  # at least the largest cost, so that similarities β − C are ≥ 0

    @property
    def m(self) -> int:
        return self.costs.shape[0]

    @property
    def n(self) -> int:
        return self.costs.shape[1]

    @property
    def masses(self) -> Masses:
        return integer_masses(self.k, self.n, self.weights)

    def f(self, chosen: Iterable[int]) -> float:
        chosen = sorted(chosen)
        return self.beta * len(chosen) - objective_cost(self.costs, chosen, self.masses)

    def h(self, chosen: Iterable[int]) -> float:
        """|P|·g(P): the same with the target scaled to the |P| rows, so that all of it is used."""
        chosen = sorted(chosen)
        if not chosen:
            return 0.0
        all_mass = integer_masses(len(chosen), self.n, self.weights)
        return self.beta * len(chosen) - objective_cost(self.costs, chosen, all_mass)

    def sets(self, largest: int) -> list[frozenset[int]]:
        sizes = range(largest + 1)
        return [frozenset(chosen) for size in sizes for chosen in combinations(range(self.m), size)]

    def best_value(self) -> float:
        return max(self.f(chosen) for chosen in combinations(range(self.m), self.k))


@st.composite
def tiny_problems(draw: st.DrawFn, ties: bool = True) -> Tiny:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n = draw(st.integers(2, 5)), draw(st.integers(1, 7))
    k = draw(st.integers(1, min(m, 4)))
    shape = draw(st.sampled_from(["even", "skewed", "tied"] if ties else ["even", "skewed"]))
    costs = {
        "even": lambda: rng.random((m, n)),
        "skewed": lambda: rng.random((m, n)) ** 4,
        "tied": lambda: rng.integers(0, 4, (m, n)).astype(float),
    }[shape]()
    weights = {
        "uniform": lambda: None,
        "uneven": lambda: rng.dirichlet(np.ones(n)),
        "heavy": lambda: rng.dirichlet(np.full(n, 0.2)),  # some targets above 1/k, some near 0
        "zeros": lambda: _some_zeros(rng, n),
    }[draw(st.sampled_from(["uniform", "uneven", "heavy", "zeros"]))]()
    beta = float(costs.max()) + draw(st.sampled_from([0.0, 0.1, 2.0]))
    return Tiny(costs, k, weights, beta)


def _some_zeros(rng: np.random.Generator, n: int) -> np.ndarray:
    weights = rng.random(n) * (rng.random(n) < 0.6)
    weights[rng.integers(n)] = 1.0
    return weights / weights.sum()


@properties
@given(tiny_problems())
def test_f_is_nonnegative_monotone_and_submodular(tiny: Tiny) -> None:
    value = {chosen: tiny.f(chosen) for chosen in tiny.sets(largest=tiny.k)}
    assert value[frozenset()] == 0
    for chosen, found in value.items():
        outside = [x for x in range(tiny.m) if x not in chosen]
        if len(chosen) < tiny.k:
            assert all(value[chosen | {x}] >= found - ROUNDING for x in outside)
        if len(chosen) + 2 <= tiny.k:  # the local form, which is equivalent to submodularity
            for x, y in combinations(outside, 2):
                together = value[chosen | {x, y}] + found
                assert value[chosen | {x}] + value[chosen | {y}] >= together - ROUNDING


@properties
@given(tiny_problems())
def test_f_bounds_h_from_above_and_equals_it_at_k(tiny: Tiny) -> None:
    for chosen in tiny.sets(largest=tiny.k):
        f, h = tiny.f(chosen), tiny.h(chosen)
        assert f >= h - ROUNDING
        if len(chosen) == tiny.k:
            assert f == pytest.approx(h, abs=ROUNDING)


@properties
@given(tiny_problems())
def test_h_is_nonnegative_monotone_and_super_additive(tiny: Tiny) -> None:
    """Lemma 1. h does not know k: every set of rows counts."""
    value = {chosen: tiny.h(chosen) for chosen in tiny.sets(largest=tiny.m)}
    for first, second in combinations(value, 2):
        assert value[first] >= -ROUNDING
        if first <= second:
            assert value[second] >= value[first] - ROUNDING
        if not first & second:
            assert value[first | second] >= value[first] + value[second] - ROUNDING


@properties
@given(tiny_problems())
def test_greedy_with_exact_gains_reaches_its_share_of_the_optimum(tiny: Tiny) -> None:
    picks, _ = uniprot(tiny.costs, tiny.k, tiny.masses, gains="exact")
    assert tiny.f(picks) >= (1 - 1 / np.e) * tiny.best_value() - ROUNDING


@properties
@given(tiny_problems(), st.sampled_from([0.01, 0.3, 3.0]))
def test_greedy_with_approximate_gains_reaches_alpha_times_the_optimum(
    tiny: Tiny, reg: float
) -> None:
    """Lemma 5, and more: α·OPT, which is at least its (1 − e^−α)·OPT."""
    similarity, masses = tiny.beta - tiny.costs, tiny.masses
    ratios = []
    for row in range(tiny.m):
        worst = similarity[row] @ fill(similarity[row], masses.offer, masses.need)
        best = similarity[row] @ fill(tiny.costs[row], masses.offer, masses.need)
        if best > 0:  # a row without any similarity adds nothing to either side
            ratios.append(worst / best)
    assume(ratios)
    alpha = min(ratios)
    optimum = tiny.best_value()
    for plan in PLANS:
        picks, _ = uniprot(tiny.costs, tiny.k, masses, plan=plan, reg=reg, iterations=200)
        assert tiny.f(picks) >= alpha * optimum - ROUNDING
        assert tiny.f(picks) >= (1 - np.exp(-alpha)) * optimum - ROUNDING


@properties
@given(tiny_problems())
def test_approximate_gain_never_exceeds_the_exact_gain_beside_the_optimal_plan(tiny: Tiny) -> None:
    masses = tiny.masses
    for chosen in tiny.sets(largest=tiny.k - 1):
        picks = sorted(chosen)
        outside = [x for x in range(tiny.m) if x not in chosen]
        unclaimed = masses.offer
        if picks:
            plan = partial_plan(tiny.costs[picks], masses.offer, masses.need)
            unclaimed = masses.offer - plan.masses.sum(axis=0)
        approximate = dict(fill_costs(tiny.costs, iter(outside), unclaimed, masses.need))
        exact = dict(exact_rises(tiny.costs, picks, iter(outside), masses))
        # In cost form a smaller gain is a higher cost; β cancels.
        assert all(approximate[x] >= exact[x] - ROUNDING for x in outside)


@properties
@given(tiny_problems())
def test_residual_only_shrinks_under_extend(tiny: Tiny) -> None:
    problem = Problem(
        tiny.costs, compute=Compute(device="cpu"), metric="precomputed", target_weights=tiny.weights
    ).with_k(tiny.k)
    masses = problem.masses
    unclaimed = masses.offer.copy()
    fills = LazyFills(problem, np.arange(tiny.m), unclaimed, tiny.k)
    for picked in range(1, tiny.k + 1):
        before = unclaimed.copy()
        fills.pick_and_claim(picked)
        assert (unclaimed <= before).all()
        assert (unclaimed >= 0).all()
        assert unclaimed.sum() == masses.total - picked * masses.need


@properties
@given(tiny_problems())
def test_residual_only_shrinks_under_resolve_even_with_ties(tiny: Tiny) -> None:
    """Augmenting paths end at unsaturated targets, whichever of several optimal plans is held."""
    masses = tiny.masses
    plan = IncrementalPlan(masses.offer, masses.need, tiny.k)
    for row in range(tiny.k):
        before = plan.unclaimed.copy()
        plan.add(tiny.costs[row])
        assert (plan.unclaimed <= before).all()
        assert plan.unclaimed.sum() == before.sum() - masses.need


@properties
@given(tiny_problems(ties=False))
def test_residual_only_shrinks_when_the_exact_plan_is_solved_afresh(tiny: Tiny) -> None:
    """Without ties the optimal plan is unique, so the fresh solve is the augmented one."""
    masses = tiny.masses
    before = masses.offer
    for count in range(1, tiny.k + 1):
        plan = partial_plan(tiny.costs[:count], masses.offer, masses.need)
        unclaimed = masses.offer - plan.masses.sum(axis=0)
        # Masses are fractions of 2^46 units when weights are uneven: POT may round one of them.
        assert (unclaimed <= before + 1).all()
        before = unclaimed


@properties
@given(tiny_problems(), st.sampled_from([0.03, 0.3, 3.0]))
def test_residual_only_shrinks_under_converged_entropic_plans(tiny: Tiny, reg: float) -> None:
    capacity = tiny.masses.offer / tiny.masses.need
    before, shrunk = capacity, 0
    for count in range(1, tiny.k + 1):
        solved = entropic_plan(tiny.costs[:count], capacity, reg, iterations=5000)
        if not solved.converged:
            break
        unclaimed = capacity - solved.plan.sum(axis=0)
        assert (unclaimed <= before + 1e-4).all()  # a hundred times the stopping threshold
        before, shrunk = unclaimed, shrunk + 1
    assume(shrunk > 0)
