"""The search: admissible rows, exact marginals, never above greedy, below no bound."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import uniproto
from uniproto import Greedy, Problem, Selection, UniProto
from uniproto.methods.search import blocks, in_blocks, search, stage, starts
from uniproto.methods.search.cell_plan import CellPlan
from uniproto.methods.search.exchanges import Exchanges
from uniproto.runs.checkpoint import Checkpoint
from uniproto.select import run_method

GREEDY = Greedy()
METRICS = ("cosine", "euclidean", "sqeuclidean", "l1", "dot", "rbf", "laplacian")


def clusters(n: int, seed: int = 0, width: int = 4) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(6, width)) + 8
    return centres[rng.integers(6, size=n)] + rng.standard_t(5, size=(n, width))


def both(*arguments: Any, **conditions: Any) -> Selection:
    """The selection, checked beside the greedy one."""
    greedy = uniproto.select(*arguments, method=GREEDY, **conditions)
    found = uniproto.select(*arguments, **conditions)
    assert len(np.unique(found.indices)) == found.k
    assert found.cost_is_exact
    assert found.cost <= greedy.cost * (1 + 1e-12)
    np.testing.assert_allclose(found.plan.sum(axis=1), 1 / found.k, rtol=1e-9)
    assert (
        np.diff(found.details.gains[len(conditions.get("include", ())) :]).max(initial=-np.inf)
        <= 1e-9
    )
    return found


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("other", [False, True], ids=["one set", "two sets"])
def test_every_metric_is_no_dearer_than_greedy(metric: str, other: bool) -> None:
    target = clusters(700, seed=1) if other else None
    found = both(clusters(900), 7, target, metric=metric)
    assert found.cost == pytest.approx(
        uniproto.cost(clusters(900), found.indices, target, metric=metric), rel=1e-12
    )


def test_matrices_and_sparse_rows() -> None:
    rows = clusters(500)
    costs = np.abs(rows[:, None] - clusters(400, 1)[None]).sum(axis=2)
    both(costs, 6, metric="precomputed")
    both(-costs, 6, metric="similarity")
    sparse = sp.csr_matrix(np.where(rows > 8, rows, 0) + np.eye(4)[np.arange(500) % 4])
    for metric in METRICS:
        both(sparse, 5, metric=metric)


def test_conditions_hold() -> None:
    rows = clusters(800).astype(np.float32)
    found = both(rows, 8, metric="euclidean", include=[5, 7])
    assert found.indices[:2].tolist() == [5, 7]
    barred = np.arange(0, 400)
    assert not np.isin(both(rows, 8, metric="euclidean", exclude=barred).indices, barred).any()
    apart = both(rows, 8, metric="euclidean", min_distance=2.0).indices
    distances = np.linalg.norm(rows[apart][:, None] - rows[apart][None], axis=2)
    assert distances[np.triu_indices(8, 1)].min() > 2
    labels = np.arange(800) % 3
    groups = uniproto.select(rows, 9, metric="euclidean", groups=labels)
    assert np.bincount(labels[groups.indices]).tolist() == [3, 3, 3]


def test_weights_over_ten_orders_of_magnitude() -> None:
    weights = 10.0 ** np.random.default_rng(0).uniform(-5, 5, size=600)
    both(clusters(600), 6, metric="euclidean", target_weights=weights)


@pytest.mark.parametrize("scale", [1e-140, 1e-6, 1e100])
def test_any_magnitude(scale: float) -> None:
    found = both(scale * clusters(500), 6, metric="euclidean")
    assert found.cost == pytest.approx(scale * both(clusters(500), 6, metric="euclidean").cost)


def degenerate() -> dict[str, tuple[np.ndarray, int]]:
    rows = clusters(300)
    far = np.vstack([rows, np.full((1, 4), 1e6)])
    spread = np.vstack([rows[:60] * scale for scale in (1e-5, 1e-2, 1, 1e2, 1e5)])
    return {
        "one prototype": (rows, 1),
        "all rows": (rows[:40], 40),
        "all but one": (rows[:40], 39),
        "copies, fewer than k": (np.repeat(rows[:5], 60, axis=0), 7),
        "copies, as many as k": (np.repeat(rows[:5], 60, axis=0), 5),
        "copies, more than k": (np.repeat(rows[:5], 60, axis=0), 3),
        "all the same": (np.ones((200, 3)), 4),
        "a far outlier": (far, 5),
        "five orders of magnitude": (spread, 8),
        "on a line": (np.exp(rows[:, :1] / 3), 6),
        "a grid of ties": (np.stack(np.divmod(np.arange(400), 20), axis=1).astype(float), 4),
    }


@pytest.mark.parametrize("name", degenerate())
def test_degenerate_cells(name: str) -> None:
    rows, k = degenerate()[name]
    both(rows, k, metric="euclidean")


@settings(max_examples=25, deadline=None)
@given(
    m=st.integers(4, 9),
    n=st.integers(4, 12),
    k=st.integers(1, 3),
    metric=st.sampled_from(METRICS),
    seed=st.integers(0, 2**31),
)
def test_never_below_the_optimum(m: int, n: int, k: int, metric: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    source, target = rng.normal(size=(m, 2)) + 3, rng.normal(size=(n, 2)) + 3
    found = both(source, k, target, metric=metric)
    best = min(
        uniproto.cost(source, list(rows), target, metric=metric)
        for rows in itertools.combinations(range(m), k)
    )
    assert found.cost >= best * (1 - 1e-9) - 1e-12
    assert found.certify(seconds=1).lower_bound <= best * (1 + 1e-9) + 1e-12


def in_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages as with many more rows."""
    monkeypatch.setattr(search, "_SAMPLE", 400)
    monkeypatch.setattr(search, "_SAMPLE_EACH", 10)
    monkeypatch.setattr(search, "_GROWTH", 3)
    monkeypatch.setattr(starts, "_PAIRS", 40_000)


