"""Groups, near-duplicates, other methods and GPUs on Ray, beside the same by hand."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.preprocessing import StandardScaler
from tests.bounds import most_proven
from tests.reading import read_input
from tests.refusals import refused

import uniproto
from uniproto import Columns, Compute, Groups, InvalidInputError, Limits
from uniproto.cli import main
from uniproto.data.disk import parquet_files
from uniproto.data.tables import Input
from uniproto.methods import METHODS
from uniproto.problem.problem import Problem, ProblemOptions

pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("local_ray")

K = 9


def scale_select(*arguments: Any, **options: Any) -> uniproto.Selection:
    from uniproto.scale import select

    options = {"features": Columns(use=["vector"]), **options}
    return select(*arguments, progress=False, **options)


def data_of(pattern: str) -> tuple[np.ndarray, np.ndarray]:
    data: Input = read_input(pattern, "vector")
    return data.features, data.column("class", "--groups")


def whole(pool: str, aim: str, budgets: Any = "proportional", **options: Any) -> Problem:
    (source, groups), (target, target_groups) = data_of(pool), data_of(aim)
    grouped = uniproto.Groups(groups, target=target_groups, budgets=budgets)
    return Problem(source, target, groups=grouped, **options).with_k(K)


# --- groups ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budgets", ["proportional", "balanced", {"class 0": 5, "class 1": 0, "class 2": 4}]
)
def test_groups_have_their_numbers_of_rows(budgets: Any, pool: str, aim: str) -> None:
    """Where every row is sent, the answer is one machine's."""
    problem = whole(pool, aim, budgets=budgets)
    alone = uniproto.select(problem, K)
    sel = scale_select(
        pool, K, aim, groups=uniproto.Groups("class", budgets=budgets), per_part=10_000
    )
    assert sel.indices.tolist() == alone.indices.tolist()
    assert sel.cost == pytest.approx(alone.cost, rel=1e-12)
    assert list(sel.group_costs) == list(alone.group_costs)
    for label, cost in alone.group_costs.items():
        assert sel.group_costs[label] == pytest.approx(cost, rel=1e-9)


def test_both_rounds_keep_to_the_groups(pool: str, aim: str) -> None:
    """Each group by hand: each file's picks of it, then its share of their union."""
    problem = whole(pool, aim)
    (source, groups), (target, target_groups) = data_of(pool), data_of(aim)
    sel = scale_select(pool, K, aim, groups="class", metric="cosine")
    expected = []
    for group in problem.groups:
        rows = np.flatnonzero(groups == group.label)
        columns = np.flatnonzero(target_groups == group.label)
        count, union = group.problem.k, []
        for part in np.split(np.arange(len(source)), 4):
            own = np.intersect1d(rows, part)
            greedy = uniproto.Greedy()  # a shard only sends candidates
            picks = uniproto.select(
                source[own], count, target[columns], method=greedy, metric="cosine"
            ).indices
            union += sorted(own[picks])
        chosen = uniproto.select(source[union], count, target[columns], metric="cosine").indices
        expected += [int(union[place]) for place in chosen]
    assert sorted(sel.indices.tolist()) == sorted(expected)


@pytest.mark.slow
def test_the_certificate_of_groups_is_proven_over_all_rows(pool: str, aim: str) -> None:
    sel = scale_select(
        pool, K, aim, groups=uniproto.Groups("class", budgets="balanced"), certify=True
    )
    problem = whole(pool, aim, budgets="balanced")
    alone = uniproto.select(problem, K, method=uniproto.Greedy(), certify=True)
    assert sel.certificate is not None
    assert alone.certificate is not None
    proven = most_proven(problem, sel.certificate.prices)
    assert sel.certificate.lower_bound == pytest.approx(proven, rel=1e-6)
    assert 0.99 * alone.certificate.lower_bound <= sel.certificate.lower_bound <= sel.cost


