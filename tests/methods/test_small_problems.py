"""Small problems are solved as well as they can be, and a proven optimum is said to be one."""

from __future__ import annotations

from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import uniproto
from uniproto import Greedy, Selection, UniProto
from uniproto.cli import main
from uniproto.problem.problem import Problem
from uniproto.transport.line import line_of, plan_on_line
from uniproto.transport.prototypes import transport

pytestmark = pytest.mark.usual_effort
MOST_SETS = 800
METRICS = ["euclidean", "sqeuclidean", "cosine", "l1", "rbf", "precomputed"]
SLACK = 1 + 1e-9


def cloud(kind: str, rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    if kind == "ties":
        return rng.integers(0, 3, (rows, width)) + 0.5
    if kind == "lognormal":
        return rng.lognormal(0, 2, (rows, width))
    if kind == "clusters":
        return rng.normal(size=(3, width))[rng.integers(0, 3, rows)] * 5 + rng.random((rows, width))
    return rng.normal(size=(rows, width)) * np.where(rng.random((rows, 1)) < 0.1, 100, 1)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["ties", "lognormal", "clusters", "outliers"]))
    m, n, width = draw(st.integers(3, 24)), draw(st.integers(2, 24)), draw(st.integers(1, 4))
    k = draw(st.integers(1, min(m, 6)))
    source, target = cloud(kind, rng, m, width), cloud(kind, rng, n, width)
    same = draw(st.booleans())
    target = source if same else target
    metric = draw(st.sampled_from(METRICS))
    given: dict[str, Any] = {}
    if draw(st.booleans()):
        given["target_weights"] = np.exp(rng.normal(0, 4, len(target)))
    if metric == "precomputed":
        source, target = np.abs(source[:, None] - target[None]).sum(axis=2), None
    rows = rng.permutation(m)
    if draw(st.booleans()):
        given["include"] = rows[: draw(st.integers(0, k - 1))]
    if draw(st.booleans()):
        given["exclude"] = rows[k + draw(st.integers(0, m - k)) :]
    return Problem(source, target, metric=metric, **given).with_k(k)


def cost_of(problem: Problem, rows: Any) -> float:
    return transport(problem, np.array(rows, np.intp)).cost


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::uniproto.problem.checks.ScaleWarning")
@settings(max_examples=60, deadline=None)
@given(problems())
def test_nothing_is_better(problem: Problem) -> None:
    found = uniproto.select(problem, problem.k)
    own, free = problem.initial.tolist(), problem.candidates.tolist()
    missing = problem.k - len(own)
    assert found.indices[: len(own)].tolist() == own
    assert set(found.indices[len(own) :]) <= set(free)
    assert len(set(found.indices)) == problem.k
    rng = np.random.default_rng(0)
    sets = [rng.choice(free, missing, replace=False).tolist() for _ in range(10)]
    if comb(len(free), missing) <= MOST_SETS:
        sets = [list(some) for some in combinations(free, missing)]
        assert found.details.proof
    floor = 1e-13 * problem.costs.ceiling
    for some in sets:
        assert found.cost <= cost_of(problem, own + some) * SLACK + floor
    greedy = uniproto.select(problem, problem.k, method=Greedy())
    assert found.cost <= greedy.cost * SLACK + floor


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_no_random_draw_and_no_kmeans_is_better(metric: str) -> None:
    for seed in range(6):
        points = np.random.default_rng(seed).lognormal(size=(60, 3))
        found = uniproto.select(points, 7, metric=metric)
        others = [uniproto.select(points, 7, metric=metric, method="kmeans").cost]
        for draw in range(50):
            random = uniproto.select(points, 7, metric=metric, method="random", seed=draw)
            others.append(random.cost)
        assert found.cost <= min(others) * SLACK


