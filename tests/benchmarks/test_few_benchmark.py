"""The benchmark of few prototypes: its data, its contenders, its processes, and a small run."""

from __future__ import annotations

import csv
import dataclasses
import importlib.metadata
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.common import (
    FailedError,
    Report,
    UnfinishedError,
    in_limited_process,
    measured,
    mixture,
    peak_bytes,
)
from benchmarks.few_contenders import CONTENDERS, OURS, nearest_distinct_rows
from benchmarks.few_problems import Data, Problem, mixture_5
from hypothesis import given, settings
from hypothesis import strategies as st

import uniproto
from benchmarks import few

TINY = Problem(mixture_5(600), k=6, seconds=100)


def test_a_mixture_is_the_same_everywhere() -> None:
    rows = mixture(2000, 5, 30, seed=1)
    assert rows.shape == (2000, 5)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(rows[0], [2.73151, 1.27135, 3.83064, -0.272652, -0.40631], rtol=1e-5)
    assert not np.array_equal(rows, mixture(2000, 5, 30, seed=2))
    plain, decaying = mixture(500, 16, 20, 2), mixture(500, 16, 20, 2, decaying=True)
    assert not np.array_equal(plain, decaying)


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 12), st.booleans())
def test_centres_get_the_nearest_distinct_rows(seed: int, k: int, same: bool) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(40, 3)).astype(np.float32)
    centres = random.normal(size=(k, 3))
    if same:
        centres[:] = centres[0]
    found = nearest_distinct_rows(rows, centres)
    taken: list[int] = []
    for centre, row in zip(centres, found, strict=True):
        distances = np.linalg.norm(rows - centre, axis=1)
        distances[taken] = np.inf
        assert distances[row] <= distances.min() + 1e-5
        assert row not in taken
        taken.append(int(row))


def test_work_in_a_process_ends_with_a_result_or_a_reason() -> None:
    assert in_limited_process(100, pow, 2, 10) == 1024
    with pytest.raises(FailedError, match=r"ValueError: invalid literal"):
        in_limited_process(100, int, "of a peer")
    with pytest.raises(UnfinishedError, match="exit code 3"):
        in_limited_process(100, os._exit, 3)
    with pytest.raises(UnfinishedError, match="within 1 processor seconds"):
        in_limited_process(1, sum, range(10**12))
    with pytest.raises(UnfinishedError, match="on the clock"):
        in_limited_process(0.01, time.sleep, 100)


def memory_of_some_work() -> tuple[bool, float]:
    """Whether the peak could be set back below an earlier one, and what 0.2 GB of work took."""
    held = np.ones(5_000_000)
    earlier = np.ones(30_000_000)
    peak = peak_bytes()
    del earlier
    spent, total = measured(lambda: np.ones(25_000_000).sum())
    assert total == 25_000_000
    assert held[0] == 1
    assert spent.wall_seconds > 0
    assert spent.processor_seconds > 0
    return peak_bytes() < peak, spent.peak_gb


def test_what_work_took_counts_only_its_own_memory() -> None:
    # In a process of its own: what other tests hold would be given back at any moment.
    set_back, gigabytes = in_limited_process(100, memory_of_some_work)
    if not set_back:
        pytest.skip("this system does not set the peak of a process back")
    assert 0.19 < gigabytes < 0.25


