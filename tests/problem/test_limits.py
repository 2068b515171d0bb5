"""Limits of sources, rows near a benchmark, and near-duplicates that are told late."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from tests.refusals import refused

import uniproto
from uniproto.cli import main
from uniproto.errors import InfeasibleError, InvalidInputError
from uniproto.geometry.metrics import FEATURE_METRICS, OF_FEATURES
from uniproto.geometry.twins import are_within, distances_from
from uniproto.methods import METHODS, Entropic, Greedy, UniProto
from uniproto.methods.greedy_plans import pick_extend, pick_resolve
from uniproto.problem.allowed import Pool
from uniproto.problem.near import rows_near
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress

M, N, WIDTH, K = 60, 17, 4, 12


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def pool(rng):
    return rng.normal(size=(M, WIDTH))


@pytest.fixture
def target(rng):
    return rng.normal(size=(N, WIDTH))


@pytest.fixture
def sources(rng):
    return np.array(["gsm", "aqua", "math"])[rng.integers(0, 3, M)]


def counts(selection, sources):
    return {name: int((sources[selection.indices] == name).sum()) for name in set(sources)}


# --- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(set(METHODS) - {"fasterpam"}))
def test_every_method_keeps_to_the_limits(name, pool, target, sources):
    selection = uniproto.select(
        np.abs(pool),
        K,
        np.abs(target),
        method=name,
        limits=uniproto.Limits(sources, at_most={"gsm": 2}, at_least={"aqua": 7, "math": 2}),
    )
    found = counts(selection, sources)
    assert found["gsm"] <= 2
    assert found["aqua"] >= 7
    assert found["math"] >= 2
    assert sum(found.values()) == K


@pytest.mark.parametrize("method", [Greedy(plan="resolve"), Greedy(gains="exact"),
                                    Greedy(plan=Entropic()), UniProto(seconds=1.0)])  # fmt: skip
def test_every_plan_keeps_to_the_limits(method, pool, target, sources):
    selection = uniproto.select(
        pool,
        K,
        target,
        method=method,
        limits=uniproto.Limits(sources, at_most=5, at_least={"gsm": 5}),
    )
    assert counts(selection, sources)["gsm"] == 5
    assert max(counts(selection, sources).values()) <= 5


def test_limits_that_bind_nothing_change_nothing(pool, target, sources):
    free = uniproto.select(pool, K, target)
    limited = uniproto.select(
        pool, K, target, limits=uniproto.Limits(sources, at_most=K, at_least=0)
    )
    np.testing.assert_array_equal(free.indices, limited.indices)
    np.testing.assert_array_equal(free.details.gains, limited.details.gains)


@pytest.mark.parametrize("at_least", [{}, {"b": 2}])
def test_greedy_takes_the_cheapest_row_that_the_limits_leave(at_least):
    """Against a plain search over all admissible sets, where greedy is exact: one target each."""
    rng = np.random.default_rng(3)
    costs, sources = rng.uniform(size=(8, 1)), np.array(list("aaaabbbb"))
    selection = uniproto.select(
        costs,
        4,
        metric="precomputed",
        limits=uniproto.Limits(sources, at_most={"a": 2, "b": 3}, at_least=at_least),
    )
    admissible = [
        rows
        for rows in combinations(range(8), 4)
        if sum(sources[list(rows)] == "a") <= 2
        and at_least.get("b", 0) <= sum(sources[list(rows)] == "b") <= 3
    ]
    best = min(costs[list(rows), 0].mean() for rows in admissible)
    assert selection.cost == pytest.approx(best)


def test_limits_hold_beside_distinct(pool, target, sources):
    doubled, both = np.concatenate([pool, pool + 1e-6]), np.concatenate([sources, sources])
    selection = uniproto.select(
        doubled,
        K,
        target,
        limits=uniproto.Limits(both, at_most=5, at_least={"math": 4}),
        min_distance=0.001,
    )
    assert len(set(selection.indices % M)) == K
    assert counts(selection, both)["math"] >= 4


@pytest.mark.parametrize(
    "limits",
    [
        {"at_most": {"gsm": 3, "aqua": 3, "math": 3}},
        {"at_least": {"gsm": 7, "aqua": 6}},
        {"at_least": {"gsm": 60}},
        {"at_least": {"gsm": 4}, "at_most": 3},
        {"at_most": {"gms": 4}},
        {"at_most": -1},
        {"at_most": {"gsm": 1.5}},
    ],
)
def test_limits_that_cannot_be(limits, pool, target, sources):
    with refused(next(iter(limits)), (InvalidInputError, InfeasibleError)):
        uniproto.select(pool, K, target, limits=uniproto.Limits(sources, **limits))


def test_limits_need_sources_and_exclude_groups(pool, target, sources):
    with refused("at_most", InvalidInputError):
        uniproto.select(pool, K, target, at_most=3)
    with refused("limits", InvalidInputError):
        uniproto.select(pool, K, groups=sources, limits=uniproto.Limits(sources, at_most=6))
    with refused("limits", InvalidInputError):
        uniproto.select(pool, K, method="fasterpam", limits=uniproto.Limits(sources, at_most=6))


# --- near-duplicates, told late -------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    metric=st.sampled_from(FEATURE_METRICS),
    single=st.booleans(),
    distance=st.floats(0.0, 1.0),
)
def test_within_a_distance_means_what_the_distance_says(seed, metric, single, distance):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(30, 50)).astype(np.float32 if single else np.float64)
    rows[10:20] = rows[:10] + rng.normal(size=(10, 50)) * rng.uniform(0, 0.1)
    rows[20:25] = rows[:5]
    if metric == "cosine":
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    told_by = OF_FEATURES[OF_FEATURES[metric].apart or metric]
    apart = distances_from(rows[:1], rows, told_by)
    clear = np.abs(apart - distance) > 1e-12 * (1 + distance)  # sums in another order
    np.testing.assert_array_equal(
        are_within(rows[:1], rows, told_by, distance)[clear], (apart <= distance)[clear]
    )
    assert are_within(rows[:1], rows, told_by, 0.0)[20]


@pytest.mark.parametrize("pick", [pick_extend, pick_resolve])
@pytest.mark.parametrize("metric", [*FEATURE_METRICS, "precomputed"])
def test_told_late_or_early_the_picks_are_the_same(pick, metric, rng):
    for _ in range(4):
        first = rng.normal(size=(50, 6))
        source = np.concatenate([first, first + 0.05 * rng.normal(size=first.shape)])
        target = rng.normal(size=(30, 6))
        question = {"metric": metric, "include": [3, 60], "min_distance": 0.1}
        if metric == "precomputed":
            problem = Problem(np.abs(source @ target.T), **question).with_k(20)
        else:
            rows = source.astype(np.float32), target.astype(np.float32)
            problem = Problem(*rows, **question).with_k(20)
        late, early = (
            pick(problem, Pool(problem, lazy=lazy), Progress(False)) for lazy in (True, False)
        )
        np.testing.assert_array_equal(late.rows, early.rows)
        np.testing.assert_array_equal(late.gains, early.gains)


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def files(pool, target, sources, inside):
    columns = [f"x{place}" for place in range(WIDTH)]
    table = pa.table({**dict(zip(columns, pool.T, strict=True)), "source": sources})
    pq.write_table(table, "pool.parquet")
    pq.write_table(pa.table(dict(zip(columns, target.T, strict=True))), "wanted.parquet")


def select(*words):
    return main(["select", "pool.parquet", "-k", str(K), "--target", "wanted.parquet",
                 "-o", "out", "--quiet", *map(str, words)])  # fmt: skip


def test_limits_on_the_command_line(files, pool, target, sources, capsys):
    limits = ("--at-most", "source:gsm=2,aqua=6", "--at-least", "source:math=5")
    assert select(*limits) == 0, capsys.readouterr().err
    selection = uniproto.Selection.load("out")
    expected = uniproto.select(
        pool,
        K,
        target,
        limits=uniproto.Limits(sources, at_most={"gsm": 2, "aqua": 6}, at_least={"math": 5}),
    )
    np.testing.assert_array_equal(selection.indices, expected.indices)
    assert main(["verify", "out"]) == 0
    assert "all of them allowed" in capsys.readouterr().out
    recorded = json.loads(Path("out/manifest.json").read_text())["arguments"]
    assert recorded["limits"]["labels"] == "source"
    assert recorded["limits"]["at_least"]["items"] == [["math", 5]]


def test_a_budget_is_both_limits(files, sources, capsys):
    assert select("--budget", "source:gsm=5", "--at-most", "source:*=6") == 0
    found = counts(uniproto.Selection.load("out"), sources)
    assert found["gsm"] == 5
    assert max(found.values()) <= 6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--at-most", "gsm=2"], "must say which column"),
        (["--at-most", "source:gsm=two"], "must give each label a whole number"),
        (["--at-most", "sauce:gsm=2"], "sauce"),
        (["--at-most", "source:gsm=2", "--at-least", "x0:1=2"], "must name one column"),
        (["--at-most", "source:gms=2"], "must name sources"),
        (["--at-most", "source:gsm=2", "--groups", "source"], "--groups"),
    ],
)
def test_limits_that_say_nothing(words, message, files, capsys):
    assert select(*words) == 2
    assert message in capsys.readouterr().err


def test_rows_near_a_benchmark_are_excluded_counted_and_listed(files, pool, target, capsys):
    columns = [f"x{place}" for place in range(WIDTH)]
    benchmark = pool[[3, 20, 41]] * 2.0  # the same directions
    pq.write_table(pa.table(dict(zip(columns, benchmark.T, strict=True))), "bench.parquet")
    words = ["select", "pool.parquet", "-k", str(K), "--target", "wanted.parquet", "-o", "out"]
    words += ["--ignore", "source", "--metric", "cosine"]
    assert main([*words, "--exclude-near", "bench.parquet", "0.001"]) == 0
    assert "excluded                3 rows, in excluded.csv" in capsys.readouterr().out
    listed = Path("out/excluded.csv").read_text().splitlines()
    assert listed[0] == "row,rule,file,matched_row,matched_words,distance"
    assert [line.rsplit(",", 1)[0] for line in listed[1:]] == [
        "3,near,bench.parquet,0,",
        "20,near,bench.parquet,1,",
        "41,near,bench.parquet,2,",
    ]
    found = uniproto.Selection.load("out").indices
    np.testing.assert_array_equal(
        found, uniproto.select(pool, K, target, exclude=[3, 20, 41], metric="cosine").indices
    )
    Path("bench.parquet").unlink()  # the record names the rows
    assert main(["verify", "out"]) == 0
    assert "all of them allowed" in capsys.readouterr().out
    assert main([*words, "--exclude-near", "bench.parquet", "near"]) == 2
    assert main([*words, "--exclude-near", "pool.parquet", "0.5"]) == 2  # nothing is left
    assert "-k must not exceed the" in capsys.readouterr().err


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "sqeuclidean", "l1"])
def test_rows_near_against_all_distances(metric, rng):
    source, others = rng.normal(size=(80, 5)), rng.normal(size=(9, 5))
    names = {"l1": "cityblock"}
    apart = cdist(source, others, names.get(metric, metric))
    distance = float(np.quantile(apart, 0.1))
    found = rows_near(source, others, distance, metric=metric)
    np.testing.assert_array_equal(found.rows, np.flatnonzero(apart.min(axis=1) <= distance))
    np.testing.assert_array_equal(found.nearest, apart.argmin(axis=1)[found.rows])
    np.testing.assert_allclose(found.distances, apart.min(axis=1)[found.rows], atol=1e-12)
    assert len(rows_near(source, others, 0.0, metric=metric)) == 0
    assert rows_near(source, source[4:6], 0.0, metric=metric).rows.tolist() == [4, 5]
    with refused("exclude_near", InvalidInputError):
        rows_near(source, others, -1.0, metric=metric)


@pytest.mark.parametrize(("metric", "told_by"), [("rbf", "euclidean"), ("laplacian", "cityblock")])
def test_rows_near_are_told_as_near_duplicates_are(metric, told_by, rng):
    source, others = rng.normal(size=(80, 5)), rng.normal(size=(9, 5))
    apart = cdist(source, others, told_by).min(axis=1)
    found = rows_near(source, others, float(np.quantile(apart, 0.2)), metric=metric)
    assert found.rows.tolist() == np.flatnonzero(apart <= np.quantile(apart, 0.2)).tolist()


@pytest.mark.usefixtures("inside")
def test_rows_near_in_a_prepared_table(rng, capsys):
    cities = np.array(["Rome", "Oslo"])[rng.integers(0, 2, 40)]
    table = pa.table({"age": rng.integers(20, 80, 40), "pay": rng.normal(4e4, 1e4, 40),
                      "city": cities, "shop": ["a", "b"] * 20})  # fmt: skip
    pq.write_table(table, "pool.parquet")
    pq.write_table(table.take([5, 9]).drop_columns("shop"), "bench.parquet")
    words = ["select", "pool.parquet", "-k", "6", "-o", "out", "--at-most", "shop:a=2"]
    assert main([*words, "--exclude-near", "bench.parquet", "0.0"]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    assert "excluded                2 rows" in out
    assert "named by limits" in out
    rows = uniproto.Selection.load("out").indices
    assert not {5, 9} & set(rows.tolist())
    assert (rows % 2 == 0).sum() <= 2
    assert main(["verify", "out"]) == 0


def test_the_search_keeps_limits(pool, sources):
    limits = uniproto.Limits(sources, at_most=6)
    found = uniproto.select(pool, K, method=UniProto(), limits=limits)
    assert np.unique(sources[found.indices], return_counts=True)[1].max() <= 6
    assert found.cost <= uniproto.select(pool, K, method="greedy", limits=limits).cost


def test_limits_of_some_of_the_rows(pool, sources):
    problem = Problem(pool, limits=uniproto.Limits(sources, at_most=6)).with_k(K)
    some = np.arange(0, M, 2)
    part = problem.among(some, some, None)
    chosen = np.arange(7)
    np.testing.assert_array_equal(part.limits.counts(chosen), problem.limits.counts(some[chosen]))


def test_rows_near_needs_distances(pool):
    with refused("exclude_near", InvalidInputError):
        rows_near(pool, pool, 0.1, metric="dot")


def test_groups_that_the_target_lacks_name_the_way_out(files, capsys):
    assert select("--groups", "source") == 2
    assert "--at-least or --budget source:LABEL=N" in capsys.readouterr().err
