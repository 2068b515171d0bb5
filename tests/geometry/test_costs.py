"""Ground costs block by block, and the neighbour lists built from them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from tests.refusals import refused

from uniproto import InvalidInputError
from uniproto.geometry import cpu_lists
from uniproto.geometry.blocks import EVERY
from uniproto.geometry.costs import FEATURE_METRICS, make_costs
from uniproto.geometry.cpu_lists import nearest

properties = settings(deadline=None, max_examples=50, derandomize=True)

M, N, WIDTH = 17, 23, 60
TOLERANCE = {np.float32: 2e-5, np.float64: 1e-11}
DISTANCES = {"l1": "cityblock", "dot": "euclidean", "rbf": "euclidean", "laplacian": "cityblock"}


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
    if metric in ("rbf", "laplacian"):
        return saturated(cdist(x, y, DISTANCES[metric]), metric)
    return cdist(x, y, DISTANCES.get(metric, metric))


def saturated(distances: np.ndarray, metric: str, share: float = 0.25) -> np.ndarray:
    """The formulas of `rbf` and `laplacian`, at a share of the median distance."""
    sigma = share * np.median(distances[distances > 1e-6 * distances.max()])
    power = distances**2 / (2 * sigma**2) if metric == "rbf" else distances / sigma
    return 1 - np.exp(-power)


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
    block = costs.block(EVERY)
    assert block.dtype == dtype
    assert isinstance(block, np.ndarray)
    np.testing.assert_allclose(block, expected, atol=TOLERANCE[dtype] * scale)
    exact = costs.exact_block(EVERY)
    assert exact.dtype == np.float64
    # Features are what they are: in single precision only their normalisation and centring round.
    np.testing.assert_allclose(exact, expected, atol=max(1e-6, TOLERANCE[dtype]) * scale)
    assert exact.min() >= 0


ROWS = [EVERY, slice(2, 9), slice(0, 4), np.array([3, 9, 2, 8]), np.array([5])]
COLUMNS = [EVERY, slice(3, 20), slice(0, 1), np.array([22, 0, 5, 6]), np.arange(N)[::-1]]


KINDS = (
    *((metric, storage) for metric in FEATURE_METRICS for storage in ("dense", "csr_array")),
    ("euclidean", "table"),  # of costs that were computed before
    ("precomputed", "dense"),
    ("similarity", "dense"),
)


def costs_of(kind: tuple[str, str], dtype: type) -> Any:
    metric, storage = kind
    if storage == "table":
        costs: Any = make_costs(*features(dtype, "dense"), metric)
        return costs.from_table(costs.block(EVERY) / 4, 4.0)
    if metric in FEATURE_METRICS:
        return make_costs(*features(dtype, storage), metric)
    return make_costs(np.random.default_rng(5).random((M, N)).astype(dtype), None, metric)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_restricted_costs_are_those_of_the_rows_and_columns(
    kind: tuple[str, str], dtype: type
) -> None:
    costs = costs_of(kind, dtype)
    whole = costs.exact_block(EVERY)
    close = {"atol": max(1e-6, TOLERANCE[dtype]) * whole.max()}
    for rows in ROWS:
        for columns in COLUMNS:
            part, expected = costs.restrict(rows, columns), whole[rows][:, columns]
            assert part.shape == expected.shape
            assert part.dtype == costs.dtype
            # Gains of a group stay comparable with the others', bounds with the whole's.
            assert (part.ceiling, part.rounding) == (costs.ceiling, costs.rounding)
            assert part.metric == costs.metric
            np.testing.assert_allclose(part.block(EVERY), expected, **close)
            np.testing.assert_allclose(part.exact_block(EVERY), expected, **close)
            np.testing.assert_allclose(part.block(slice(0, 1)), expected[:1], **close)
    assert costs.shape == (M, N)  # what was restricted is left as it was
    np.testing.assert_array_equal(costs.exact_block(EVERY), whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_restricting_what_is_restricted(kind: tuple[str, str], dtype: type) -> None:
    costs = costs_of(kind, dtype)
    whole = costs.exact_block(EVERY)
    close = {"atol": max(1e-6, TOLERANCE[dtype]) * whole.max()}
    inner_rows = [EVERY, slice(1, 3), np.array([2, 0])]
    inner_columns = [EVERY, slice(0, 2), np.array([3, 1])]
    for rows in (EVERY, slice(2, 9), np.array([3, 9, 2, 8])):
        for columns in (EVERY, slice(3, 20), np.array([22, 0, 5, 6])):
            part, expected = costs.restrict(rows, columns), whole[rows][:, columns]
            for some in inner_rows:
                for others in inner_columns:
                    twice, wanted = part.restrict(some, others), expected[some][:, others]
                    assert twice.shape == wanted.shape
                    np.testing.assert_allclose(twice.block(EVERY), wanted, **close)
                    np.testing.assert_allclose(part.block(some, others), wanted, **close)
                    np.testing.assert_allclose(twice.block(slice(0, 2)), wanted[:2], **close)
                    np.testing.assert_allclose(
                        twice.block(np.array([1, 0]), slice(0, 1)), wanted[[1, 0], :1], **close
                    )


@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_nothing_costs_nothing(kind: tuple[str, str]) -> None:
    """Methods ask for the costs of the given rows, of which there may be none."""
    costs, none = costs_of(kind, np.float64), np.arange(0)
    assert costs.block(none).shape == costs.exact_block(none).shape == (0, N)
    assert costs.block(EVERY, none).shape == costs.exact_block(EVERY, none).shape == (M, 0)
    assert costs.restrict(none, EVERY).block(EVERY).shape == (0, N)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS, ids=" ".join)
def test_blocks_are_no_further_from_exact_than_they_say(kind: tuple[str, str], dtype: type) -> None:
    costs = costs_of(kind, dtype)
    apart = np.abs(costs.block(EVERY) - costs.exact_block(EVERY)).max()
    assert apart <= costs.rounding
    assert costs.rounding < 0.02 * costs.ceiling  # or it would say nothing


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_rounding_covers_near_duplicates_and_wide_rows(metric: str) -> None:
    """Where x² + y² − 2xy loses most of its digits."""
    rng = np.random.default_rng(2)
    for width in (2, 50, 2000):
        centre = rng.normal(size=width)
        source, target = (
            (centre + rng.normal(size=(40, width)) * 1e-4).astype(np.float32) for _ in range(2)
        )
        costs = make_costs(source, target, metric)
        expected = direct_costs(source, target, metric)
        assert np.abs(costs.block(EVERY) - costs.exact_block(EVERY)).max() <= costs.rounding
        assert np.abs(costs.block(EVERY) - expected).max() <= costs.rounding


@pytest.mark.parametrize("storage", ["dense", "csr_array"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_no_cost_is_above_the_ceiling_or_below_zero(metric: str, dtype: type, storage: str) -> None:
    source, target = features(dtype, storage)
    for one, other in ((source, target), (source, source), (source, -source)):
        costs = make_costs(one, other, metric)
        block = costs.exact_block(EVERY)
        assert block.max() <= costs.ceiling * (1 + TOLERANCE[dtype])
        assert block.min() >= 0


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_far_from_the_origin_keep_their_digits(metric: str) -> None:
    rng = np.random.default_rng(3)
    source, target = rng.normal(size=(M, 5)), rng.normal(size=(N, 5))
    expected = cdist(source, target, metric)
    moved = make_costs(source + 1e6, target + 1e6, metric).block(EVERY)
    np.testing.assert_allclose(moved, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "scale"), [(np.float32, 1e25), (np.float32, 1e-30), (float, 1e200)]
)
def test_angles_do_not_depend_on_lengths(dtype: type, scale: float) -> None:
    rng = np.random.default_rng(3)
    source = rng.normal(size=(M, 5))
    expected = cdist(source, source, "cosine")
    scaled = (source * scale).astype(dtype)
    np.testing.assert_allclose(
        make_costs(scaled, scaled, "cosine").block(EVERY), expected, atol=1e-6
    )


def test_near_duplicates_take_no_more_memory_than_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their distances are computed from differences, a block of which must stay small."""
    monkeypatch.setattr("uniproto.geometry.blocks._BLOCK_BYTES", 2**20)
    rng = np.random.default_rng(29)
    rows = np.repeat(rng.normal(size=(2, 256)), 500, axis=0) + rng.normal(size=(1000, 256)) * 1e-6
    costs = make_costs(rows[::5], rows, "euclidean")
    tracemalloc.start()
    found = costs.exact_block(EVERY)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30 * 2**20
    expected = cdist(rows[::5], rows)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


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
    costs.restrict(np.arange(4), np.arange(5)).block(EVERY)
    costs.twin_distances(0)
    assert all(WIDTH not in shape for shape in made_dense)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_similarities_become_costs_below_their_maximum(dtype: type) -> None:
    matrix = np.random.default_rng(7).normal(size=(M, N)).astype(dtype)
    costs = make_costs(matrix, None, "similarity")
    block = costs.block(EVERY)
    assert block.dtype == dtype
    np.testing.assert_array_equal(block, matrix.max() - matrix)
    assert block.min() == 0
    assert costs.ceiling == pytest.approx(block.max(), rel=1e-6)
    rows, columns = np.array([5, 6]), np.array([1, 4])
    part = costs.restrict(rows, columns)  # keeps the maximum of the whole matrix
    np.testing.assert_array_equal(part.block(EVERY), block[np.ix_(rows, columns)])