@pytest.mark.slow
@pytest.mark.parametrize("name", CONTENDERS)
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_every_contender_chooses_k_rows(name: str, metric: str, tmp_path: Path) -> None:
    library = CONTENDERS[name].library
    try:
        importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{library} is not installed")
    data = Data("mixture", 2_100, metric, width=5, components=30, seed=1)
    problem = Problem(data, k=6, seconds=0.5)
    few.write_rows(data, tmp_path / "rows.npy")
    spent, rows = few.choose(tmp_path / "rows.npy", problem, name, None)
    assert len(set(rows)) == 6
    assert spent.wall_seconds > 0
    _, cost = few.cost_of(tmp_path / "rows.npy", problem, rows)
    assert cost == uniproto.cost(np.load(tmp_path / "rows.npy"), rows, metric=metric)


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Run in this process what the benchmark runs in others, and list it."""
    calls: list[Any] = []

    def call(limit: float, work: Any, *arguments: Any) -> Any:
        calls.append(work)
        return work(*arguments)

    monkeypatch.setattr(few, "in_limited_process", call)
    monkeypatch.setattr(few, "in_fresh_process", lambda work, *arguments: work(*arguments))
    monkeypatch.setattr(few, "QUICK_PROBLEMS", (TINY,))
    chosen = {name: CONTENDERS[name] for name in ("uniproto", "MiniBatchKMeans", "random")}
    monkeypatch.setattr(few, "CONTENDERS", chosen)
    monkeypatch.setattr(few, "PEERS", {name: chosen[name] for name in list(chosen)[1:]})
    return calls


def _report(folder: Path, part: str = "") -> dict[str, Any]:
    report = Report("few", few.TITLE, folder, quick=True)
    few.run(report, True, part)
    report.finish()
    return json.loads(report.file.read_text())


@pytest.mark.slow
def test_a_small_run_is_reported_and_resumed(here: list[Any], tmp_path: Path) -> None:
    first = _report(tmp_path)
    rows = {row["what"]: row for row in first["rows"]}
    costs = {name: rows[f"{TINY}: {name}"]["cost"] for name in few.CONTENDERS}
    assert costs["uniproto"] < costs["random"]
    bound = rows[f"certificate: {TINY}, cpu"]
    assert 0 < bound["lower_bound"] <= bound["cost"] == pytest.approx(costs["uniproto"])
    assert rows[f"exact cost of given rows: {TINY}"]["cost"] > bound["lower_bound"]
    assert sum(what.startswith("growth: ") for what in rows) == 2
    figures = {figure["what"]: figure for figure in first["figures"]}
    beside = figures[f"{TINY}: cost relative to the best peer that does not balance, in 100 s"]
    assert beside["reached"] == costs["uniproto"] / min(costs["MiniBatchKMeans"], costs["random"])
    with (tmp_path / "few-quick.csv").open(encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [line["what"] for line in table] == list(rows)
    assert float(table[0]["cost"]) == costs["uniproto"]
    here.clear()
    again = _report(tmp_path)
    assert not here  # nothing is measured twice
    assert again["rows"] == first["rows"]
    assert again["figures"] == first["figures"]


def test_who_does_not_finish_is_not_waited_for_again(
    here: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(limit: float, work: Any, *arguments: Any) -> Any:
        here.append(work)
        raise UnfinishedError(f"did not finish within {limit:g} s")

    monkeypatch.setattr(few, "in_limited_process", never)
    larger = Problem(mixture_5(700), k=7, seconds=0.5)
    monkeypatch.setattr(few, "QUICK_PROBLEMS", (TINY, larger))
    for _ in range(2):  # measured, then from the journal
        rows = _report(tmp_path, "k = *random")["rows"]
        assert [row["unfinished"] for row in rows] == [
            "did not finish within 300 s",
            f"not tried, as it did not finish {TINY}",
        ]
        assert here == [few.choose]


def test_a_sample_grows_as_far_as_the_time_allows(
    here: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds_per_row = 0.001

    def pretend(limit: float, work: Any, *arguments: Any) -> Any:
        if work is few.cost_of:
            return few.Spent(0.1, 0.1, 0), 1.0
        _, problem, _, size = arguments
        tried.append(size)
        seconds = seconds_per_row * (size or problem.data.n)
        return few.Spent(3 * seconds, seconds, 0), list(range(problem.k))

    monkeypatch.setattr(few, "in_limited_process", pretend)
    monkeypatch.setattr(few, "QUICK_PROBLEMS", (Problem(mixture_5(2_000), k=6, seconds=0.5),))
    for first_size, expected in (
        (100, [None, 100, 200, 400, 800]),
        (3_000, [None, 1_500, 750, 375]),
    ):
        contender = dataclasses.replace(CONTENDERS["random"], first_size=first_size)
        monkeypatch.setattr(few, "CONTENDERS", {"random": contender, "uniproto": OURS["uniproto"]})
        monkeypatch.setattr(few, "PEERS", {"random": contender})
        tried: list[int | None] = []
        _report(tmp_path / str(first_size), "k = *random")
        assert tried == expected
