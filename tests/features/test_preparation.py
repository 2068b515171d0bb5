"""Tables of mixed columns: what becomes of each, of doubtful ones, too, as scikit-learn has it."""

from __future__ import annotations

import datetime
import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, RobustScaler, StandardScaler
from tests.refusals import refused

import uniproto
from uniproto.cli import main
from uniproto.data.columns import arrow_table
from uniproto.errors import DataWarning, InvalidInputError
from uniproto.features.preparation import Preparation
from uniproto.features.preparing import SCALES, fit_preparation, is_one_vector
from uniproto.problem.checks import ScaleWarning

N = 400


def customers(rows: int = N, seed: int = 0) -> pd.DataFrame:
    draw = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "customer_id": 5000 + draw.permutation(rows),
            "row": np.arange(rows),
            "age": draw.integers(18, 90, rows),
            "income": np.where(draw.random(rows) < 0.05, np.nan, draw.lognormal(10, 0.5, rows)),
            "returns": np.where(draw.random(rows) < 0.1, draw.integers(1, 5, rows), 0),
            "country": draw.choice(
                ["DE", "FR", "IT", "SE", "PL"], rows, p=[0.5, 0.3, 0.19, 0.005, 0.005]
            ),
            "segment": draw.choice(["private", "trade", None], rows, p=[0.8, 0.1, 0.1]),
            "since": pd.Timestamp("2015-01-01")
            + pd.to_timedelta(draw.integers(0, 3000, rows), unit="D"),
            "active": draw.random(rows) < 0.7,
            "channel": "web",
            "empty": None,
            "note": [
                f"they said {word} when asked again" for word in draw.integers(0, 10**9, rows)
            ],
            "email": [f"user{row}@example.org" for row in range(rows)],
        }
    )


FRAME = customers()
NUMBERS, TAKEN = (
    ["age", "income"],
    ["age", "income", "returns", "country", "segment", "since", "active"],
)


def kinds(preparation: Preparation) -> dict[str, str]:
    return {name: kind for name, kind, _ in preparation.rows}


def test_what_becomes_of_each_column() -> None:
    preparation = fit_preparation(pa.Table.from_pandas(FRAME))
    assert kinds(preparation) == {
        "customer_id": "set aside",
        "row": "set aside",
        "age": "number",
        "income": "number",
        "returns": "number",
        "country": "category",
        "segment": "category",
        "since": "date",
        "active": "category",
        "channel": "set aside",
        "empty": "set aside",
        "note": "set aside",
        "email": "set aside",
    }
    by_name = {column.name: column for column in preparation.columns}
    assert by_name["income"].flag
    counts = FRAME["country"].value_counts()
    assert by_name["country"].joined == (counts < 4).sum() > 0
    assert by_name["country"].levels == tuple(sorted(counts[counts >= 4].index))
    assert set(by_name["segment"].levels) == {"private", "trade", "(missing)"}
    assert "free text" in preparation.aside["note"]
    assert preparation.aside["channel"] == "constant"
    assert len(preparation.feature_names) == preparation.matrix(FRAME).shape[1]


def test_numbers_and_categories_are_those_of_scikit_learn() -> None:
    preparation = fit_preparation(pa.Table.from_pandas(FRAME[[*NUMBERS, "country", "segment"]]))
    expected = make_column_transformer(
        (RobustScaler(unit_variance=True), ["age"]),
        (
            make_pipeline(
                RobustScaler(unit_variance=True),
                SimpleImputer(strategy="median", add_indicator=True),
            ),
            ["income"],
        ),
        (
            OneHotEncoder(min_frequency=4, max_categories=30, handle_unknown="infrequent_if_exist"),
            ["country", "segment"],
        ),
        sparse_threshold=0,
    ).fit_transform(FRAME.assign(segment=FRAME["segment"].fillna("(missing)")))
    found = preparation.matrix(FRAME)
    near = np.abs(expected) <= 3  # what lies beyond is drawn in
    np.testing.assert_allclose(found[near], expected[near], atol=1e-12)
    np.testing.assert_allclose(found[~near], 3 + np.log1p(expected[~near] - 3))
    assert 0 < np.count_nonzero(~near) < 20


