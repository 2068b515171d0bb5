"""What a summary says of the cost: the median is typical, the mean a mean, and why it is high."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import uniproto


def words(rows: object, **options: object) -> str:
    return uniproto.select(rows, 4, method="greedy", **options).in_words()


def test_typical_is_the_median_and_the_mean_is_called_a_mean() -> None:
    rows = np.random.default_rng(0).lognormal(0, 1.5, size=(60, 2))
    found = uniproto.select(rows, 4, metric="euclidean", method="greedy")
    distances = np.linalg.norm(rows[found.indices][:, None] - rows[None], axis=2)
    each = (found.plan.toarray() * distances).sum(axis=0) * 60
    assert each.mean() == pytest.approx(found.cost)
    typical, mean = np.sort(each)[29], found.cost
    assert f"a typical row is {typical:.3g} from its prototype, the mean is {mean:.3g}" in (
        found.in_words()
    )


def test_few_rows_that_make_most_of_it_are_counted() -> None:
    rows = np.random.default_rng(1).normal(size=(63, 3))
    rows[[5, 40]] = [[400.0, 0, 0], [0, -400.0, 0]]
    assert "(2 rows make " in words(rows, metric="euclidean")
    assert "rows make" not in words(np.delete(rows, [5, 40], axis=0), metric="euclidean")


@pytest.mark.filterwarnings("ignore:.pay. makes")
@pytest.mark.parametrize("metric", ["euclidean", "l1", "sqeuclidean"])
def test_one_column_that_makes_most_of_it_is_named(metric: str) -> None:
    rows = np.random.default_rng(2).normal(size=(80, 3)) * [1, 30, 1]
    assert "(column 1 makes " in words(rows, metric=metric)
    table = pd.DataFrame(rows, columns=["age", "pay", "size"])
    named = uniproto.Columns(scale="none")
    assert "('pay' makes " in words(table, metric=metric, features=named)
    assert "makes" not in words(table, metric=metric)  # scaled, they are alike
    assert "makes" not in words(rows, metric="cosine")


def test_of_a_loaded_selection_the_mean_is_known(tmp_path: object) -> None:
    found = uniproto.select(np.eye(5), 2, method="greedy")
    found.save(f"{tmp_path}/out")
    loaded = uniproto.Selection.load(f"{tmp_path}/out")
    assert loaded.in_words().startswith("the mean distance of a row from its prototype is ")