def test_a_group_in_one_shard_alone(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for place, labels in enumerate((["a"] * 30, ["a"] * 20 + ["b"] * 10)):
        columns = {"class": labels, "vector": list(draw.normal(size=(30, 3)))}
        pq.write_table(pa.table(columns), tmp_path / f"part-{place}.parquet")
    sel = scale_select(str(tmp_path), 6, groups="class", exclude=[50, 51])
    assert np.isin(sel.indices, np.arange(50, 60)).sum() == 1
    assert not np.isin(sel.indices, [50, 51]).any()


def test_groups_that_cannot_be_served_are_told_of(pool: str, aim: str, tmp_path: Path) -> None:
    with refused("groups", uniproto.InputFileError):
        scale_select(pool, K, aim, groups="klass")
    with refused("budgets", uniproto.InvalidInputError):
        scale_select(pool, K, aim, groups=uniproto.Groups("class", budgets={"class 0": 1}))
    table = pa.table({"class": ["class 9"], "vector": [np.ones(6)]})
    pq.write_table(table, tmp_path / "aim.parquet")
    with refused("groups", uniproto.InfeasibleError):
        scale_select(pool, K, tmp_path / "aim.parquet", groups="class")


@pytest.mark.slow
def test_groups_and_distances_by_command(pool: str, aim: str, tmp_path: Path) -> None:
    asked = ["select", pool, "-k", "9", "--target", aim, "--column", "vector", "--id", "name"]
    asked += ["--groups", "class", "--budgets", "class 0=4,class 1=3,class 2=2"]
    asked += ["--min-distance", "0.01", "--certify", "--engine", "ray", "--quiet"]
    assert main([*asked, "-o", str(tmp_path / "out")]) == 0
    assert main(["verify", str(tmp_path / "out")]) == 0
    chosen = pq.read_table(tmp_path / "out" / "prototypes.parquet").column("class").to_pylist()
    assert sorted(map(chosen.count, set(chosen))) == [2, 3, 4]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [label for label, _ in manifest["group_costs"]] == ["class 0", "class 1", "class 2"]


# --- near-duplicates ------------------------------------------------------------------------------


@pytest.fixture
def twins(tmp_path: Path) -> str:
    """Every row four times, in different files; one file holds a single row many times."""
    rows = np.random.default_rng(3).normal(size=(30, 3))
    for place in range(4):
        noise = np.random.default_rng(place).normal(size=rows.shape)
        table = pa.table({"vector": list(rows + 1e-6 * noise)})
        pq.write_table(table, tmp_path / f"part-{place}.parquet")
    pq.write_table(pa.table({"vector": [rows[0]] * 40}), tmp_path / "part-9.parquet")
    return str(tmp_path / "*.parquet")


@pytest.mark.parametrize("method", ["uniproto", "kcenter", "kmedoids"])
def test_no_two_chosen_rows_are_near(method: str, twins: str) -> None:
    sel = scale_select(twins, 12, metric="euclidean", method=method, min_distance=1e-3)
    rows = read_input(twins, "vector").features[sel.indices]
    apart = np.linalg.norm(rows[:, None] - rows, axis=2)[np.triu_indices(12, 1)]
    assert apart.min() > 1e-3
    with refused("min_distance", uniproto.InfeasibleError):
        scale_select(twins, 31, metric="euclidean", method=method, min_distance=1e-3)


@pytest.mark.parametrize("distinct", [True, -1.0, np.nan, "near"])
def test_distinct_is_a_distance_on_ray(distinct: Any, twins: str) -> None:
    with refused("min_distance", uniproto.InvalidInputError):
        scale_select(twins, 4, min_distance=distinct)


# --- methods --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", sorted(METHODS.keys() - {"random", "fasterpam", "dsir"}))
def test_every_method_picks_from_shards_and_from_their_picks(
    method: str, pool: str, aim: str
) -> None:
    (source, _), (target, _) = data_of(pool), data_of(aim)
    sel = scale_select(pool, 5, aim, metric="euclidean", method=method)
    assert (sel.details.method, sel.k) == (method, 5)
    union, first = [], 0
    for file in parquet_files(Path(pool)):
        rows = read_input(file, "vector").features
        first_method = uniproto.Greedy() if method == "uniproto" else method
        picks = uniproto.select(
            rows,
            5,
            target,
            metric="euclidean",
            method=first_method,
            compute=uniproto.Compute(device="cpu"),
        )
        union += sorted((picks.indices + first).tolist())
        first += len(rows)
    chosen = uniproto.select(source[union], 5, target, metric="euclidean", method=method)
    assert sel.indices.tolist() == [union[place] for place in chosen.indices]
    np.testing.assert_allclose(sel.weights, chosen.weights, rtol=1e-6)


def test_other_methods_by_command(pool: str, tmp_path: Path) -> None:
    asked = ["select", pool, "-k", "6", "--column", "vector", "--id", "name", "--method", "kcenter"]
    assert main([*asked, "--engine", "ray", "--quiet", "-o", str(tmp_path / "out")]) == 0
    assert main(["verify", str(tmp_path / "out")]) == 0


def test_finished_parts_of_groups_are_used_again(pool: str, aim: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"groups": "class", "min_distance": 0.01, "checkpoint": tmp_path}
    first = scale_select(pool, K, aim, **options)
    again = scale_select(pool, K, aim, **options)
    assert again.details.notes["resumed_parts"] == 4
    assert again.indices.tolist() == first.indices.tolist()
    other = scale_select(pool, K, aim, **{**options, "min_distance": 0.02})
    assert other.details.notes["resumed_parts"] == 0


# --- every option ---------------------------------------------------------------------------------

DONE: dict[str, Any] = {
    "metric": "l1",
    "target_weights": "weight",
    "groups": "class",
    "exclude": [0, 1],
    "min_distance": 0.01,
    "features": Columns(use=["vector"], id="name", labels="class"),
    "compute": Compute(memory="1GB", device="cpu"),
    "seed": 3,
}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("include", {"include": [3]}),
    ("limits", {"limits": Limits("class", at_most=3)}),
    ("neighbours", {"compute": Compute(neighbours="faiss")}),
    ("groups.target", {"groups": Groups("class", target="name")}),
    ("features", {"features": StandardScaler()}),
    ("features.prepare", {"features": Columns(prepare=True)}),
    ("features.scale", {"features": Columns(scale="minmax")}),
    ("features.categories", {"features": Columns(categories=["class"])}),
    ("features.encoding", {"features": Columns(encoding="latin-1")}),
    ("features.missing", {"features": Columns(missing=-999)}),
    ("features.cyclic", {"features": Columns(cyclic={"hour": 24})}),
    ("features.weights", {"features": Columns(weights={"age": 2})}),
]