def test_a_far_value_does_not_decide_alone() -> None:
    """Most dates lie within a day, one three years later: 700 spreads, of which ten count."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({name: draw.normal(size=80) for name in "abc"})
    days = draw.normal(size=80)
    days[[3, 5, 8]] = (300, 700, 1000)
    frame["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(days, unit="D")
    features = fit_preparation(pa.Table.from_pandas(frame)).matrix(frame)
    assert 3 < features[8, 3] < 11
    assert features[3, 3] < features[5, 3] < features[8, 3]
    raw = fit_preparation(pa.Table.from_pandas(frame), scale="standard").matrix(frame)
    np.testing.assert_allclose(raw[:, :3].std(axis=0), 1)


def test_a_target_may_be_as_far_away_as_numbers_go() -> None:
    tiny = pa.table({"a": 1e-290 * np.random.default_rng(0).normal(size=50)})
    features = fit_preparation(tiny).matrix(pa.table({"a": [1e37, -1e37, 0.0]}))[:, 0]
    assert np.isfinite(features).all()
    assert features[0] > 100 > abs(features[2])
    assert features[1] < -100


def test_where_most_rows_are_alike_the_standard_deviation_scales() -> None:
    found = fit_preparation(pa.Table.from_pandas(FRAME[["returns", "age"]])).matrix(FRAME)[:, 0]
    expected = StandardScaler().fit_transform(FRAME[["returns"]])[:, 0]
    far = np.maximum(expected - 3, 0)
    np.testing.assert_allclose(found, np.minimum(expected, 3) + np.log1p(far))


@pytest.mark.parametrize(
    ("scale", "check"),
    [
        ("standard", lambda v: (v.mean(), v.std()) == (pytest.approx(0), pytest.approx(1))),
        ("minmax", lambda v: (v.min(), v.max()) == (0, pytest.approx(1))),
        ("none", lambda v: np.array_equal(v, FRAME["age"])),
    ],
)
def test_scales(scale: str, check: Any) -> None:
    table = pa.Table.from_pandas(FRAME[["age"]])
    assert check(fit_preparation(table, scale=scale).matrix(FRAME)[:, 0])
    assert scale in SCALES


DATES = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 11), None, datetime.date(2020, 3, 1)]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(DATES),
        pa.array([None if day is None else day.isoformat() for day in DATES]),
        pa.array([None if day is None else f"{day.isoformat()}T00:00:00Z" for day in DATES]),
        pa.array(DATES).cast(pa.timestamp("ms")),
    ],
)
def test_dates_are_days(values: pa.Array) -> None:
    preparation = fit_preparation(pa.table({"day": values}), scale="none")
    found = preparation.matrix(pa.table({"day": values}))
    assert found[1, 0] - found[0, 0] == 10
    assert found[:, 1].tolist() == [0, 0, 1, 0]
    assert preparation.rows[0][1] == "date"


def test_times_durations_and_decimals_are_numbers() -> None:
    table = pa.table(
        {
            "opens": pa.array([datetime.time(8), datetime.time(9), datetime.time(10)]),
            "takes": pa.array([1, 2, 4], pa.duration("ms")),
            "price": pa.array([1, 2, 3], pa.int32()).cast(pa.decimal128(20, 2)),
        }
    )
    found = fit_preparation(table, scale="none").matrix(table)
    np.testing.assert_allclose(found[2] - found[0], [7200, 0.003, 2])


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "csv", "parquet"])
def test_every_table_gives_the_same_choice(kind: str, tmp_path: Path) -> None:
    expected = uniproto.select(FRAME, 12)
    assert expected.details.metric == "euclidean"
    table: Any = {
        "pandas": FRAME.set_index(np.arange(N)[::-1] * 7),
        "polars": pl.from_pandas(FRAME),
        "arrow": pa.Table.from_pandas(FRAME, preserve_index=False),
        "csv": str(tmp_path / "customers.csv"),
        "parquet": tmp_path / "customers.parquet",
    }[kind]
    FRAME.to_csv(tmp_path / "customers.csv", index=False)
    FRAME.to_parquet(tmp_path / "customers.parquet", index=False)
    found = uniproto.select(table, 12)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert [column.name for column in found.details.preparation.columns] == TAKEN


def test_one_vector_is_taken_as_it_is() -> None:
    rows = np.random.default_rng(1).normal(size=(60, 5))
    for frame in (
        pd.DataFrame(rows),
        pd.DataFrame(rows * 40 + 100, columns=[f"e{place}" for place in range(5)]),
        pd.DataFrame(rows, columns=list("abcde")),
        pd.DataFrame({"v": list(rows)}),
    ):
        found = uniproto.select(frame, 6)
        assert (found.details.metric, found.details.preparation) == ("euclidean", None)
    assert not is_one_vector(pa.table({"e0": ["a"], "e1": ["b"]}))
    assert (
        uniproto.select(
            pd.DataFrame(rows), 6, features=uniproto.Columns(prepare=True)
        ).details.preparation
        is not None
    )


def test_choices_can_be_overridden() -> None:
    named = uniproto.select(FRAME, 5, features=uniproto.Columns(use=["age", "customer_id"]))
    assert kinds(named.details.preparation)["customer_id"] == "number"
    ignored = uniproto.select(FRAME, 5, features=uniproto.Columns(ignore=["income", "since"]))
    assert ignored.details.preparation.aside["income"] == "ignored"
    raw = uniproto.select(
        FRAME, 5, features=uniproto.Columns(use=["age", "returns"], prepare=False)
    )
    assert (raw.details.metric, raw.details.preparation) == ("euclidean", None)
    assert uniproto.select(FRAME, 5, metric="l1").details.metric == "l1"
    numbers = FRAME[["age", "returns"]]
    own = make_column_transformer((StandardScaler(), ["age", "returns"])).fit(numbers)
    found = uniproto.select(numbers, 5, features=own)
    expected = uniproto.select(own.transform(numbers), 5, metric="euclidean")
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.nearest(numbers.head(3)).prototype.shape == (3,)


def test_a_target_has_the_same_preparation() -> None:
    pool, target = customers(300, 1), customers(200, 2)
    found = uniproto.select(pool, 8, target.drop(columns="email"))
    preparation = found.details.preparation
    assert kinds(preparation)["email"] == "set aside"
    assert preparation.aside["email"] == "not in the target"
    expected = uniproto.select(
        preparation.matrix(pool), 8, preparation.matrix(target), metric="euclidean"
    )
    np.testing.assert_array_equal(found.indices, expected.indices)
    again = uniproto.select(pool, 8, target, features=preparation)
    np.testing.assert_array_equal(again.indices, expected.indices)


@pytest.mark.parametrize(
    ("parameter", "features"),
    [
        ("features", uniproto.Columns(use=["agee"])),
        ("ignore", uniproto.Columns(ignore=["nothing"])),
        ("scale", uniproto.Columns(scale="robot")),
        ("features", uniproto.Columns(prepare=3)),
        ("features", StandardScaler()),
        ("source", uniproto.Columns(use=["channel", "empty"])),
    ],
)
def test_what_cannot_be_prepared_is_refused(parameter: str, features: Any) -> None:
    with refused(parameter, InvalidInputError):
        uniproto.select(FRAME, 3, features=features)


@pytest.mark.parametrize("name", ["use", "ignore", "categories"])
def test_a_single_name_is_no_list_of_names(name: str) -> None:
    with refused("features", InvalidInputError):
        uniproto.Columns(**{name: "age"})


def test_options_of_tables_need_one() -> None:
    for said in ({"use": ["a"]}, {"ignore": ["a"]}, {"prepare": True}):
        with refused("features", InvalidInputError):
            uniproto.select(np.eye(4), 2, features=uniproto.Columns(**said))
    with refused("source", InvalidInputError):
        uniproto.select(pd.DataFrame({"v": [[1.0], [2.0]], "a": [1, 2]}), 1)
    with pytest.raises(InvalidInputError, match="infinity"):
        uniproto.select(pd.DataFrame({"a": [1.0, np.inf, 3.0]}), 1)


COLUMNS = st.dictionaries(
    st.text("abcdé ", min_size=1, max_size=4),
    st.one_of(
        st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), min_size=9, max_size=9),
        st.lists(st.one_of(st.none(), st.integers(-50, 50)), min_size=9, max_size=9),
        st.lists(st.one_of(st.none(), st.sampled_from("xyz")), min_size=9, max_size=9),
        st.lists(st.booleans(), min_size=9, max_size=9),
        st.lists(st.dates(), min_size=9, max_size=9),
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(COLUMNS)
def test_a_preparation_survives_json_and_gives_finite_features(columns: dict[str, Any]) -> None:
    table = pa.table(columns)
    try:
        preparation = fit_preparation(table)
    except InvalidInputError as error:  # every column is constant or empty
        if "tells rows apart" not in str(error):
            raise
        return
    again = Preparation.from_record(json.loads(json.dumps(preparation.record())))
    assert again == preparation
    found = again.matrix(table)
    assert np.isfinite(found).all()
    assert found.shape == (9, len(preparation.feature_names))
    np.testing.assert_array_equal(again.matrix(table.slice(3, 2)), found[3:5])


def test_levels_and_gaps_never_seen() -> None:
    table = pa.table({"c": ["a", "a", "b", "b"] * 5, "x": list(range(20))})
    preparation = fit_preparation(table, features=["c", "x"])
    new = preparation.matrix(pa.table({"c": ["z", None], "x": [None, 3]}))
    assert new[:, :2].tolist() == [[0, 0], [0, 0]]
    assert np.isfinite(new).all()
    with refused("source", InvalidInputError):
        preparation.matrix(pa.table({"c": ["a"]}))


# The command line


@pytest.fixture
def table(inside: Path) -> None:
    FRAME.to_csv("customers.csv", index=False)


@pytest.mark.usefixtures("table")
def test_a_csv_file_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", "customers.csv", "-k", "12"]) == 0
    out = capsys.readouterr().out
    assert "(uniproto, euclidean)" in out
    assert re.search(r"customer_id  set aside +looks like an id", out)
    assert "a typical row is" in out
    folder = Path("customers-prototypes")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["metric"] == "euclidean"
    assert manifest["features"] == TAKEN
    expected = uniproto.select(FRAME, 12)
    loaded = uniproto.Selection.load(folder)
    np.testing.assert_array_equal(loaded.indices, expected.indices)
    new = customers(20, 9)
    assert loaded.nearest(new).prototype.tolist() == expected.nearest(new).prototype.tolist()
    assert pd.read_csv(folder / "prototypes.csv")["age"].tolist() == expected.rows()["age"].tolist()
    assert main(["verify", str(folder)]) == 0
    assert main(["report", str(folder)]) == 0
    page = (folder / "report.html").read_text("utf-8")
    for name in FRAME.columns:
        assert name in page


@pytest.mark.usefixtures("table")
def test_a_forged_preparation_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["select", "customers.csv", "-k", "6", "-o", "out", "--quiet"]) == 0
    path = Path("out/manifest.json")
    manifest = json.loads(path.read_text())
    manifest["preparation"]["columns"][0]["scale"] *= 1.01
    path.write_text(json.dumps(manifest))
    assert main(["verify", "out"]) == 1
    assert "preparation" in capsys.readouterr().out


@pytest.mark.usefixtures("table")
def test_options_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--id", "customer_id", "--ignore", "since,note", "--scale", "standard"]
    assert main(["select", "customers.csv", "-k", "6", *options, "-o", "out"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"customer_id  set aside +named by id", out)
    assert re.search(r"since        set aside +ignored", out)
    found = uniproto.select(
        FRAME,
        6,
        features=uniproto.Columns(ignore=["customer_id", "since", "note"], scale="standard"),
    )
    assert uniproto.Selection.load("out").indices.tolist() == found.indices.tolist()
    assert main(["verify", "out"]) == 0
    assert main(["select", "customers.csv", "-k", "6", "--no-prepare", "-o", "out"]) == 2
    for command in (["compare", "-k", "4", "--methods", "uniproto"], ["path", "--ks", "4"]):
        assert main([command[0], "customers.csv", *command[1:]]) == 0
    capsys.readouterr()
    numbers = FRAME[["age", "income"]].dropna()
    numbers.to_csv("numbers.csv", index=False)
    np.save("numbers.npy", numbers)
    assert main(["select", "numbers.npy", "-k", "3", "-o", "plain"]) == 0
    assert "uniproto: warning: column 1 varies" in capsys.readouterr().err


def test_one_column_is_a_table_and_not_a_direction(tmp_path: Path) -> None:
    prices = np.random.default_rng(0).lognormal(size=200)
    table = pd.DataFrame({"price": prices})
    found = uniproto.select(table, 5, progress=False)
    assert found.details.metric == "euclidean"
    assert found.cost > 0
    table.to_csv(tmp_path / "prices.csv", index=False)
    assert main(["select", str(tmp_path / "prices.csv"), "-k", "5", "-o", str(tmp_path / "o")]) == 0
    assert uniproto.Selection.load(tmp_path / "o").details.metric == "euclidean"
    with pytest.warns(ScaleWarning, match="sign"):
        uniproto.select(prices[:, None], 5, metric="cosine", progress=False)


# --- columns as people have them ------------------------------------------------------------------


def test_ids_are_ids_beside_a_target_that_shares_them() -> None:
    alone = uniproto.select(FRAME, 6)
    copied = uniproto.select(FRAME, 6, FRAME.copy())
    assert copied.cost == pytest.approx(alone.cost)
    assert copied.details.preparation == alone.details.preparation
    some = uniproto.select(FRAME, 6, FRAME.sample(120, random_state=0))
    assert kinds(some.details.preparation) == kinds(alone.details.preparation)


def test_a_target_of_other_columns() -> None:
    with refused("target", InvalidInputError):
        uniproto.select(FRAME, 3, pd.DataFrame({"z": [1.0, 2.0]}))


LONG = 1_700_000_000_000_000_000 + 3 * np.arange(N)  # as decimals many of these are one number


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(LONG),
        pd.Series(np.where(np.arange(N) == 3, np.nan, np.random.default_rng(0).permutation(N))),
        pd.Series([2**70 + row for row in range(N)]),
    ],
    ids=["long", "with a gap", "beyond 64 bits"],
)
def test_ids_in_every_form(values: pd.Series) -> None:
    selection = uniproto.select(FRAME[NUMBERS].assign(customer_id=values), 4)
    assert kinds(selection.details.preparation)["customer_id"] == "set aside"


LEVELS = ["low", "high"] * (N // 2)


@pytest.mark.parametrize(
    "frame",
    [
        FRAME[NUMBERS].assign(c=pd.Categorical(np.arange(N) % 4 * 100)),
        FRAME[NUMBERS].assign(c=pd.qcut(FRAME["age"], 4)),
        FRAME[NUMBERS].assign(c=pd.cut(FRAME["age"], 4).array),
        FRAME[NUMBERS].assign(c=[1, "a"] * (N // 2)),
        pl.from_pandas(FRAME[NUMBERS]).with_columns(pl.Series("c", LEVELS).cast(pl.Categorical)),
        pl.from_pandas(FRAME[NUMBERS]).with_columns(
            pl.Series("c", LEVELS).cast(pl.Enum(["high", "low"]))
        ),
    ],
    ids=["numbers", "quantiles", "intervals", "mixed", "polars categorical", "polars enum"],
)
def test_categories_in_every_form(
    frame: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    selection = uniproto.select(frame, 4)
    ordered = request.node.callspec.id in ("quantiles", "intervals", "polars enum")
    assert kinds(selection.details.preparation)["c"] == ("ordered" if ordered else "category")
    assert selection.nearest(frame).prototype.shape == (N,)
    selection.save(tmp_path / "saved")
    loaded = uniproto.Selection.load(tmp_path / "saved")
    assert loaded.details.preparation == selection.details.preparation


def test_a_column_that_arrow_has_no_type_for_can_be_ignored() -> None:
    frame = FRAME[NUMBERS].assign(odd=[2**70, "a"] * (N // 2))
    preparation = uniproto.select(
        frame, 3, features=uniproto.Columns(ignore=["odd"])
    ).details.preparation
    assert preparation is not None
    assert preparation.aside["odd"] == "ignored"


def test_one_name_twice() -> None:
    twice = pd.concat([FRAME[NUMBERS], FRAME[NUMBERS]], axis=1)
    with refused("source", InvalidInputError):
        uniproto.select(twice, 3)


DAYS = pd.Timestamp("2020-01-05") + pd.to_timedelta(np.arange(N) % 90, unit="D")


@pytest.mark.parametrize("form", ["%d.%m.%Y", "%Y/%m/%d", "%d.%m.%Y %H:%M", "%Y-%m-%d"])
def test_dates_that_mean_one_day_are_read(form: str) -> None:
    texts = DAYS.strftime(form).to_numpy(object)
    texts[7] = ""  # a gap, as files write it
    found = fit_preparation(pa.table({"d": texts}), scale="none")
    assert kinds(found) == {"d": "date"}
    days = found.matrix(pa.table({"d": texts}))
    assert days[20, 0] - days[0, 0] == 20
    assert days[7, 1] == 1


@pytest.mark.parametrize(
    ("texts", "advice"),
    [
        (
            (DAYS - pd.to_timedelta(DAYS.day - DAYS.day % 12 - 1, unit="D")).strftime("%m/%d/%Y"),
            "looks like dates; to compare them, write them as 2020-12-31",
        ),
        (DAYS.strftime("%d-%m-%y"), "looks like dates; to compare them, write them as 2020-12-31"),
        (
            [f"{row % 90}{',5' if row % 9 else '.25'}" for row in range(N)],
            "looks like numbers; to compare them, write",
        ),
    ],
    ids=["day or month", "short", "comma and point"],
)
def test_dates_and_numbers_that_could_mean_several_are_told(texts: Any, advice: str) -> None:
    preparation = uniproto.select(FRAME[NUMBERS].assign(odd=list(texts)), 4).details.preparation
    assert preparation is not None
    assert preparation.aside["odd"].startswith(advice)


def test_texts_of_which_hardly_any_is_common_are_set_aside() -> None:
    texts = ["often"] * 8 + [f"town {row // 2}" for row in range(N - 8)]
    preparation = fit_preparation(pa.table({"town": texts, "x": np.arange(N) % 17}))
    assert preparation.aside["town"] == "197 different values, hardly any of them common"


# --- columns that are not what they look like -----------------------------------------------------


M = 120
DRAW = np.random.default_rng(5)
AMOUNTS = {"a": DRAW.normal(size=M), "b": DRAW.normal(size=M)}


def prepared(target: pd.DataFrame | None = None, **columns: Any) -> Preparation:
    table = arrow_table(pd.DataFrame({**AMOUNTS, **columns}), "source")
    return fit_preparation(table, None if target is None else arrow_table(target, "target"))


def kind_of(name: str, values: Any) -> str:
    return {row[0]: row[1] for row in prepared(**{name: values}).rows}[name]


SOME_DAYS = pd.Timestamp("2019-12-20") + pd.to_timedelta(np.arange(M) % 40, unit="D")


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("booked", SOME_DAYS.strftime("%Y%m%d").astype(int), "date"),
        ("booked", np.where(np.arange(M) == 4, np.nan, 20200105 + np.arange(M) % 20), "date"),
        ("amount", 20201350 + np.arange(M), "set aside"),  # no month 13: they count rows
        ("place", DRAW.choice([10115, 20095, 80331], M), "category"),
        ("salary", DRAW.choice([20_000, 25_000, 40_000], M), "number"),
        ("zip", DRAW.integers(1_000, 99_999, M), "set aside"),
        ("phone", DRAW.choice(10**9, M, replace=False), "set aside"),
        ("MLS#", DRAW.choice(10**7, M, replace=False), "set aside"),
        ("product", DRAW.integers(1, 4, M), "category"),
        ("product_code", DRAW.integers(1, 4, M), "category"),
        ("sex", DRAW.integers(1, 3, M), "category"),
        ("invoice", DRAW.permutation(M) * 10 + 5000, "set aside"),
        ("weight", DRAW.integers(50, 90, M), "number"),
        ("year", 1900 + np.arange(M), "number"),
        ("year", (1900 + np.arange(M)).astype(str), "number"),
        ("surname", [f"name {row % 100}" for row in range(M)], "set aside"),
        ("town", [f"town {row % 10}" for row in range(M)], "category"),
        ("size", pd.Categorical(["S", "M", "L"] * 40, ["S", "M", "L"], ordered=True), "ordered"),
    ],
)
def test_what_can_be_recognised_is(name: str, values: Any, kind: str) -> None:
    assert kind_of(name, values) == kind


def test_an_ordered_category_keeps_its_order() -> None:
    sizes = ["S", "M", "L", "XL", None] * (M // 5)
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
        ("branch", DRAW.integers(1, 5, M), r"Columns\(categories=\['branch'\]\)"),
        ("contract", DRAW.choice(10**7, M, replace=False) + 10**7, r"Columns\(ignore=\['contract"),
    ],
)
def test_what_is_doubtful_is_said_once(name: str, values: Any, remedy: str) -> None:
    with pytest.warns(DataWarning, match=f"{name}.*{remedy}") as said:
        preparation = prepared(**{name: values})
    assert len(said) == 1
    assert said[0].filename == __file__
    assert preparation.columns[-1].kind == "number"
    assert "; may be" in preparation.table()


IDS, SITES = np.arange(M) // 3, np.arange(M) % 4


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("id", IDS, "set aside"),
        ("customerId", IDS, "set aside"),
        ("hid", [f"H{number}" for number in IDS], "set aside"),
        ("index", np.arange(M) % 40, "set aside"),  # begins again
        ("NO", DRAW.integers(10, 99, M), "number"),  # of nitrogen
        ("bid", IDS, "number"),
        ("store_id", SITES, "category"),
        ("StateCode", DRAW.integers(1, 20, M), "category"),
        ("race", SITES, "category"),
        ("station", [f"c{site}" if site > 2 else f"{site}" for site in SITES], "category"),
        ("childNum", SITES, "number"),
        ("MPG.city", SITES, "number"),
    ],
)
def test_ids_in_several_rows_and_codes_are_known_by_their_names(
    name: str, values: Any, kind: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        assert kinds(prepared(**{name: values}))[name] == kind


def test_many_doubts_are_one_short_warning() -> None:
    answers = {f"answer {at}": DRAW.integers(1, 6, M) for at in range(20)}
    with pytest.warns(DataWarning, match=r"answer 7 and 12 more\. If so") as said:
        prepared(**answers)
    assert len(said) == 1


def test_98_and_99_may_both_stand_for_gaps() -> None:
    children = np.concatenate([DRAW.integers(0, 8, M - 5), [98, 98, 99, 99, 99]])
    with pytest.warns(DataWarning, match=r"99 in 3 and 98 in 2 of.*\{'children': \[99, 98\]\}"):
        prepared(children=children)


@pytest.mark.parametrize("name", ["rooms", "n_visits", "rating", "month"])
def test_counts_and_times_are_not_doubtful(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kind_of(name, DRAW.integers(1, 5, M)) == "number"


@pytest.mark.parametrize("gap", ["?", "-", "missing", "NA"])
def test_numbers_as_texts_are_numbers(gap: str) -> None:
    texts = [gap if row % 20 == 3 else str(row * 0.25) for row in range(M)]
    preparation = prepared(price=texts)
    column = preparation.columns[-1]
    assert (column.kind, column.flag) == ("number", True)
    values = preparation.matrix(pd.DataFrame({**AMOUNTS, "price": texts}))[:, -2]
    assert values[100] - values[0] == pytest.approx(25 / column.scale)
    whole = [gap if row % 20 == 3 else str(row % 50) for row in range(M)]
    assert kind_of("horsepower", whole) == "number"
    assert kind_of("price", [str(row * 0.25) for row in range(M)]) == "number"


def test_digits_that_are_kept_as_texts_stay_codes() -> None:
    assert kind_of("store", [str(row % 9 + 10) for row in range(M)]) == "category"
    assert kind_of("store", [f"0{row % 9}" if row else "?" for row in range(M)]) == "category"


def test_words_among_numbers_are_named() -> None:
    texts = ["sold out" if row % 10 == 3 else str(row * 0.25) for row in range(M)]
    assert prepared(price=texts).aside["price"] == (
        "looks like numbers, but 12 of 120 are not, such as 'sold out'; leave those empty"
    )


def test_a_gap_in_a_category_is_one_whatever_its_word() -> None:
    levels = (["x"] * 10 + ["y"] * 10 + ["?", "", None, "-"]) * 5
    assert prepared(c=levels).columns[-1].levels == ("(missing)", "x", "y")


def test_a_column_that_makes_most_of_the_distance_is_named() -> None:
    frame = pd.DataFrame({**AMOUNTS, "c": DRAW.normal(size=M), "income": DRAW.normal(size=M) * 30})
    table = arrow_table(frame, "source")
    with pytest.warns(DataWarning, match=r"'income' makes 9\d% of the mean distance.*ignore="):
        fit_preparation(table, scale="none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_preparation(table)


# A target of other columns or units


TARGET = pd.DataFrame({**AMOUNTS, "income": DRAW.normal(30_000, 5_000, M)})


def test_columns_that_only_one_has_are_named() -> None:
    renamed = TARGET.rename(columns={"income": "Income (EUR)"}).iloc[:90]
    with pytest.warns(DataWarning, match="target has no column 'income', and the source has no"):
        preparation = prepared(renamed, income=TARGET["income"])
    assert preparation.aside["income"] == "not in the target"
    assert len(preparation.columns) == 2


def test_another_unit_is_mentioned() -> None:
    thousands = TARGET.assign(income=TARGET["income"] / 1000).head(90)
    with pytest.warns(DataWarning, match=r"income \(\S+ in the source, \S+ in the target\)"):
        prepared(thousands, income=TARGET["income"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepared(TARGET.head(90), income=TARGET["income"])
        prepared(TARGET.assign(a=TARGET["a"] * 3).head(90), income=TARGET["income"])


def test_a_column_of_another_type_is_named() -> None:
    words = TARGET.assign(income=["much", "little"] * (M // 2)).head(90)
    with refused("target", InvalidInputError):
        prepared(words, income=TARGET["income"])
    texts = TARGET.assign(income=[str(value) for value in TARGET["income"]]).head(90)
    texts.loc[3, "income"] = "?"
    preparation = prepared(texts, income=TARGET["income"])
    assert preparation.columns[-1].flag
    assert np.isfinite(preparation.matrix(texts)).all()


# Columns that are labels, and what is no table


LABELLED = pd.DataFrame(
    {"a": AMOUNTS["a"] * 90, "b": AMOUNTS["b"], "species": ["x", "y"] * (M // 2)}
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


@pytest.mark.usefixtures("inside")
def test_codes_are_named_by_columns_and_by_the_command() -> None:
    frame = pd.DataFrame({**AMOUNTS, "branch": DRAW.integers(1, 5, M)})
    columns = uniproto.Columns(categories=["branch"])
    expected = uniproto.select(frame, 4, features=columns)
    assert expected.details.preparation.columns[-1].kind == "category"
    frame.to_csv("pool.csv", index=False)
    assert main(["select", "pool.csv", "-k", "4", "--categories", "branch", "-o", "out"]) == 0
    assert uniproto.Selection.load("out").indices.tolist() == expected.indices.tolist()


@pytest.mark.parametrize(
    "source",
    [LABELLED["a"], LABELLED.head(0), LABELLED.assign(v=[[1.0, 2.0]] * M)],
    ids=["series", "empty", "lists"],
)
def test_what_is_no_table_of_numbers_is_refused(source: Any) -> None:
    with refused("source", InvalidInputError):
        uniproto.Problem(source)


def test_a_target_without_columns_is_named() -> None:
    table = pd.DataFrame({"a": np.arange(9.0), "b": ["x", "y", "z"] * 3})
    with refused("target", InvalidInputError):
        uniproto.select(table, 2, np.ones((4, 2)))


@pytest.mark.parametrize("columns", [{"a": 1}, {"a": [1, 2], "b": [1]}])
def test_columns_that_are_no_table(columns: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        uniproto.select(columns, 1)


def test_a_huge_unit_is_not_written_out() -> None:
    table = pd.DataFrame({"a": [1.0, 2, 3e300, 1e300, -7e299], "b": [1, 2, 3, 4, 9.0]})
    assert "in units of 7.413e+299 (its spread)" in uniproto.select(table, 2).summary()
