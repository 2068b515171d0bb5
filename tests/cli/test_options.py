"""Options: the names and defaults of parameters; `uniproto cost` and `uniproto nearest`."""

from __future__ import annotations

import csv
import inspect
import io
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.refusals import refused

import uniproto
import uniproto.lm
from uniproto.cli import main
from uniproto.cli.compare import CompareOptions
from uniproto.cli.path import PathOptions
from uniproto.cli.spec import CurateSpec, SelectSpec
from uniproto.errors import DataWarning
from uniproto.runtime.settings import described
from uniproto.scale.select import select as select_on_ray

# A value gives its name to the option of its first field.
BY_VALUE = {"columns": "use", "text": "column", "images": "column", "gradients": "layer"}
VALUES = (
    *(uniproto.Columns, uniproto.Text, uniproto.Images, uniproto.lm.Gradients),
    *(uniproto.lm.HiddenStates, uniproto.Groups, uniproto.Limits, uniproto.Balanced),
    *(uniproto.Compute, uniproto.RBF, uniproto.UniProto, uniproto.Greedy, uniproto.Entropic),
)
FUNCTIONS = (uniproto.Problem, uniproto.select, uniproto.compare, uniproto.path)
# What a command alone has: where results go, and what Python says with other values.
OWN = {
    *("pool", "output", "quiet", "id", "encoding", "engine", "checkpoint", "budget"),
    *("exclude_near", "benchmarks", "keep_duplicates", "no_cache", "no_page", "source"),
    *("hidden", "adam", "column"),
}
# None stands for what other options make of it.
DEPENDS = {"cache", "template", "layer"}


def declared() -> dict[str, list[Any]]:
    """The defaults of every parameter and field, by its name."""
    found: dict[str, list[Any]] = {}
    for value in VALUES:
        for each in fields(value):
            found.setdefault(each.name, []).append(each.default)
    for function in (*FUNCTIONS, select_on_ray, uniproto.lm.curate):
        for parameter in inspect.signature(function).parameters.values():
            found.setdefault(parameter.name, []).append(parameter.default)
    return found


def usual(default: Any) -> Any:
    return None if default in ((), MISSING, inspect.Parameter.empty) else default


@pytest.mark.parametrize("spec", [SelectSpec, CompareOptions, PathOptions, CurateSpec])
def test_names_and_defaults_are_those_of_python(spec: type[Any]) -> None:
    known = declared()
    others = {"target", "min_distance"} if spec is CurateSpec else set()  # curate needs both
    for option in described(spec):
        if option.name in OWN:
            continue
        name = BY_VALUE.get(option.name, option.name)
        assert name in known, option.name
        if option.name in DEPENDS or option.name in BY_VALUE or option.name in others:
            continue
        assert usual(option.default) in [usual(each) for each in known[name]], option.name


def test_every_parameter_of_a_problem_is_an_option() -> None:
    options = {each.name for each in described(SelectSpec)} | {"source", "features", "compute"}
    options |= {"limits"}
    wanted = set(inspect.signature(uniproto.Problem).parameters)
    for value in (uniproto.Compute, uniproto.Limits, uniproto.Groups):
        assert is_dataclass(value)
        wanted |= {each.name for each in fields(value)} - {"target", "labels"}
    assert wanted - options <= {"keep"}


@pytest.fixture
def table(inside: Path) -> pd.DataFrame:
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": random.integers(20, 80, 60), "kind": random.choice(list("abc"), 60)}
    )
    frame.to_csv("people.csv", index=False)
    return frame


