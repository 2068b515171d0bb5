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
import pytest
import scipy.sparse as sp
from tests.refusals import refused

import uniproto
from uniproto import Entropic, Greedy, InvalidInputError, UniProto, UniprotoError
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


class _NoName:
    """Neither compares nor hashes, as arrays and the like do not."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = None  # type: ignore[assignment]


class _Broken:
    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise RuntimeError("out of order")


MATRICES = ("precomputed", "similarity")
NO_NAMES = (np.array(["a", "b"]), pd.NA, _NoName(), ["cosine"])
HALVES = [0] * 4 + [1] * 4
LAST_ALONE = [0] * 7 + [1]
OVERFLOWING = ["'source' must have costs below"]
VANISHING = ["'source' must have features of at least", "Rescale the features."]
NO_ANGLE = ["'source' must have rows of a length", "Rescale the features."]
NO_WEIGHTS = ["'target_weights' must be 8 numbers"]
NO_COUNT = ["'k' must be a whole number", "integer"]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        *(
            (_with(row, 1, bad), ["'source'", "NaN and infinity", f"row {row}", "Drop or impute"])
            for row, bad in ((3, np.nan), (0, np.inf), (7, -np.inf))
        ),
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
        (_Broken(), ["'source'", "rectangular"]),
        (_zero_row(4), ["'source'", "all-zero row", "'cosine'", "index 4", "metric='euclidean'"]),
        (sp.csr_array(_zero_row(4)), ["all-zero row", "'cosine'", "index 4", "Drop those rows"]),
        (np.sign(POINTS) * 1.5e-310, NO_ANGLE),
        (np.sign(POINTS) * 1.5e308, NO_ANGLE),
    ],
)
def test_a_source_that_is_no_matrix_of_numbers(source: Any, said: list[str]) -> None:
    _assert_says(_refusal(source, 1, metric="cosine"), *said)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (_with(2, 0, np.nan), ["NaN and infinity", "row 2", "Drop or impute"]),
        (np.empty((0, 3)), ["at least one row", "shape (0, 3)"]),
        (np.ones((4, 5)), ["as many columns as the source, 3", "same fea"]),
        (np.ones(3), ["two-dimensional", "shape (3,)"]),
        (_zero_row(6), ["all-zero row", "index 6", "metric='euclidean'"]),
        ([["a"]], []),
    ],
)
def test_a_target_that_does_not_fit(target: Any, said: list[str]) -> None:
    _assert_says(_refusal(POINTS, 2, target, metric="cosine"), "'target'", *said)


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        *((kind(POINTS * 1e307), {"metric": metric}, [*OVERFLOWING, f"metric='{metric}'"])
          for metric in ("euclidean", "sqeuclidean", "dot", "l1")
          for kind in (np.asarray, sp.csr_array)),
        *(((POINTS * scale).astype(dtype), {"metric": metric}, VANISHING)
          for metric in ("euclidean", "sqeuclidean", "dot")
          for scale, dtype in ((1e-170, np.float64), (1e-30, np.float32))),
        *((np.array([[1.7e308, 0.0], [0.0, 1e308]]), {"metric": metric},
           [*OVERFLOWING, "Rescale the matrix."]) for metric in MATRICES),
        *((COSTS, {"metric": metric, "target": POINTS}, ["'target'"]) for metric in MATRICES),
        *((sp.csr_array(COSTS), {"metric": metric}, ["'source'", "dense matrix", "toarray()"])
          for metric in MATRICES),
        *((np.where(COSTS > 0.9, np.nan, COSTS), {"metric": metric},
           ["'source'", "NaN and infinity"]) for metric in MATRICES),
        (COSTS - 0.5, {"metric": "precomputed"},
         ["'source'", "at least 0", "metric='similarity'"]),
    ],
)  # fmt: skip
def test_numbers_that_make_no_costs(source: Any, options: dict[str, Any], said: Any) -> None:
    _assert_says(_refusal(source, 1, **options), *said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        # how many
        ({"k": 0}, ["'k' must be at least 1", "Got 0", "one prototype or more"]),
        ({"k": -3}, ["'k' must be at least 1", "Got -3"]),
        ({"k": 9}, ["'k' must not exceed the 8 rows"]),
        *(({"k": k}, [*NO_COUNT, f"Got {k!r}"]) for k in (2.5, 2.0, "3", None, True, np.True_)),
        *(
            (
                {"k": 6, "exclude": [0, 1, 2], "method": method},
                ["'k'", "the 5 rows that may be chosen"],
            )
            for method in ("uniproto", "random", Greedy(plan="resolve"))
        ),
        # weights
        *(({"target_weights": odd}, NO_WEIGHTS) for odd in (np.ones(7), np.ones((8, 1)))),
        *(({"target_weights": [1.0] * 7 + [odd]}, NO_WEIGHTS) for odd in (-0.5, np.nan, np.inf)),
        *(({"target_weights": odd}, NO_WEIGHTS) for odd in (np.zeros(8), ["heavy"] * 8)),
        ({"target_weights": [[1.0], [2.0, 3.0]]}, NO_WEIGHTS),
        ({"target_weights": _Broken()}, ["'target_weights'"]),
        ({"target_weights": [10**400] * 8}, ["'target_weights' must"]),
        # names
        *(
            ({"metric": odd}, ["'metric'", repr(odd), f"Did you mean '{meant}'?"])
            for odd, meant in (
                *(("cosin", "cosine"), ("Euclidean", "euclidean"), ("sqeuclid", "sqeuclidean")),
                *(("L1", "l1"), ("precompute", "precomputed")),
            )
        ),
        ({"metric": "zzz"}, ["'metric'", "cosine", "sqeuclidean", "'zzz'", "Use one of those"]),
        ({"method": "uniprot"}, ["'method'", "'uniprot'", "Did you mean 'uniproto'?"]),
        ({"method": "Random"}, ["'method'", "'Random'", "Did you mean 'random'?"]),
        ({"method": 7}, ["'method'"]),
        ({"method": UniProto}, ["'method' must"]),
        *(({"metric": odd}, ["'metric' must be one of"]) for odd in NO_NAMES),
        *(
            ({"compute": uniproto.Compute(**{name: odd})}, [f"'{name}' must be one of"])
            for odd in NO_NAMES
            for name in ("device", "neighbours")
        ),
        # rows
        *(
            ({parameter: rows}, [f"'{parameter}'", *said])
            for parameter in ("include", "exclude")
            for rows, said in (
                ([8], ["row numbers from 0 to 7"]),
                ([-1], ["row numbers from 0 to 7"]),
                ([1, 1], ["must not repeat a row", "Remove the repeats."]),
                ([0.5], ["row numbers or a boolean mask of length 8", "float64"]),
                (["a"], ["row numbers or a boolean mask of length 8", "<U1"]),
                ([True, False], ["boolean mask of length 8", "shape (2,)"]),
                ([[0, 1]], ["row numbers or a boolean mask", "shape (1, 2)"]),
                (3, ["row numbers or a boolean mask", "shape ()"]),
            )
        ),
        ({"include": [1, 2], "exclude": [2, 3]}, ["'exclude'", "'include'"]),
        ({"include": [1, 2, 3]}, ["'include'", "k=2", "Raise k."]),
        # other options
        *(
            ({"min_distance": odd}, ["'min_distance'", "at least 0", f"got {odd!r}"])
            for odd in (-0.1, np.nan, np.inf, True, [0.1])
        ),
        ({"min_distance": "yes"}, ["'min_distance'", "auto"]),
        ({"min_distance": 10**400}, ["'min_distance' must"]),
        *(({"seed": odd}, ["'seed' must", f"Got {odd!r}", "Pass"]) for odd in (-1, 0.5, "0", None)),
        *(
            ({"certify": odd}, ["'certify' must be True, False or a positive number"])
            for odd in (np.array([1.0, 2.0]), "yes", "30", None, 0, -1, np.nan, 1j)
        ),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], said: list[str]) -> None:
    _assert_says(_refusal(**options), *said)


def test_faiss_is_not_given_what_would_end_the_process() -> None:
    pytest.importorskip("faiss")
    options = {"metric": "euclidean", "compute": uniproto.Compute(neighbours="faiss")}
    _assert_says(_refusal(POINTS * 1e30, **options), "'neighbours' must be 'exact'")


def test_a_long_value_is_shown_in_part() -> None:
    assert len(_refusal(metric=["cosine"] * 10**5)) < 1000


@pytest.mark.parametrize(
    ("groups", "options", "said"),
    [
        ([0] * 7, {}, ["'groups'", "one label per row, 8 in all"]),
        (3, {}, ["'groups'", "one label per row, 8 in all", "shape ()"]),
        (["a"] * 7 + [None], {}, ["'groups'", "a label in every row"]),
        ([1.0] * 7 + [np.nan], {}, ["'groups'", "a label in every row"]),
        (np.array(["a", 1] * 4, dtype=object), {}, ["groups'", "one kind"]),
        (_Broken(), {}, ["'groups'"]),
        ([0] * 8, {"target": POINTS[:3]}, ["'groups'", "of the target, too", "Groups(labels, "]),
        (
            uniproto.Groups([0] * 8, target=[0, 1]),
            {"target": POINTS[:3]},
            ["'groups'", "3 in all", "shape (2,)"],
        ),
        (
            uniproto.Groups([0] * 8, target=[0, 1, 2]),
            {"target": POINTS[:3]},
            ["'groups'", "every group of the target", "[1, 2]"],
        ),
        (
            uniproto.Groups(LAST_ALONE, budgets={1: 1, 0: 1}),
            {"target_weights": [1] * 7 + [0]},
            ["'target_weights'", "group 1"],
        ),
        (
            uniproto.Groups(LAST_ALONE, target=[0, 0]),
            {"target": POINTS[:2], "include": [7]},
            ["'include'"],
        ),
    ],
)
def test_groups_that_cannot_be_served(
    groups: Any, options: dict[str, Any], said: list[str]
) -> None:
    _assert_says(_refusal(groups=groups, **options), *said)


@pytest.mark.parametrize(
    ("labels", "budgets", "said"),
    [
        ([0] * 8, {"nobody": 2}, ["['nobody']"]),
        ([0] * 8, {0: True}, ["whole number"]),
        ([0] * 8, {0: 3}, ["k=2", "a sum of 3"]),
        (LAST_ALONE, {1: 2}, ["group 1", "1 (rows that may be chosen)", "Got 2"]),
        (HALVES, "ballanced", ["Did you mean 'balanced'?"]),
        *((HALVES, {0: odd, 1: 1}, ["whole number", repr(odd)]) for odd in (1.5, "two", None)),
        (HALVES, {0: 10**30}, []),
        (HALVES, {0: 10**30, 1: 2 - 10**30}, []),
        (HALVES, np.array([1, 1]), ["balanced, proportional", "array([1, 1])"]),
    ],
)
def test_budgets_that_cannot_be_kept(labels: list[int], budgets: Any, said: list[str]) -> None:
    _assert_says(_refusal(groups=uniproto.Groups(labels, budgets=budgets)), "'budgets'", *said)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Greedy(plan="extent"), ["'plan'", "'extent'", "Did you mean 'extend'?"]),
        (lambda: Greedy(plan="Resolve"), ["'plan'", "'Resolve'", "Did you mean 'resolve'?"]),
        (lambda: Greedy(plan="entropic"), ["'plan'", "Entropic()"]),
        (lambda: Greedy(plan=np.array(["a", "b"])), ["'plan' must"]),
        (lambda: Greedy(gains="aprox"), ["'gains'", "'aprox'", "Did you mean 'approx'?"]),
        (lambda: Greedy(gains="exactly"), ["'gains'", "'exactly'", "Did you mean 'exact'?"]),
        (lambda: Greedy(gains="exact", plan=Entropic()), ["'gains'", "plan=Entropic(…)"]),
        (lambda: Greedy(sample=0.0), ["'sample'", "between 0 and 1"]),
        (lambda: Greedy(sample=1.0), ["'sample'", "between 0 and 1"]),
        (lambda: Greedy(sample=np.nan), ["'sample'", "between 0 and 1"]),
        (lambda: Greedy(sample=5), ["'sample' must"]),
        (lambda: Greedy(sample=np.array([0, 1])), ["'sample' must"]),
        (lambda: Greedy(sample="0.1"), ["'sample' must"]),
        (lambda: Entropic(reg=0.0), ["'reg' must be positive and finite"]),
        (lambda: Entropic(reg=-1.0), ["'reg' must be positive and finite"]),
        (lambda: Entropic(reg=np.nan), ["'reg' must be positive and finite"]),
        (lambda: Entropic(reg=np.inf), ["'reg' must be positive and finite"]),
        (lambda: Entropic(reg="small"), ["'reg' must"]),
        (lambda: Entropic(reg=10**400), ["'reg' must"]),
        (lambda: Entropic(iterations=2.5), ["'iterations' must"]),
        (lambda: UniProto(seconds="x"), ["'seconds' must"]),
        (lambda: UniProto(seconds=10**400), ["'seconds' must"]),
        (lambda: uniproto.MMDCritic(bandwidth="wide"), ["'bandwidth' must"]),
        (lambda: uniproto.ProtoDash(bandwidth=np.array([1.0, 2.0])), ["'bandwidth' must"]),
        (lambda: uniproto.FasterPAM(iterations="many"), ["'iterations' must"]),
        (lambda: uniproto.FasterPAM(iterations=2.5), ["'iterations' must"]),
        (lambda: uniproto.Density(alpha=10**400), ["'alpha' must"]),
    ],
)
def test_options_of_a_method(make: Any, said: list[str]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        make()
    assert isinstance(caught.value, ValueError)
    _assert_says(str(caught.value), *said)


@pytest.mark.parametrize("seconds", [-1, 0, None, True, "3", float("nan")])
def test_seconds_of_an_improvement(seconds: Any) -> None:
    with pytest.raises(InvalidInputError, match="'seconds' must be a positive number of seconds"):
        uniproto.select(np.eye(3), 2, method="random").improve(seconds)


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
    _assert_says(message, "'features'", "only one of the two")


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


@pytest.mark.parametrize("path", ["\x00.npy", "\ud800.npy", "a" * 5000 + ".npy"])
def test_paths_that_no_system_has(path: str) -> None:
    with pytest.raises(uniproto.UniprotoError, match="is no path") as caught:
        uniproto.select(Path(path), 1)
    assert len(str(caught.value)) < 1000


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


def test_a_checkpoint_with_a_digest_but_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    for payload in (b"", b"PK\x03\x04", b"\x93NUMPY"):
        path.write_bytes(hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)
        with pytest.raises(UniprotoError, match="the checkpoint cannot be used"):
            Checkpoint(path, {}).read()


def test_costs_that_do_not_fit_the_rows_precision() -> None:
    single = np.array([[1e37], [-1e37]], np.float32)
    selector = uniproto.PrototypeSelector(1, metric="sqeuclidean").fit(single, target=[[0.0]])
    with pytest.raises(UniprotoError, match="'X' has costs to the prototypes beyond"):
        selector.transform(single)


def test_squares_that_do_not_fit_the_rows_precision_though_their_roots_do() -> None:
    single = np.array([[-1.8e19], [1.7e13], [-6.5e18]], np.float32)
    with refused("source"):
        uniproto.select(single, 1, metric="euclidean")


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_angles_of_tiny_single_precision_rows(kind: Any) -> None:
    tiny = (np.sign(POINTS) * 1e-41).astype(np.float32)
    found = uniproto.select(POINTS, 2, kind(tiny), metric="cosine")
    plain = uniproto.select(POINTS, 2, np.sign(POINTS), metric="cosine")
    assert found.cost == pytest.approx(plain.cost, rel=1e-5)
