"""Comparisons and paths as data frames, in notebooks and on their pages; selections likewise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.refusals import refused

import uniproto
from uniproto import InputFileError, InvalidInputError
from uniproto.comparing.charts import path_page

DRAW = np.random.default_rng(2)
FRAME = pd.DataFrame(
    {"age": DRAW.integers(20, 90, 60), "pay": DRAW.normal(30, 5, 60)},
    index=[f"p{row}" for row in range(60)],
)


def test_a_comparison_is_a_frame_and_a_table_of_a_notebook() -> None:
    found = uniproto.compare(FRAME, 4, methods=["uniproto", "random"], seeds=2, progress=False)
    frame = found.to_frame()
    assert frame["method"].tolist() == [row["method"] for row in found.rows]
    assert frame["cost"].tolist() == [row["cost"] for row in found.rows]
    html = found._repr_html_()
    assert html.count("<tr>") == 3
    assert "4 of 60 source rows" in html


def test_the_chosen_k_is_in_the_table_of_its_page_with_the_reason() -> None:
    found = uniproto.path(FRAME, [2, 4, 16], max_cost=0.6, progress=False)
    frame = found.to_frame()
    assert frame["k"].tolist() == [2, 4, 16]
    assert "<table>" in found._repr_html_()
    page = path_page(found)
    assert page.headline == f"{found.chosen} prototypes are enough"
    row = next(row for row in page.rows if row[0] == str(found.chosen))
    assert "smallest k found with a cost of at most 0.6" in row[page.table.index("why")]
    ks = [int(row[0]) for row in page.rows]
    assert ks == sorted(ks)
    assert len(page.table) == len(page.rows[0])


def test_rows_and_frames_of_a_selection_keep_index_and_kind(tmp_path: Path) -> None:
    selection = uniproto.select(FRAME, 4)
    assert selection.to_frame().index.tolist() == FRAME.index[selection.indices].tolist()
    selection.save(tmp_path / "out")
    loaded = uniproto.Selection.load(tmp_path / "out")
    pd.testing.assert_frame_equal(
        loaded.rows(), selection.rows().reset_index(drop=True), check_dtype=False
    )
    assert selection.certify(1.0).lower_bound <= selection.cost
    with refused("seconds", InvalidInputError):
        selection.certify(-3)


GRADES = np.array(["a", "b"])[np.arange(60) % 2]


@pytest.mark.parametrize("options", [{}, {"groups": GRADES}, {"metric": "l1"}, {"metric": "rbf"}])
def test_a_loaded_selection_with_its_data_can_do_everything(options: Any, tmp_path: Path) -> None:
    selection = uniproto.select(FRAME, 4, features=uniproto.Columns(scale="standard"), **options)
    selection.save(tmp_path / "out")
    again = {name: value for name, value in options.items() if name == "groups"}
    loaded = uniproto.Selection.load(tmp_path / "out", FRAME, **again)
    assert loaded.cost == selection.cost
    assert loaded.rows().equals(selection.rows())
    np.testing.assert_allclose(loaded.assign().distance, selection.assign().distance)
    assert loaded.improve(0.2).cost <= selection.cost * (1 + 1e-12)
    assert loaded.certify(0.5).lower_bound <= selection.cost * (1 + 1e-12)
    assert loaded.summary().split("\n")[0] == selection.summary().split("\n")[0]


def test_other_data_are_refused(tmp_path: Path) -> None:
    uniproto.select(FRAME, 4).save(tmp_path / "out")
    with refused("source", InputFileError):
        uniproto.Selection.load(tmp_path / "out", FRAME.iloc[1:])
    with refused("source", InputFileError):
        uniproto.Selection.load(tmp_path / "out", FRAME.iloc[::-1])
    with pytest.raises(InvalidInputError, match=r"Selection\.load\(folder, source="):
        uniproto.Selection.load(tmp_path / "out").improve(1)
