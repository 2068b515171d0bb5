"""Target weights by name: what they are, that they reach the picks, the record and the proofs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist
from tests.refusals import refused

import uniproto
from uniproto import Density, InvalidInputError, PrototypeSelector, Selection
from uniproto.problem.problem import Problem
from uniproto.problem.weights import density_from

RNG = np.random.default_rng(5)
X = RNG.normal(size=(70, 4)).astype(np.float32)
Y = np.concatenate([RNG.normal(size=(50, 4)), RNG.normal(4, 2, size=(12, 4))]).astype(np.float32)
LABELS = np.array(["common"] * 50 + ["rare"] * 12)
NAMES = {"cosine": "cosine", "euclidean": "euclidean", "sqeuclidean": "sqeuclidean",
         "l1": "cityblock", "dot": "euclidean", "rbf": "euclidean",
         "laplacian": "cityblock"}  # fmt: skip


def expected(rows: np.ndarray, metric: str, q: int, alpha: float) -> np.ndarray:
    """The definition, from the whole matrix."""
    distances = cdist(rows.astype(float), rows.astype(float), NAMES[metric])
    np.fill_diagonal(distances, np.inf)
    weights = np.sort(distances, axis=1)[:, q - 1] ** alpha
    return weights / weights.sum()


def weights_of(target_weights: Any, target: Any = Y, metric: str = "cosine", **more: Any) -> Any:
    return (
        Problem(
            X if metric in NAMES else target,
            target if metric in NAMES else None,
            metric=metric,
            target_weights=target_weights,
            **more,
        )
        .with_k(3)
        .target_weights
    )


# What they are


@pytest.mark.parametrize("metric", NAMES)
@pytest.mark.parametrize(("q", "alpha"), [(1, 1), (7, 2), (61, 0.5)])
def test_density_is_the_distance_to_the_qth_neighbour(metric: str, q: int, alpha: float) -> None:
    found = weights_of(Density(q, alpha), metric=metric)
    np.testing.assert_allclose(found, expected(Y, metric, q, alpha), rtol=2e-5)


@pytest.mark.parametrize("metric", NAMES)
def test_sparse_targets_have_the_same_density(metric: str) -> None:
    rows = np.where(np.abs(Y) > 0.5, Y, 0).astype(np.float32)
    rows[:, 0] += 1
    problem = Problem(sp.csr_array(rows), metric=metric, target_weights=Density(4, 2)).with_k(3)
    np.testing.assert_allclose(problem.target_weights, expected(rows, metric, 4, 2), rtol=2e-5)


@given(st.integers(0, 10**6), st.integers(1, 12), st.floats(0.25, 4), st.floats(1e-3, 1e3))
@settings(max_examples=40, deadline=None)
def test_density_does_not_depend_on_order_or_scale(
    seed: int, q: int, alpha: float, scale: float
) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(20, 3))
    order = random.permutation(20)
    given = Density(q, alpha)
    problem = Problem(rows, metric="euclidean", target_weights=given).with_k(2)
    moved = Problem(scale * rows[order], metric="euclidean", target_weights=given).with_k(2)
    assert problem.target_weights is not None
    np.testing.assert_allclose(problem.target_weights[order], moved.target_weights, rtol=1e-9)
    assert problem.target_weights.sum() == pytest.approx(1)
    assert problem.target_weights.min() > 0


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "l1"])
def test_copies_get_a_little_weight_and_spoil_nothing(metric: str) -> None:
    rows = np.concatenate([np.repeat(Y[:1], 30, axis=0), Y[1:20]])
    found = weights_of(Density(5, 2), rows, metric)
    assert np.isfinite(found).all()
    assert len(np.unique(found[:30])) == 1
    assert 0 < found[0] < found[30:].min()
    typical = np.median(found[30:])
    assert found[0] == pytest.approx(typical * 0.01**2, rel=0.2)
    # No copy more than q: distance to the nearest row that differs.
    few = np.concatenate([np.repeat(Y[:1], 5, axis=0), Y[1:20]])
    np.testing.assert_allclose(
        weights_of(Density(5, 2), few, metric), expected(few, metric, 5, 2), rtol=1e-3
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_direction_at_many_lengths_counts_as_copies(dtype: type) -> None:
    """Unit rows of one direction differ by rounding, which is no density."""
    lengths = np.random.default_rng(0).uniform(0.1, 9, (30, 1))
    found = weights_of(Density(5, 2), (lengths * Y[:1]).astype(dtype))
    np.testing.assert_allclose(found, 1 / 30)


@pytest.mark.parametrize("metric", ["precomputed", "similarity"])
def test_matrices_of_the_targets_among_themselves(metric: str) -> None:
    distances = cdist(Y, Y)
    matrix = distances if metric == "precomputed" else 3 - distances
    found = weights_of(Density(6, 2), matrix, metric)
    np.testing.assert_allclose(found, expected(Y, "euclidean", 6, 2), rtol=1e-9)


def test_other_matrices_are_refused() -> None:
    for matrix in (RNG.random((20, 30)), RNG.random((30, 30))):
        with refused("target_weights", InvalidInputError):
            weights_of(Density(), matrix, "precomputed")


def test_balance_gives_every_class_the_same() -> None:
    found = weights_of(uniproto.Balanced(LABELS))
    assert found[:50].sum() == pytest.approx(0.5)
    assert found[50:].sum() == pytest.approx(0.5)
    assert len(np.unique(found)) == 2
    mixed = np.array([1] * 50 + ["rare"] * 12, object)  # labels need not sort
    np.testing.assert_array_equal(found, weights_of(uniproto.Balanced(mixed.tolist())))


# That they reach the picks


def test_select_uses_them() -> None:
    by_name: list[dict[str, Any]] = [
        {"target_weights": uniproto.Balanced(LABELS)},
        {"target_weights": Density(5, 2)},
    ]
    for asked in by_name:
        selection = uniproto.select(X, 6, Y, metric="cosine", **asked)
        weights = weights_of(**asked)
        by_hand = uniproto.select(X, 6, Y, metric="cosine", target_weights=weights)
        np.testing.assert_array_equal(selection.indices, by_hand.indices)
        np.testing.assert_allclose(selection.plan.sum(axis=0), weights, atol=1e-12)
    assert "target_weights" not in by_hand.details.notes
    assert selection.details.notes["target_weights"] == "density:q=5,alpha=2"


def test_groups_share_by_the_weights() -> None:
    labels = np.array(["a"] * 60 + ["b"] * 10)
    selection = uniproto.select(X, 8, groups=labels, target_weights=uniproto.Balanced(labels))
    assert (labels[selection.indices] == "b").sum() == 4


def test_the_estimator() -> None:
    plain = PrototypeSelector(6, metric="cosine").fit(X)
    dense = PrototypeSelector(6, metric="cosine").fit(X, target_weights=Density(3, 4))
    expected_picks = uniproto.select(X, 6, metric="cosine", target_weights=Density(3, 4)).indices
    assert dense.indices_.tolist() == expected_picks.tolist() != plain.indices_.tolist()
    labels = np.arange(70) // 60
    balanced = PrototypeSelector(6, metric="cosine").fit(
        X, target_weights=uniproto.Balanced(labels)
    )
    by_hand = uniproto.select(X, 6, metric="cosine", target_weights=1 / np.bincount(labels)[labels])
    assert balanced.indices_.tolist() == by_hand.indices.tolist()
    apart = PrototypeSelector(6).fit(X, target=Y, target_weights=uniproto.Balanced(LABELS))
    assert apart.cost_ > 0


# Refusals


@pytest.mark.parametrize(
    "weights",
    [
        *("importance", "balanced", "density"),
        uniproto.Balanced(LABELS[:9]),
        uniproto.Balanced([None] * 62),
        Density(q=62),
    ],
)
def test_refusals(weights: Any) -> None:
    with refused("target_weights", InvalidInputError):
        uniproto.select(X, 3, Y, target_weights=weights)


@given(st.integers(1, 10**6), st.floats(1e-3, 1e3))
def test_words_can_be_read_back(q: int, alpha: float) -> None:
    density = Density(q, alpha)
    assert density_from(str(density), "--target-weights") == density


# The command line


@pytest.fixture
def run(inside: Path, run: Callable[..., Any]) -> Callable[..., tuple[int, str]]:
    """The command in a folder with these files: its status, and all that it printed."""
    np.save("pool.npy", X)
    frame = pd.DataFrame(Y, columns=list("abcd"))
    frame.assign(kind=LABELS, w=1.0 + np.arange(62)).to_csv("target.csv", index=False)
    frame.assign(w=0.0, kind=LABELS, density=1.0, balanced=1.0).to_csv("named.csv", index=False)
    pd.DataFrame(X, columns=list("abcd")).to_csv("pool.csv", index=False)
    table = pa.table({"embedding": Y.tolist(), "kind": LABELS, "year": np.arange(62) % 3})
    pq.write_table(table, "target.parquet")
    pq.write_table(table.append_column("density", pa.array(np.ones(62))), "named.parquet")

    def run_command(*arguments: object) -> tuple[int, str]:
        ended = run(*arguments)
        return ended.status, ended.out + ended.err

    return run_command


COMMANDS = {
    "density": "target.csv --labels kind --id w",
    "density:alpha=1": "pool.npy",
    "density:q=5,alpha=3.5": "target.parquet --column embedding",
    "density:q=4": "target.parquet --column embedding --groups kind",
    "balanced": "target.csv --labels kind --id w",
    "balanced ": "target.parquet --column embedding --labels year",
}


@pytest.mark.parametrize("word", COMMANDS)
def test_results_with_named_weights_can_be_certified_and_verified(
    run: Callable[..., tuple[int, str]], word: str
) -> None:
    arguments = COMMANDS[word].split()
    status, said = run("select", *arguments, "-k", 6, "--target-weights", word.strip(), "-o", "out")
    assert status == 0, said
    manifest = json.loads(Path("out/manifest.json").read_text())
    recorded = manifest["arguments"]["target_weights"]
    if word.startswith("density"):
        # All of it, so that other defaults in a later version change no old result.
        asked = density_from(word, "--target-weights")
        assert recorded == {"kind": "Density", "q": asked.q, "alpha": asked.alpha}
        assert manifest["notes"]["target_weights"] == str(asked)
    else:
        labels = arguments[arguments.index("--labels") + 1]
        assert recorded == {"kind": "Balanced", "labels": labels}
        assert manifest["notes"]["target_weights"].startswith("balanced over ")
    for command in ("verify", "certify", "verify"):
        status, said = run(command, "out")
        assert status == 0, said
    assert "verified: yes" in said
    assert Selection.load("out").certificate is not None


def test_the_same_picks_as_from_python(run: Callable[..., tuple[int, str]]) -> None:
    run("select", "pool.npy", "-k", 6, "--target-weights", "density:q=5", "-o", "out")
    expected_picks = uniproto.select(X, 6, target_weights=Density(q=5)).indices
    assert Selection.load("out").indices.tolist() == expected_picks.tolist()
    run("select", "target.csv", "--labels", "kind", "--id", "w", "-k", 6,
        "--target-weights", "balanced", "-o", "out")  # fmt: skip
    rows = pd.read_csv("target.csv")[list("abcd")].to_numpy()
    expected_picks = uniproto.select(rows, 6, target_weights=uniproto.Balanced(LABELS)).indices
    assert Selection.load("out").indices.tolist() == expected_picks.tolist()


def test_labels_of_a_target_file_and_never_a_feature(run: Callable[..., tuple[int, str]]) -> None:
    pd.read_csv("target.csv").drop(columns="w").to_csv("wanted.csv", index=False)
    status, said = run(
        "select", "pool.csv", "--target", "wanted.csv", "--labels", "kind",
        "--target-weights", "balanced", "-k", 5, "-o", "out",
    )  # fmt: skip
    assert status == 0, said
    assert "features                a, b, c, d" in said
    plan = Selection.load("out").plan
    assert plan.sum(axis=0)[:50].sum() == pytest.approx(0.5)
    assert run("verify", "out")[0] == 0


def test_changed_weights_are_noticed(run: Callable[..., tuple[int, str]]) -> None:
    run("select", "pool.npy", "-k", 6, "--target-weights", "density:q=5", "-o", "out")
    path = Path("out/manifest.json")
    manifest = json.loads(path.read_text())
    manifest["arguments"]["target_weights"]["q"] = 6
    manifest["notes"]["target_weights"] = "density:q=6,alpha=2"
    path.write_text(json.dumps(manifest))
    status, said = run("verify", "out")
    assert status == 1
    assert "no   the plan gives every chosen row 1/6" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "named.csv --labels kind --target-weights density",
            "is also the name of a column",
        ),
        ("named.csv --labels kind --target-weights balanced", "is also the name of a column"),
        (
            "named.parquet --target target.parquet --column embedding --target-weights density",
            "named.parq",
        ),
        (
            "target.csv --id kind --target-weights balanced",
            "--target-weights balanced needs --labels",
        ),
        ("target.csv --id kind --target-weights balancd", "Did you mean 'balanced'"),
        ("target.csv --id kind --target-weights densty", "Did you mean 'density'"),
        ("pool.npy --target-weights densty", "Did you mean 'density'"),
        (
            "target.parquet --column embedding --labels kimd --target-weights balanced",
            "Did you mean 'kind'",
        ),
        ("target.csv --labels kind --target-weights balanced:q=3", "takes no options for balanced"),
        ("pool.npy --labels kind --target-weights balanced", "--labels needs a table"),
        ("pool.npy --target-weights density:p=3", "--target-weights must be one of alpha, q"),
        ("pool.npy --target-weights density:q=x", "--target-weights must look like density:q=30"),
        ("pool.npy --target-weights density:q=0", "'q' must be at least 1"),
        ("pool.npy --target-weights density:q=70", "below the number of targets, 70"),
        ("pool.npy --target-weights density:alpha=nan", "'alpha' must be positive"),
        ("pool.npy --target-weights other", "--target-weights needs a table"),
    ],
)
def test_refusals_of_the_command_line(
    run: Callable[..., tuple[int, str]], arguments: str, said: str
) -> None:
    status, message = run("select", *arguments.split(), "-k", 3, "-o", "out")
    assert status == 2
    assert said in message
    assert message.count("\n") == 1
    assert not Path("out").exists()
