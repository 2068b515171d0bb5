"""Saturating metrics: what σ is, where it comes from, and that it travels with the problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from tests.refusals import refused

import uniproto
from uniproto import InvalidInputError, MMDCritic, Problem, Selection
from uniproto.cli import main
from uniproto.comparing.accuracy import nearest_prototype
from uniproto.geometry.bandwidth import sampled_pairs
from uniproto.geometry.metrics import Saturating
from uniproto.lm import BatchSelector

X = np.random.default_rng(0).normal(size=(90, 4))
Y = np.random.default_rng(1).normal(size=(70, 4)) + 0.5


def rbf(distances: np.ndarray, sigma: float) -> np.ndarray:
    return 1 - np.exp(-(distances**2) / (2 * sigma**2))


# --- what it is ---------------------------------------------------------------------------------


def test_picks_cost_and_plan_are_those_of_the_matrix() -> None:
    matrix = rbf(cdist(X, Y), 0.8)
    expected = uniproto.select(matrix, 8, metric="precomputed", certify=True)
    for source, target in ((X, Y), (sp.csr_array(X), sp.csr_array(Y))):
        found = uniproto.select(source, 8, target, metric=uniproto.RBF(0.8), certify=True)
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.cost == pytest.approx(expected.cost, rel=1e-9)
        assert found.certificate.lower_bound == pytest.approx(
            expected.certificate.lower_bound, rel=1e-6
        )
        assert found.certificate.lower_bound <= expected.cost
    cost = uniproto.cost(X, expected.indices, Y, metric=uniproto.RBF(0.8))
    assert cost == pytest.approx(expected.cost, rel=1e-9)


def test_far_targets_still_have_a_nearest_prototype() -> None:
    """At 100 σ every cost is 1: labels must not all go to the first prototype."""
    points = np.array([[0.0], [100.0], [1000.0], [1090.0]])
    problem = Problem(points, metric=uniproto.RBF(1.0))
    assert (problem.costs.exact_block(np.array([0]))[0, 1:] == 1).all()
    assert nearest_prototype(problem.costs, np.array([0, 2])).tolist() == [0, 0, 1, 1]
    found = uniproto.PrototypeSelector(2, metric=uniproto.RBF(1.0)).fit(points[[0, 2]])
    assert found.predict(points).tolist() == [
        found.indices_.tolist().index(i) for i in (0, 0, 1, 1)
    ]


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.floats(1e-3, 1e3), st.floats(0, 1e4), st.floats(0, 1e4))
def test_a_curve_rises_no_faster_than_at_first(width: float, near: float, more: float) -> None:
    """What the rounding errors rest on: an error of e costs no more than a distance of e."""
    curve = Saturating(width)
    near_cost, far_cost, error_cost = curve.of(np.array([near, near + more, more]))
    assert 0 <= near_cost <= far_cost <= 1
    assert far_cost - near_cost <= error_cost + 1e-12
    back = curve.distances(np.array([near_cost]))[0]
    assert back <= near * (1 + 1e-9) + 1e-12 or near_cost > 0.999
    if near_cost < 0.999:
        assert back == pytest.approx(near, rel=1e-9, abs=1e-12)


def test_distinct_is_a_distance_in_the_units_of_the_features() -> None:
    found = uniproto.select(X, 8, metric=uniproto.RBF(0.3), min_distance=1.0).indices
    assert cdist(X[found], X[found])[~np.eye(8, dtype=bool)].min() > 1.0


# --- where it comes from ------------------------------------------------------------------------


def test_a_share_is_one_of_the_median_distance() -> None:
    distances = cdist(X, Y)
    for text, share in (("0.25 median", 0.25), ("2median", 2.0), (" 1e-1 median ", 0.1)):
        problem = Problem(X, Y, metric=uniproto.RBF(text))
        assert problem.costs.bandwidth == pytest.approx(share * np.median(distances))
    l1 = Problem(X, Y, metric=uniproto.Laplacian("0.5 median")).costs.bandwidth
    assert l1 == pytest.approx(0.5 * np.median(cdist(X, Y, "cityblock")))
    assert problem.bandwidth_origin == "0.1 median, of 90 source rows and 70 target rows"


def test_copies_say_nothing_of_the_scale() -> None:
    points = np.repeat([[0.0, 0.0], [3.0, 4.0]], [95, 5], axis=0)
    assert Problem(points, metric=uniproto.RBF("0.5 median")).costs.bandwidth == 2.5
    assert Problem(points[:9], metric="rbf").costs.bandwidth == 1.0  # nothing is any distance apart
    assert uniproto.select(points[:9], 2, metric="rbf").cost == 0.0


def test_large_sets_are_sampled_always_alike() -> None:
    rng = np.random.default_rng(3)
    source, target = rng.normal(size=(3000, 2)), rng.normal(size=(1500, 2)).astype(np.float32)
    problem = Problem(source, target, metric=uniproto.RBF("1 median"), seed=5)
    rows, columns = sampled_pairs(3000, 1500)
    assert len(rows) == len(columns) == 1000
    expected = np.median(cdist(source[rows], target[columns]))
    assert problem.costs.bandwidth == pytest.approx(expected)
    assert problem.bandwidth_origin == "1.0 median, of 1,000 source rows and 1,000 target rows"
    again = Problem(source, target, metric=uniproto.RBF("1 median"), seed=6)
    assert again.costs.bandwidth == problem.costs.bandwidth


# --- that it travels ----------------------------------------------------------------------------


def test_everything_that_takes_a_metric_takes_a_bandwidth() -> None:
    options: dict[str, Any] = {"metric": uniproto.RBF("0.5 median")}
    problem = Problem(X, Y, **options)
    sigma = problem.costs.bandwidth
    assert f"rbf, bandwidth {sigma:.6g}" in repr(problem)
    selection = uniproto.select(X, 5, Y, **options)
    assert selection.details.bandwidth == sigma
    assert f"(uniproto, rbf, bandwidth {sigma:.6g})" in selection.summary()
    assert selection.details.notes["bandwidth_from"] == problem.bandwidth_origin
    assert uniproto.select(problem, 5).indices.tolist() == selection.indices.tolist()
    compared = uniproto.compare(X, 5, Y, methods=["uniproto", "kmedoids"], **options)
    assert compared.bandwidth == sigma
    assert f"(rbf, bandwidth {sigma:.6g})" in str(compared)
    assert compared.rows[0]["cost"] == pytest.approx(selection.cost)
    path = uniproto.path(X, [2, 5], Y, **options)
    assert path.bandwidth == sigma
    assert f"(rbf, bandwidth {sigma:.6g})" in str(path)
    fitted = uniproto.PrototypeSelector(5, **options).fit(X, target=Y)
    assert fitted.selection_.details.bandwidth == sigma
    np.testing.assert_allclose(
        fitted.transform(Y), rbf(cdist(Y, X[fitted.indices_]), sigma), atol=1e-9
    )


def test_groups_share_one_bandwidth() -> None:
    problem = Problem(X, metric="rbf", groups=np.arange(90) % 3).with_k(6)
    assert {g.problem.costs.bandwidth for g in problem.groups} == {problem.costs.bandwidth}


def test_memory_maps_give_the_same_answer(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    expected = uniproto.select(X, 6, metric="rbf", certify=True)
    found = uniproto.select(mapped, 6, metric="rbf", certify=True)
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.details.bandwidth == pytest.approx(expected.details.bandwidth, rel=1e-12)
    assert found.cost == pytest.approx(expected.cost, rel=1e-12)


def test_faiss_finds_the_same_neighbours() -> None:
    pytest.importorskip("faiss")
    greedy = uniproto.Greedy()  # the one that lists are for
    exact = uniproto.select(X, 6, metric=uniproto.RBF("1 median"), method=greedy)
    faiss = uniproto.Compute(neighbours="faiss")
    found = uniproto.select(X, 6, metric=uniproto.RBF("1 median"), compute=faiss, method=greedy)
    assert found.details.notes["list_recall"] == 1.0
    assert found.indices.tolist() == exact.indices.tolist()
    with refused("neighbours", InvalidInputError):
        uniproto.select(X, 6, metric="laplacian", compute=uniproto.Compute(neighbours="faiss"))


def test_kernels_of_other_methods_speak_the_same_language() -> None:
    """Without a bandwidth of its own, a method's RBF kernel is that of the metric."""
    sigma = uniproto.select(
        X, 5, metric=uniproto.RBF("0.5 median"), method="random"
    ).details.bandwidth
    by_metric = uniproto.select(X, 5, metric=uniproto.RBF("0.5 median"), method="mmd_critic")
    assert by_metric.details.notes["bandwidth"] == sigma
    for bandwidth in (sigma, "0.5 median"):
        own = uniproto.select(X, 5, metric="euclidean", method=MMDCritic(bandwidth=bandwidth))
        assert own.details.notes["bandwidth"] == pytest.approx(sigma)
        assert own.indices.tolist() == by_metric.indices.tolist()
    median = uniproto.select(X, 5, metric="euclidean", method="mmd_critic").details.notes[
        "bandwidth"
    ]
    assert median == pytest.approx(2 * sigma)


