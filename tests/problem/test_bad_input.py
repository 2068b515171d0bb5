"""Bad input gets a clear error: the parameter, the constraint, what was received, the remedy."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp

import uniproto
from uniproto import Entropic, Greedy, InfeasibleError, InvalidInputError, UniProto, UniprotoError
from uniproto.cli import main
from uniproto.runs.checkpoint import Checkpoint

POINTS = np.random.default_rng(0).normal(size=(8, 3))
COSTS = np.random.default_rng(1).random((5, 7))


def _with(row: int, column: int, value: float) -> np.ndarray:
    points = POINTS.copy()
    points[row, column] = value
    return points


def _zero_row(row: int) -> np.ndarray:
    points = POINTS.copy()
    points[row] = 0.0
    return points


def _refusal(source: Any = POINTS, k: Any = 2, *args: Any, **options: Any) -> str:
    with pytest.raises(UniprotoError) as caught:
        uniproto.select(source, k, *args, **options)
    assert isinstance(caught.value, ValueError)  # what Python users expect to catch
    return str(caught.value)


def _assert_says(message: str, *parts: str) -> None:
    missing = [part for part in parts if part not in message]
    assert not missing, f"{missing} not in: {message}"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (_with(3, 1, np.nan), ["'source'", "NaN and infinity", "row 3", "Drop or impute"]),
        (_with(0, 0, np.inf), ["'source'", "NaN and infinity", "row 0", "Drop or impute"]),
        (_with(7, 2, -np.inf), ["'source'", "NaN and infinity", "row 7", "Drop or impute"]),
        (sp.csr_array(_with(3, 1, np.nan)), ["'source'", "NaN and infinity", "stored value"]),
        (np.empty((0, 3)), ["'source'", "at least one row", "shape (0, 3)"]),
        (np.empty((3, 0)), ["'source'", "one column", "shape (3, 0)"]),
        ([], ["'source'", "two-dimensional", "shape (0,)", "Reshape"]),
        (np.ones(4), ["'source'", "two-dimensional", "Reshape"]),
        (np.ones((2, 2, 2)), ["'source'", "two-dimensional", "shape (2, 2, 2)"]),
        (5.0, ["'source'", "two-dimensional"]),
        (None, ["'source'", "object"]),
        ([["a", "b"], ["c", "d"]], ["'source'", "<U1", "not numeric"]),
        (np.array([[1, None]], object), ["'source'", "object"]),
        (POINTS + 1j, ["'source'", "complex128"]),
        ([[1.0, 2.0], [3.0]], ["'source'", "rectangular", "same length"]),
        (_zero_row(4), ["all-zero row", "'cosine'", "index 4", "metric='euclidean'"]),
        (sp.csr_array(_zero_row(4)), ["all-zero row", "'cosine'", "index 4", "Drop those rows"]),
    ],
)
def test_a_source_that_is_no_matrix_of_numbers(source: Any, said: list[str]) -> None:
    _assert_says(_refusal(source, 1, metric="cosine"), *said)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (_with(2, 0, np.nan), ["'target'", "NaN and infinity", "row 2", "Drop or impute"]),
        (np.empty((0, 3)), ["'target'", "at least one row", "shape (0, 3)"]),
        (
            np.ones((4, 5)),
            ["'target'", "as many columns as the source, 3", "same fea"],
        ),
        (np.ones(3), ["'target'", "two-dimensional", "shape (3,)"]),
        (_zero_row(6), ["'target'", "all-zero row", "index 6", "metric='euclidean'"]),
        ([["a"]], ["'target'"]),
    ],
)
def test_a_target_that_does_not_fit(target: Any, said: list[str]) -> None:
    _assert_says(_refusal(POINTS, 2, target, metric="cosine"), *said)


def test_zero_vectors_are_fine_where_there_is_no_angle() -> None:
    assert len(uniproto.select(_zero_row(4), 2, metric="euclidean").indices) == 2


@pytest.mark.parametrize(
    ("k", "said"),
    [
        (0, ["'k' must be at least 1", "Got 0", "one prototype or more"]),
        (-3, ["'k' must be at least 1", "Got -3"]),
        (9, ["'k' must not exceed the 8 rows"]),
        (2.5, ["'k' must be a whole number", "Got 2.5", "integer"]),
        (2.0, ["'k' must be a whole number", "Got 2.0", "integer"]),
        ("3", ["'k' must be a whole number", "Got '3'", "integer"]),
        (None, ["'k' must be a whole number", "Got None", "integer"]),
        (True, ["'k' must be a whole number", "integer"]),
        (np.True_, ["'k' must be a whole number", "True", "integer"]),
    ],
)
def test_a_count_that_cannot_be(k: Any, said: list[str]) -> None:
    _assert_says(_refusal(POINTS, k), *said)


@pytest.mark.parametrize("method", ["uniproto", "random", Greedy(plan="resolve")])
def test_more_prototypes_than_candidates(method: Any) -> None:
    message = _refusal(POINTS, 6, exclude=[0, 1, 2], method=method)
    _assert_says(message, "'k'", "the 5 rows that may be chosen")


@pytest.mark.parametrize(
    "weights",
    [
        np.ones(7),
        np.ones((8, 1)),
        [1.0] * 7 + [-0.5],
        np.zeros(8),
        [1.0] * 7 + [np.nan],
        [1.0] * 7 + [np.inf],
        ["heavy"] * 8,
        [[1.0], [2.0, 3.0]],
    ],
)
def test_target_weights_that_are_no_distribution(weights: Any) -> None:
    _assert_says(_refusal(target_weights=weights), "'target_weights' must be 8 numbers")


@pytest.mark.parametrize(
    ("parameter", "given", "suggested"),
    [
        ("metric", "cosin", "cosine"),
        ("metric", "Euclidean", "euclidean"),
        ("metric", "sqeuclid", "sqeuclidean"),
        ("metric", "L1", "l1"),
        ("metric", "precompute", "precomputed"),
        ("method", "uniprot", "uniproto"),
        ("method", "Random", "random"),
    ],
)
def test_a_misspelt_name_meets_the_nearest_valid_one(
    parameter: str, given: str, suggested: str
) -> None:
    message = _refusal(groups=[0] * 8, **{parameter: given})
    _assert_says(message, f"'{parameter}'", repr(given), f"Did you mean '{suggested}'?")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"plan": "extent"}, ["'plan'", "'extent'", "Did you mean 'extend'?"]),
        ({"plan": "Resolve"}, ["'plan'", "'Resolve'", "Did you mean 'resolve'?"]),
        ({"plan": "entropic"}, ["'plan'", "Entropic()"]),
        ({"gains": "aprox"}, ["'gains'", "'aprox'", "Did you mean 'approx'?"]),
        ({"gains": "exactly"}, ["'gains'", "'exactly'", "Did you mean 'exact'?"]),
        ({"sample": 0.0}, ["'sample'", "between 0 and 1"]),
        ({"sample": 1.0}, ["'sample'", "between 0 and 1"]),
        ({"sample": np.nan}, ["'sample'", "between 0 and 1"]),
        ({"gains": "exact", "plan": Entropic()}, ["'gains'", "plan=Entropic(…)"]),
    ],
)
def test_options_of_the_method(options: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(UniprotoError) as caught:
        Greedy(**options)
    assert isinstance(caught.value, ValueError)
    _assert_says(str(caught.value), *said)


@pytest.mark.parametrize("reg", [0.0, -1.0, np.nan, np.inf])
def test_a_strength_that_is_none(reg: float) -> None:
    with pytest.raises(InvalidInputError, match="'reg' must be positive and finite"):
        Entropic(reg=reg)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("plan", "Greedy(plan=…)"),
        ("gains", "Greedy(gains=…)"),
        ("reg", "Greedy(plan=Entropic(reg, iterations))"),
        ("candidates", "Greedy(sample=…)"),
        ("polish", "UniProto(seconds=…), or Selection.improve(seconds)"),
    ],
)
def test_options_of_old_say_where_they_went(option: str, said: str) -> None:
    with pytest.raises(TypeError) as caught:
        UniProto(**{option: 1})
    assert str(caught.value) == f"UniProto has no option {option!r}. Use {said}."
    with pytest.raises(AttributeError, match=r"is now Greedy\(sample=0\.1\)"):
        uniproto.Stochastic  # noqa: B018
    with pytest.raises(InvalidInputError, match="'search' must be one of"):
        UniProto(search="greedy")


def test_a_name_like_no_other_lists_the_valid_ones() -> None:
    message = _refusal(metric="zzz")
    _assert_says(message, "'metric'", "cosine", "sqeuclidean", "'zzz'", "Use one of those names.")


def test_a_method_that_is_none() -> None:
    _assert_says(_refusal(method=7), "'method'")


@pytest.mark.parametrize("parameter", ["include", "exclude"])
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([8], ["row numbers from 0 to 7"]),
        ([-1], ["row numbers from 0 to 7"]),
        ([1, 1], ["must not repeat a row", "Remove the repeats."]),
        ([0.5], ["row numbers or a boolean mask of length 8", "float64"]),
        (["a"], ["row numbers or a boolean mask of length 8", "<U1"]),
        ([True, False], ["boolean mask of length 8", "shape (2,)"]),
        ([[0, 1]], ["row numbers or a boolean mask", "shape (1, 2)"]),
        (3, ["row numbers or a boolean mask", "shape ()"]),
    ],
)
def test_rows_that_are_none(parameter: str, rows: Any, said: list[str]) -> None:
    _assert_says(_refusal(**{parameter: rows}), f"'{parameter}'", *said)


def test_rows_both_given_and_excluded() -> None:
    message = _refusal(include=[1, 2], exclude=[2, 3])
    _assert_says(message, "'exclude'", "'include'")


def test_more_given_rows_than_prototypes() -> None:
    _assert_says(_refusal(include=[1, 2, 3]), "'include'", "k=2", "Raise k.")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"groups": [0] * 7}, ["'groups'", "one label per row, 8 in all"]),
        ({"groups": 3}, ["'groups'", "one label per row, 8 in all", "shape ()"]),
        ({"groups": ["a"] * 7 + [None]}, ["'groups'", "a label in every row"]),
        ({"groups": [1.0] * 7 + [np.nan]}, ["'groups'", "a label in every row"]),
        (
            {"groups": [0] * 8, "target": POINTS[:3]},
            ["'groups'", "of the target, too", "Groups(labels, target=…)"],
        ),
        (
            {"groups": uniproto.Groups([0] * 8, target=[0, 1]), "target": POINTS[:3]},
            ["'groups'", "3 in all", "shape (2,)"],
        ),
        (
            {"groups": uniproto.Groups([0] * 8, target=[0, 1, 2]), "target": POINTS[:3]},
            ["'groups'", "every group of the target", "[1, 2]"],
        ),
        (
            {"groups": uniproto.Groups([0] * 8, budgets={"nobody": 2})},
            ["'budgets'", "['nobody']"],
        ),
        (
            {"groups": uniproto.Groups([0] * 8, budgets={0: True})},
            ["'budgets'", "whole number"],
        ),
        (
            {"groups": uniproto.Groups([0] * 8, budgets={0: 3})},
            ["'budgets'", "k=2", "a sum of 3"],
        ),
        (
            {"groups": uniproto.Groups([0] * 7 + [1], budgets={1: 2})},
            ["'budgets'", "group 1", "1 (rows that may be chosen)", "Got 2"],
        ),
        (
            {
                "groups": uniproto.Groups([0] * 7 + [1], budgets={1: 1, 0: 1}),
                "target_weights": [1] * 7 + [0],
            },
            ["'target_weights'", "group 1"],
        ),
        (
            {
                "groups": uniproto.Groups([0] * 7 + [1], target=[0, 0]),
                "target": POINTS[:2],
                "include": [7],
            },
            ["'include'"],
        ),
    ],
)
def test_groups_that_cannot_be_served(options: dict[str, Any], said: list[str]) -> None:
    _assert_says(_refusal(**options), *said)


def test_labels_that_cannot_be_compared() -> None:
    mixed = np.array(["a", 1] * 4, dtype=object)
    _assert_says(_refusal(groups=mixed), "groups'", "one kind")


@pytest.mark.parametrize("distance", [-0.1, np.nan, np.inf, True, [0.1]])
def test_a_threshold_that_is_no_distance(distance: Any) -> None:
    message = _refusal(min_distance=distance)
    _assert_says(message, "'min_distance'", "at least 0", f"got {distance!r}")
    _assert_says(_refusal(min_distance="yes"), "'min_distance'", "auto")


def test_a_threshold_that_leaves_too_few() -> None:
    with pytest.raises(InfeasibleError) as caught:
        uniproto.select(POINTS, 3, metric="euclidean", min_distance=1e9)
    _assert_says(str(caught.value), "'min_distance'", "k=3", "only 1", "1e+09", "Lower it")


@pytest.mark.parametrize("seed", [-1, 0.5, "0", None])
def test_a_seed_that_is_no_whole_number(seed: Any) -> None:
    _assert_says(_refusal(seed=seed), "'seed' must", f"Got {seed!r}", "Pass")


@pytest.mark.parametrize("metric", ["precomputed", "similarity"])
@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        (COSTS, POINTS, ["'target'"]),
        (sp.csr_array(COSTS), None, ["'source'", "dense matrix", "toarray()"]),
        (np.where(COSTS > 0.9, np.nan, COSTS), None, ["'source'", "NaN and infinity"]),
    ],
)
def test_matrices_that_cannot_be_read(metric: str, source: Any, target: Any, said: Any) -> None:
    _assert_says(_refusal(source, 2, target, metric=metric), *said)


def test_negative_costs() -> None:
    message = _refusal(COSTS - 0.5, 2, metric="precomputed")
    _assert_says(message, "'source'", "at least 0", "metric='similarity'")


def test_a_zero_row_is_blamed_on_the_source_when_there_is_no_target() -> None:
    _assert_says(_refusal(_zero_row(4), metric="cosine"), "'source'", "index 4")


def test_budgets_by_a_word_that_is_none() -> None:
    message = _refusal(groups=uniproto.Groups([0] * 4 + [1] * 4, budgets="ballanced"))
    _assert_says(message, "'budgets'", "Did you mean 'balanced'?")


@pytest.mark.parametrize("count", [1.5, "two", None])
def test_a_budget_that_is_no_whole_number(count: Any) -> None:
    message = _refusal(groups=uniproto.Groups([0] * 4 + [1] * 4, budgets={0: count, 1: 1}))
    _assert_says(message, "'budgets'", "whole number", repr(count))


@pytest.mark.parametrize("budgets", [{0: 10**30}, {0: 10**30, 1: 2 - 10**30}])
def test_a_budget_too_large_for_any_machine(budgets: Any) -> None:
    groups = uniproto.Groups([0] * 4 + [1] * 4, budgets=budgets)
    _assert_says(_refusal(groups=groups), "'budgets'")


def test_budgets_that_are_neither_a_name_nor_a_mapping() -> None:
    message = _refusal(groups=uniproto.Groups([0] * 4 + [1] * 4, budgets=np.array([1, 1])))
    _assert_says(message, "'budgets'", "balanced, proportional", "array([1, 1])")


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: Greedy(plan=Entropic(reg="small")), "reg"),
        (lambda: Greedy(plan=Entropic(iterations=2.5)), "iterations"),
        (lambda: Greedy(sample=5), "sample"),
        (lambda: Greedy(sample=np.array([0, 1])), "sample"),
        (lambda: Greedy(sample="0.1"), "sample"),
        (lambda: UniProto(seconds="x"), "seconds"),
        (lambda: uniproto.select(POINTS, 2, method=UniProto), "method"),
    ],
)
def test_options_of_the_wrong_kind(make: Any, parameter: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make()
    _assert_says(str(caught.value), f"'{parameter}' must")


TABLES = {
    "pandas": lambda columns: pd.DataFrame(columns),
    "polars": lambda columns: pl.DataFrame(columns),
    "arrow": lambda columns: pa.table(columns),
}


@pytest.mark.parametrize("kind", TABLES)
def test_columns_of_tables_match_by_name(kind: str) -> None:
    columns = dict(zip("abc", POINTS.T.copy(), strict=True))
    table = TABLES[kind](columns)
    turned = TABLES["pandas"]({name: columns[name] for name in "cab"})
    plain = uniproto.select(POINTS, 2, POINTS[:5], metric="l1")
    assert uniproto.select(table, 2, turned[:5], metric="l1").cost == plain.cost
    other = TABLES[kind]({name: columns[name[0]] for name in ("a", "b", "c2")})
    message = _refusal(turned, 2, other)
    _assert_says(message, "'target.columns'", "those of the source")


def test_a_table_and_an_array_match_by_position() -> None:
    table = pd.DataFrame(POINTS, columns=list("abc"))
    plain = uniproto.select(POINTS, 2, POINTS[:5])
    assert uniproto.select(table, 2, POINTS[:5]).cost == plain.cost
    assert uniproto.select(POINTS, 2, table[:5]).cost == plain.cost


def test_single_columns_may_have_any_name() -> None:
    lists = pa.table({"mine": list(POINTS)}), pa.table({"theirs": list(POINTS[:5])})
    assert (
        uniproto.select(lists[0], 2, lists[1]).cost == uniproto.select(POINTS, 2, POINTS[:5]).cost
    )


# What the random questions of tests/fuzz found.


class _NoName:
    """Neither compares nor hashes, as arrays and the like do not."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("parameter", ["metric", "device", "neighbours"])
