"""`select` on random questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given
from tests.reading import read_input

import uniproto
from uniproto import PrototypeSelector, Selection, UniprotoError
from uniproto.data.arrays import as_matrix

from .cases import cases
from .matrices import Given
from .oracle import plain_costs, plain_weights, rounding
from .outcomes import assert_adds_up, assert_costs, assert_serves, attempt
from .questions import MATRICES, Question, questions, spoilt_questions


def _ask(question: Question) -> Selection:
    arguments = question.arguments()
    if isinstance(arguments["method"], tuple):  # a method whose making is part of the case
        make, odd = arguments["method"]
        arguments["method"] = make(odd)
    selection = uniproto.select(arguments.pop("source"), arguments.pop("k"), **arguments)
    assert np.isfinite(selection.cost)  # solves the transport, which may be refused as well
    assert selection.group_costs is not None
    return selection


def _rows(value: Any, m: int) -> np.ndarray:
    rows = np.asarray([] if value is None else value)
    return np.flatnonzero(rows) if rows.dtype == bool and rows.shape == (m,) else rows.astype(int)


def _assert_answers(selection: Selection, question: Question) -> None:
    assert_adds_up(selection)
    options = question.options
    source = question.source.numbers
    assert source is not None, f"{question.source} was selected from"
    target = source if question.target is None else question.target.numbers
    m, n = selection.details.shape
    assert selection.k == int(question.k)
    initial, exclude = (_rows(options.get(name), m) for name in ("include", "exclude"))
    assert set(initial).issubset(selection.indices)
    assert set(exclude).isdisjoint(selection.indices)
    metric = str(options["metric"])
    assert selection.details.metric == metric
    if "target_labels" not in options and not isinstance(
        options.get("target_weights"), str | uniproto.Density
    ):
        weights = plain_weights(options.get("target_weights"), n)
        assert_serves(selection, weights)
    single = np.result_type(*_types(question)) == np.float32
    sparse = any("sparse" in given.dress for given in (question.source, question.target) if given)
    with np.errstate(all="ignore"):
        costs = plain_costs(source, target, metric)
        tolerance = rounding(source, target, metric, single, sparse)
    assert_costs(selection, costs, tolerance + 1e-9 * float(costs.max()) + 1e-300)


def _types(question: Question) -> list[Any]:
    given = [side.value for side in (question.source, question.target) if side is not None]
    read = [
        read_input(value).features if isinstance(value, str | Path) else value for value in given
    ]
    return [as_matrix(value, "source").dtype for value in read]


@given(questions())
@cases(60)
def test_sensible_questions(question: Question) -> None:
    answer = attempt(question, lambda: _ask(question))
    if not isinstance(answer, UniprotoError):
        _assert_answers(answer, question)


@given(spoilt_questions())
@cases(150)
def test_spoilt_questions(question: Question) -> None:
    answer = attempt(question, lambda: _ask(question))
    if not isinstance(answer, UniprotoError):
        assert_adds_up(answer)


@given(questions())
@cases(15)
def test_the_same_question_has_the_same_answer(question: Question) -> None:
    first, second = (attempt(question, lambda: _ask(question)) for _ in range(2))
    if isinstance(first, UniprotoError):
        assert str(first) == str(second)
    else:
        assert np.array_equal(first.indices, second.indices)
        assert first.cost == second.cost


# What scikit-learn says where one table has names for its columns and the other has none.
_FEATURE_NAMES = r"X (has|does not have valid) feature names"


def _fit(question: Question) -> tuple[PrototypeSelector, np.ndarray, np.ndarray]:
    options = question.arguments()
    method = options["method"]
    selector = PrototypeSelector(
        options["k"],
        metric=options["metric"],
        method=method[0](method[1]) if isinstance(method, tuple) else method,
        min_distance=options.get("min_distance"),
        random_state=options.get("seed", 0),
    )
    selector.fit(
        options["source"],
        target=options.get("target"),
        target_weights=options.get("target_weights"),
    )
    assert np.isfinite(selector.cost_)
    return selector, selector.transform(options["source"]), selector.predict(options["source"])


def _assert_fitted(answer: Any, given: Given) -> None:
    selector, costs, nearest = answer
    assert_adds_up(selector.selection_)
    rows = selector.selection_.details.shape[0]
    assert costs.shape == (rows, selector.selection_.k)
    assert np.isfinite(costs).all()
    assert nearest.shape == (rows,)
    assert given.numbers is not None


@given(questions())
@cases(25)
def test_sensible_fits(question: Question) -> None:
    answer = attempt(question, lambda: _fit(question), _FEATURE_NAMES)
    if isinstance(answer, UniprotoError):
        return
    assert question.options["metric"] not in MATRICES
    _assert_fitted(answer, question.source)


@given(spoilt_questions())
@cases(25)
def test_spoilt_fits(question: Question) -> None:
    answer = attempt(question, lambda: _fit(question), _FEATURE_NAMES)
    if not isinstance(answer, UniprotoError):
        assert_adds_up(answer[0].selection_)