def test_a_training_step_takes_it_from_its_pool() -> None:
    chosen = BatchSelector(keep=6, method="greedy", metric="rbf", bandwidth="0.5 median")(X)
    greedy = uniproto.Greedy()
    expected = uniproto.select(X, 6, metric=uniproto.RBF("0.5 median"), method=greedy).indices
    assert chosen.tolist() == expected.tolist()
    with refused("bandwidth", InvalidInputError):
        BatchSelector(keep=6, bandwidth=1.0)


def test_a_saved_selection_knows_it(tmp_path: Path) -> None:
    selection = uniproto.select(X, 5, metric=uniproto.RBF(0.7))
    loaded = Selection.load(selection.save(tmp_path / "out"))
    assert loaded.details.bandwidth == 0.7
    assert "bandwidth 0.7" in loaded.summary()
    page = selection.report(tmp_path / "page.html", random=1).read_text("utf-8")
    assert "rbf, bandwidth 0.7" in page


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    out = tmp_path / "out"
    options = ["--target", str(tmp_path / "y.npy"), "--metric", "rbf", "--bandwidth", "0.5median"]
    command = ["select", str(tmp_path / "x.npy"), "-k", "5", *options, "--certify", "-o", str(out)]
    assert main(command) == 0
    sigma = uniproto.Problem(X, Y, metric=uniproto.RBF("0.5 median")).costs.bandwidth
    assert f"rbf, bandwidth {sigma:.6g}" in capsys.readouterr().out
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    assert manifest["bandwidth"] == pytest.approx(sigma)
    assert manifest["arguments"]["metric"] == {"kind": "RBF", "bandwidth": "0.5median"}
    assert manifest["notes"]["bandwidth_from"].startswith("0.5 median, of 90 source rows")
    assert main(["verify", str(out)]) == 0
    assert main(["certify", str(out)]) == 0
    manifest = json.loads((out / "manifest.json").read_text("utf-8"))
    manifest["bandwidth"] *= 2
    (out / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    capsys.readouterr()
    assert main(["verify", str(out)]) == 1
    assert "bandwidth" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["compare", "path"])