def test_several_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples smaller than the problem: still better than greedy on all rows."""
    in_samples(monkeypatch)
    rows = clusters(3000, width=3)
    for conditions in ({}, {"target": clusters(2500, 2, 3)}, {"target_weights": rows[:, 0] ** 2}):
        both(rows, 8, metric="euclidean", **conditions)


@pytest.mark.usual_effort
def test_a_large_pool_for_few_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy picks from a part of the pool, exchanges from all of it."""
    in_samples(monkeypatch)
    pool, target = clusters(4000), clusters(40, seed=1)
    for k in (8, 30):
        both(pool, k, target, metric="euclidean")
        both(pool, k, target, metric="euclidean", target_weights=np.arange(1.0, 41))
        both(pool, k, target, metric="euclidean", include=[7], exclude=range(100, 300))
        both(pool, k, metric="euclidean", exclude=range(k + 5, 4000))  # no sample has them all


@pytest.mark.parametrize("few", [10, 300])
def test_without_time_the_rows_are_those_of_a_sample(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_samples(monkeypatch)
    monkeypatch.setattr(stage, "FEW", few)
    rows = clusters(3000)
    found = uniproto.select(rows, 40, metric="euclidean", include=[7], seconds=1e-6)
    assert found.indices[0] == 7
    assert len(np.unique(found.indices)) == 40
    assert len(found.details.notes["stages"]) == (few == 300)  # picks alone are no stage
    assert found.cost == pytest.approx(uniproto.cost(rows, found.indices, metric="euclidean"))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "l1", "dot"])
