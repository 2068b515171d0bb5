"""Bars of columns on the page: years, ends and whole numbers as a person writes them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from uniproto.report.columns import ColumnValues


def names_of(values: object) -> list[str]:
    column = pa.chunked_array([pa.array(values)])
    chart = ColumnValues(column, column, "x", np.ones(len(column))).chart("")
    return [bar.name for bar in chart.bars]


def test_years_have_no_thousands() -> None:
    assert names_of([2007, 2008, 2009] * 5) == ["2007", "2008", "2009"]
    assert names_of(list(range(1900, 2000)))[0].startswith("1900 – 19")
    assert names_of([1000, 5000, 9000] * 5)[0].startswith("1,000 – ")


def test_the_ends_are_those_of_the_values() -> None:
    values = np.random.default_rng(0).normal(size=2000).round(3)
    names = names_of(values)
    assert names[0].startswith(f"{values.min():.3g}"[:4])
    assert names[-1].split(" – ")[1].startswith(f"{values.max():.3g}"[:3])


def test_few_whole_numbers_have_a_bar_each() -> None:
    assert names_of([1, 2, 2, 3, 4] * 4) == ["1", "2", "3", "4"]