def test_commands_that_compare(command: str, tmp_path: Path, capsys: Any) -> None:
    np.save(tmp_path / "x.npy", X)
    out = str(tmp_path / "out")
    ks = ["-k", "4", "--methods", "uniproto"] if command == "compare" else ["--ks", "2,4"]
    options = ["--metric", "laplacian", "--bandwidth", "3", "-o", out]
    assert main([command, str(tmp_path / "x.npy"), *ks, *options]) == 0
    assert "laplacian, bandwidth 3" in capsys.readouterr().out


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bandwidth", [0, -1, np.nan, np.inf, True, "wide", "0 median", "-1 median", "median", "", [1.0]]
)
def test_what_is_no_bandwidth(bandwidth: Any) -> None:
    with refused("bandwidth", InvalidInputError):
        uniproto.select(X, 3, metric=uniproto.RBF(bandwidth))


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "precomputed"])
def test_metrics_without_one(metric: str) -> None:
    with refused("bandwidth", InvalidInputError):
        uniproto.select(np.abs(X), 3, metric=metric, bandwidth=1.0)


@pytest.mark.parametrize("bandwidth", [1e-160, 1e160, 1e-30])
def test_a_bandwidth_that_leaves_no_digits(bandwidth: float) -> None:
    with refused("bandwidth", InvalidInputError):
        uniproto.select(X.astype(np.float32), 3, metric=uniproto.RBF(bandwidth))


def test_a_problem_has_its_own() -> None:
    with refused("metric", InvalidInputError):
        uniproto.select(Problem(X, metric="rbf"), 3, metric=uniproto.RBF(1.0))