@pytest.mark.parametrize("odd", [np.array(["a", "b"]), pd.NA, _NoName(), ["cosine"]])
def test_names_that_do_not_compare(parameter: str, odd: Any) -> None:
    given = {parameter: odd}
    options = given if parameter == "metric" else {"compute": uniproto.Compute(**given)}
    _assert_says(_refusal(**options), f"'{parameter}' must be one of")


@pytest.mark.parametrize("certify", [np.array([1.0, 2.0]), "yes", "30", None, 0, -1, np.nan, 1j])
def test_a_wish_for_a_certificate_that_is_neither(certify: Any) -> None:
    _assert_says(_refusal(certify=certify), "'certify' must be True, False or a positive number")


@pytest.mark.parametrize("seconds", [-1, 0, None, True, "3", float("nan")])
def test_seconds_of_an_improvement(seconds: Any) -> None:
    with pytest.raises(InvalidInputError, match="'seconds' must be a positive number of seconds"):
        uniproto.select(np.eye(3), 2, method="random").improve(seconds)


@pytest.mark.parametrize(
    ("make", "parameter"),
    [
        (lambda: Greedy(plan=np.array(["a", "b"])), "plan"),
        (lambda: Greedy(plan=Entropic(reg=10**400)), "reg"),
        (lambda: UniProto(seconds=10**400), "seconds"),
        (lambda: uniproto.MMDCritic(bandwidth="wide"), "bandwidth"),
        (lambda: uniproto.ProtoDash(bandwidth=np.array([1.0, 2.0])), "bandwidth"),
        (lambda: uniproto.FasterPAM(iterations="many"), "iterations"),
        (lambda: uniproto.FasterPAM(iterations=2.5), "iterations"),
        (lambda: uniproto.Density(alpha=10**400), "alpha"),
        (lambda: uniproto.select(POINTS, 2, min_distance=10**400), "min_distance"),
        (lambda: uniproto.select(POINTS, 2, target_weights=[10**400] * 8), "target_weights"),
    ],
)
def test_options_that_are_no_numbers(make: Any, parameter: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make()
    _assert_says(str(caught.value), f"'{parameter}' must")


def test_a_long_value_is_shown_in_part() -> None:
    assert len(_refusal(metric=["cosine"] * 10**5)) < 1000


class _Broken:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise RuntimeError("out of order")


def test_values_that_break_when_they_are_read() -> None:
    _assert_says(_refusal(_Broken()), "'source'", "rectangular")
    _assert_says(_refusal(groups=_Broken()), "'groups'")
    _assert_says(_refusal(target_weights=_Broken()), "'target_weights'")


@pytest.mark.parametrize("path", ["\x00.npy", "\ud800.npy", "a" * 5000 + ".npy"])
def test_paths_that_no_system_has(path: str) -> None:
    with pytest.raises(uniproto.UniprotoError, match="is no path") as caught:
        uniproto.select(Path(path), 1)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "dot", "l1"])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_features_whose_costs_overflow(metric: str, kind: Any) -> None:
    message = _refusal(kind(POINTS * 1e307), metric=metric)
    _assert_says(message, "'source' must have costs below", f"metric='{metric}'")


