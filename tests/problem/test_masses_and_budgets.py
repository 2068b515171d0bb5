"""Whole masses carry the target weights exactly; quotas share k among groups."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

from uniproto import InfeasibleError
from uniproto.problem.groups import quotas
from uniproto.problem.masses import integer_masses

properties = settings(deadline=None, max_examples=60, derandomize=True)


@properties
@given(k=st.integers(1, 500), n=st.integers(1, 500))
def test_uniform_masses_are_exact_and_as_small_as_possible(k: int, n: int) -> None:
    masses = integer_masses(k, n)
    assert masses.offer.sum() == k * masses.need == masses.total
    assert (masses.offer == masses.offer[0]).all()
    assert masses.offer[0] * n == k * masses.need
    assert np.gcd(int(masses.offer[0]), masses.need) == 1
    assert masses.weights == pytest.approx(np.full(n, 1 / n), rel=1e-15)


@properties
@given(
    k=st.integers(1, 300),
    values=st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=2, max_size=40).filter(
        lambda values: max(values) > 0
    ),
)
def test_weighted_masses_sum_to_what_k_prototypes_need(k: int, values: list[float]) -> None:
    weights = np.array(values) / max(values)
    weights /= weights.sum()
    masses = integer_masses(k, len(weights), weights)
    assert masses.offer.dtype == np.int64
    assert masses.offer.sum() == k * masses.need  # exactly: the last prototype finds its mass
    assert (masses.offer >= 0).all()
    assert np.abs(masses.weights - weights).max() < 1e-12


def _quotas(k, budgets, mass, smallest=None, largest=None, labels=None):
    count = len(mass)
    return quotas(
        k,
        budgets,
        np.array(labels if labels is not None else [f"g{i}" for i in range(count)]),
        np.array(mass, float),
        np.zeros(count, np.int64) if smallest is None else np.array(smallest),
        np.full(count, 10**6) if largest is None else np.array(largest),
    ).tolist()


@st.composite
def quota_questions(draw: st.DrawFn):
    count = draw(st.integers(1, 8))
    per_group = st.lists(st.integers(0, 12), min_size=count, max_size=count)
    smallest = np.array(draw(per_group))
    largest = smallest + np.array(draw(per_group))
    mass = draw(st.lists(st.floats(0.01, 1), min_size=count, max_size=count))
    k = draw(st.integers(int(smallest.sum()), int(largest.sum())))
    return k, np.array(mass), smallest, largest


@properties
@given(quota_questions(), st.sampled_from(["proportional", "balanced"]))
def test_quotas_sum_to_k_within_their_bounds(question, budgets: str) -> None:
    k, mass, smallest, largest = question
    quota = np.array(_quotas(k, budgets, mass, smallest, largest))
    assert quota.sum() == k
    assert (quota >= smallest).all()
    assert (quota <= largest).all()


@properties
@given(
    k=st.integers(1, 200),
    mass=st.lists(st.floats(0.01, 1), min_size=1, max_size=8),
    budgets=st.sampled_from(["proportional", "balanced"]),
)
def test_unbounded_quotas_are_floors_and_the_smallest_groups_get_the_remainder(
    k: int, mass: list[float], budgets: str
) -> None:
    shares = np.array(mass) / sum(mass) if budgets == "proportional" else 1 / len(mass)
    floors = np.floor(k * shares + 1e-9) * np.ones(len(mass))
    extra = np.array(_quotas(k, budgets, mass)) - floors
    assert set(extra) <= {0, 1}
    smallest_first = np.argsort(mass, kind="stable")
    assert (np.diff(extra[smallest_first]) <= 0).all()


@pytest.mark.parametrize(
    ("k", "budgets", "mass", "bounds", "expected"),
    [
        (10, "proportional", [0.5, 0.3, 0.2], {}, [5, 3, 2]),
        (5, "proportional", [0.7, 0.3], {}, [3, 2]),  # floors 3 and 1: the rest to the smaller
        (7, "balanced", [0.6, 0.3, 0.1], {}, [2, 2, 3]),
        (3, "proportional", [0.1] * 10, {}, [1, 1, 1] + [0] * 7),  # equals: the first ones
        (10, "proportional", [0.3] * 3, {}, [4, 3, 3]),
        (6, "proportional", [0.5, 0.5], {"largest": [1, 9]}, [1, 5]),
        (4, "proportional", [0.9, 0.1], {"smallest": [0, 3]}, [1, 3]),
        (9, "proportional", [0.1, 0.2, 0.7], {"largest": [9, 9, 2]}, [3, 4, 2]),
        (5, "proportional", [0.0, 0.5, 0.5], {}, [0, 3, 2]),  # nothing to stand for
        (7, "balanced", [0.0, 0.1, 0.9], {}, [0, 4, 3]),
        (5, "proportional", [0.0, 0.5, 0.5], {"smallest": [1, 0, 0]}, [1, 2, 2]),
    ],
)
def test_quotas_by_example(k, budgets, mass, bounds, expected) -> None:
    assert _quotas(k, budgets, mass, **bounds) == expected


def test_a_whole_share_is_not_lost_to_rounding() -> None:
    # 0.1 + 0.2 of 10 is 3.0000000000000004 − an ulp here or there must not cost a prototype.
    assert _quotas(10, "proportional", [0.1 + 0.2, 0.7 - 1e-16]) == [3, 7]
    assert _quotas(3, "balanced", [0.2, 0.3, 0.5]) == [1, 1, 1]


def test_more_prototypes_than_rows_are_refused() -> None:
    with refused("k", InfeasibleError):
        _quotas(5, "proportional", [0.5, 0.5], largest=[2, 2])
    with refused("k", InfeasibleError):
        _quotas(5, "proportional", [0.5, 0.0], largest=[4, 9])