def test_every_option_is_done_or_refused_by_name(pool: str, aim: str) -> None:
    """Some were once ignored, and the manifest recorded them."""
    tried = set(DONE) | {name for _, options in REFUSED for name in options}
    assert tried == set(ProblemOptions.__annotations__)
    named = {name.partition(".")[2] for name, _ in REFUSED if name.startswith("features.")}
    assert named | {"use", "ignore", "id", "labels"} == {each.name for each in fields(Columns)}
    for name, options in REFUSED:
        with refused(name, InvalidInputError):
            scale_select(pool, 4, aim, **options)
    sel = scale_select(pool, 6, aim, **DONE)
    assert sel.details.metric == "l1"
    assert not {0, 1} & set(sel.indices.tolist())
    assert set(sel.group_costs) == {"class 0", "class 1", "class 2"}


@pytest.mark.parametrize(
    "option",
    [
        ["--prepare"],
        ["--scale", "minmax"],
        ["--categories", "class"],
        ["--include", "3"],
        ["--neighbours", "faiss"],
        ["--encoding", "latin-1"],
        ["--at-most", "class:*=3"],
    ],
    ids=" ".join,
)
def test_commands_refuse_options_that_ray_does_not_know(
    option: list[str], pool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["select", pool, "-k", "4", "--column", "vector", "--engine", "ray", *option]
    assert main([*asked, "-o", str(tmp_path / "out")]) == 2
    assert f"{option[0]} does not work with --engine ray" in capsys.readouterr().err


def test_a_record_of_options_that_ray_does_not_have_is_not_verified(
    pool: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = ["select", pool, "-k", "4", "--column", "vector", "--id", "name", "--engine", "ray"]
    assert main([*asked, "--quiet", "-o", str(out)]) == 0
    assert main(["verify", str(out)]) == 0
    manifest = json.loads((out / "manifest.json").read_text())
    features = manifest["arguments"]["features"]
    features |= {"scale": "minmax", "prepare": True, "categories": ["class"]}
    (out / "manifest.json").write_text(json.dumps(manifest))
    assert main(["verify", str(out)]) == 2  # its rows have other features
