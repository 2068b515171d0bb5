"""`compare`: the same problem for all, random with its spread, nothing replaced in silence."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refused

import uniproto
from uniproto import Comparison, Greedy, MissingExtraError, UniProto, compare
from uniproto.cli import main
from uniproto.comparing.accuracy import LabelsWarning, nearest_prototype
from uniproto.comparing.compare import PeakMemory, draws_at_random
from uniproto.comparing.results import as_seeds
from uniproto.errors import InvalidInputError
from uniproto.methods import FOR_A_TASK, METHODS
from uniproto.problem.problem import Problem

RNG = np.random.default_rng(5)
LABELS = np.repeat(["a", "b", "c"], [40, 30, 6])
X = RNG.normal(size=(76, 4)) + 3 * np.repeat(np.eye(4)[:3], [40, 30, 6], axis=0)
Y = X[::2] + 0.01
KEYS = {
    "method",
    "seed",
    "cost",
    "seconds",
    "accuracy",
    "balanced_accuracy",
    "minority_accuracy",
}


@pytest.fixture(scope="module")
def every() -> Comparison:
    return compare(X, 6, labels=LABELS, seeds=3, progress=False)


def _of(comparison: Comparison, method: str) -> list[dict[str, Any]]:
    return [row for row in comparison.rows if row["method"] == method]


def test_every_method_runs_on_the_same_problem(every: Comparison) -> None:
    assert set(every.methods) | set(every.skipped) == set(METHODS) - set(FOR_A_TASK)
    assert all(row.keys() >= KEYS for row in every.rows)
    assert [row["seed"] for row in _of(every, "random")] == [0, 1, 2]
    assert [row["seed"] for row in _of(every, "uniproto")] == [None]
    assert all(row["cost_is_exact"] and row["seconds"] >= 0 for row in every.rows)


@pytest.mark.parametrize("method", ["uniproto", "kmedoids", "random", "kmeans"])
def test_a_row_is_what_select_gives(every: Comparison, method: str) -> None:
    for row in _of(every, method):
        alone = uniproto.select(X, 6, method=method, seed=row["seed"] or 0)
        assert row["indices"] == alone.indices.tolist()
        assert row["cost"] == alone.cost
        problem = Problem(X).with_k(6)
        predicted = LABELS[alone.indices][nearest_prototype(problem.costs, alone.indices)]
        assert row["accuracy"] == pytest.approx(np.mean(predicted == LABELS))


def test_no_cost_is_below_the_certified_bound(every: Comparison) -> None:
    bound = uniproto.select(X, 6, certify=True).certificate
    assert bound is not None
    assert all(row["cost"] >= bound.lower_bound for row in every.rows)


def test_minority_classes_and_accuracies(every: Comparison) -> None:
    assert every.minority == ["c"]
    for row in every.rows:
        assert row["minority_accuracy"] == row["class_accuracy"]["c"]
        assert row["balanced_accuracy"] == pytest.approx(np.mean([*row["class_accuracy"].values()]))
    named = compare(X, 6, labels=LABELS, minority=["b", "c"], methods=["uniproto"])
    shares = named.rows[0]["class_accuracy"]
    assert named.rows[0]["minority_accuracy"] == pytest.approx((shares["b"] + shares["c"]) / 2)


def test_prototypes_by_class(every: Comparison) -> None:
    """What small classes get, beside what their share of the target would give them."""
    names, counts = np.unique(LABELS, return_counts=True)
    assert every.proportional == pytest.approx(
        dict(zip(names.tolist(), 6 * counts / len(LABELS), strict=True))
    )
    for row in every.rows:
        chosen = np.asarray(LABELS)[row["indices"]].tolist()
        assert row["class_prototypes"] == {name: chosen.count(name) for name in names.tolist()}
        assert sum(row["class_prototypes"].values()) == 6
    text = str(every)
    assert text.index("accuracy by class") < text.index("prototypes by class")
    assert "in proportion" in text


def test_learned_weights_are_skewed_and_equal_ones_are_not(every: Comparison) -> None:
    for method in ("uniproto", "random", "kcenter"):
        assert all((r["weight_ratio"], r["weight_entropy"]) == (1, 1) for r in _of(every, method))
    (row,) = _of(every, "kmedoids")
    weights = uniproto.select(X, 6, method="kmedoids").weights
    assert row["weight_ratio"] == pytest.approx(weights.max() / weights.min())
    assert row["weight_entropy"] < 1


def test_a_summary_is_mean_and_spread(every: Comparison) -> None:
    costs = [row["cost"] for row in _of(every, "random")]
    (summary,) = [each for each in every.summary_rows if each["method"] == "random"]
    assert summary["runs"] == 3
    assert summary["cost"] == pytest.approx(np.mean(costs))
    assert summary["cost_spread"] == pytest.approx(np.std(costs, ddof=1))
    assert [each["cost"] for each in every.summary_rows] == sorted(
        each["cost"] for each in every.summary_rows
    )


def test_seeds_may_be_listed() -> None:
    found = compare(X, 4, methods=["random"], seeds=[11, 7])
    assert [row["seed"] for row in found.rows] == [11, 7]
    expected = uniproto.select(X, 4, method="random", seed=7).indices.tolist()
    assert found.rows[1]["indices"] == expected
    assert "one seed" in str(compare(X, 4, methods=["random"], seeds=1))


@pytest.mark.parametrize("seeds", [0, -1, [], [1, 1], [-3], "5", 2.5, None, True, [True]])
def test_bad_seeds_are_refused(seeds: Any) -> None:
    with refused("seeds", InvalidInputError):
        as_seeds(seeds)


@pytest.mark.slow
def test_methods_may_be_objects_or_have_labels() -> None:
    found = compare(X, 4, methods=[Greedy(plan="resolve"), UniProto(), "greedy"])
    assert list(found.methods) == ["greedy(plan=resolve)", "uniproto", "greedy"]
    found = compare(X, 4, methods={"mine": Greedy(sample=0.1)}, seeds=2)
    assert [(row["method"], row["seed"]) for row in found.rows] == [("mine", 0), ("mine", 1)]


@pytest.mark.usual_effort
@pytest.mark.parametrize("name", METHODS)
def test_methods_that_do_not_draw_are_told_from_those_that_do(name: str) -> None:
    """Where a method runs once, no seed may change its picks."""
    method = METHODS[name]()
    if not draws_at_random(method):
        picks = [uniproto.select(X, 5, method=method, seed=seed).indices for seed in range(3)]
        assert all(np.array_equal(each, picks[0]) for each in picks)


@pytest.mark.parametrize("methods", [[], "uniproto", ["uniprot"], ["random", "random"], 7])
def test_bad_methods_are_refused(methods: Any) -> None:
    with refused("methods", InvalidInputError):
        compare(X, 4, methods=methods)


@pytest.mark.slow
def test_a_method_that_cannot_run_is_left_out_with_its_reason() -> None:
    found = compare(X[:20], 4, Y[:10], seeds=1)
    assert "fasterpam" not in found.methods
    assert "source itself" in found.skipped["fasterpam"]
    assert not _of(found, "fasterpam")
    assert "skipped: fasterpam: 'target' must be the source itself" in str(found)


@pytest.mark.slow
def test_a_missing_extra_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kmedoids", None)
    found = compare(np.abs(X @ X.T), 4, metric="precomputed", seeds=1)
    assert ".[compare]" in found.skipped["fasterpam"]
    assert {"uniproto", "kmedoids", "random"} <= set(found.methods)  # costs alone are enough
    assert {"kmeans", "mmd_critic", "protodash"} <= set(found.skipped)
    with pytest.raises(MissingExtraError, match="compare"):
        compare(X, 4, methods=["uniproto", "fasterpam"])


def test_a_method_asked_for_that_cannot_run_is_an_error_before_the_others_run() -> None:
    ran = []

    class Slow:
        name = "slow"

        def pick(self, problem: Any, progress: Any) -> Any:
            ran.append(problem.k)
            return uniproto.Random().pick(problem, progress)

    with refused("target", InvalidInputError):
        compare(X, 50, Y, methods={"slow": Slow(), "pam": "fasterpam"})  # type: ignore[dict-item]
    assert 50 not in ran


def test_doubtful_labels_warn_and_stand_under_the_table() -> None:
    source_labels = np.where(LABELS == "c", "a", LABELS)
    with pytest.warns(LabelsWarning) as caught:
        found = compare(X, 2, X, labels=(source_labels, LABELS), methods=["uniproto"])
    assert [str(each.message) for each in caught] == found.warnings
    assert len(found.warnings) == 2
    assert found.rows[0]["class_accuracy"]["c"] == 0
    words = " ".join(str(found).split())
    assert "warning: No source row has the label 'c'" in words
    assert "warning: k=2 is smaller than the number of classes" in words


@pytest.mark.parametrize(
    ("parameter", "arguments"),
    [
        ("labels", {"labels": LABELS[:-1]}),
        ("labels", {"labels": LABELS, "target": Y}),
        ("seed", {"seed": 3}),
        ("minority", {"labels": LABELS, "minority": ["d"]}),
        ("minority", {"minority": ["a"]}),
        ("k", {"k": 77}),
    ],
)
def test_bad_arguments_are_refused(parameter: str, arguments: dict[str, Any]) -> None:
    with refused(parameter, InvalidInputError):
        compare(**{"source": X, "k": 5, "methods": ["random"], **arguments})


def test_the_problem_may_have_conditions() -> None:
    found = compare(
        X,
        6,
        methods=["uniproto", "random"],
        seeds=2,
        metric="euclidean",
        groups=uniproto.Groups(LABELS, budgets="balanced"),
        include=[3],
        exclude=[4],
    )
    for row in found.rows:
        assert row["indices"][0] == 3
        assert 4 not in row["indices"]
        assert sorted(LABELS[row["indices"]]) == ["a", "a", "b", "b", "c", "c"]
    random = _of(found, "random")
    assert random[0]["indices"] != random[1]["indices"]  # the seed reaches the groups


def test_balanced_weights_take_the_labels() -> None:
    found = compare(
        X, 6, labels=LABELS, target_weights=uniproto.Balanced(LABELS), methods=["uniproto"]
    )
    alone = uniproto.select(X, 6, target_weights=uniproto.Balanced(LABELS))
    assert found.rows[0]["indices"] == alone.indices.tolist()


def test_everything_is_saved(every: Comparison, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    assert every.save(out, command="uniproto compare x.csv") == out
    names = {f"comparison.{ending}" for ending in ("parquet", "csv", "json", "png", "svg", "html")}
    assert {file.name for file in out.iterdir()} == names
    table = pd.read_parquet(out / "comparison.parquet")
    assert len(table) == len(every.rows)
    assert list(table["method"]) == [row["method"] for row in every.rows]
    assert list(table["accuracy_c"]) == [row["class_accuracy"]["c"] for row in every.rows]
    assert list(table["prototypes_c"]) == [row["class_prototypes"]["c"] for row in every.rows]
    csv = pd.read_csv(out / "comparison.csv")
    assert csv["cost"].to_numpy() == pytest.approx(table["cost"].to_numpy(), rel=1e-12)
    record = json.loads((out / "comparison.json").read_text("utf-8"))
    assert record["k"] == 6
    assert record["seeds"] == [0, 1, 2]
    assert record["skipped"] == every.skipped
    assert record["methods"]["greedy"]["options"]["plan"] == "extend"
    assert len(record["rows"][0]["indices"]) == 6
    assert record["versions"]["uniproto"] == uniproto.__version__
    assert (out / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "comparison.svg").read_text("utf-8")
    page = (out / "comparison.html").read_text("utf-8")
    assert 'src="http' not in page  # opens without a network
    assert "uniproto compare x.csv" in page


def test_other_results_in_the_folder_stay(every: Comparison, tmp_path: Path) -> None:
    uniproto.select(X, 3).save(tmp_path)
    every.save(tmp_path)
    every.save(tmp_path)
    assert uniproto.Selection.load(tmp_path).k == 3
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_a_failed_save_leaves_nothing(
    every: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(chart: Any, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("uniproto.report.charts.save_chart", fail)
    with pytest.raises(uniproto.OutputError, match="No space left"):
        every.save(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_peak_memory_sees_what_is_held_for_a_moment() -> None:
    with PeakMemory() as peak:
        block = np.ones(30_000_000)
        del block
    assert peak.bytes is None or 200e6 < peak.bytes < 400e6


# --- the command line ----------------------------------------------------------------------------


@pytest.fixture
def files(inside: Path) -> Path:
    for name, rows, labels in (("pool", X, LABELS), ("target", Y, LABELS[::2])):
        columns = {f"f{place}": rows[:, place] for place in range(4)}
        pq.write_table(pa.table({"class": labels, **columns}), f"{name}.parquet")
    return inside


def test_the_command_compares(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "compare pool.parquet -k 6 --labels class --methods uniproto,kmedoids,random"
    assert main([*command.split(), "--seeds", "3", "--minority", "c,b", "-o", "out"]) == 0
    printed = capsys.readouterr().out
    assert "minority classes: c, b" in printed
    assert "written to out" in printed
    record = json.loads((files / "out" / "comparison.json").read_text("utf-8"))
    expected = compare(
        X,
        6,
        labels=LABELS,
        minority=["c", "b"],
        methods=["uniproto", "kmedoids", "random"],
        seeds=3,
    )
    same = ("method", "seed", "cost", "accuracy", "minority_accuracy", "indices")
    assert [{name: row[name] for name in same} for row in record["rows"]] == [
        {name: row[name] for name in same} for row in expected.rows
    ]


@pytest.mark.slow
def test_the_command_takes_a_target(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "compare pool.parquet -k 2 --target target.parquet --labels class --methods random"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main([*command.split(), "--target-weights", "balanced"]) == 0
    printed = capsys.readouterr().out
    assert "2 of 76 source rows for 38 targets" in printed
    assert "warning: k=2" in printed
    assert not (files / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("compare pool.parquet -k 6 --labels klass", "Did you mean 'class'"),
        ("compare pool.parquet -k 6 --labels class --minority x", "must be one of a, b, c"),
        ("compare pool.parquet -k 6 --labels class --methods best", "--methods must be one of"),
        ("compare pool.parquet -k 6 --labels class --seeds 0", "--seeds must be"),
        ("compare pool.parquet -k 99 --labels class", "-k must not exceed"),
        ("compare nothing.parquet -k 6", "no such file"),
    ],
)
def test_the_command_refuses(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: str, words: str
) -> None:
    assert main(arguments.split()) == 2
    assert words in capsys.readouterr().err
