"""Every fast path of `uniproto.select` picks what the plain algorithm picks.

The oracle is `uniproto.algorithm.uniprot` on the dense cost matrix. Picks must be identical, in
order, and every pick must cost the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import uniproto
from uniproto import Entropic, Greedy
from uniproto.algorithm import uniprot
from uniproto.errors import DataWarning
from uniproto.fills import lazy_fills, priced_fills
from uniproto.geometry.costs import FEATURE_METRICS, make_costs
from uniproto.problem.masses import integer_masses

properties = settings(deadline=None, max_examples=30, derandomize=True)

REG, ITERATIONS = 0.05, 150
METHODS = {
    "extend": Greedy(),
    "resolve": Greedy(plan="resolve"),
    "entropic": Greedy(plan=Entropic(reg=REG, iterations=ITERATIONS)),
    "exact gains": Greedy(gains="exact"),
}
# 7 divides neither 30 nor 45, so a uniform target leaves every fill with a fraction of a target.
M, N, K = 30, 45, 7


def _weights(kind: str, rng: np.random.Generator, n: int = N) -> np.ndarray | None:
    if kind == "uniform":
        return None
    weights = rng.random(n) + 0.05
    if kind == "heavy":  # the first target alone holds the mass of more than two prototypes
        weights[0] = weights.sum()
    if kind == "zeros":
        weights[rng.permutation(n)[: n // 3]] = 0.0
    return weights


def _assert_agrees_with_oracle(
    selection: uniproto.Selection,
    dense: np.ndarray,
    method: Greedy,
    weights: np.ndarray | None = None,
    rtol: float = 1e-10,
    **given: Any,
) -> None:
    if weights is not None:
        weights = weights / weights.max()
        weights = weights / weights.sum()
    is_entropic = isinstance(method.plan, Entropic)
    entropic = {"reg": REG, "iterations": ITERATIONS} if is_entropic else {}
    picks, costs = uniprot(
        dense.astype(np.float64),
        selection.k,
        integer_masses(selection.k, dense.shape[1], weights),
        plan="entropic" if is_entropic else method.plan,
        gains=method.gains,
        **entropic,
        **given,
    )
    assert selection.indices.tolist() == picks
    np.testing.assert_allclose(
        selection.details.beta - selection.details.gains, costs, rtol=rtol, atol=rtol
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["uniform", "uneven", "heavy", "zeros"])
@pytest.mark.parametrize("name", METHODS)
def test_picks_of_a_cost_matrix(name: str, kind: str, dtype: type) -> None:
    rng = np.random.default_rng(7)
    costs, weights = rng.random((M, N)).astype(dtype), _weights(kind, rng)
    selection = uniproto.select(
        costs, K, metric="precomputed", method=METHODS[name], target_weights=weights
    )
    if kind == "heavy":
        assert selection.plan.sum(axis=0)[0] > 2 / K
    # Single-precision costs are multiplied out in single precision by nobody: same tolerance.
    _assert_agrees_with_oracle(selection, costs, METHODS[name], weights)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
@pytest.mark.parametrize("name", METHODS)
def test_picks_of_features(name: str, metric: str, dtype: type) -> None:
    rng = np.random.default_rng(11)
    source = rng.normal(size=(M, 6)).astype(dtype)
    target = (rng.normal(size=(N, 6)) + 0.3).astype(dtype)
    dense = make_costs(source, target, metric).block(slice(None))
    assert dense.dtype == dtype
    selection = uniproto.select(source, K, target, metric=metric, method=METHODS[name])
    rtol = 1e-10 if dtype is np.float64 else 1e-4
    _assert_agrees_with_oracle(selection, dense, METHODS[name], rtol=rtol)
    if metric != "dot":  # whose shift may put the smallest cost a rounding below 0
        precomputed = uniproto.select(dense, K, metric="precomputed", method=METHODS[name])
        assert precomputed.indices.tolist() == selection.indices.tolist()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_whole_numbers_keep_their_ties(dtype: type) -> None:
    """Squared distances on a grid are whole numbers: no rounding may decide between equals."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        source, target = (rng.integers(0, 5, (rows, 3)) for rows in (M, N))
        dense = ((source[:, None] - target[None]) ** 2).sum(axis=2)
        found = uniproto.select(
            source.astype(dtype),
            K,
            target.astype(dtype),
            metric="sqeuclidean",
            method=METHODS["extend"],
        )
        _assert_agrees_with_oracle(found, dense, METHODS["extend"])


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_picks_of_sparse_features(metric: str) -> None:
    rng = np.random.default_rng(13)
    source, target = (
        sp.csr_array((rng.random((rows, 40)) + 0.1) * (rng.random((rows, 40)) < 0.2))
        for rows in (M, N)
    )
    selection = uniproto.select(source, K, target, metric=metric, method=METHODS["extend"])
    dense = make_costs(source.toarray(), target.toarray(), metric).block(slice(None))
    _assert_agrees_with_oracle(selection, dense, METHODS["extend"], rtol=1e-8)


