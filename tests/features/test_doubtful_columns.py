"""Columns that are not what they look like: codes, dates and names as numbers, gaps as words."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import uniproto
from uniproto.cli import main
from uniproto.data.columns import arrow_table
from uniproto.errors import DataWarning, InvalidInputError
from uniproto.features.preparation import Preparation
from uniproto.features.preparing import fit_preparation

N = 120
RNG = np.random.default_rng(5)
AMOUNTS = {"a": RNG.normal(size=N), "b": RNG.normal(size=N)}


def prepared(target: pd.DataFrame | None = None, **columns: Any) -> Preparation:
    table = arrow_table(pd.DataFrame({**AMOUNTS, **columns}), "source")
    return fit_preparation(table, None if target is None else arrow_table(target, "target"))


def kind_of(name: str, values: Any) -> str:
    return {row[0]: row[1] for row in prepared(**{name: values}).rows}[name]


DAYS = pd.Timestamp("2019-12-20") + pd.to_timedelta(np.arange(N) % 40, unit="D")


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("booked", DAYS.strftime("%Y%m%d").astype(int), "date"),
        ("booked", np.where(np.arange(N) == 4, np.nan, 20200105 + np.arange(N) % 20), "date"),
        ("amount", 20201350 + np.arange(N), "set aside"),  # no month 13: they count rows
        ("place", RNG.choice([10115, 20095, 80331], N), "category"),
        ("salary", RNG.choice([20_000, 25_000, 40_000], N), "number"),
        ("zip", RNG.integers(1_000, 99_999, N), "set aside"),
        ("phone", RNG.choice(10**9, N, replace=False), "set aside"),
        ("product", RNG.integers(1, 4, N), "category"),
        ("product_code", RNG.integers(1, 4, N), "category"),
        ("sex", RNG.integers(1, 3, N), "category"),
        ("invoice", RNG.permutation(N) * 10 + 5000, "set aside"),
        ("weight", RNG.integers(50, 90, N), "number"),
        ("year", 1900 + np.arange(N), "number"),
        ("year", (1900 + np.arange(N)).astype(str), "number"),
        ("surname", [f"name {row % 100}" for row in range(N)], "set aside"),
        ("town", [f"town {row % 10}" for row in range(N)], "category"),
        ("size", pd.Categorical(["S", "M", "L"] * 40, ["S", "M", "L"], ordered=True), "ordered"),
    ],
)
def test_what_can_be_recognised_is(name: str, values: Any, kind: str) -> None:
    assert kind_of(name, values) == kind


def test_an_ordered_category_keeps_its_order() -> None:
    sizes = ["S", "M", "L", "XL", None] * (N // 5)
    order = pd.Categorical(sizes, ["S", "M", "L", "XL"], ordered=True)
    preparation = prepared(size=order)
    again = Preparation.from_record(preparation.record())
    frame = pd.DataFrame({**AMOUNTS, "size": order}).head(5)
    values = again.matrix(frame)[:, -2:]
    np.testing.assert_allclose(np.diff(values[:4, 0], n=2), 0, atol=1e-12)
    assert values[0, 0] < values[3, 0]
    assert values[4].tolist() == [values[1:3, 0].mean(), 1]  # a gap is the median, and flagged
    by_name = again.matrix(frame.assign(size=sizes[:5]))  # new rows need not be categories
    np.testing.assert_array_equal(by_name[:, -2:], values)
    assert "0 to 3" in preparation.columns[-1].words


@pytest.mark.parametrize(
    ("name", "values", "remedy"),
    [
        ("branch", RNG.integers(1, 5, N), r"Columns\(categories=\['branch'\]\) \(--categories\)"),
        ("contract", RNG.choice(10**7, N, replace=False) + 10**7, r"Columns\(ignore=\['contract"),
    ],
)
def test_what_is_doubtful_is_said_once(name: str, values: Any, remedy: str) -> None:
    with pytest.warns(DataWarning, match=f"{name}.*{remedy}") as said:
        preparation = prepared(**{name: values})
    assert len(said) == 1
    assert said[0].filename == __file__
    assert preparation.columns[-1].kind == "number"
    assert preparation.columns[-1].doubt in preparation.table()


@pytest.mark.parametrize("name", ["rooms", "n_visits", "rating", "month"])
def test_counts_and_times_are_not_doubtful(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kind_of(name, RNG.integers(1, 5, N)) == "number"


def test_codes_can_be_named() -> None:
    table = pa.table({**AMOUNTS, "branch": RNG.integers(1, 5, N)})
    preparation = fit_preparation(table, categories=["branch"])
    assert preparation.columns[-1].levels == ("1", "2", "3", "4")
    with pytest.raises(InvalidInputError, match="'categories' must be one of"):
        fit_preparation(table, categories=["branhc"])


@pytest.mark.parametrize("gap", ["?", "-", "missing", "NA"])
def test_numbers_as_texts_are_numbers(gap: str) -> None:
    texts = [gap if row % 20 == 3 else str(row * 0.25) for row in range(N)]
    preparation = prepared(price=texts)
    column = preparation.columns[-1]
    assert (column.kind, column.flag) == ("number", True)
    values = preparation.matrix(pd.DataFrame({**AMOUNTS, "price": texts}))[:, -2]
    assert values[100] - values[0] == pytest.approx(25 / column.scale)
    whole = [gap if row % 20 == 3 else str(row % 50) for row in range(N)]
    assert kind_of("horsepower", whole) == "number"
    assert kind_of("price", [str(row * 0.25) for row in range(N)]) == "number"


def test_digits_that_are_kept_as_texts_stay_codes() -> None:
    assert kind_of("store", [str(row % 9 + 10) for row in range(N)]) == "category"
    assert kind_of("store", [f"0{row % 9}" if row else "?" for row in range(N)]) == "category"


def test_words_among_numbers_are_named() -> None:
    texts = ["sold out" if row % 20 == 3 else str(row * 0.25) for row in range(N)]
    assert prepared(price=texts).aside["price"] == (
        "looks like numbers, but 6 of 120 are not, such as 'sold out'; leave those empty"
    )


def test_a_gap_in_a_category_is_one_whatever_its_word() -> None:
    levels = (["x"] * 10 + ["y"] * 10 + ["?", "", None, "-"]) * 5
    assert prepared(c=levels).columns[-1].levels == ("(missing)", "x", "y")


def test_a_column_that_makes_most_of_the_distance_is_named() -> None:
    frame = pd.DataFrame({**AMOUNTS, "c": RNG.normal(size=N), "income": RNG.normal(size=N) * 30})
    table = arrow_table(frame, "source")
    with pytest.warns(DataWarning, match=r"'income' makes 9\d% of the mean distance.*--ignore"):
        fit_preparation(table, scale="none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_preparation(table)


# A target of other columns or units


TARGET = pd.DataFrame({**AMOUNTS, "income": RNG.normal(30_000, 5_000, N)})


def test_columns_that_only_one_has_are_named() -> None:
    renamed = TARGET.rename(columns={"income": "Income (EUR)"}).iloc[:90]
    with pytest.warns(DataWarning, match="target has no column 'income', and the source has no"):
        preparation = prepared(renamed, income=TARGET["income"])
    assert preparation.aside["income"] == "not in the target"
    assert len(preparation.columns) == 2


def test_columns_that_are_no_features_may_be_missing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        preparation = prepared(
            TARGET[["a", "b"]].head(90), email=[f"user{row}@x.org" for row in range(N)]
        )
    assert preparation.aside == {"email": "not in the target"}


def test_another_unit_is_mentioned() -> None:
    thousands = TARGET.assign(income=TARGET["income"] / 1000).head(90)
    with pytest.warns(DataWarning, match=r"income \(\S+ in the source, \S+ in the target\)"):
        prepared(thousands, income=TARGET["income"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared(TARGET.head(90), income=TARGET["income"])
        prepared(TARGET.assign(a=TARGET["a"] * 3).head(90), income=TARGET["income"])


def test_a_column_of_another_type_is_named() -> None:
    words = TARGET.assign(income=["much", "little"] * (N // 2)).head(90)
    with pytest.raises(InvalidInputError, match=r"'income' is .*string.* double.*Convert"):
        prepared(words, income=TARGET["income"])
    texts = TARGET.assign(income=[str(value) for value in TARGET["income"]]).head(90)
    texts.loc[3, "income"] = "?"
    preparation = prepared(texts, income=TARGET["income"])
    assert preparation.columns[-1].flag
    assert np.isfinite(preparation.matrix(texts)).all()


# Columns that are labels, and what is no table


LABELLED = pd.DataFrame(
    {"a": AMOUNTS["a"] * 90, "b": AMOUNTS["b"], "species": ["x", "y"] * (N // 2)}
)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_series_that_is_a_column_is_no_feature(kind: str) -> None:
    frame: Any = LABELLED if kind == "pandas" else pl.from_pandas(LABELLED)
    by_name = uniproto.Problem(frame, groups="species")
    by_series = uniproto.Problem(frame, groups=frame["species"])
    weighted = uniproto.Problem(frame, target_weights=uniproto.Balanced(frame["species"]))
    for problem in (by_name, by_series, weighted):
        assert problem.given.columns == ("a", "b")
        assert problem.given.preparation.aside["species"].startswith("named by")
    other = frame["species"].str.upper() if kind == "pandas" else frame["species"].to_list()
    assert "species" in uniproto.Problem(frame, groups=other).given.columns


def test_codes_are_named_by_columns_and_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame({**AMOUNTS, "branch": RNG.integers(1, 5, N)})
    columns = uniproto.Columns(categories=["branch"])
    expected = uniproto.select(frame, 4, columns=columns)
    assert expected.details.preparation.columns[-1].kind == "category"
    frame.to_csv("pool.csv", index=False)
    assert main(["select", "pool.csv", "-k", "4", "--categories", "branch", "-o", "out"]) == 0
    assert uniproto.Selection.load("out").indices.tolist() == expected.indices.tolist()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (LABELLED["a"], "to_frame"),
        (LABELLED.head(0), "empty table"),
        (LABELLED.assign(v=[[1.0, 2.0]] * N), "or one list column"),
    ],
    ids=["series", "empty", "lists"],
)
def test_what_is_no_table_is_told_what_to_do(source: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        uniproto.Problem(source)
