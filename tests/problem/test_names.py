"""What people call things: metrics of other libraries, paths as text, keywords that come close."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.refusals import refused

import uniproto
from uniproto.errors import InvalidInputError, UniprotoError
from uniproto.geometry.costs import METRICS, OTHER_NAMES, metric_name

X = np.random.default_rng(0).normal(size=(30, 3))


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_other_names_of_metrics(name: str) -> None:
    ours = metric_name(name)
    assert ours in METRICS
    found, expected = uniproto.select(X, 4, metric=name), uniproto.select(X, 4, metric=ours)
    np.testing.assert_array_equal(found.indices, expected.indices)
    assert found.details.metric == ours
    assert ours in found.summary()
    assert uniproto.PrototypeSelector(4, metric=name).fit(X).selection_.details.metric == ours


@pytest.mark.usefixtures("inside")
@pytest.mark.parametrize("name", ["rows.npy", "parts/*.parquet", "parts"])
def test_paths_as_text(name: str) -> None:
    np.save("rows.npy", X)
    Path("parts").mkdir()
    pd.DataFrame({"v": list(X)}).to_parquet("parts/0.parquet")
    expected = uniproto.select(X, 4).indices
    np.testing.assert_array_equal(uniproto.select(name, 4).indices, expected)
    np.testing.assert_array_equal(uniproto.select(X, 4, target=name).indices, expected)


def test_a_text_that_names_no_file() -> None:
    with refused("source", InvalidInputError):
        uniproto.select("nowhere.npy", 2)


@pytest.mark.parametrize(
    "texts",
    [["one", "two"], ("one", "two"), np.array(["one", "two"]), np.array(["one", "two"], object)],
)
def test_texts_are_for_embed(texts: Any) -> None:
    for values in (texts, pd.Series(list(texts)), pl.Series(list(texts))):
        with refused("source", InvalidInputError):
            uniproto.select(values, 1)


@pytest.mark.parametrize(
    ("call", "offered"),
    [
        (lambda: uniproto.select(X, 3, weights=[1]), "'target_weights'"),
        (lambda: uniproto.Problem(X, group=[1]), "'groups'"),
        (lambda: uniproto.compare(X, 3, method="uniproto"), "'methods'"),
        (lambda: uniproto.path(X, max_costs=1), "'max_cost'"),
        (lambda: uniproto.cost(X, [1], weights=[1]), "'target_weights'"),
    ],
)
def test_misspelled_parameters_lead_to_ours(call: Any, offered: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"Did you mean {offered}?")) as caught:
        call()
    assert isinstance(caught.value, UniprotoError)
    assert caught.value.parameter not in (None, offered)


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    code = "import uniproto; print(*dir(uniproto))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {"data", "evaluation", "features", "lm"}
    assert set(ran.stdout.split()) == {*uniproto.__all__, *rooms, "__version__"}
