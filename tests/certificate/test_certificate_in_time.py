"""The certificate where time is short: bounds of every row early, and words where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import uniproto
from uniproto.certificate import ascent, row_bounds
from uniproto.certificate.ascent import certify
from uniproto.certificate.candidate_search import FoundPrices
from uniproto.certificate.row_bounds import RowBounds
from uniproto.cli import main
from uniproto.fills.priced_fills import exact_values
from uniproto.problem.problem import Problem
from uniproto.runtime import compiling
from uniproto.selection.selection import Selection

ROWS, TARGETS = 5000, 400


def problem_of(metric: str, kind: type = np.float64) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Rows with a long tail, prices, and the true values at them."""
    draw = np.random.default_rng(0)
    points = draw.normal(size=(ROWS, 3))
    points[:, 0] = np.exp(1.5 * points[:, 0])
    points = points.astype(kind)
    problem = Problem(points, points[:TARGETS], metric=metric).with_k(10)
    prices = draw.random(TARGETS)
    return problem, prices, exact_values(problem, np.arange(ROWS), prices)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("metric", ["euclidean", "l1"])
def test_every_row_has_a_bound_before_any_is_close(
    metric: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, prices, true = problem_of(metric, kind)
    bounds = RowBounds(problem, np.arange(ROWS))
    # Time is up as soon as every row has a bound.
    monkeypatch.setattr(row_bounds, "working_time", lambda: np.isfinite(bounds.values).all())
    assert not bounds.update(prices, deadline=0.5)
    assert (bounds.values <= true).all()
    rough = bounds.values.copy()
    monkeypatch.undo()
    assert bounds.update(prices)
    assert (rough <= bounds.values).all()
    assert (bounds.values <= true).all()
    low = np.argsort(true)[:500]
    np.testing.assert_allclose(bounds.values[low], true[low], rtol=1e-3)
    assert np.median(true - rough) > 3 * np.median(true - bounds.values)


def test_the_bound_rises_with_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, prices, _ = problem_of("euclidean")
    proven = []
    for most in (60, 100, 10**6):
        bounds, left = RowBounds(problem, np.arange(ROWS)), iter(range(10**6))
        with monkeypatch.context() as patched:
            patched.setattr(row_bounds, "working_time", lambda left=left: next(left))
            bounds.update(prices, deadline=most)
        proven.append(float(np.partition(bounds.values, 9)[:10].sum()))
    assert proven == sorted(proven)
    assert proven[0] < proven[-1]


def test_rounding_to_single_precision_is_allowed_for() -> None:
    """Rows in double precision are judged in single, where it can tell them apart."""
    draw = np.random.default_rng(1)
    near = np.repeat(100 * draw.normal(size=(50, 3)), 100, axis=0)
    double = ((1e-6, 1.0), (1e-30, 1e-30), (1e30, 1e30))
    for spread, size in ((1.0, 1.0), *double):
        kind = np.float64 if (spread, size) in double else np.float32
        points = size * near + spread * draw.normal(size=near.shape)
        problem = Problem(points, points[::7], metric="euclidean").with_k(60)
        bounds = RowBounds(problem, np.arange(ROWS))
        assert bounds.groups is not None
        assert bounds.groups.targets.dtype == kind
        prices = spread * draw.random(problem.n)
        bounds.update(prices)
        assert (bounds.values <= exact_values(problem, np.arange(ROWS), prices)).all()


def test_squares_that_vanish_in_single_precision_are_allowed_for() -> None:
    draw = np.random.default_rng(0)
    points = 1e-11 * draw.normal(size=(ROWS, 2))
    points[:200] = 0
    beside = np.zeros((24, 2))
    beside[:12, 0], beside[12:, 0] = 2.8e-23, -2.8e-23
    others = 1e-11 * draw.normal(size=(488, 2))
    targets = np.concatenate([beside, others, -others])
    problem = Problem(points, targets, metric="euclidean").with_k(100)
    bounds = RowBounds(problem, np.arange(ROWS))
    assert bounds.groups is not None
    assert bounds.groups.targets.dtype == np.float32
    prices = np.zeros(problem.n)
    bounds.update(prices)
    assert (bounds.values <= exact_values(problem, np.arange(ROWS), prices)).all()


# No time for a bound


def cut_short(monkeypatch: pytest.MonkeyPatch, look: float) -> None:
    """A search whose look at every row was not done."""

    def search(problem: Problem, *_: Any) -> FoundPrices:
        rows = np.full(problem.m, -np.inf)
        return FoundPrices(np.ones(problem.n), rows, -np.inf, 3, False, look)

    monkeypatch.setattr(ascent, "_LISTED_COSTS", 0)
    monkeypatch.setattr(ascent, "search", search)
    monkeypatch.setattr("uniproto.certificate.bound._MOST_ROUNDS", 1)


@pytest.mark.parametrize(
    ("look", "given", "needed"), [(70.3, 20, 160), (0.2, 0.1, 1), (1, 20, 30), (1234, 9, 2800)]
)
def test_how_long_it_takes_is_said(
    look: float, given: float, needed: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_short(monkeypatch, look)
    points = np.random.default_rng(2).normal(size=(300, 3))
    selection = uniproto.select(points, 3, progress=False, certify=given)
    found = selection.certificate
    assert found is not None
    assert (found.lower_bound, found.limit_needed) == (0.0, needed)
    words = f"no choice can be below 0 (a bound needs a time limit of about {needed} s"
    assert words in str(found)
    assert words in selection.summary()


def test_a_look_at_every_row_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Features too many for groups: what the look has done tells how long it takes."""
    monkeypatch.setattr(ascent, "_LISTED_COSTS", 0)
    clock = iter(np.arange(0, 1e6, 0.5))
    monkeypatch.setattr(compiling, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    monkeypatch.setattr(row_bounds, "rows_per_block", lambda problem: 10)
    points = np.random.default_rng(3).normal(size=(3000, 12))
    problem = Problem(points, metric="euclidean").with_k(3)
    found = certify(problem, 3.0, np.zeros(3000), time_limit=10)
    assert found.lower_bound == 0.0
    assert found.limit_needed is not None
    assert 150 <= found.limit_needed <= 700  # 300 blocks take half a second each


@pytest.mark.slow
def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pool, out = tmp_path / "pool.npy", tmp_path / "out"
    np.save(pool, np.random.default_rng(6).normal(size=(300, 3)))
    assert main(["select", str(pool), "-k", "3", "-o", str(out)]) == 0
    with monkeypatch.context() as patched:
        cut_short(patched, 70.0)
        assert main(["certify", str(out), "--seconds", "20"]) == 0
    said = capsys.readouterr().out
    assert "A bound needs more time: give --seconds 160." in said
    assert "go on from there" not in said
    loaded = Selection.load(out).certificate
    assert loaded is not None
    assert loaded.limit_needed == 160
    for command in ("verify", "report"):
        assert main([command, str(out)]) == 0
    assert "needs a time limit of about 2 min 40 s" in (out / "report.html").read_text()
    assert main(["certify", str(out)]) == 0
    before = (out / "manifest.json").read_text()
    record = json.loads(before)["certificate"]
    assert "limit_needed" not in record
    assert record["lower_bound"] > 0
    capsys.readouterr()
    with monkeypatch.context() as patched:  # what was proven once is not lost to a shorter search
        cut_short(patched, 70.0)
        assert main(["certify", str(out), "--seconds", "20"]) == 0
    assert "The earlier bound is higher and stays" in capsys.readouterr().out
    assert (out / "manifest.json").read_text() == before