@pytest.mark.parametrize("other", [False, True], ids=["one set", "two sets"])
def test_blocks_are_no_dearer_than_greedy(
    metric: str, other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for what the greedy plan, from which blocks begin, costs above the exact one."""
    monkeypatch.setattr(stage, "FEW", 10)
    monkeypatch.setattr(blocks, "_PAIRS", 2_000)
    target = clusters(500, seed=1) if other else None
    found = uniproto.select(clusters(600), 40, target, metric=metric)
    greedy = uniproto.select(clusters(600), 40, target, metric=metric, method=GREEDY)
    assert found.cost <= greedy.cost * 1.001


@pytest.mark.parametrize("k", [350, 450, 495])
def test_most_of_the_rows_are_no_dearer_than_greedy(k: int) -> None:
    both(clusters(500), k)


def test_all_rows_that_may_be_chosen_need_no_search() -> None:
    points = clusters(400)
    selection = uniproto.select(points, 300, exclude=np.arange(100), include=[399])
    assert selection.indices[0] == 399
    assert set(selection.indices) == set(range(100, 400))
    assert selection.details.proof == "no other rows may be chosen"
    assert "stages" not in selection.details.notes
    given = uniproto.select(points, 3, include=[5, 2, 9])
    assert given.indices.tolist() == [5, 2, 9]
    assert given.details.proof == "no other rows may be chosen"
    assert given.improve(0.1).indices.tolist() == [5, 2, 9]


@pytest.mark.usual_effort
@pytest.mark.parametrize(("rows", "k"), [(400, 20), (1500, 310)])
def test_with_seconds_left_blocks_start_again_and_keep_the_best(
    rows: int, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, begun = in_blocks.greedy_picks, 0

    def third_is_stopped(*arguments: Any, **options: Any) -> Any:
        nonlocal begun
        begun += 1
        if begun == 3:
            raise KeyboardInterrupt
        return usual(*arguments, **options)

    monkeypatch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    monkeypatch.setattr(in_blocks, "greedy_picks", third_is_stopped)
    points = clusters(rows)
    found = uniproto.select(points, k, method=UniProto(seconds=1e6))
    assert begun == 3
    assert "interrupted" in found.details.notes
    stages = [entry["stage"] for entry in found.details.notes["stages"]]
    assert ("exact plan" in stages) == (k > 300)
    begun = 10
    usually = uniproto.select(points, k).cost
    assert found.cost <= usually if k < 300 else found.cost < 0.999 * usually


def test_the_bound_of_the_only_choice_is_below_its_cost_before_rounding() -> None:
    for seed in range(30):
        costs = np.random.default_rng(seed).lognormal(0, 20, 3)
        found = uniproto.select([costs, costs], 2, metric="precomputed", certify=True)
        assert found.certificate is not None
        true = sum(map(Fraction, costs.tolist()), Fraction()) / 3
        assert Fraction(found.certificate.lower_bound) <= true


def test_blocks_keep_every_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "FEW", 10)
    monkeypatch.setattr(blocks, "_PAIRS", 2_000)
    rows, labels = clusters(600), np.arange(600) % 3
    limits = uniproto.Limits(labels, at_most={0: 5}, at_least={1: 25})
    found = uniproto.select(
        rows, 40, include=[5, 7], exclude=np.setdiff1d(np.arange(100), [5, 7]), limits=limits,
        min_distance=0.2, metric="euclidean",
    )  # fmt: skip
    counts = np.bincount(labels[found.indices])
    assert counts[0] <= 5
    assert counts[1] >= 25
    assert found.indices[:2].tolist() == [5, 7]
    assert not np.isin(found.indices[2:], np.arange(100)).any()
    apart = np.linalg.norm(rows[found.indices][:, None] - rows[found.indices][None], axis=2)
    assert apart[np.triu_indices(40, 1)].min() > 0.2


@pytest.mark.parametrize("k", [8, 40])
def test_memory_changes_no_row(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    in_samples(monkeypatch)
    monkeypatch.setattr(stage, "FEW", 10)
    rows = clusters(3000)
    plenty, scarce = (
        uniproto.select(rows, k, compute=uniproto.Compute(memory=memory)).indices.tolist()
        for memory in ("8GB", "2MB")
    )
    assert plenty == scarce


def test_more_time_is_never_worse() -> None:
    rows = clusters(600)
    costs = [uniproto.select(rows, 12, metric="euclidean", seconds=s).cost for s in (0.2, 1, 4)]
    assert (np.diff(costs) <= 1e-12).all()
    found = uniproto.select(rows, 12, metric="euclidean", seconds=4)
    stages = [stage["cost"] for stage in found.details.notes["stages"]]
    assert (np.diff(stages) <= 1e-12).all()


def test_rows_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_samples(monkeypatch)
    rows = clusters(2000).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    on_disk = np.load(tmp_path / "rows.npy", mmap_mode="r")
    there = uniproto.select(on_disk, 6, metric="euclidean")
    here = uniproto.select(rows, 6, metric="euclidean")
    assert there.indices.tolist() == here.indices.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("k", [6, 60])
def test_seconds_go_on_with_the_very_same_search(k: int) -> None:
    rows = clusters(400)
    usual = uniproto.select(rows, k, metric="euclidean")
    again = uniproto.select(rows, k, metric="euclidean")
    assert usual.indices.tolist() == again.indices.tolist()
    longer = uniproto.select(rows, k, metric="euclidean", method=UniProto(seconds=60))
    greedy = uniproto.select(rows, k, metric="euclidean", method=GREEDY)
    assert longer.cost <= usual.cost < greedy.cost
    assert longer.cost <= usual.improve(60).cost * 1.01
    assert usual.improve(60).cost <= usual.cost


@pytest.mark.usual_effort
def test_no_rival_is_better() -> None:
    rows = clusters(700, width=3)
    found = uniproto.select(rows, 12, metric="euclidean")
    for method in ("kmeans", "kmedoids", "random", GREEDY):
        assert found.cost < uniproto.select(rows, 12, metric="euclidean", method=method).cost


@pytest.mark.usual_effort  # with little of it the search may end before both agree
def test_a_killed_search_goes_on_to_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(clusters(500), metric="euclidean").with_k(8)
    whole = run_method(problem, UniProto())
    resumable = problem.with_checkpoint(Checkpoint(tmp_path / "checkpoint.npz", {"run": 1}))

    class Killed(Exception):
        pass

    def killed(*arguments: Any, **options: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(search, "_moves", killed)
        with pytest.raises(Killed):
            run_method(resumable, UniProto())
    resumed = run_method(resumable, UniProto())
    assert resumed.details.notes["resumed_from_pick"] == 8
    assert resumed.indices.tolist() == whole.indices.tolist()


@pytest.mark.slow
@pytest.mark.usual_effort  # with little of it the search may end before it is interrupted
def test_ctrl_c_keeps_the_best_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", clusters(3000).astype(np.float32))
    command = [sys.executable, "-m", "uniproto", "select", "rows.npy", "-k", "12", "-o", "out"]
    command += ["--metric", "euclidean", "--seconds", "600"]
    process = subprocess.Popen([*command, "--checkpoint"], cwd=tmp_path, stderr=subprocess.PIPE)
    saved = tmp_path / "out" / ".uniproto" / "checkpoint.npz"
    while not saved.exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    found = Selection.load(tmp_path / "out")
    assert found.k == 12
    assert "interrupted" in found.details.notes


def test_ctrl_c_while_improving_keeps_the_best_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = clusters(300)
    greedy = uniproto.select(rows, 6, metric="euclidean", method=GREEDY)
    visit, calls = Exchanges.visit, []

    def interrupted(exchanges: Exchanges, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 9:
            assert isinstance(exchanges.plan, CellPlan)
            exchanges.plan.cells.prices[:] = np.nan  # as in the middle of a visit
            raise KeyboardInterrupt
        return visit(exchanges, *arguments)

    monkeypatch.setattr(Exchanges, "visit", interrupted)
    found = greedy.improve(60)
    assert "interrupted" in found.details.notes
    assert found.cost == pytest.approx(uniproto.cost(rows, found.indices, metric="euclidean"))
    assert found.cost < greedy.cost


@pytest.mark.usual_effort
def test_masses_of_very_different_sizes_keep_no_exchange_busy() -> None:
    """Balanced weights of a long tail once sent it along paths that carried next to nothing."""
    from sklearn.datasets import load_digits

    pictures, digits = load_digits(return_X_y=True)
    kept = np.r_[np.flatnonzero(digits < 5)[:540], np.flatnonzero(digits >= 5)[:40]]
    weights = uniproto.Balanced(digits[kept])
    found = uniproto.select(pictures[kept], 40, target_weights=weights)
    greedy = uniproto.select(pictures[kept], 40, target_weights=weights, method=GREEDY)
    assert found.cost < greedy.cost


def test_with_seconds_left_other_samples_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    in_samples(monkeypatch)
    monkeypatch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    monkeypatch.setattr(search, "FRUITLESS", 2)
    rows, sampled = clusters(3000), []
    search_sample = search._search_sample

    def noted(whole: Any, size: int, count: int, **options: Any) -> None:
        sampled.append(options)
        search_sample(whole, size, count, **options)

    monkeypatch.setattr(search, "_search_sample", noted)
    found = uniproto.select(rows, 8, metric="euclidean", seconds=1e6)
    usual = uniproto.select(rows, 8, metric="euclidean")
    assert sampled.count({"again": True}) >= 2
    assert found.cost <= usual.cost * (1 + 1e-12)