@pytest.mark.parametrize("name", METHODS)
def test_picks_of_a_similarity_matrix(name: str) -> None:
    similarity = np.random.default_rng(17).normal(size=(M, N))
    selection = uniproto.select(similarity, K, metric="similarity", method=METHODS[name])
    _assert_agrees_with_oracle(selection, similarity.max() - similarity, METHODS[name])


@pytest.mark.parametrize("kind", ["uniform", "heavy"])
@pytest.mark.parametrize("name", METHODS)
def test_given_and_excluded_rows(name: str, kind: str) -> None:
    rng = np.random.default_rng(19)
    costs, weights = rng.random((M, N)), _weights(kind, rng)
    plain = uniproto.select(
        costs, K, metric="precomputed", method=METHODS[name], target_weights=weights
    )
    # Barring the rows it likes best and starting from others makes the run a different one.
    exclude = plain.indices[:3].tolist()
    initial = [row for row in (21, 4, 13, 5, 6, 8) if row not in exclude][:3]
    selection = uniproto.select(
        costs,
        K,
        metric="precomputed",
        method=METHODS[name],
        target_weights=weights,
        include=initial,
        exclude=exclude,
    )
    given = {"initial": tuple(initial), "exclude": tuple(exclude)}
    _assert_agrees_with_oracle(selection, costs, METHODS[name], weights, **given)


@pytest.mark.parametrize("name", METHODS)
def test_initial_rows_may_be_all_of_k(name: str) -> None:
    costs = np.random.default_rng(23).random((M, N))
    initial = (8, 2, 5)
    selection = uniproto.select(
        costs, 3, metric="precomputed", method=METHODS[name], include=initial
    )
    _assert_agrees_with_oracle(selection, costs, METHODS[name], initial=initial)