@pytest.mark.parametrize("metric", ["euclidean", "l1", "sqeuclidean"])
@pytest.mark.parametrize("given_rows", [[], [1, 7]])
def test_rows_on_a_line(metric: str, given_rows: list[int]) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        target = np.column_stack([rng.lognormal(0, 1.5, 23), np.full(23, 4.0)])
        source = np.column_stack([rng.lognormal(0, 1.5, 8), np.full(8, 4.0)])
        weights = rng.random(23) * (rng.random(23) < 0.8)
        problem = Problem(
            source, target, include=given_rows, metric=metric, target_weights=weights
        ).with_k(4)
        found = uniproto.select(problem, 4)
        assert "on a line" in found.details.proof
        assert found.indices[: len(given_rows)].tolist() == given_rows
        free = problem.candidates
        best = min(
            cost_of(problem, [*given_rows, *some])
            for some in combinations(free, 4 - len(given_rows))
        )
        assert found.cost == pytest.approx(best, rel=1e-9)
        line = line_of(problem.costs)
        plan, paid = plan_on_line(line, found.indices, problem.masses)
        assert paid.sum() / problem.masses.total == pytest.approx(found.cost, rel=1e-9)
        np.testing.assert_array_equal(plan.sum(axis=0), problem.masses.offer)


def test_a_long_line_is_solved_exactly_too() -> None:
    values = np.random.default_rng(0).lognormal(size=(50_000, 1))
    found = uniproto.select(values, 20, metric="euclidean")
    assert found.cost_is_exact
    assert found.details.proof
    middles = np.quantile(values, (np.arange(20) + 0.5) / 20)
    quantiles = np.abs(values - middles).argmin(axis=0)
    assert found.cost <= uniproto.cost(values, quantiles, metric="euclidean") * SLACK


def test_conditions_are_kept() -> None:
    rng = np.random.default_rng(4)
    points = rng.normal(size=(30, 2)).repeat(2, axis=0)
    apart = uniproto.select(points, 6, metric="euclidean", min_distance="auto")
    assert len(np.unique(points[apart.indices], axis=0)) == 6
    sources = np.array(["a", "b", "c"] * 20)
    limited = uniproto.select(
        points,
        6,
        metric="euclidean",
        limits=uniproto.Limits(sources, at_most={"a": 1}, at_least={"b": 4}),
    )
    assert (sources[limited.indices] == "a").sum() <= 1
    assert (sources[limited.indices] == "b").sum() >= 4
    grouped = uniproto.select(points, 6, metric="euclidean", groups=sources)
    assert grouped.details.proof is None  # each group has its own optimum
    assert "proof" in grouped.details.notes["a"]


def test_more_time_and_improving_are_never_worse() -> None:
    points = np.random.default_rng(2).normal(size=(120, 5))
    usual = uniproto.select(points, 15)
    longer = uniproto.select(points, 15, method=UniProto(seconds=60))
    for found in (longer, usual.improve(seconds=0.3)):
        assert found.cost <= usual.cost * SLACK


def test_a_proof_is_said_saved_and_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool, out = tmp_path / "pool.npy", tmp_path / "out"
    np.save(pool, np.random.default_rng(0).normal(size=(12, 2)))
    assert main(["select", str(pool), "-k", "3", "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "the least possible      each of 220 sets of rows" in said
    assert "none are closer (proven)" in said
    assert Selection.load(out).details.proof
    assert main(["certify", str(out)]) == 0  # the proof is the bound
    loaded = Selection.load(out)
    assert loaded.details.proof == loaded.certificate.proof
    assert loaded.certificate.gap == 0
    assert (1 - 1e-8) * loaded.cost < loaded.certificate.lower_bound <= loaded.cost
    capsys.readouterr()
    assert main(["verify", str(out)]) == 0
    said = capsys.readouterr().out
    assert "no choice of 3 rows costs less: the proof was found again (each of 220 sets" in said
    assert "can be below the lower bound: the same proof says so" in said


@pytest.mark.slow
def test_nothing_is_compiled_for_a_small_problem() -> None:
    import subprocess
    import sys

    program = (
        "import sys, numpy as np, uniproto\n"
        "points = np.random.default_rng(0).random((30, 3))\n"
        "for metric in ('cosine', 'euclidean', 'l1'):\n"
        "    uniproto.select(points, 4, metric=metric).summary()\n"
        "assert 'numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_memory_changes_no_answer() -> None:
    few = np.random.default_rng(0).normal(size=(1_100, 3))[:60]
    plenty, scarce = (
        uniproto.select(few, 3, compute=uniproto.Compute(memory=memory))
        for memory in ("1GB", "20KB")
    )
    assert plenty.indices.tolist() == scarce.indices.tolist()
