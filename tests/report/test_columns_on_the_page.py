"""Columns in summary and page: shares of the cost, what is set aside or has no prototype."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import uniproto
from uniproto.report.columns import ColumnValues, absent_levels, column_shares
from uniproto.report.targets import arc_costs, owners_of, project

N = 240
DRAW = np.random.default_rng(4)
GRADES = (np.arange(N) % 10 > 2).astype(int) + (np.arange(N) % 10 > 7)
PATIENTS = pd.DataFrame(
    {
        "patient_id": DRAW.permutation(N) + 7000,
        "age": DRAW.normal(50, 9, N).round(),
        "size": DRAW.lognormal(3, 0.5, N).round(1),
        "grade": np.array(["I", "II", "III"])[GRADES],
        "latitude": DRAW.uniform(40, 50, N),
        "longitude": DRAW.uniform(5, 15, N),
    }
)


def test_every_column_has_its_share_of_the_cost() -> None:
    selection = uniproto.select(PATIENTS, 6)
    problem = selection._problem
    assert problem is not None
    arcs = arc_costs(problem, selection.indices, selection.plan)
    shares = column_shares(problem, selection.indices, selection.plan, arcs)
    assert list(shares) == ["age", "size", "grade", "latitude"]
    assert sum(shares.values()) == pytest.approx(1)
    heavy = uniproto.Columns(weights={"age": 20})
    weighed = uniproto.select(PATIENTS, 6, features=heavy)
    lines = weighed.summary().split("\n")
    first = next(at for at, line in enumerate(lines) if line.startswith("  columns"))
    assert "patient_id" in lines[first]  # what is set aside comes first
    assert lines[first + 1].split()[:2] == ["age", "number"]
    assert int(lines[first + 1].split()[2].rstrip("%")) > 60


def test_levels_without_a_prototype_are_named(tmp_path: Path) -> None:
    selection = uniproto.select(PATIENTS, 6, features=uniproto.Columns(weights={"grade": 0.01}))
    problem = selection._problem
    assert problem is not None
    present = set(selection.rows()["grade"])
    shares = PATIENTS["grade"].value_counts(normalize=True)
    expected = {level for level in shares.index if shares[level] > 1 / 6 and level not in present}
    far = np.flatnonzero(PATIENTS["grade"] == "II")[:6]
    found = absent_levels(problem, far)
    assert {level for _, level, _ in found} == {"I", "III"}
    assert {level for _, level, _ in absent_levels(problem, selection.indices)} == expected
    chosen = uniproto.select(PATIENTS, 6, include=far.tolist())
    assert "without a prototype     grade I (30% of the targets), grade III" in chosen.summary()
    assert "groups='grade' gives each level its share" in chosen.summary()
    page = chosen.report(tmp_path / "page.html", random=0).read_text("utf-8")
    assert "Without a prototype: grade I (30% of the targets)" in page
    assert '<tr class="missing" title="no prototype">' in page
    assert "1 column set aside: not compared" in page
    assert "looks like an id: different in every row" in page
    assert "of the cost; number" in page
    assert "column age" in page  # the map can be coloured by it


def test_the_map_of_places_is_a_map(tmp_path: Path) -> None:
    selection = uniproto.select(PATIENTS, 4)
    page = selection.report(tmp_path / "page.html", random=0).read_text("utf-8")
    assert "Axes: longitude and latitude." in page


def test_what_a_prototype_represents_sums_to_all_rows() -> None:
    selection = uniproto.select(PATIENTS, 7)
    owners = owners_of(selection.plan)
    assert owners.tolist() == selection.plan.toarray().argmax(axis=0).tolist()
    assert selection.to_frame()["represents"].sum() == N


def test_bins_of_a_skewed_column_show_it() -> None:
    values = pa.chunked_array([np.append(DRAW.lognormal(0, 1, 500), [900, 990, 1000, 1100])])
    column = ColumnValues(values, values.slice(0, 5), "x", np.full(504, 1 / 504))
    chart = column.chart("")
    assert max(bar.target for bar in chart.bars) < 0.6
    assert sum(bar.target for bar in chart.bars) == pytest.approx(1)
    assert "ranges grow to the right" in chart.words
    even = ColumnValues(
        pa.chunked_array([DRAW.normal(size=500)]), values.slice(0, 5), "x", np.full(500, 1 / 500)
    )
    assert "ranges grow" not in even.chart("").words


def test_a_map_across_the_pacific_is_cut_where_nothing_lies(tmp_path: Path) -> None:
    east = DRAW.uniform(140, 179, N // 2)
    islands = pd.DataFrame(
        {
            "lat": DRAW.uniform(-10, 10, N),
            "lon": np.concatenate([east, DRAW.uniform(-179, -150, N - N // 2)]),
            "name": [f"island {row}" for row in range(N)],
        }
    )
    selection = uniproto.select(islands, 5)
    problem = selection._problem
    assert problem is not None
    found = project(problem, selection.plan, selection.indices, np.arange(N))
    for places, rows in ((found.targets, np.arange(N)), (found.prototypes, selection.indices)):
        assert np.ptp(places[:, 0]) < 75
        given = islands["lon"].to_numpy()[rows]
        np.testing.assert_allclose((places[:, 0] - given + 180) % 360, 180)
    assert found.degree == pytest.approx(1, abs=1e-3)
    page = selection.report(tmp_path / "page.html", text="name").read_text()
    assert "column lat" in page  # columns are shown beside texts


def test_rows_of_a_file_are_a_data_frame(tmp_path: Path) -> None:
    path = tmp_path / "patients.csv"
    PATIENTS.to_csv(path, index=False)
    expected = uniproto.select(PATIENTS, 4).rows().reset_index(drop=True)
    pd.testing.assert_frame_equal(uniproto.select(path, 4).rows(), expected)
    records = PATIENTS.to_dict("records")
    pd.testing.assert_frame_equal(uniproto.select(records, 4).rows(), expected)
    assert isinstance(uniproto.select(pa.Table.from_pandas(PATIENTS), 4).rows(), pa.Table)