@pytest.mark.parametrize("metric", ["precomputed", "similarity"])
def test_matrices_whose_sums_overflow(metric: str) -> None:
    message = _refusal(np.array([[1.7e308, 0.0], [0.0, 1e308]]), 1, metric=metric)
    _assert_says(message, "'source' must have costs below", "Rescale the matrix.")


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "dot"])
@pytest.mark.parametrize(("scale", "dtype"), [(1e-170, np.float64), (1e-30, np.float32)])
def test_features_whose_squares_vanish(metric: str, scale: float, dtype: type) -> None:
    message = _refusal((POINTS * scale).astype(dtype), metric=metric)
    _assert_says(message, "'source' must have features of at least", "Rescale the features.")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e-9])
def test_rows_that_are_all_alike_are_fine(value: float, dtype: type) -> None:
    alike = np.full((7, 3), value, dtype)
    assert uniproto.select(alike, 3, metric="euclidean").cost == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-310, 1e308])
def test_rows_too_short_or_too_long_for_an_angle(scale: float) -> None:
    points = np.sign(POINTS) * 1.5 * scale
    message = _refusal(points, metric="cosine")
    _assert_says(message, "'source' must have rows of a length", "Rescale the features.")


def test_faiss_is_not_given_what_would_end_the_process() -> None:
    pytest.importorskip("faiss")
    message = _refusal(
        POINTS * 1e30, metric="euclidean", compute=uniproto.Compute(neighbours="faiss")
    )
    _assert_says(message, "'neighbours' must be 'exact'")


