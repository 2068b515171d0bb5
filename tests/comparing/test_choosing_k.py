"""`path`: what each k costs, what it could cost at best, and the smallest k that is enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refused

import uniproto
from uniproto import InfeasibleError, KPath, Selection, path
from uniproto.cli import main
from uniproto.comparing.path import knee_of
from uniproto.errors import InvalidInputError

GREEDY = uniproto.Greedy()
# Of length 1, and thus compared by direction.
X, Y = (
    rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for rows in (
        np.random.default_rng(seed).normal(size=(count, 3)) for seed, count in ((3, 60), (4, 40))
    )
)
KS = [2, 4, 8, 16]


@pytest.fixture(scope="module")
def found() -> KPath:
    return path(X, ks=KS, max_cost=0.08, seeds=3)


def test_every_k_is_a_run_of_its_own(found: KPath) -> None:
    assert [row["k"] for row in found.rows] == KS
    for row in found.rows:
        assert row["cost"] == uniproto.select(X, row["k"]).cost
        draws = [uniproto.select(X, row["k"], method="random", seed=s).cost for s in range(3)]
        assert row["random_cost"] == pytest.approx(np.mean(draws))
        assert row["random_spread"] == pytest.approx(np.std(draws, ddof=1))


def test_no_cost_is_below_its_bound(found: KPath) -> None:
    for row in found.rows:
        assert row["lower_bound"] <= row["cost"]
        assert row["lower_bound"] <= row["random_cost"]


def test_the_chosen_k_is_the_smallest(found: KPath) -> None:
    assert found.chosen is not None
    assert found.selection is not None
    assert found.selection.k == found.chosen
    assert found.selection.cost <= 0.08
    assert uniproto.select(X, found.chosen - 1).cost > 0.08
    known = {row["k"]: row["cost"] for row in found.rows} | found.searched
    assert known[found.chosen] == found.selection.cost
    assert all(known[k] == uniproto.select(X, k).cost for k in found.searched)


def test_the_search_also_goes_below_the_first_k() -> None:
    chosen = path(X, ks=[30], max_cost=0.3, certify=False, seeds=0).chosen
    assert chosen is not None
    assert uniproto.select(X, chosen).cost <= 0.3
    assert chosen == 1 or uniproto.select(X, chosen - 1).cost > 0.3
    assert path(X, ks=[3], max_cost=9.0, certify=False, seeds=0).chosen == 1


def test_a_cost_out_of_reach_is_told_with_the_best_one() -> None:
    best = uniproto.select(X, 4).cost
    with pytest.raises(InfeasibleError, match=rf"{best:.6g}, the lowest cost .* at k=4"):
        path(X, ks=[2, 4], max_cost=best / 2, certify=False, seeds=0)


def test_bounds_and_random_choices_may_be_left_out() -> None:
    found = path(X, ks=[2, 3], method=GREEDY, certify=False, seeds=0)
    for row in found.rows:
        assert row["lower_bound"] is row["random_cost"] is row["random_spread"] is None
    assert found.knee is found.chosen is found.selection is None
    assert "–" in str(found)


def test_the_default_ks_are_spaced_evenly_in_their_logarithm() -> None:
    ks = [row["k"] for row in path(X, certify=False, seeds=0).rows]
    assert ks == sorted(set(ks))
    assert ks[0] == 2
    assert ks[-1] == 30
    assert 5 <= len(ks) <= 8
    assert [row["k"] for row in path(X[:1], certify=False, seeds=0).rows] == [1]
    mask = np.arange(60) < 5
    ks = [row["k"] for row in path(X, include=mask, certify=False, seeds=0).rows]
    assert ks[0] == 5


def test_conditions_reach_every_k() -> None:
    groups = np.arange(60) % 2
    found = path(
        X,
        [4, 6],
        groups=uniproto.Groups(groups, budgets="balanced"),
        max_cost=9,
        certify=5,
        seeds=[8],
    )
    alone = uniproto.select(X, 6, groups=uniproto.Groups(groups, budgets="balanced"))
    assert found.rows[1]["cost"] == alone.cost
    draw = uniproto.select(
        X, 6, groups=uniproto.Groups(groups, budgets="balanced"), method="random", seed=8
    )
    assert found.rows[1]["random_cost"] == draw.cost
    assert found.rows[1]["random_spread"] is None
    other = path(X, [3], Y, metric="euclidean", include=[1, 2], exclude=[0], certify=False)
    expected = uniproto.select(X, 3, Y, metric="euclidean", include=[1, 2], exclude=[0])
    assert other.rows[0]["cost"] == expected.cost
    assert other.shape == (60, 40)


@pytest.mark.parametrize(
    ("parameter", "arguments"),
    [
        *[("ks", {"ks": ks}) for ks in ([], [0, 3], [2.5], [True, 3], 10)],
        ("k", {"ks": [5, 61]}),
        ("include", {"ks": [1, 5], "include": [3, 4]}),
        *[("max_cost", {"max_cost": cost}) for cost in (-1, "low", float("nan"))],
        ("certify", {"certify": 0.0}),
        ("seeds", {"seeds": -2}),
        ("method", {"method": "unipro"}),
        ("budgets", {"groups": uniproto.Groups([0] * 60, budgets={0: 5})}),
    ],
)
def test_bad_arguments_are_refused(parameter: str, arguments: dict[str, Any]) -> None:
    with refused(parameter, InvalidInputError):
        path(**{"source": X, "ks": [5], **arguments})


def test_too_few_points_have_no_knee() -> None:
    assert knee_of([10, 20], [1.0, 0.5]) is None
    assert knee_of([10, 20, 40], [1.0, 1.0, 1.0]) is None
    assert knee_of([10, 20, 40], [1.0, 0.9, 0.0]) is None  # above the line, not below
    assert knee_of([1, 10, 100], [3.0, 2.0, 1.0]) is None  # on the line


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.1, 10), min_size=3, max_size=8),
    st.floats(0.1, 100),
    st.floats(-5, 5),
)
def test_the_knee_does_not_depend_on_units(falls: list[float], scale: float, shift: float) -> None:
    ks = [2**power for power in range(len(falls) + 1)]
    costs = np.cumsum([0.0, *(-fall for fall in sorted(falls, reverse=True))])
    gaps = np.diff(costs, 2)
    if gaps.max() < 1e-3:  # nearly straight: rounding decides
        return
    knee = knee_of(ks, costs.tolist())
    assert knee in ks[1:-1]
    assert knee_of([3 * k for k in ks], costs.tolist()) == 3 * knee
    position = ks.index(knee)
    chord = costs[0] + (costs[-1] - costs[0]) * np.arange(len(ks)) / (len(ks) - 1)
    assert (chord - costs)[position] == pytest.approx((chord - costs).max())
    again = knee_of(ks, (costs * scale + shift).tolist())
    assert again is not None
    assert (chord - costs)[ks.index(again)] == pytest.approx((chord - costs).max())


def test_the_table_prints(found: KPath, capsys: pytest.CaptureFixture[str]) -> None:
    found.table()
    printed = capsys.readouterr().out
    assert printed == f"{found}\n"
    assert f"k = {found.chosen} is the smallest k found" in printed
    assert "a separate run" in printed
    knee = [line for line in printed.splitlines() if "knee" in line]
    assert [line.split()[0] for line in knee] == [str(found.knee)]


def test_everything_is_saved(found: KPath, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found.save(out)
    names = {f"path.{ending}" for ending in ("parquet", "csv", "json", "png", "svg", "html")}
    assert {file.name for file in out.iterdir()} == names | {"selection"}
    table = pd.read_parquet(out / "path.parquet")
    assert table.to_dict("records") == found.rows
    record = json.loads((out / "path.json").read_text("utf-8"))
    assert record["knee"] == found.knee
    assert record["chosen"] == found.chosen
    assert Selection.load(out / "selection").k == found.chosen


@pytest.mark.slow
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "pool.npy", X)
    out = tmp_path / "out"
    command = ["path", str(tmp_path / "pool.npy"), "--ks", "2,4,8,16", "--max-cost", "0.08"]
    assert main([*command, "--seeds", "3", "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "lower bound" in printed
    record = json.loads((out / "path.json").read_text("utf-8"))
    expected = path(X, ks=KS, max_cost=0.08, seeds=3)
    assert record["chosen"] == expected.chosen
    assert [row["cost"] for row in record["rows"]] == [row["cost"] for row in expected.rows]
    assert Selection.load(out / "selection").k == expected.chosen
