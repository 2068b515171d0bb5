"""Nearest prototypes, accuracies and weight skew: equal to what a plain definition says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, recall_score
from sklearn.neighbors import KNeighborsClassifier
from tests.refusals import refused

from uniproto import Problem, evaluation
from uniproto.comparing.accuracy import (
    accuracy,
    checked_labels,
    minority_classes,
    nearest_prototype,
    weight_skew,
)
from uniproto.errors import InvalidInputError
from uniproto.geometry.costs import FEATURE_METRICS, make_costs


def _points(seed: int, count: int, width: int = 4) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width))


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean", "l1"])
def test_one_nearest_neighbour_is_scikit_learns_in_the_same_metric(metric: str) -> None:
    source, target = _points(0, 60), _points(1, 200)
    labels = np.arange(60) % 5
    chosen = np.random.default_rng(2).permutation(60)[:12]
    nearest = nearest_prototype(make_costs(source, target, metric), chosen)
    peer = KNeighborsClassifier(1, metric={"l1": "manhattan"}.get(metric, metric))
    peer.fit(source[chosen], labels[chosen])
    np.testing.assert_array_equal(labels[chosen][nearest], peer.predict(target))


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_tiles_do_not_change_the_answer(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = make_costs(_points(3, 30), _points(4, 101), metric)
    chosen = np.array([7, 3, 29, 0])
    whole = nearest_prototype(costs, chosen)
    monkeypatch.setattr(evaluation, "_BLOCK_ENTRIES", 40)
    np.testing.assert_array_equal(nearest_prototype(costs, chosen), whole)
    np.testing.assert_array_equal(whole, costs.exact_block(chosen).argmin(axis=0))


@pytest.mark.parametrize("metric", ["precomputed", "similarity"])
def test_a_matrix_needs_no_features(metric: str) -> None:
    matrix = np.abs(_points(5, 20, 15))
    found = nearest_prototype(make_costs(matrix, None, metric), np.array([4, 9, 1]))
    best = np.argmin if metric == "precomputed" else np.argmax
    np.testing.assert_array_equal(found, best(matrix[[4, 9, 1]], axis=0))


def test_ties_go_to_the_earliest_prototype() -> None:
    points = np.array([[1.0], [1.0], [5.0]])
    costs = make_costs(points, points, "euclidean")
    np.testing.assert_array_equal(nearest_prototype(costs, np.array([1, 0, 2])), [0, 0, 2])


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_accuracies_are_scikit_learns(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 40))
    classes = st.lists(st.sampled_from("abcd"), min_size=size, max_size=size)
    labels, predicted = np.array(data.draw(classes)), np.array(data.draw(classes))
    found = accuracy(predicted, labels)
    present = sorted(set(labels.tolist()))
    recalls = recall_score(labels, predicted, labels=present, average=None, zero_division=0.0)
    assert found.overall == pytest.approx(accuracy_score(labels, predicted))
    assert found.per_class == pytest.approx(dict(zip(present, recalls, strict=True)))
    assert found.balanced == pytest.approx(np.mean(recalls))
    assert found.minority is None


def test_the_minority_is_the_mean_over_its_classes() -> None:
    labels = np.array(["x"] * 6 + ["y"] * 2 + ["z"])
    predicted = np.array(["x"] * 6 + ["y", "x"] + ["x"])
    found = accuracy(predicted, labels, ["y", "z"])
    assert found.minority == pytest.approx((0.5 + 0.0) / 2)


def test_minority_classes_are_below_half_the_mean_size() -> None:
    labels = np.repeat(["big", "half", "less"], [65, 20, 19])  # the mean is 34.67, half 17.33
    assert minority_classes(labels) == []
    labels = np.repeat(["big", "half", "less"], [75, 15, 0 + 14])  # half of 34.67 is 17.33
    assert minority_classes(labels) == ["half", "less"]
    exactly_half = np.repeat([0, 1], [3, 1])  # half of 2 is 1: not below it
    assert minority_classes(exactly_half) == []


def test_named_minority_classes_must_be_there() -> None:
    labels = np.array([1, 2, 3])
    assert minority_classes(labels, [3, 1, 3]) == [3, 1]
    for named in ([4], "1"):
        with refused("minority", InvalidInputError):
            minority_classes(labels, named)


def test_labels_are_checked() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 2))
    three, four = Problem(rows[:3]), Problem(rows)
    two_sets = Problem(rows[:3], rows[:2])
    assert checked_labels(None, three) is None
    source, target = checked_labels(list("aab"), three) or (None, None)
    assert source is target
    for wrong, problem in (
        (list("aab"), four),
        ((list("aab"), list("a")), two_sets),
        (list("aab"), two_sets),
        (([1, 2, 3], ["1", "2"]), two_sets),
        (np.array([1, "a", 2], object), three),
    ):
        with refused("labels", InvalidInputError):
            checked_labels(wrong, problem)


def test_a_weight_of_nothing_is_infinitely_skewed() -> None:
    ratio, entropy = weight_skew(np.array([1.0, 0.0, 0.0]))
    assert math.isinf(ratio)
    assert entropy == 0.0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=20))
def test_skew_is_in_range_and_free_of_scale(values: list[float]) -> None:
    weights = np.array(values)
    ratio, entropy = weight_skew(weights)
    assert ratio >= 1
    assert 0 <= entropy <= 1
    assert weight_skew(weights * 3) == (pytest.approx(ratio), pytest.approx(entropy))
