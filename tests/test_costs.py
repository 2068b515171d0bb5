"""Ground costs block by block, and the neighbour lists built from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from uniproto import InvalidInputError
from uniproto.geometry import neighbours
from uniproto.geometry.costs import FEATURE_METRICS, block_rows, make_costs, row_blocks
from uniproto.geometry.neighbours import nearest

properties = settings(deadline=None, max_examples=50, derandomize=True)

M, N, WIDTH = 17, 23, 60
ALL = slice(None)
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-11}


def features(dtype: type, storage: str) -> tuple[Any, Any]:
    """Source and target features, mostly zeros so that the sparse forms are worth having."""
    rng = np.random.default_rng(1)
    parts = []
    for rows in (M, N):
        dense = rng.normal(size=(rows, WIDTH)) * (rng.random((rows, WIDTH)) < 0.3)
        dense[:, 0] += 1.0  # no all-zero row
        dense = dense.astype(dtype)
        parts.append(getattr(sp, storage)(dense) if storage != "dense" else dense)
    return parts[0], parts[1]


def direct_costs(source: Any, target: Any, metric: str) -> np.ndarray:
    x, y = (
        (part.toarray() if sp.issparse(part) else part).astype(np.float64)
        for part in (source, target)
    )
    if metric == "dot":
        return (x @ y.T).max() - x @ y.T
    return cdist(x, y, {"l1": "cityblock"}.get(metric, metric))


@pytest.mark.parametrize("storage", ["dense", "csr_matrix", "csr_array"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_costs_of_features(metric: str, dtype: type, storage: str) -> None:
    source, target = features(dtype, storage)
    costs = make_costs(source, target, metric)
    expected = direct_costs(source, target, metric)
    scale = expected.max()
    assert costs.shape == (M, N)
    assert costs.dtype == dtype
    block = costs.block(ALL)
    assert block.dtype == dtype
    assert isinstance(block, np.ndarray)
    np.testing.assert_allclose(block, expected, atol=TOLERANCE[dtype] * scale)
    exact = costs.exact_block(ALL)
    assert exact.dtype == np.float64
    # Features are what they are: in single precision only their normalisation and centring round.
    np.testing.assert_allclose(exact, expected, atol=max(1e-6, TOLERANCE[dtype]) * scale)
    assert exact.min() >= 0


@pytest.mark.parametrize("storage", ["dense", "csr_array"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_parts_of_the_costs_agree_with_the_whole(metric: str, dtype: type, storage: str) -> None:
    source, target = features(dtype, storage)
    costs = make_costs(source, target, metric)
    whole = costs.block(ALL)
    close = {"atol": TOLERANCE[dtype] * whole.max()}
    rows, columns = np.array([3, 9, 2]), np.array([22, 0, 5, 6])
    np.testing.assert_allclose(costs.block(rows), whole[rows], **close)
    np.testing.assert_allclose(costs.block(slice(4, 9), columns), whole[4:9, columns], **close)
    np.testing.assert_allclose(costs.block(ALL, slice(3, 8)), whole[:, 3:8], **close)
    np.testing.assert_allclose(costs.block(rows, columns), whole[np.ix_(rows, columns)], **close)
    np.testing.assert_allclose(
        costs.exact_block(rows, columns), whole[np.ix_(rows, columns)], **close
    )
    part = costs.restrict(rows, columns)
    assert part.shape == (3, 4)
    assert part.ceiling == costs.ceiling  # gains of a group stay comparable with the others'
    np.testing.assert_allclose(part.block(ALL), whole[np.ix_(rows, columns)], **close)
    facing = costs.facing(columns)
    assert facing.shape == (M, 4)
    np.testing.assert_allclose(facing.block(ALL), whole[:, columns], **close)
    np.testing.assert_allclose(
        facing.facing(np.array([2, 0])).block(rows), whole[np.ix_(rows, columns[[2, 0]])], **close
    )


@pytest.mark.parametrize("storage", ["dense", "csr_array"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_no_cost_is_above_the_ceiling_or_below_zero(metric: str, dtype: type, storage: str) -> None:
    source, target = features(dtype, storage)
    for one, other in ((source, target), (source, source), (source, -source)):
        costs = make_costs(one, other, metric)
        block = costs.exact_block(ALL)
        assert block.max() <= costs.ceiling * (1 + TOLERANCE[dtype])
        assert block.min() >= 0


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_far_from_the_origin_keep_their_digits(metric: str) -> None:
    rng = np.random.default_rng(3)
    source, target = rng.normal(size=(M, 5)), rng.normal(size=(N, 5))
    expected = cdist(source, target, metric)
    moved = make_costs(source + 1e6, target + 1e6, metric).block(ALL)
    np.testing.assert_allclose(moved, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.float32, 1e25), (np.float32, 1e-30), (float, 1e200)]
)
def test_angles_do_not_depend_on_lengths(dtype: type, scale: float) -> None:
    rng = np.random.default_rng(3)
    source = rng.normal(size=(M, 5))
    expected = cdist(source, source, "cosine")
    scaled = (source * scale).astype(dtype)
    np.testing.assert_allclose(make_costs(scaled, scaled, "cosine").block(ALL), expected, atol=1e-6)


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_costs_of_a_set_against_itself(metric: str) -> None:
    source, _ = features(np.float64, "dense")
    costs = make_costs(source, source, metric).block(ALL)
    np.testing.assert_allclose(costs, direct_costs(source, source, metric), atol=1e-6)


def test_inputs_are_left_alone() -> None:
    for storage in ("dense", "csr_array"):
        for metric in FEATURE_METRICS:
            source, target = features(np.float64, storage)
            before = source.copy(), target.copy()
            make_costs(source, target, metric).block(ALL)
            assert abs(source - before[0]).max() == 0
            assert abs(target - before[1]).max() == 0


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_sparse_features_are_never_made_dense(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only costs may be dense: TF-IDF is too wide to be written out."""
    made_dense = []
    for kind in (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array):
        original = kind.toarray

        def noting(self, *args, original=original, **options):
            made_dense.append(self.shape)
            return original(self, *args, **options)

        monkeypatch.setattr(kind, "toarray", noting)
        monkeypatch.setattr(kind, "todense", noting)
    source, target = features(np.float64, "csr_array")
    costs = make_costs(source, target, metric)
    costs.block(slice(0, 5))
    costs.exact_block(np.array([1, 2]))
    costs.restrict(np.arange(4), np.arange(5)).block(ALL)
    costs.twin_distances(0)
    assert all(WIDTH not in shape for shape in made_dense)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_cost_matrix_is_taken_as_it_is(dtype: type) -> None:
    matrix = np.random.default_rng(5).random((M, N)).astype(dtype)
    costs = make_costs(matrix, None, "precomputed")
    assert costs.dtype == dtype
    assert costs.ceiling == matrix.max()
    rows, columns = np.array([3, 1]), np.array([0, 22, 7])
    np.testing.assert_array_equal(costs.block(ALL), matrix)
    np.testing.assert_array_equal(costs.block(rows, columns), matrix[np.ix_(rows, columns)])
    np.testing.assert_array_equal(costs.block(slice(2, 5), columns), matrix[2:5, columns])
    np.testing.assert_array_equal(
        costs.restrict(rows, columns).block(ALL), costs.block(rows, columns)
    )
    assert costs.restrict(rows, columns).ceiling == costs.ceiling
    assert costs.exact_block(rows).dtype == np.float64


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_similarities_become_costs_below_their_maximum(dtype: type) -> None:
    matrix = np.random.default_rng(7).normal(size=(M, N)).astype(dtype)
    costs = make_costs(matrix, None, "similarity")
    block = costs.block(ALL)
    assert block.dtype == dtype
    np.testing.assert_array_equal(block, matrix.max() - matrix)
    assert block.min() == 0
    assert costs.ceiling == pytest.approx(block.max(), rel=1e-6)
    rows, columns = np.array([5, 6]), np.array([1, 4])
    part = costs.restrict(rows, columns)  # keeps the maximum of the whole matrix
    np.testing.assert_array_equal(part.block(ALL), block[np.ix_(rows, columns)])