def test_sampling_with_the_smallest_error() -> None:
    method = Greedy(sample=5e-324)
    assert len(uniproto.select(POINTS, 2, method=method).indices) == 2


def test_the_weakest_entropy() -> None:
    method = Greedy(plan=Entropic(reg=5e-324, iterations=3))
    assert len(uniproto.select(POINTS, 3, metric="dot", method=method).indices) == 3


def test_sparse_rows_with_wide_indices() -> None:
    wide = sp.csr_array(POINTS)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    plain = uniproto.select(POINTS, 2, metric="euclidean", method="kmeans")
    found = uniproto.select(wide, 2, metric="euclidean", method="kmeans")
    assert sorted(found.indices) == sorted(plain.indices)


def test_rows_on_disk_beside_a_sparse_target(tmp_path: Path) -> None:
    whole = np.round(POINTS * 100).astype(">i4")
    np.save(tmp_path / "pool.npy", whole)
    on_disk = np.load(tmp_path / "pool.npy", mmap_mode="r")
    found = uniproto.select(on_disk, 2, sp.csr_array(POINTS), metric="l1")
    assert found.cost == pytest.approx(uniproto.select(whole, 2, POINTS, metric="l1").cost)


def test_a_fit_of_what_is_no_matrix() -> None:
    for odd in (Path("pool.npy"), _Broken(), None):
        with pytest.raises(UniprotoError, match="'X' must be rows of numbers"):
            uniproto.PrototypeSelector(2).fit(odd)
    with pytest.raises(UniprotoError, match="'metric' must be one of"):
        uniproto.PrototypeSelector(2, metric=np.array(["a", "b"])).fit(POINTS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("cost", math.nan), ("cost", [1]), ("cost", -1.0), ("cost", 0.0), ("beta", "")),
        *(("beta", math.nan), ("bandwidth", [])),
        *(("shape", [1]), ("shape", [{}, 8]), ("k", 0), ("timings", 3), ("timings", {"pick": []})),
        *(("files", 4), ("group_costs", [[[1], 2.0]]), ("certificate", None), ("seed", None)),
    ],
)
def test_a_saved_record_of_other_kinds(tmp_path: Path, field: str, value: Any) -> None:
    folder = uniproto.select(POINTS, 2, metric="l1", certify=True).save(tmp_path / "out")
    record = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**record, field: value}))
    with pytest.raises(UniprotoError, match="It is damaged"):
        uniproto.Selection.load(folder)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        *(("index", [3, 3]), ("index", [0, 8]), ("index", [-1, 0]), ("index", [None, 1])),
        *(("gain", [math.nan, 1.0]), ("gain", ["a", "b"]), ("gain", [[1.0], [2.0]])),
        *(("mass", [0.5, 0.25]), ("mass", [1.5, -0.5]), ("mass", [math.inf, 0.0])),
    ],
)
def test_a_saved_table_that_does_not_add_up(tmp_path: Path, column: str, values: Any) -> None:
    folder = uniproto.select(POINTS, 2, metric="l1").save(tmp_path / "out")
    table = pq.read_table(folder / "selection.parquet")
    place = table.column_names.index(column)
    changed = table.set_column(place, column, pa.array(values))
    pq.write_table(changed, folder / "selection.parquet")
    with pytest.raises(UniprotoError, match="It is damaged"):
        uniproto.Selection.load(folder)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("data", lambda data: data * 2),
        ("data", lambda data: -data),
        ("data", lambda data: data > 0),
        ("data", lambda data: np.full_like(data, np.nan)),
        ("indices", lambda indices: indices.astype(complex)),
        ("indptr", lambda indptr: np.zeros_like(indptr)),
        ("shape", lambda shape: shape[:1]),
    ],
)
def test_a_saved_plan_that_does_not_add_up(tmp_path: Path, name: str, change: Any) -> None:
    folder = uniproto.select(POINTS, 2, metric="l1").save(tmp_path / "out")
    with np.load(folder / "plan.npz") as archive:
        arrays = dict(archive)
    np.savez(folder / "plan.npz", **{**arrays, name: change(arrays[name])})
    with pytest.raises(UniprotoError, match="It is damaged"):
        uniproto.Selection.load(folder)


