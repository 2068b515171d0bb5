"""Small questions of every magnitude and type, answered exactly: against rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import uniproto
from uniproto import InvalidInputError, Problem, Selection, UniprotoError
from uniproto.certificate import ascent
from uniproto.certificate.bound import proven_bound
from uniproto.transport import cells, prototypes

from .cases import cases
from .outcomes import TALLY, assert_adds_up, attempt
from .rational import best_choice, best_transport, bound_of_prices
from .small import (
    HARD,
    Small,
    conditioned,
    far_questions,
    hard_question,
    hard_questions,
    small_questions,
)

_EXACT = 1.1e-9  # of the cost: what is called exact, and as little more as the sums need
_OF_ANGLES = 2e-15
_SHIFTS = (1e-3, 1.0, 1e6, 1e14, 1e16, 1e200)


def _select(question: Small) -> Selection:
    source, target, options = question.given()
    return uniproto.select(source, question.k, target, certify=True, progress=False, **options)


@given(
    conditioned(st.one_of(small_questions(), hard_questions(), far_questions(), far_questions()))
)
@cases(400)
def test_costs_and_certificates_are_true(question: Small) -> None:
    selection = attempt(question, lambda: _select(question))
    if not isinstance(selection, UniprotoError):
        assert_is_true(selection, question)
        TALLY["exact"] += selection.cost_is_exact
        TALLY["proven"] += selection.details.proof is not None


def assert_is_true(selection: Selection, question: Small) -> None:
    """What a selection says of its cost, of the bound and of the optimum is so."""
    assert_adds_up(selection)
    costs, weights = question.costs_of(selection._problem), question.true_weights
    sets, rows = list(question.sets()), tuple(selection.indices.tolist())
    assert tuple(sorted(rows)) in sets, f"{rows} are not allowed"
    best, true = best_choice(costs, sets, weights), best_transport(costs, rows, weights)
    off = assert_holds(selection.cost, selection.cost_is_exact, true, question.metric)
    cost, certificate = Fraction(selection.cost), selection.certificate
    assert certificate is not None
    found = f"cost {selection.cost!r}, best {float(best)!r}"
    assert Fraction(certificate.lower_bound) <= best, f"bound {certificate.lower_bound!r}, {found}"
    problem = selection._problem
    for shift in _SHIFTS:
        shifted = proven_bound(problem, certificate.prices + shift)
        assert Fraction(shifted) <= best, f"bound {shifted!r}, {found}"
    if selection.details.proof is not None:
        assert selection.cost_is_exact
        assert certificate.gap == 0
        assert Fraction(certificate.lower_bound) >= cost * Fraction(1 - 1e-4)
        assert true <= best * Fraction(1 + 2 * _EXACT) + 2 * off, found


def assert_holds(cost: float, is_exact: bool, true: Fraction, metric: str) -> Fraction:
    """A cost is not below the true one, and not above it if it is called exact."""
    off = Fraction(_OF_ANGLES if metric == "cosine" else 0)
    found = f"cost {cost!r}, really {float(true)!r}"
    assert Fraction(cost) >= true * Fraction(1 - _EXACT) - off, found
    assert not is_exact or Fraction(cost) <= true * Fraction(1 + _EXACT) + off, found
    return off


@pytest.mark.parametrize("solver", ["dense", "cells", "few", "columns"])
@given(question=st.one_of(hard_questions(), far_questions(9, 5)), seed=st.integers(0, 999))
@cases(40)
def test_costs_of_every_solver_are_true(solver: str, question: Small, seed: int) -> None:
    source, target, options = question.given()
    problem = attempt(question, lambda: Problem(source, target, **options).with_k(question.k))
    if isinstance(problem, UniprotoError):
        return
    order = np.random.default_rng(seed).permutation(problem.m)
    rows = order[: question.k]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "cells_suit", lambda k, n: solver == "cells")
        few = {"_TARGETS_OF_FEW": 0} if solver == "few" else {"FEW": 0, "_MANY": 0}
        for name, value in (
            {} if solver == "dense" else {"SMALL": 0, "_DENSE_ENTRIES": 0, **few}
        ).items():
            patch.setattr(prototypes, name, value)
        solved = prototypes.transport(problem, rows)
    weights = question.true_weights
    costs = question.costs_of(problem)
    true = best_transport(costs, tuple(rows.tolist()), weights)
    assert_holds(solved.cost, solved.is_exact, true, question.metric)
    TALLY["exact"] += solved.is_exact


@given(far_questions(40, 2))
@cases(20)
def test_bounds_over_lists_are_true(question: Small) -> None:
    selection = attempt(question, lambda: _select(question))
    if isinstance(selection, UniprotoError):
        return
    assert_is_true(selection, question)
    problem, costs = selection._problem, question.costs_of(selection._problem)
    found = [selection.certificate]
    for searched in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if searched:
                patch.setattr(ascent, "_LISTED_COSTS", 0)
            prices = np.zeros(problem.n)
            found.append(
                ascent.certify(
                    problem, selection.cost, prices, rows=selection.indices, plan=selection.plan
                )
            )
    for certificate in found[1:]:
        proven = bound_of_prices(costs, question.k, certificate.prices, question.true_weights)
        assert Fraction(certificate.lower_bound) <= max(proven, 0)


def test_one_far_row_hides_no_better_set() -> None:
    """Once 0.969 was called the least possible here."""
    rows = np.random.default_rng(15).normal(size=(6, 2))
    rows[0] = 1e9
    question = Small(rows, rows[1:], "sqeuclidean", 2)
    selection = _select(question)
    assert selection.details.proof is not None
    assert abs(selection.cost - 0.86853) < 1e-5
    assert_is_true(selection, question)


@pytest.mark.parametrize("far", [1e12, 1e15, 1e18, 1e100, float(np.iinfo(np.int64).min)])
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "l1", "rbf", "laplacian"])
def test_far_rows_take_no_digit_of_the_others(metric: str, far: float) -> None:
    """Half of the rows at −2⁶³ were once 0 apart from all others: "exactly 0, proven"."""
    rows = np.random.default_rng(0).normal(size=(8, 2))
    rows[:4] = far
    for weights in (None, np.array([0.0] * 4 + [1.0] * 4)):
        question = Small(rows, None, metric, 2, weights)
        selection = _select(question)
        assert selection.cost_is_exact
        assert_is_true(selection, question)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "l1", "rbf"])
def test_far_rows_bring_no_others_closer(metric: str) -> None:
    """Beside eight rows at −2⁶³ the four others were near-duplicates of each other."""
    rows = np.random.default_rng(0).normal(size=(12, 2))
    rows[:8] = np.iinfo(np.int64).min
    question = Small(rows, None, metric, 4, conditions={"min_distance": 0.3})
    assert_is_true(_select(question), question)


def test_nothing_is_proven_where_rounding_hides_near_duplicates() -> None:
    """Two of these rows are 1e-60 apart by their cosine, which is 0 in double precision."""
    rows = np.array([[1.0, 1e-30], [1.0, 2e-30], [1e-30, 1.0], [1.0, 1.0], [-1.0, 0.5]])
    question = Small(rows, None, "cosine", 3, conditions={"min_distance": 1e-83})
    found = _select(question)
    assert found.details.proof is None
    assert_is_true(found, question)


def test_near_duplicates_of_similarities_lose_no_digit_to_a_large_one() -> None:
    rows = np.array([[-5e-106, -2e-106], [-1.4e-105, -1.6e-106], [-3e-106, 3e-107]])
    rows = np.concatenate([rows, [[-3e7, 7e7], [1.8e-106, -1.1e-106], [-5e-107, -1.5e-105]]])
    question = Small(
        rows, None, "similarity", 2, np.array([2e-69, 0.0]), conditions={"min_distance": 7.9e-106}
    )
    assert_is_true(_select(question), question)


def test_a_proof_on_a_line_knows_how_weights_were_rounded() -> None:
    """Far mass is as small as 2⁻⁴⁶ at first, and what is taken off for it was rounded, too."""
    source, far = [[-2.3e48], [2.0], [0.0]], 78902154336.81923
    weights = np.array([6.941707930656601e-227, 1.1738036878885791e-175, 1.909586093757998e-180])
    target = np.array([[far], [-0.5714347055323699], [far]])
    question = Small(np.array(source), target, "euclidean", 2, weights)
    assert_is_true(_select(question), question)


def test_costs_that_vanish_are_not_exact() -> None:
    """1e-350 is no double: such a cost was once "exactly 0"."""
    costs = np.array([[0.0, 1e-150], [1e-150, 0.0]])
    for weights in ([1.0, 1e-200], [1e300, 1e-300]):
        question = Small(costs, None, "precomputed", 1, np.array(weights))
        selection = _select(question)
        assert not selection.cost_is_exact
        assert_is_true(selection, question)


@pytest.mark.parametrize("metric", ["rbf", "laplacian"])
def test_costs_that_vanish_in_a_curve_are_not_exact(metric: str) -> None:
    """Beside a row at 1e136, rows 1e-49 apart cost 1e-370."""
    rows = np.array([[1e-49, 2e-49], [1.2e-49, 1e-49], [1e136, 1e62]])
    if metric == "laplacian":
        rows[2] = 1e288, 0.0
    question = Small(rows, None, metric, 1, np.array([1.0, 1.0, 0.0]))
    selection = _select(question)
    assert not selection.cost_is_exact
    assert_is_true(selection, question)


@pytest.mark.parametrize("metric", ["euclidean", "similarity"])
def test_whole_numbers_keep_their_differences_or_are_refused(metric: str) -> None:
    """Beyond 2⁵³ they are rounded: 2⁶² and 2⁶² + 100 were once the same row."""
    rows = np.array([[2**62], [2**62 + 100], [2**62 + 300]])
    long, mixed = rows.astype(np.longdouble), [[2**62, 0.5], [2**62 + 100, 0.5]]
    for values in (rows, rows.tolist(), rows.astype(np.uint64), sp.csr_array(rows), long, mixed):
        if metric == "similarity" and sp.issparse(values):
            continue
        with pytest.raises(InvalidInputError, match=r"'source' must hold whole numbers up to"):
            uniproto.select(values, 1, metric=metric)
    question = Small(rows // 1024 * 1024 + [[0], [1024], [4096]], None, metric, 1)
    selection = _select(question)
    assert selection.cost_is_exact
    assert_is_true(selection, question)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
def test_copies_of_sparse_rows_cost_nothing(metric: str) -> None:
    rows = np.random.default_rng(1).random((3, 40))[[0, 1, 2, 0, 1, 2]]
    selection = uniproto.select(sp.csr_array(rows), 3, metric=metric)
    assert selection.cost == 0
    assert selection.cost_is_exact


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine", "dot", "rbf"])
def test_costs_of_wide_rows_are_exact(metric: str) -> None:
    """However many products are added up, rounding is bounded closely enough to say so."""
    rows = np.random.default_rng(2).normal(size=(30, 20_000))
    selection = uniproto.select(rows, 3, metric=metric, method="greedy")
    assert selection.cost_is_exact


def test_a_bound_knows_how_weights_were_rounded() -> None:
    """Twice 2⁻⁴⁶ of 1e16, less as much: 0.90 was left of a cost of 0.21."""
    rng = np.random.default_rng(100434)
    question = hard_question(rng, str(rng.choice(HARD)))
    assert_is_true(_select(question), question)


def test_no_weight_is_rounded_away() -> None:
    """A mass of 0.4 · 2⁻⁴⁶, if dropped, makes row 0 free of cost; it costs 568,434."""
    costs, weights = np.array([[0, 1e20], [1e-3, 0]]), np.array([1, 0.4 * 2.0**-46])
    question = Small(costs, None, "precomputed", 1, weights)
    selection = _select(question)
    assert selection.indices.tolist() == [1]
    assert_is_true(selection, question)
    dear = uniproto.cost(costs, [0], metric="precomputed", target_weights=weights)
    assert abs(dear - 568_434.2) < 1