def test_negative_costs_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"'source' must hold costs of at least 0.*-1"):
        make_costs(np.array([[0.0, -1.0]]), None, "precomputed")


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_twins_are_told_by_distance(metric: str) -> None:
    source, target = features(np.float64, "dense")
    source[7] = source[2]
    distances = make_costs(source, target, metric).twin_distances(2)
    expected = cdist(
        source, source[2:3], {"l1": "cityblock", "dot": "euclidean"}.get(metric, metric)
    )[:, 0]
    np.testing.assert_allclose(distances, expected, atol=1e-6)
    assert set(np.argsort(distances)[:2]) == {2, 7}


def test_twins_of_a_matrix_are_rows_the_target_cannot_tell_apart() -> None:
    matrix = np.random.default_rng(9).random((6, N))
    matrix[4] = matrix[1]
    distances = make_costs(matrix, None, "precomputed").twin_distances(1)
    np.testing.assert_allclose(distances, np.abs(matrix - matrix[1]).max(axis=1))
    assert distances[4] == 0


def test_blocks_cover_all_rows_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uniproto.geometry.costs._BLOCK_BYTES", 4 * N * 5)
    assert block_rows(N) == 5
    covered = [i for part in row_blocks(M, N) for i in range(part.start, part.stop)]
    assert covered == list(range(M))
    assert block_rows(10**9) == 1  # however wide the rows are