def test_verify_looks_at_learned_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "pool.npy", POINTS)
    out = tmp_path / "out"
    command = ["select", str(tmp_path / "pool.npy"), "-k", "2", "--method", "kmedoids"]
    assert main([*command, "-o", str(out), "--quiet"]) == 0
    assert main(["verify", str(out)]) == 0
    table = pq.read_table(out / "selection.parquet")
    place = table.column_names.index("mass")
    pq.write_table(table.set_column(place, "mass", pa.array([2.0, 0.5])), out / "selection.parquet")
    record = json.loads((out / "manifest.json").read_text())
    digest = hashlib.sha256((out / "selection.parquet").read_bytes()).hexdigest()
    record["files"]["selection.parquet"] = digest  # as somebody who forges would write it
    (out / "manifest.json").write_text(json.dumps(record))
    assert main(["verify", str(out)]) == 2
    assert "its prototype weights do not sum to 1" in capsys.readouterr().err


def test_a_command_on_a_path_that_no_system_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["select", "a" * 5000, "-k", "2", "-o", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("uniproto: error: 'aaa")


def test_a_checkpoint_with_a_digest_but_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    for payload in (b"", b"PK\x03\x04", b"\x93NUMPY"):
        path.write_bytes(hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)
        with pytest.raises(UniprotoError, match="the checkpoint must be a whole one"):
            Checkpoint(path, {}).read()


def test_costs_that_do_not_fit_the_rows_precision() -> None:
    single = np.array([[1e37], [-1e37]], np.float32)
    selector = uniproto.PrototypeSelector(1, metric="sqeuclidean").fit(single, target=[[0.0]])
    with pytest.raises(UniprotoError, match="'X' has costs to the prototypes beyond"):
        selector.transform(single)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_angles_of_tiny_single_precision_rows(kind: Any) -> None:
    tiny = (np.sign(POINTS) * 1e-41).astype(np.float32)
    found = uniproto.select(POINTS, 2, kind(tiny), metric="cosine")
    plain = uniproto.select(POINTS, 2, np.sign(POINTS), metric="cosine")
    assert found.cost == pytest.approx(plain.cost, rel=1e-5)
