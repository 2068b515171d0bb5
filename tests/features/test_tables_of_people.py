"""Columns as people keep them: amounts, dates, flags, stand-ins for gaps, places, hours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.refusals import refused

import uniproto
from uniproto.data.columns import arrow_table
from uniproto.data.tables import read_content
from uniproto.data.written import written_dates, written_numbers
from uniproto.errors import DataWarning, InvalidInputError
from uniproto.features.preparation import Preparation
from uniproto.features.preparing import fit_preparation

N = 116
DRAW = np.random.default_rng(7)
BASE = {"a": DRAW.normal(size=N), "b": DRAW.normal(size=N)}
AMOUNTS = DRAW.uniform(5, 9000, N).round(2)
DAYS = pd.Timestamp("2014-06-04") + pd.to_timedelta(np.arange(N) * 3, unit="D")


def prepared(column: Any, name: str = "x", **options: Any) -> Preparation:
    return fit_preparation(arrow_table(pd.DataFrame({**BASE, name: column}), "source"), **options)


# --- numbers and dates in texts -------------------------------------------------------------------


def german(value: float) -> str:
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


@pytest.mark.parametrize(
    "texts",
    [
        [f"${value:,.2f}" for value in AMOUNTS],
        [f"{german(value)} €" for value in AMOUNTS],
        [f"{value}%" for value in AMOUNTS],
        [f"{value} ppb" if row % 3 else str(value) for row, value in enumerate(AMOUNTS)],
        [f"{value:,.2f}".replace(",", " ") for value in AMOUNTS],
        [f"CHF {value:,.2f}".replace(",", "'") for value in AMOUNTS],
    ],
    ids=["dollars", "euros", "per cent", "units", "spaces", "francs"],
)
def test_amounts_are_numbers(texts: list[str]) -> None:
    expected = fit_preparation(pa.table({**BASE, "x": AMOUNTS}))
    found = prepared(texts)
    assert found.columns[-1].kind == "number"
    assert found.columns[-1].scale == pytest.approx(expected.columns[-1].scale)
    again = Preparation.from_record(found.record())
    one = pd.DataFrame({**{name: [0.0] for name in BASE}, "x": texts[:1]})
    assert again.matrix(one)[0, 2] == pytest.approx(found.matrix(one)[0, 2])


@pytest.mark.parametrize(
    "texts",
    [
        DAYS.strftime("%d-%b-%Y"),
        DAYS.strftime("%B %d, %Y"),
        DAYS.strftime("%m/%d/%Y %I:%M %p"),
        DAYS.strftime("%d/%m/%Y"),
        DAYS.to_period("D"),
        [f"{day.year}-{day.month}-{day.day}" for day in DAYS],
    ],
    ids=["04-Jun-2014", "June 04, 2014", "AM and PM", "day first", "periods", "short"],
)
def test_dates_are_days(texts: Any) -> None:
    found = prepared(np.asarray(texts) if isinstance(texts, list) else texts)
    column = found.columns[-1]
    assert column.kind == "date"
    values = found.matrix(pd.DataFrame({**BASE, "x": texts}))[:, 2] * column.scale
    near = slice(40, 70)  # of the median
    np.testing.assert_allclose(np.diff(values[near]), 3)


def test_months_quarters_and_times_of_day() -> None:
    months = written_dates(list(DAYS.to_period("M").astype(str)))
    quarters = written_dates(["2020Q1", "2020Q2", "?"])
    assert months is not None
    assert quarters is not None
    assert months.values[0] == (pd.Timestamp("2014-06-01") - pd.Timestamp(0)).days
    assert quarters.values[1] - quarters.values[0] == 91
    times = written_numbers(["12:05 AM", "1:30 p.m.", "23:59:30"])
    assert times is not None
    assert times.values.tolist() == [300, 13.5 * 3600, 86370]


def test_a_day_that_was_read_once_is_read_so_again() -> None:
    found = prepared(DAYS.strftime("%d/%m/%Y"))
    assert found.columns[-1].form == "day first"
    one = pd.DataFrame({"a": [0.0], "b": [0.0], "x": ["01/02/2015"]})
    iso = prepared(DAYS.strftime("%Y-%m-%d"))
    assert found.matrix(one)[0, 2] == pytest.approx(iso.matrix(one.assign(x="2015-02-01"))[0, 2])


@pytest.mark.parametrize(
    "texts", [["A1", "A2"] * 20, ["1st", "2nd", "3rd"] * 20, ["3D", "2D"] * 20]
)
def test_codes_are_no_amounts(texts: list[str]) -> None:
    table = pa.table({"a": DRAW.normal(size=len(texts)), "x": texts})
    assert fit_preparation(table).columns[-1].kind == "category"


def test_two_cells_that_are_no_numbers_are_gaps_with_a_warning() -> None:
    texts = [str(value) for value in AMOUNTS]
    texts[3] = texts[90] = "<20"
    with pytest.warns(DataWarning, match="count as gaps: 2 of x"):
        found = prepared(texts)
    column = found.columns[-1]
    assert (column.kind, column.odd, column.flag) == ("number", 2, True)
    assert "2 that could not be read" in column.words
    new = found.matrix(pd.DataFrame({"a": [0.0], "b": [0.0], "x": ["below"]}))
    assert new[0, 3] == 1


def test_money_that_is_not_consistent_says_what_it_looks_like() -> None:
    texts = [f"${value:,.2f}" if row % 8 else "on request" for row, value in enumerate(AMOUNTS)]
    why = prepared(texts).aside["x"]
    assert why.startswith(
        "looks like amounts of money, but 15 of 116 are not, such as 'on request'"
    )


def test_decimal_commas_make_points_thousands(tmp_path: Path) -> None:
    path = tmp_path / "lager.csv"
    path.write_text("Menge;Preis;Tag\n4.268;3,56;01.02.2020\n300;12,5;02.02.2020\n")
    table = read_content(path)[1]
    assert table.column("Menge").to_pylist() == [4268, 300]
    assert table.column("Preis").to_pylist() == [3.56, 12.5]
    assert table.column("Tag").to_pylist() == ["01.02.2020", "02.02.2020"]
    path.write_text("a;b\n4.268;1\n1.300;2\n")  # without a comma a point is a point
    assert read_content(path)[1].column("a").to_pylist() == [4.268, 1.3]


# --- flags, stand-ins and far values --------------------------------------------------------------


def test_a_flag_counts_the_same_however_it_is_written() -> None:
    ones = np.arange(N) % 50 == 3
    forms: list[Any] = [
        ones,
        ones.astype(int),
        ones.astype(float),
        np.where(ones, "yes", "no"),
        np.where(ones, 7.5, 2.25),
        ones.astype(int).astype(str),
    ]
    frames = [pd.DataFrame({**BASE, "flag": form}) for form in forms]
    matrices = [fit_preparation(arrow_table(frame, "source")).matrix(frame) for frame in frames]
    apart = [np.linalg.norm(matrix[3, 2:] - matrix[4, 2:]) for matrix in matrices]
    np.testing.assert_allclose(apart, np.sqrt(2))


@pytest.mark.parametrize("value", [-999, -99, 9999, -9999.0, 999.9])
def test_a_stand_in_for_missing_values_is_named(value: float) -> None:
    wind = DRAW.uniform(0, 40, N).round(1)
    wind[::20] = value
    count = len(wind[::20])
    with pytest.warns(DataWarning, match=rf"'wind' is {value:g} in {count} of {N} rows.*missing="):
        raw = prepared(wind, "wind")
    assert not raw.columns[-1].flag
    for missing in ({"wind": value}, [value], value):
        found = prepared(wind, "wind", missing=missing)
        assert found.columns[-1].flag
        rows = pd.DataFrame({**BASE, "wind": wind})
        assert Preparation.from_record(found.record()).matrix(rows)[0, 3] == 1
    clean = prepared(np.where(wind == value, np.nan, wind), "wind")
    assert found.columns[-1].scale == clean.columns[-1].scale


def test_minus_one_is_a_stand_in_where_it_is_the_commonest() -> None:
    days = np.where(np.arange(N) % 3, -1, np.arange(N))
    with pytest.warns(DataWarning, match="'days' is -1 in 77"):
        prepared(days, "days")


def test_a_code_for_missing_beside_few_answers_is_named() -> None:
    answers = np.where(np.arange(N) % 20, np.arange(N) % 3, 99.0)
    with pytest.warns(DataWarning, match=f"'score' is 99 in {len(answers[::20])}"):
        prepared(answers, "score")


@pytest.mark.parametrize(
    "values",
    [
        DRAW.integers(-5, 30, N),
        DRAW.integers(0, 100, N),
        DRAW.normal(0, 400, N).round(),
        np.r_[DRAW.integers(0, 30, N - 2), 97, 99],  # late once, and not a code
        np.r_[np.arange(N - 4) % 4, [9] * 4],
    ],
)
def test_ordinary_numbers_are_no_stand_ins(values: Any) -> None:
    assert prepared(values, "grams").columns[-1].kind == "number"  # warnings are errors here


def test_words_of_other_levels_can_be_missing() -> None:
    levels = np.array(["unknown", "x", "y"])[np.arange(N) % 3]
    found = uniproto.select(
        pd.DataFrame({**BASE, "c": levels}), 4, features=uniproto.Columns(missing="unknown")
    )
    assert found.details.preparation.columns[-1].levels == ("(missing)", "x", "y")


def test_what_far_values_count_is_said() -> None:
    income = np.append(DRAW.normal(30, 5, N - 3), [300, 500, 900])
    column = prepared(income, "income").columns[-1]
    assert column.far == 3
    assert "(its spread); 3 values beyond 3 spreads drawn in by a logarithm" in column.words


# --- places, hours and weights --------------------------------------------------------------------


PLACES = pd.DataFrame(
    {
        "country": ["Palau", "Georgia", "Samoa", "Fiji", "Kiribati"],
        "latitude": [7.5, 42.3, -13.8, -17.7, 1.9],
        "longitude": [134.6, 43.4, -172.1, 178.1, -157.4],
    }
)


def test_places_lie_on_the_globe() -> None:
    preparation = fit_preparation(arrow_table(PLACES, "source"), ignore=["country"])
    place = preparation.columns[0]
    assert (place.kind, place.names) == ("place", ("latitude", "longitude"))
    points = preparation.matrix(PLACES)
    apart = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert apart[2, 3] == apart[2, [0, 1, 3, 4]].min()  # Samoa and Fiji, across the date line
    radius = 6371 / place.scale
    chord = 2 * np.sin(1144 / 6371 / 2)  # Suva to Apia
    assert apart[2, 3] * place.scale == pytest.approx(chord, rel=0.15), radius
    assert {row[0]: row[1] for row in preparation.rows} == {
        "latitude": "place", "longitude": "place", "country": "set aside"
    }  # fmt: skip
    assert len(preparation.feature_names) == points.shape[1] == 3


def test_a_table_of_places_alone_is_no_vector() -> None:
    places = pd.DataFrame(
        {"lat": np.degrees(np.arcsin(DRAW.uniform(-1, 1, N))), "lng": DRAW.uniform(-180, 180, N)}
    )
    found = uniproto.select(places, 4)
    assert found.details.preparation.columns[0].kind == "place"
    assert found.details.given.columns == ("lat", "lng")
    gaps = places.copy()
    gaps.loc[3, "lat"] = np.nan
    assert uniproto.select(gaps, 4).details.preparation.columns[0].flag
    projected = places.assign(lat=places["lat"] * 1000)
    kinds = [column.kind for column in uniproto.select(projected, 4).details.preparation.columns]
    assert kinds == ["number", "cyclic"]


def test_a_far_place_does_not_decide_alone() -> None:
    town = pd.DataFrame(
        {**BASE, "lat": 48.1 + DRAW.normal(size=N) / 50, "lon": 11.5 + DRAW.normal(size=N) / 50}
    )
    town.loc[0, ["lat", "lon"]] = 0.0  # a gap, as many files write it
    points = fit_preparation(arrow_table(town, "source")).matrix(town)[:, 2:]
    assert np.linalg.norm(points[0]) < 15
    assert 0.5 < points[1:].std(axis=0).max() < 2


def test_hours_come_round() -> None:
    hours = pd.DataFrame({**BASE, "hour": np.arange(N) % 24})
    columns = uniproto.Columns(cyclic={"hour": 24})
    preparation = uniproto.select(hours, 4, features=columns).details.preparation
    assert preparation.columns[-1].kind == "cyclic"
    points = preparation.matrix(hours)[:24, 2:]
    steps = np.linalg.norm(points - np.roll(points, 1, axis=0), axis=1)
    np.testing.assert_allclose(steps, steps[0])
    assert Preparation.from_record(preparation.record()) == preparation


def test_columns_have_weights() -> None:
    frame = pd.DataFrame({**BASE, "c": np.array(["x", "y", "z"])[np.arange(N) % 3]})
    plain = fit_preparation(arrow_table(frame, "source")).matrix(frame)
    weighed = fit_preparation(arrow_table(frame, "source"), weights={"a": 2, "c": 0.5})
    np.testing.assert_allclose(weighed.matrix(frame), plain * [2, 1, 0.5, 0.5, 0.5])
    assert "; weight 2" in weighed.table()


@pytest.mark.parametrize(
    ("parameter", "columns"),
    [
        ("features.weights", {"weights": {"agee": 2}}),
        ("features.weights", {"weights": {"a": 0}}),
        ("features.cyclic", {"cyclic": {"a": "day"}}),
        ("features.cyclic", {"cyclic": ["a"]}),
        ("features", {"weights": {"a": 2}, "prepare": False}),
    ],
)
def test_what_is_wrong_about_single_columns(parameter: str, columns: dict[str, Any]) -> None:
    with refused(parameter, InvalidInputError):
        uniproto.Problem(pd.DataFrame(BASE), features=uniproto.Columns(**columns))


# --- a Series is matched by its index -------------------------------------------------------------


PATIENTS = pd.DataFrame(
    {
        "age": DRAW.integers(20, 90, N),
        "size": DRAW.normal(30, 9, N),
        "grade": DRAW.choice(["I", "II", "III"], N),
    },
    index=DRAW.permutation(N) + 200,
)


def test_series_follow_their_index() -> None:
    shuffled = PATIENTS.sort_index()
    for name, options in {
        "groups": {"groups": PATIENTS["grade"]},
        "sorted": {"groups": shuffled["grade"]},
        "weights": {"target_weights": uniproto.Balanced(shuffled["grade"])},
        "limits": {"limits": uniproto.Limits(shuffled["grade"], at_most=3)},
    }.items():
        problem = uniproto.Problem(PATIENTS, **options)  # type: ignore[arg-type]
        assert problem.given.columns == ("age", "size"), name
    by_name = uniproto.select(PATIENTS, 9, groups="grade")
    found = uniproto.select(PATIENTS, 9, groups=shuffled["grade"])
    assert found.indices.tolist() == by_name.indices.tolist()
    young = uniproto.select(PATIENTS, 9, exclude=shuffled["age"] > 60)
    assert young.rows()["age"].max() <= 60
    weights = uniproto.Problem(PATIENTS, target_weights=shuffled["age"]).target_weights
    np.testing.assert_allclose(weights, PATIENTS["age"] / PATIENTS["age"].sum())  # type: ignore[arg-type]


def test_labels_of_the_index_name_rows() -> None:
    label = PATIENTS.index[17]
    named = uniproto.select(PATIENTS, 3, include=pd.Index([label]))
    assert named.indices[0] == 17
    assert uniproto.select(PATIENTS, 3, include=[17]).indices[0] == 17
    old = PATIENTS[PATIENTS["age"] > 60].index
    assert uniproto.select(PATIENTS, 5, exclude=old).rows()["age"].max() <= 60
    assert uniproto.cost(PATIENTS, named.rows().index) == pytest.approx(named.cost)
    with refused("include", InvalidInputError):
        uniproto.Problem(PATIENTS, include=pd.Index([7]))


def test_a_series_of_another_index_is_refused() -> None:
    with refused("groups", InvalidInputError):
        uniproto.Problem(PATIENTS, groups=PATIENTS["grade"].reset_index(drop=True))
    with refused("exclude", InvalidInputError):
        uniproto.Problem(PATIENTS, exclude=(PATIENTS["age"] > 60).reset_index(drop=True))