@st.composite
def list_questions(draw: st.DrawFn):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m, n = draw(st.integers(1, 12)), draw(st.integers(1, 700))
    kind = draw(st.sampled_from(["random", "tied", "equal", "ascending", "descending"]))
    matrix = {
        "random": lambda: rng.random((m, n)),
        "tied": lambda: rng.integers(0, draw(st.integers(1, 20)), (m, n)).astype(float),
        "equal": lambda: np.ones((m, n)),
        "ascending": lambda: np.tile(np.arange(n, dtype=float), (m, 1)),
        "descending": lambda: np.tile(-np.arange(n, dtype=float) + n, (m, 1)),
    }[kind]()
    matrix = matrix.astype(draw(st.sampled_from([np.float32, np.float64])))
    rows = np.sort(rng.permutation(m)[: draw(st.integers(1, m))])
    columns = np.sort(rng.permutation(n)[: draw(st.integers(1, n))])
    length = draw(st.one_of(st.integers(1, 20), st.integers(1, 2 * n)))
    return matrix, rows, columns, length, draw(st.sampled_from([1, 7, 64, 200, 16384]))


@properties
@given(list_questions())
def test_lists_hold_the_cheapest_columns_in_order(question) -> None:
    """Equal costs come in the order of their columns, as in the stable sort of the oracle."""
    matrix, rows, columns, length, columns_per_block = question
    costs = make_costs(matrix, None, "precomputed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_COLUMNS_PER_BLOCK", columns_per_block)
        for facing, wanted in ((costs, matrix), (costs.facing(columns), matrix[:, columns])):
            found, where = nearest(facing, rows, length)
            wanted = wanted[rows]
            count = min(length, wanted.shape[1])
            order = np.lexsort((np.tile(np.arange(wanted.shape[1]), (len(rows), 1)), wanted))
            expected = order[:, :count]
            np.testing.assert_array_equal(where, expected)
            np.testing.assert_array_equal(found, np.take_along_axis(wanted, expected, axis=1))
            assert found.dtype == matrix.dtype


@pytest.mark.parametrize("columns_per_block", [5, 16384])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_lists_of_features(
    metric: str, columns_per_block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbours, "_COLUMNS_PER_BLOCK", columns_per_block)
    source, target = features(np.float64, "dense")
    costs = make_costs(source, target, metric)
    found, where = nearest(costs, np.arange(M), 6)
    expected = np.argsort(direct_costs(source, target, metric), axis=1, kind="stable")[:, :6]
    np.testing.assert_array_equal(where, expected)
    np.testing.assert_allclose(
        found, np.take_along_axis(costs.block(ALL), expected, axis=1), atol=1e-12
    )
