"""Drawn rows have the class counts they were asked for, and say so where they cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.draws import balanced, balanced_source_and_target, long_tailed, skewed
from uniproto import InfeasibleError, InvalidInputError

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 500))


def counts(rows: np.ndarray, labels: np.ndarray = LABELS) -> list[int]:
    names = np.unique(labels)
    return [int((labels[rows] == name).sum()) for name in names]


def assert_rows(rows: np.ndarray, labels: np.ndarray = LABELS) -> None:
    """Row numbers that ascend, so that none is repeated."""
    assert rows.dtype == np.int64
    assert (np.diff(rows) > 0).all()
    assert rows.min() >= 0
    assert rows.max() < len(labels)


# Long tails


def test_the_usual_profile_of_cifar10_lt() -> None:
    # n_c = 500 · 100^(−c/9), rounded down: what long-tailed CIFAR-10 with 500 rows would have.
    expected = [int(500 * 100 ** (-c / 9) + 1e-9) for c in range(10)]
    assert counts(long_tailed(LABELS, 100)) == expected
    assert expected[0] == 500
    assert expected[-1] == 5


@given(
    st.lists(st.integers(20, 60), min_size=1, max_size=6),
    st.floats(1, 20),
    st.integers(0, 3),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_long_tails_of_any_classes(
    sizes: list[int], imbalance: float, seed: int, sized: bool
) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    size = len(sizes) + 10 if sized else None
    rows = long_tailed(labels, imbalance, size=size, seed=seed)
    assert_rows(rows, labels)
    found = counts(rows, labels)
    assert found == sorted(found, reverse=True)
    assert min(found) >= 1
    if size is not None:
        assert len(rows) == size
    elif len(sizes) > 1:
        assert found[0] / found[-1] <= 2 * imbalance + 1  # whole rows: as near as they allow
        assert any(
            have == want or (want + 1) * imbalance ** (c / (len(sizes) - 1)) > have
            for c, (have, want) in enumerate(zip(sizes, found, strict=True))
        )


def test_size_is_met_and_the_ratio_is_that_asked_for() -> None:
    rows = long_tailed(LABELS, 50, size=1000)
    found = counts(rows)
    assert len(rows) == 1000
    assert found[0] / found[-1] == pytest.approx(50, rel=0.1)
    ratios = np.array(found[:-1]) / found[1:]
    assert ratios == pytest.approx(np.full(9, 50 ** (1 / 9)), rel=0.1)


def test_order_says_which_class_is_large() -> None:
    order = [3, 1, 4, 0, 5, 9, 2, 6, 8, 7]
    found = np.array(counts(long_tailed(LABELS, 50, size=600, order=order)))
    assert (np.diff(found[order]) <= 0).all()
    assert counts(long_tailed(LABELS, 50, size=600, order=np.array(order))) == found.tolist()


# Skews and balance


@given(st.integers(1, 3), st.floats(0.01, 0.3), st.integers(100, 600), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_skews(chosen: int, share: float, size: int, seed: int) -> None:
    classes = np.random.default_rng(seed).choice(10, chosen, replace=False).tolist()
    rows = skewed(LABELS, classes, share, size, seed=seed)
    assert_rows(rows)
    assert len(rows) == size
    found = np.array(counts(rows))
    assert set(found[classes].tolist()) == {round(share * size)}
    others = np.delete(found, classes)
    assert others.max() - others.min() <= 1


@pytest.mark.parametrize(
    "draw",
    [
        lambda seed: long_tailed(LABELS, 20, size=300, seed=seed),
        lambda seed: skewed(LABELS, [0, 5], 0.05, 300, seed=seed),
        lambda seed: balanced(LABELS, 9, seed=seed),
        lambda seed: balanced_source_and_target(LABELS, 9, imbalance=20, size=300, seed=seed)[1],
    ],
)
def test_a_seed_decides_everything(draw: Any) -> None:
    np.testing.assert_array_equal(draw(4), draw(4))
    assert draw(4).tolist() != draw(5).tolist()


# The paper's setting


@pytest.mark.parametrize(
    "described",
    [
        {"imbalance": 50, "size": 900},
        {"imbalance": 30},
        {"classes": [0, 5], "share": 0.05, "size": 900},
    ],
)
def test_source_and_target_have_no_row_in_common(described: dict[str, Any]) -> None:
    source, target = balanced_source_and_target(LABELS, 100, seed=2, **described)
    assert_rows(source)
    assert_rows(target)
    assert counts(source) == [100] * 10
    assert np.intersect1d(source, target).size == 0
    assert len(target) == described.get("size", len(target))
    found = counts(target)
    if "classes" in described:
        assert found[0] == found[5] == 45
    else:
        assert found == sorted(found, reverse=True)
        assert found[0] <= 400


def test_a_class_used_up_by_the_source() -> None:
    labels = np.array([0] * 10 + [1] * 5)
    with pytest.raises(InfeasibleError, match=r"of class 1\. Got 0 in addition to the source's"):
        balanced_source_and_target(labels, 5, imbalance=2, size=4)


# Refusals


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: long_tailed(LABELS, 0.5), "'imbalance' must be a number of at least 1"),
        (lambda: long_tailed(LABELS, 2, size=5), "'size' must be at least 10"),
        (lambda: long_tailed(LABELS, 2, order=[0, 1]), "'order' must name every class once"),
        (lambda: long_tailed([], 2), "'labels' must hold one label per row"),
        (lambda: long_tailed(LABELS, 2, size=4000), "500 instead. Ask for fewer rows"),
        (lambda: skewed(LABELS, [11], 0.1, 100), "'classes' must name some .* Got 11 instead"),
        (lambda: skewed(LABELS, [1, 2], 0.5, 100), "'share' must be above 0, and 2 times"),
        (lambda: skewed(LABELS, [1], 0.001, 100), "at least one row"),
        (lambda: skewed(LABELS, [1], 0.9, 1000), "900 rows of class 1. Got 500 instead"),
        (lambda: balanced(LABELS, 501), "501 rows of class 0. Got 500 instead"),
        (lambda: balanced_source_and_target(LABELS, 5), "Got neither instead"),
        (
            lambda: balanced_source_and_target(LABELS, 5, imbalance=2, classes=[1]),
            "Got both instead",
        ),
        (
            lambda: balanced_source_and_target(LABELS, 5, classes=[1], size=50),
            "'share' must come with .* Got only classes, size",
        ),
    ],
)
def test_refusals(call: Any, said: str) -> None:
    with pytest.raises((InvalidInputError, InfeasibleError), match=f"(?s){said}"):
        call()