Said = Callable[[], str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    return lambda: capsys.readouterr().out


def test_cost_of_rows_and_of_a_result(table: pd.DataFrame, said: Said) -> None:
    assert main(["select", "people.csv", "-k", "4", "-o", "out", "--quiet"]) == 0
    rows = uniproto.Selection.load("out").indices.tolist()
    expected = uniproto.cost("people.csv", rows)
    for given in ("out", ",".join(map(str, rows))):
        assert main(["cost", "people.csv", given]) == 0
        assert float(said().split()[0]) == pytest.approx(expected, rel=1e-9)
    assert main(["cost", "people.csv", "1,2", "--columns", "age", "--metric", "l1"]) == 0
    of_age = uniproto.cost(table, [1, 2], features=uniproto.Columns(use=["age"]), metric="l1")
    assert float(said().split()[0]) == pytest.approx(of_age, rel=1e-9)


def test_cost_of_no_row(table: pd.DataFrame, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "people.csv", "1,60"]) == 2
    assert capsys.readouterr().err.startswith("uniproto: error: ROWS must hold row numbers")


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_nearest_prototypes_of_new_rows(kind: str, table: pd.DataFrame, said: Said) -> None:
    vectors = np.random.default_rng(1).normal(size=(50, 3))
    np.save("vectors.npy", vectors)
    pool, new = ("people.csv", "new.csv") if kind == "csv" else ("vectors.npy", "new.npy")
    table.iloc[5:9].to_csv("new.csv", index=False)
    np.save("new.npy", vectors[5:9])
    assert main(["select", pool, "-k", "4", "-o", "out", "--quiet"]) == 0
    said()
    assert main(["nearest", "out", new]) == 0
    lines = list(csv.DictReader(io.StringIO(said())))
    selection = uniproto.select(pool, 4)
    assert selection.indices.tolist() == uniproto.Selection.load("out").indices.tolist()
    expected = selection.nearest(table.iloc[5:9] if kind == "csv" else vectors[5:9])
    assert selection.nearest(new).distance.tolist() == expected.distance.tolist()
    assert [int(line["rank"]) - 1 for line in lines] == expected.prototype.tolist()
    indices = selection.indices[expected.prototype].tolist()
    assert [int(line["index"]) for line in lines] == indices
    assert [float(line["distance"]) for line in lines] == pytest.approx(expected.distance.tolist())
    assert [int(line["row"]) for line in lines] == [0, 1, 2, 3]


def test_warnings_speak_of_options_in_a_command_and_of_parameters_in_python(
    table: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    branches = np.random.default_rng(0).integers(1, 5, len(table))
    table.assign(branch=branches).to_csv("people.csv", index=False)
    with pytest.warns(DataWarning, match="features=Columns"):
        uniproto.select("people.csv", 2)
    assert main(["select", "people.csv", "-k", "2", "-o", "out"]) == 0
    told = capsys.readouterr().err
    assert "--categories branch" in told
    assert "features=" not in told


@pytest.mark.parametrize(
    ("options", "flag"),
    [
        (["-k", "61"], "-k"),
        (["-k", "2", "--include", "3,99"], "--include"),
        (["-k", "2", "--min-distance", "1e9"], "--min-distance"),
        (["-k", "2", "--columns", "agee"], "--columns"),
        (["-k", "2", "--metric", "euclid"], "--metric"),
        (["-k", "2", "--groups", "sort"], "--groups"),
        (["-k", "2", "--target-weights", "age2"], "--target-weights"),
        (["-k", "2", "--seconds", "1", "--method", "random"], "--seconds"),
        (["-k", "2", "--neighbours", "few"], "--neighbours"),
        (["-k", "2", "--weights", "age=0"], "--weights"),
        (["-k", "2", "--cyclic", "hour=24"], "--cyclic"),
        (["-k", "2", "--missing", "age"], "--missing"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_errors_name_the_option(
    options: list[str], flag: str, table: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["select", "people.csv", *options, "-o", "out"]) == 2
    told = capsys.readouterr().err.removeprefix("uniproto: error: ")
    assert told.removeprefix("people.csv: ").startswith(f"{flag} ")


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"k": 61}, "k"),
        ({"include": [3, 99]}, "include"),
        ({"min_distance": 1e9}, "min_distance"),
        ({"features": uniproto.Columns(use=["agee"])}, "features"),
        ({"metric": "euclid"}, "metric"),
        ({"groups": "sort"}, "groups"),
        ({"target_weights": "age2"}, "target_weights"),
        ({"seconds": 1, "method": "random"}, "seconds"),
        ({"compute": uniproto.Compute(neighbours="few")}, "neighbours"),
        ({"weights": [1.0]}, "weights"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_errors_carry_their_parameter(
    given: dict[str, Any], parameter: str, table: pd.DataFrame
) -> None:
    with refused(parameter):
        uniproto.select(table, **{"k": 2, **given})