@st.composite
def tied_problems(draw: st.DrawFn):
    """Small whole costs: sums are exact, so that equal fills are equal to the last bit."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n = draw(st.integers(1, 25)), draw(st.integers(1, 40))
    k = draw(st.integers(1, m))
    costs = rng.integers(0, draw(st.integers(1, 5)), (m, n)).astype(
        draw(st.sampled_from([np.float32, np.float64]))
    )
    weights = _weights(draw(st.sampled_from(["uniform", "uneven", "zeros"])), rng, n)
    if weights is not None and not weights.any():
        weights = None
    count = draw(st.integers(0, min(2, k)))
    initial = rng.permutation(m)[:count].tolist()
    return costs, k, weights, initial, draw(st.sampled_from([1, 2, 5, 1000]))


@properties
@given(tied_problems())
def test_extend_with_many_ties(problem) -> None:
    costs, k, weights, initial, length = problem
    with pytest.MonkeyPatch.context() as patch:
        _shorten_lists(patch, length, recomputed_together=2)
        selection = uniproto.select(
            costs,
            k,
            metric="precomputed",
            target_weights=weights,
            include=initial,
            method=METHODS["extend"],
        )
    _assert_agrees_with_oracle(selection, costs, METHODS["extend"], weights, initial=tuple(initial))


def _shorten_lists(patch: pytest.MonkeyPatch, length: int, recomputed_together: int) -> None:
    """Make lists run out: so small a problem would otherwise list every target."""
    for module in (lazy_fills, priced_fills):
        patch.setattr(module, "list_length", lambda masses, fills=8: length)
    patch.setattr(lazy_fills, "_ROWS_RECOMPUTED_TOGETHER", recomputed_together)


@pytest.mark.parametrize("recomputed_together", [1, 3, 1024])
@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("kind", ["uniform", "uneven", "heavy", "zeros"])
def test_extend_when_lists_run_out(
    kind: str, length: int, recomputed_together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(29)
    costs, weights = rng.random((60, 90)), _weights(kind, rng, 90)
    _shorten_lists(monkeypatch, length, recomputed_together)
    selection = uniproto.select(
        costs, 13, metric="precomputed", target_weights=weights, method=METHODS["extend"]
    )
    assert selection.details.notes["recomputed_rows"] > 0  # else this test shows nothing
    _assert_agrees_with_oracle(selection, costs, METHODS["extend"], weights)


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("name", ["resolve", "exact gains"])
def test_other_methods_when_lists_run_out(
    name: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(31)
    costs, weights = rng.random((M, N)), _weights("uneven", rng)
    _shorten_lists(monkeypatch, length, recomputed_together=3)
    selection = uniproto.select(
        costs, K, metric="precomputed", method=METHODS[name], target_weights=weights
    )
    _assert_agrees_with_oracle(selection, costs, METHODS[name], weights)


def test_lists_built_over_several_blocks_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uniproto.geometry.cpu_lists._COLUMNS_PER_BLOCK", 16)
    monkeypatch.setattr("uniproto.geometry.blocks._BLOCK_BYTES", 512)  # a few rows at a time
    _shorten_lists(monkeypatch, 6, recomputed_together=4)
    rng = np.random.default_rng(37)
    source, target = rng.normal(size=(50, 4)), rng.normal(size=(83, 4))
    selection = uniproto.select(source, 9, target, metric="euclidean", method=METHODS["extend"])
    dense = make_costs(source, target, "euclidean").block(slice(None))
    _assert_agrees_with_oracle(selection, dense, METHODS["extend"])


@pytest.mark.parametrize("name", METHODS)
def test_every_row_is_picked_when_k_is_all_of_them(name: str) -> None:
    costs = np.random.default_rng(41).random((9, 14))
    selection = uniproto.select(costs, 9, metric="precomputed", method=METHODS[name])
    assert sorted(selection.indices) == list(range(9))
    _assert_agrees_with_oracle(selection, costs, METHODS[name])


@pytest.mark.parametrize("name", METHODS)
def test_a_single_prototype(name: str) -> None:
    costs = np.random.default_rng(43).random((M, N))
    selection = uniproto.select(costs, 1, metric="precomputed", method=METHODS[name])
    assert selection.indices.tolist() == [int(costs.mean(axis=1).argmin())]
    _assert_agrees_with_oracle(selection, costs, METHODS[name])


@pytest.mark.parametrize("name", METHODS)
def test_of_identical_rows_the_lowest_index_is_picked_first(name: str) -> None:
    rng = np.random.default_rng(47)
    distinct = rng.random((10, N))
    original = rng.permutation(np.repeat(np.arange(10), 3))  # each row three times, shuffled
    selection = uniproto.select(distinct[original], 12, metric="precomputed", method=METHODS[name])
    for row in range(10):
        copies = [int(index) for index in selection.indices if original[index] == row]
        assert copies == np.flatnonzero(original == row)[: len(copies)].tolist()
    assert len(set(original[selection.indices])) < 12  # some row was picked more than once


@pytest.mark.parametrize("kind", ["uniform", "uneven"])
@pytest.mark.parametrize("name", METHODS)
def test_a_sample_of_everything_equals_no_sampling(name: str, kind: str) -> None:
    rng = np.random.default_rng(53)
    costs, weights = rng.random((M, N)), _weights(kind, rng)
    sampled = uniproto.select(
        costs,
        K,
        metric="precomputed",
        method=replace(METHODS[name], sample=np.exp(-K) / 2),
        target_weights=weights,
    )
    _assert_agrees_with_oracle(sampled, costs, METHODS[name], weights)


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_sample_and_another_seed_another(name: str) -> None:
    costs = np.random.default_rng(59).random((M, N))
    method = replace(METHODS[name], sample=0.5)

    def picks(seed: int) -> list[int]:
        selection = uniproto.select(costs, K, metric="precomputed", method=method, seed=seed)
        assert len(set(selection.indices)) == K
        return selection.indices.tolist()

    assert picks(seed=1) == picks(seed=1)
    assert len({tuple(picks(seed)) for seed in range(4)}) > 1


@pytest.mark.parametrize("scale", [2.0**-20, 1e-6, 3.0, 1e6])
@pytest.mark.parametrize("name", METHODS)
def test_invariance_to_the_scale_of_the_cost(name: str, scale: float) -> None:
    costs = np.random.default_rng(73).random((M, N))
    method = METHODS[name]
    scaled = method
    if isinstance(method.plan, Entropic):  # λ has the unit of a cost: it scales along
        scaled = Greedy(plan=Entropic(reg=REG * scale, iterations=ITERATIONS))
    plain = uniproto.select(costs, K, metric="precomputed", method=method)
    other = uniproto.select(costs * scale, K, metric="precomputed", method=scaled)
    assert other.indices.tolist() == plain.indices.tolist()
    assert other.cost == pytest.approx(plain.cost * scale, rel=1e-9)
    np.testing.assert_allclose(other.details.gains, plain.details.gains * scale, rtol=1e-8)


def test_entropic_iterations_follow_the_paper_by_default() -> None:
    """100 steps for up to 200 rows, 1000 for up to 1000."""
    rng = np.random.default_rng(61)
    for m, expected in ((40, 100), (210, 1000)):
        points = rng.normal(size=(m, 3))
        found = [
            uniproto.select(points, 5, method=Greedy(plan=Entropic(iterations=iterations)))
            for iterations in (None, expected)
        ]
        for selection in found[1:]:
            assert selection.indices.tolist() == found[0].indices.tolist()
            assert selection.details.notes == found[0].details.notes
        hasty = uniproto.select(points, 5, method=Greedy(plan=Entropic(iterations=1))).details.notes
        assert hasty["unconverged_plans"] == 4
        assert hasty["marginal_violation"] > found[0].details.notes["marginal_violation"] >= 0
    with pytest.warns(DataWarning, match="Raise 'reg' or 'iterations'"):
        uniproto.select(100 * points, 5, method=Greedy(plan=Entropic()), metric="euclidean")
