"""The options of a `Problem`: declared once, the same everywhere, columns by their names."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.refusals import refused

import uniproto
from uniproto import (
    Balanced,
    Columns,
    Compute,
    Groups,
    InvalidInputError,
    Limits,
    Problem,
)
from uniproto.problem.problem import ProblemOptions

RNG = np.random.default_rng(5)
ROWS = 40
TABLE = {
    "age": RNG.integers(20, 80, ROWS),
    "income": RNG.normal(3e4, 1e4, ROWS),
    "kind": RNG.choice(["a", "b", "c"], ROWS).tolist(),
    "trust": RNG.uniform(0.5, 2.0, ROWS),
}
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
LABELS = np.array(TABLE["kind"])
NUMBERS = pd.DataFrame(TABLE)[["age", "income"]]
GREEDY = uniproto.Greedy()
FUNCTIONS = (uniproto.select, uniproto.compare, uniproto.path, uniproto.cost)


def picks(source: Any, k: int = 6, **options: Any) -> list[int]:
    return uniproto.select(source, k, method=GREEDY, progress=False, **options).indices.tolist()


def test_one_declaration() -> None:
    parameters = inspect.signature(Problem.__init__).parameters
    options = [name for name, each in parameters.items() if each.kind is each.KEYWORD_ONLY]
    assert list(ProblemOptions.__annotations__) == options
    assert len(parameters) - 1 == 12
    for function in FUNCTIONS:
        own = inspect.signature(function).parameters
        assert len(own) <= 12
        assert str(own["problem"].annotation) == "Unpack[ProblemOptions]"


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_the_help_explains_every_parameter(function: Any) -> None:
    text = inspect.getdoc(function) or ""
    own = [name for name in inspect.signature(function).parameters if name != "problem"]
    for name in (*own, *ProblemOptions.__annotations__):
        assert f"\n    {name}: " in text, name


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize(
    ("by_name", "by_values", "aside"),
    [
        ({"groups": "kind"}, {"groups": LABELS}, "kind"),
        (
            {"groups": Groups("kind", budgets="balanced")},
            {"groups": Groups(LABELS, budgets="balanced")},
            "kind",
        ),
        ({"limits": Limits("kind", at_most=2)}, {"limits": Limits(LABELS, at_most=2)}, "kind"),
        (
            {"target_weights": Balanced("kind")},
            {"target_weights": Balanced(LABELS)},
            "kind",
        ),
        ({"target_weights": "trust"}, {"target_weights": TABLE["trust"]}, "trust"),
    ],
    ids=["groups", "Groups", "Limits", "Balanced", "weights"],
)
def test_a_column_by_its_name_is_no_feature(
    frame: str, by_name: Any, by_values: Any, aside: str
) -> None:
    table = FRAMES[frame](TABLE)
    problem = Problem(table, **by_name)
    assert problem.given is not None
    assert problem.given.preparation.aside[aside].startswith("named by ")
    expected = picks(table, **by_values, features=Columns(ignore=[aside]))
    assert picks(table, **by_name) == expected


def test_a_column_of_another_target() -> None:
    source, target = pd.DataFrame(TABLE), pd.DataFrame(TABLE).iloc[::-1].reset_index(drop=True)
    labels = Groups(LABELS, target=LABELS[::-1])
    only = Columns(ignore=["kind"])
    expected = picks(source, target=target, groups=labels, features=only)
    assert picks(source, target=target, groups="kind") == expected
    own = target.rename(columns={"kind": "sort"})
    assert picks(source, target=own, groups=Groups("kind", target="sort")) == expected


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_of_a_file(ending: str, tmp_path: Path) -> None:
    path, table = tmp_path / f"pool.{ending}", pd.DataFrame(TABLE)
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    assert picks(path, groups="kind") == picks(table, groups="kind")


def test_a_column_of_a_table_that_stays_on_disk(tmp_path: Path) -> None:
    rows = RNG.normal(size=(4000, 3))
    table = pd.DataFrame(rows, columns=["e0", "e1", "e2"]).assign(kind=["a", "b"] * 2000)
    table.to_parquet(tmp_path / "pool.parquet", row_group_size=500)
    scarce = Compute(memory=100_000, device="cpu")
    found = Problem(tmp_path / "pool.parquet", groups="kind", compute=scarce).with_k(4)
    assert [group.label for group in found.groups] == ["a", "b"]
    assert found.costs.shape == (4000, 4000)


def test_labels_of_a_comparison_by_name() -> None:
    table = pd.DataFrame(TABLE)
    asked: dict[str, Any] = {"methods": [GREEDY], "progress": False}
    found = uniproto.compare(table, 5, labels="kind", **asked)
    expected = uniproto.compare(table.drop(columns="kind"), 5, labels=LABELS, **asked)
    assert found.rows[0]["accuracy"] == expected.rows[0]["accuracy"]
    assert found.rows[0]["indices"] == expected.rows[0]["indices"]
    problem = Problem(table, features=Columns(ignore=["kind"]))
    again = uniproto.compare(problem, 5, labels="kind", **asked)
    assert again.rows[0]["accuracy"] == expected.rows[0]["accuracy"]


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("groups", "knd"),
        ("target_weights", "balanced"),
        ("limits", 3),
        ("compute", "4GB"),
        ("features", ["age"]),
        ("features", Columns(use=["ages"])),
    ],
)
def test_what_is_refused_of_a_table(parameter: str, value: Any) -> None:
    with refused(parameter, InvalidInputError):
        Problem(pd.DataFrame(TABLE), **{parameter: value})


def test_a_name_beside_an_array() -> None:
    with refused("groups", InvalidInputError):
        Problem(np.eye(4), groups="kind")


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__name__)
def test_options_beside_a_problem(function: Any) -> None:
    problem, second = Problem(np.eye(4)), {"path": [2], "cost": [0, 1]}.get(function.__name__, 2)
    for options in ({"metric": "l1"}, {"target": np.eye(4)}, {"include": ()}):
        (name,) = options
        with refused(name, InvalidInputError):
            function(problem, second, **options)


def test_a_problem_everywhere() -> None:
    problem = Problem(NUMBERS, metric="l1")
    selection = uniproto.select(problem, 4, method=GREEDY)
    assert uniproto.cost(problem, selection) == pytest.approx(selection.cost)
    assert uniproto.cost(NUMBERS, selection.indices, metric="l1") == pytest.approx(selection.cost)
    assert uniproto.path(problem, [4], method=GREEDY).rows[0]["cost"] == selection.cost
    compared = uniproto.compare(problem, 4, methods=[GREEDY], progress=False)
    assert compared.rows[0]["cost"] == selection.cost


def test_more_seconds_are_for_methods_that_search() -> None:
    with refused("seconds", InvalidInputError):
        uniproto.select(NUMBERS, 3, method="random", seconds=1)
    found = uniproto.select(NUMBERS, 3, seconds=0.05)
    assert found.details.options["seconds"] == 0.05