def test_negative_costs_are_refused() -> None:
    with refused("source", InvalidInputError):
        make_costs(np.array([[0.0, -1.0]]), None, "precomputed")


@pytest.mark.parametrize("storage", ["dense", "csr_matrix", "csr_array"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_copies_are_no_distance_apart(metric: str, dtype: type, storage: str) -> None:
    """Whatever the precision and however far from the origin they lie."""
    source, target = features(dtype, "dense")
    source[:, 1] += 1000
    source[7] = source[2]
    source[11] = source[2]
    source[11, 5] += 0.5
    expected = cdist(
        source.astype(float),
        source[2:3].astype(float),
        DISTANCES.get(metric, metric),
    )[:, 0]
    if storage != "dense":
        source, target = getattr(sp, storage)(source), getattr(sp, storage)(target)
    distances = make_costs(source, target, metric).twin_distances(2)
    assert distances.dtype == np.float64
    assert distances.shape == (M,)
    assert distances[2] == distances[7] == 0
    assert distances[11] > 0
    tolerance = 1e-10 if dtype is np.float64 else 1e-6 if metric == "cosine" else 1e-4
    np.testing.assert_allclose(distances, expected, atol=tolerance)


def test_twins_of_a_matrix_are_rows_the_target_cannot_tell_apart() -> None:
    matrix = np.random.default_rng(9).random((6, N))
    matrix[4] = matrix[1]
    distances = make_costs(matrix, None, "precomputed").twin_distances(1)
    np.testing.assert_allclose(distances, np.abs(matrix - matrix[1]).max(axis=1))
    assert distances[4] == 0


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
    rows = rng.permutation(m)[: draw(st.integers(1, m))]
    if draw(st.booleans()):
        rows = np.sort(rows)
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
        patch.setattr(cpu_lists, "_COLUMNS_PER_BLOCK", columns_per_block)
        some = costs.restrict(EVERY, columns)
        for among, wanted in ((costs, matrix), (some, matrix[:, columns])):
            found, where = nearest(among, rows, length)
            wanted = wanted[rows]
            count = min(length, wanted.shape[1])
            order = np.lexsort((np.tile(np.arange(wanted.shape[1]), (len(rows), 1)), wanted))
            expected = order[:, :count]
            np.testing.assert_array_equal(where, expected)
            np.testing.assert_array_equal(found, np.take_along_axis(wanted, expected, axis=1))
            assert found.dtype == matrix.dtype
