"""The scikit-learn face keeps scikit-learn's conventions and `select`'s answers."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_iris
from sklearn.metrics import pairwise_distances
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.refusals import refused

import uniproto
from uniproto import Greedy, InvalidInputError, PrototypeClassifier, PrototypeSelector
from uniproto.problem.checks import ScaleWarning

FEATURE_METRICS = ["cosine", "euclidean", "sqeuclidean", "l1", "dot", "rbf", "laplacian"]


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(60, 4)) + 1.0


@pytest.fixture
def new_rows():
    return 3 * np.random.default_rng(1).normal(size=(25, 4))


def expected_costs(left, right, metric, fitted_on=None):
    if metric == "dot":
        fitted_on = np.asarray(fitted_on)
        return (fitted_on @ fitted_on.T).max() - left @ right.T
    if metric in ("rbf", "laplacian"):
        distance = {"rbf": "euclidean", "laplacian": "l1"}[metric]
        among = pairwise_distances(fitted_on, metric=distance)
        sigma = 0.25 * np.median(among[among > 1e-6 * among.max()])
        apart = pairwise_distances(left, right, distance) / sigma
        return 1 - np.exp(-(apart**2) / 2 if metric == "rbf" else -apart)
    return pairwise_distances(left, right, metric)


@parametrize_with_checks(
    [
        PrototypeSelector(),
        PrototypeSelector(3, metric="dot", method="random"),
        PrototypeClassifier(),
    ],
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{kind}_data": "a row is chosen once, its copies often"
        for kind in ("dense", "sparse")
    },
)
def test_scikit_learn_conventions(estimator, check):
    check(estimator)


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_picks_and_cost_are_those_of_select(rows, metric):
    selector = PrototypeSelector(6, metric=metric).fit(rows)
    selection = uniproto.select(rows, 6, metric=metric)
    np.testing.assert_array_equal(selector.indices_, selection.indices)
    np.testing.assert_array_equal(selector.prototypes_, rows[selection.indices])
    assert selector.cost_ == selection.cost
    assert selector.selection_.k == 6
    assert selector.n_features_in_ == 4


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_transform_is_the_metric_and_predict_its_nearest(rows, new_rows, metric, as_sparse):
    wrap = sp.csr_matrix if as_sparse else np.asarray
    selector = PrototypeSelector(5, metric=metric).fit(wrap(rows))
    assert sp.issparse(selector.prototypes_) == as_sparse
    expected = expected_costs(new_rows, rows[selector.indices_], metric, fitted_on=rows)
    # Far from all prototypes saturated costs tie, and distances do not.
    distance = {"rbf": "euclidean", "laplacian": "l1"}.get(metric, metric)
    nearest = expected_costs(new_rows, rows[selector.indices_], distance, fitted_on=rows)
    # Dense rows after a sparse fit and the reverse are welcome too.
    for given in (new_rows, sp.csr_array(new_rows)):
        np.testing.assert_allclose(selector.transform(given), expected, atol=1e-7)
        np.testing.assert_array_equal(selector.predict(given), nearest.argmin(axis=1))


def test_dot_costs_of_new_rows_may_be_negative_and_still_rank(rows):
    selector = PrototypeSelector(5, metric="dot").fit(rows)
    far = 100 * rows
    assert selector.transform(far).min() < 0
    expected = (far @ rows[selector.indices_].T).argmax(axis=1)
    np.testing.assert_array_equal(selector.predict(far), expected)


def test_every_prototype_is_its_own_nearest_in_either_precision(rows):
    for dtype in (np.float32, np.float64):
        shifted = (rows + 1000).astype(dtype)
        selector = PrototypeSelector(8).fit(shifted)
        costs = selector.transform(shifted)
        assert costs.dtype == dtype
        assert np.diag(costs[selector.indices_]).max() < 1e-6
        np.testing.assert_array_equal(selector.predict(selector.prototypes_), np.arange(8))


def test_blocks_join_seamlessly(rows, new_rows, monkeypatch):
    selector = PrototypeSelector(5).fit(rows)
    whole, nearest = selector.transform(new_rows), selector.predict(new_rows)
    monkeypatch.setattr("uniproto.geometry.blocks._BLOCK_BYTES", 7 * 5 * 4)  # seven rows
    np.testing.assert_allclose(selector.transform(new_rows), whole, atol=1e-7)
    np.testing.assert_array_equal(selector.predict(new_rows), nearest)


def test_target_decides_what_the_prototypes_stand_for(rows):
    target = rows[rows[:, 0] > 1.5]
    selector = PrototypeSelector(4).fit(rows, target=target)
    selection = uniproto.select(rows, 4, target, metric="euclidean")
    np.testing.assert_array_equal(selector.indices_, selection.indices)
    assert selector.cost_ == selection.cost
    assert not np.array_equal(selector.indices_, PrototypeSelector(4).fit(rows).indices_)
    assert PrototypeSelector(4).fit_transform(rows, target=target).shape == (60, 4)


def test_in_a_pipeline_with_a_classifier_and_a_grid_search(rows):
    labels = rows[:, 0] > 1
    pipeline = make_pipeline(StandardScaler(), PrototypeSelector(), DecisionTreeClassifier())
    grid = {
        "prototypeselector__n_prototypes": [3, 6],
        "prototypeselector__method": ["random", Greedy(plan="resolve")],
    }
    search = GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(rows, labels)
    best = search.best_estimator_["prototypeselector"]
    assert best.n_prototypes == len(best.indices_)
    assert search.predict(rows).shape == (60,)


def test_at_the_end_of_a_pipeline_it_predicts(rows):
    pipeline = make_pipeline(StandardScaler(), PrototypeSelector(4)).fit(
        rows, prototypeselector__target=StandardScaler().fit_transform(rows)[:30]
    )
    assert set(pipeline.predict(rows)) == {0, 1, 2, 3}
    names = pipeline.get_feature_names_out()
    assert names.tolist() == [f"prototypeselector{position}" for position in range(4)]


def test_parameters_survive_clone_and_set_params(rows):
    method = Greedy(plan="resolve")
    selector = PrototypeSelector(
        3, metric="l1", method=method, min_distance="auto", random_state=None
    )
    assert selector.get_params() == {
        "n_prototypes": 3,
        "metric": "l1",
        "method": method,
        "features": None,
        "min_distance": "auto",
        "random_state": None,
        "compute": None,
    }
    assert clone(selector.fit(rows)).get_params() == selector.get_params()
    before = selector.transform(rows)
    selector.set_params(metric="euclidean", n_prototypes=5)  # takes effect in the next fit
    np.testing.assert_array_equal(selector.transform(rows), before)
    assert selector.fit(rows).transform(rows).shape == (60, 5)


def test_every_option_does_something(rows):
    default = PrototypeSelector(5).fit(rows).indices_.tolist()
    for option in ({"metric": "dot"}, {"method": "random"}, {"min_distance": 2.1}):
        assert PrototypeSelector(5, **option).fit(rows).indices_.tolist() != default
    draws = [
        PrototypeSelector(5, method="random", random_state=state).fit(rows).indices_.tolist()
        for state in (1, 1, 2, None, None)
    ]
    assert (
        draws[0] == draws[1] == uniproto.select(rows, 5, method="random", seed=1).indices.tolist()
    )
    assert len(set(map(tuple, draws))) == 4


def test_tables_in_and_out(rows):
    table = pd.DataFrame(rows, columns=list("abcd"))
    selector = PrototypeSelector(3).set_output(transform="pandas").fit(table)
    assert selector.feature_names_in_.tolist() == list("abcd")
    assert selector.transform(table).shape == (60, 3)
    with pytest.raises(InvalidInputError, match=r"(?s)'target'.*order"):
        PrototypeSelector(3).fit(table, target=table[list("dcba")])


def test_columns_of_other_scales_are_told_with_advice_that_helps():
    ages = np.random.default_rng(0).normal(40, 9, 60)
    table = pd.DataFrame({"age": ages, "income": ages[::-1] * 1e4})
    words = "column 'income' varies .* as much as column 'age'.*before it in a Pipeline"
    with pytest.warns(ScaleWarning, match=words):
        PrototypeSelector(n_prototypes=4).fit(table)
    make_pipeline(RobustScaler(), PrototypeSelector(n_prototypes=4)).fit(table)  # no warning
    uniproto.select(table, 4)


def test_a_classifier_is_one_to_scikit_learn():
    """Rows sorted by their labels: folds must be stratified, as for every classifier."""
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), PrototypeClassifier())
    grid = {"prototypeclassifier__n_prototypes": [15, 30]}
    search = GridSearchCV(pipeline, grid, cv=5, error_score="raise").fit(X, y)
    assert search.best_score_ > 0.9
    assert is_classifier(pipeline)
    assert not is_classifier(PrototypeSelector())
    classifier = PrototypeClassifier(12).fit(X, y)
    assert classifier.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(classifier.labels_, y[classifier.indices_])
    assert classifier.transform(X).shape == (150, 12)
    names = np.array(["setosa", "versicolor", "virginica"])
    assert set(PrototypeClassifier(12).fit(X, names[y]).predict(X)) == set(names)


def test_sample_weights_are_those_of_the_rows(rows):
    weights = np.where(rows[:, 0] > 1, 3.0, 0.0)
    selector = PrototypeSelector(4).fit(rows, sample_weight=weights)
    expected = uniproto.select(
        rows, 4, metric="euclidean", target_weights=weights, exclude=weights == 0
    )
    np.testing.assert_array_equal(selector.indices_, expected.indices)
    assert (weights[selector.indices_] > 0).all()
    with refused("sample_weight", InvalidInputError):
        PrototypeSelector(4).fit(rows, sample_weight=weights, target=rows)


def test_mixed_tables_are_prepared_as_select_does():
    draw = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "customer_id": np.arange(90) + 5000,
            "age": draw.integers(20, 80, 90),
            "income": np.where(draw.random(90) < 0.1, np.nan, draw.lognormal(10, 0.5, 90)),
            "country": draw.choice(["DE", "FR"], 90),
        }
    )
    selector = PrototypeSelector(5).fit(frame)
    selection = uniproto.select(frame, 5)
    np.testing.assert_array_equal(selector.indices_, selection.indices)
    np.testing.assert_array_equal(selector.predict(frame), selection.nearest(frame).prototype)
    assert selector.feature_names_in_.tolist() == list(frame.columns)
    assert selector.prototypes_.equals(frame.iloc[selection.indices])
    columns = uniproto.Columns(use=["age", "country"])
    chosen = PrototypeClassifier(5, features=columns).fit(frame, frame["country"])
    assert chosen.selection_.details.given.columns == ("age", "country")
    assert chosen.score(frame, frame["country"]) == 1
    with refused("X", InvalidInputError):
        selector.predict(frame.to_numpy())
    assert clone(chosen).fit(frame, frame["country"]).indices_.tolist() == chosen.indices_.tolist()


def test_a_fitted_selector_travels(rows):
    selector = PrototypeSelector(4, metric="dot").fit(rows)
    copy = pickle.loads(pickle.dumps(selector))
    np.testing.assert_array_equal(copy.transform(rows), selector.transform(rows))
    assert copy.cost_ == selector.cost_


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        *(("n_prototypes", odd) for odd in (61, 0, 2.5)),
        *(("metric", odd) for odd in ("precomputed", "similarity", "euclidian")),
        ("method", "unipruto"),
        *(("random_state", odd) for odd in (-1, "x")),
        ("min_distance", -1.0),
    ],
)
def test_bad_parameters_are_refused_in_fit(rows, parameter, value):
    selector = PrototypeSelector(**{parameter: value})
    with refused(parameter, InvalidInputError):
        selector.fit(rows)


def test_bad_rows_are_told_by_name(rows):
    holes = np.where(rows > rows.max() - 0.01, np.nan, rows)
    zeros = np.vstack([rows, np.zeros(4)])
    selector = PrototypeSelector(3, metric="cosine").fit(rows)
    for parameter, call in [
        ("X", lambda: selector.fit(holes)),
        ("X", lambda: selector.fit(zeros)),
        ("X", lambda: selector.fit(rows).transform(sp.csr_matrix(zeros))),
        ("X", lambda: selector.predict(rows[:, :2])),
        ("target", lambda: selector.fit(rows, target=holes)),
        ("target", lambda: selector.fit(rows, target=zeros)),
        ("target", lambda: selector.fit(rows, target=rows[:, :2])),
    ]:
        with pytest.raises(InvalidInputError, match=f"^'{parameter}' must "):
            call()
