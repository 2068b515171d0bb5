"""Two rounds on Ray give what two rounds by hand give, with the costs of one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.bounds import most_proven
from tests.reading import read_input
from tests.refusals import refused

import uniproto
from uniproto.data.arrays import sampled_rows
from uniproto.data.disk import parquet_files
from uniproto.problem.problem import Problem
from uniproto.transport.prototypes import transport

pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("local_ray")

K = 9


def scale_select(*arguments: Any, **options: Any) -> uniproto.Selection:
    from uniproto.scale import select

    return select(*arguments, features=uniproto.Columns(use=["vector"]), progress=False, **options)


def vectors_of(pattern: str) -> np.ndarray:
    return read_input(pattern, "vector").features


def by_hand(pattern: str, target: np.ndarray, k: int = K, **options: Any) -> list[int]:
    """GreeDi with nothing but `uniproto.select`: each file's picks, then k of their union."""
    first, union = 0, []
    for file in parquet_files(Path(pattern)):
        rows = vectors_of(str(file))
        greedy = uniproto.Greedy()  # a shard only sends candidates
        picks = uniproto.select(
            rows, k, target, method=greedy, compute=uniproto.Compute(device="cpu"), **options
        ).indices
        union += sorted((picks + first).tolist())
        first += len(rows)
    chosen = uniproto.select(
        vectors_of(pattern)[union], k, target, compute=uniproto.Compute(device="cpu"), **options
    )
    return [union[place] for place in chosen.indices]


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "l1", "dot", uniproto.RBF(2.0)], ids=str)
def test_both_rounds_are_those_by_hand(metric: Any, pool: str, aim: str) -> None:
    sel = scale_select(pool, K, aim, metric=metric)
    target = vectors_of(aim)
    assert sel.indices.tolist() == by_hand(pool, target, metric=metric)
    whole = Problem(vectors_of(pool), target, metric=metric).with_k(K)
    assert sel.details.shape == whole.costs.shape
    assert sel.details.beta == pytest.approx(whole.costs.ceiling, rel=1e-6)
    assert sel.cost == pytest.approx(transport(whole, sel.indices).cost, rel=1e-9)


@pytest.mark.parametrize(
    "kind", [uniproto.RBF, pytest.param(uniproto.Laplacian, marks=pytest.mark.slow)]
)
def test_a_share_of_the_median_is_that_of_one_machine(kind: Any, pool: str, aim: str) -> None:
    for options in ({}, {"target_sample": 50, "seed": 4}):
        metric = kind("0.5 median")
        sel = scale_select(pool, K, aim, metric=metric, certify=True, **options)
        target = vectors_of(aim)
        if options:
            target = target[sampled_rows(150, 50, 4, "target_sample")]
        whole = Problem(vectors_of(pool), target, metric=metric).with_k(K)
        assert sel.details.bandwidth == pytest.approx(whole.costs.bandwidth, rel=1e-12)
        assert sel.details.notes["bandwidth_from"] == whole.bandwidth_origin
        assert sel.details.beta == pytest.approx(whole.costs.ceiling, rel=1e-6)
        assert sel.cost == pytest.approx(transport(whole, sel.indices).cost, rel=1e-9)
        assert sel.certificate.lower_bound <= sel.cost


def test_without_a_target_it_is_the_whole_source(pool: str) -> None:
    sel = scale_select(pool, K)
    assert sel.indices.tolist() == by_hand(pool, vectors_of(pool))
    assert sel.details.shape == (240, 240)


def test_where_every_row_is_sent_the_answer_is_one_machine_s(pool: str, aim: str) -> None:
    sel = scale_select(pool, K, aim, per_part=1000)
    alone = uniproto.select(
        vectors_of(pool), K, vectors_of(aim), compute=uniproto.Compute(device="cpu")
    )
    assert sel.indices.tolist() == alone.indices.tolist()
    assert sel.cost == pytest.approx(alone.cost, rel=1e-12)
    assert sel.details.notes["rounds"][1]["picks_per_part"] == [60, 60, 60, 60]


def test_weights_samples_and_excluded_rows(pool: str, aim: str) -> None:
    target, names = vectors_of(aim), read_input(aim, "vector")
    column = names.column("weight", "--target-weights")
    by_column = scale_select(pool, K, aim, target_weights="weight")
    assert by_column.indices.tolist() == by_hand(pool, target, target_weights=column)

    labels = names.column("class", "--labels")
    balanced = scale_select(pool, K, aim, target_weights=uniproto.Balanced("class"))
    by_label = by_hand(pool, target, target_weights=uniproto.Balanced(labels))
    assert balanced.indices.tolist() == by_label
    assert balanced.details.notes["target_weights"] == "balanced over 3 classes"

    sampled = scale_select(pool, K, aim, target_sample=50, seed=4)
    rows = sampled_rows(150, 50, 4, "target_sample")
    assert sampled.indices.tolist() == by_hand(pool, target[rows], seed=4)
    assert sampled.details.notes["target_sample"] == 50

    barred = by_column.indices[:3]
    without = scale_select(pool, K, aim, target_weights="weight", exclude=barred)
    assert not set(without.indices) & set(barred)


@pytest.mark.parametrize("metric", ["cosine", "euclidean", "dot"])
def test_the_certificate_is_proven_by_its_prices_over_all_rows(
    metric: str, pool: str, aim: str
) -> None:
    excluded = [0, 100, 239]
    sel = scale_select(
        pool, K, aim, metric=metric, target_weights="weight", exclude=excluded, certify=True
    )
    assert sel.certificate is not None
    weights = read_input(aim, "vector").column("weight", "--target-weights")
    whole = Problem(
        vectors_of(pool), vectors_of(aim), metric=metric, target_weights=weights, exclude=excluded
    ).with_k(K)
    proven = most_proven(whole, sel.certificate.prices)
    assert 0 < sel.certificate.lower_bound <= proven + 1e-12 * whole.costs.ceiling
    assert sel.certificate.lower_bound == pytest.approx(proven, rel=1e-6)
    alone = uniproto.select(
        vectors_of(pool),
        K,
        vectors_of(aim),
        metric=metric,
        target_weights=weights,
        exclude=excluded,
        method=uniproto.Greedy(),
        certify=True,
    )
    assert alone.certificate is not None
    # As good a bound, though no machine saw all rows.
    assert sel.certificate.lower_bound >= 0.99 * alone.certificate.lower_bound
    assert sel.certificate.lower_bound <= min(sel.cost, alone.cost)


# Ray Data sets options of its own that it calls deprecated.
@pytest.mark.filterwarnings("ignore:`use_[a-z0-9_]*` is deprecated:DeprecationWarning")
def test_a_ray_dataset_is_taken_block_by_block(pool: str, aim: str) -> None:
    from ray.data import from_arrow

    blocks = [pq.read_table(file) for file in parquet_files(Path(pool))]
    sel = scale_select(from_arrow(blocks), K, from_arrow(pq.read_table(Path(aim).parent)))
    assert sel.indices.tolist() == by_hand(pool, vectors_of(aim))
    with pytest.raises(uniproto.InvalidInputError, match="'checkpoint' needs files"):
        scale_select(from_arrow(blocks), K, checkpoint="kept")


def test_an_empty_shard_and_a_list_of_paths(pool: str, tmp_path: Path) -> None:
    files = parquet_files(Path(pool))
    pq.write_table(pq.read_table(files[0]).slice(0, 0), tmp_path / "empty.parquet")
    sel = scale_select([files[0], tmp_path / "empty.parquet", files[1]], 4)
    assert sel.details.shape == (120, 120)
    assert sel.details.notes["rounds"][1]["picks_per_part"] == [4, 0, 4]


def _damage(file: Path) -> None:
    """Spoil the rows, but not the footer that tells their number."""
    content = bytearray(file.read_bytes())
    content[4:2000] = bytes(1996)
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("role", ["source", "target"])
def test_a_shard_that_cannot_be_read_is_named(role: str, pool: str, tmp_path: Path) -> None:
    file = tmp_path / "part-2.parquet"
    file.write_bytes(parquet_files(Path(pool))[2].read_bytes())
    _damage(file)
    sides = (str(tmp_path), pool) if role == "source" else (pool, str(tmp_path))
    with pytest.raises(uniproto.InputFileError, match=r"part-2\.parquet: the file must hold"):
        scale_select(sides[0], K, sides[1])


def test_what_is_wrong_with_a_shard_is_said_with_its_name(pool: str, tmp_path: Path) -> None:
    rows = np.ones((5, 6), np.float32)
    rows[3, 2] = np.nan
    pq.write_table(pa.table({"vector": list(rows)}), tmp_path / "bad.parquet")
    with pytest.raises(uniproto.InvalidInputError, match=r"bad\.parquet.*row 3"):
        scale_select(tmp_path / "bad.parquet", 3, pool)
    pq.write_table(pa.table({"vektor": list(rows)}), tmp_path / "bad.parquet")
    with pytest.raises(
        uniproto.InputFileError, match=r"bad\.parquet must have the columns.*vector"
    ):
        scale_select([pool, tmp_path / "bad.parquet"], 3, pool)


@pytest.mark.parametrize(
    "options",
    [
        *({"k": odd} for odd in (0, True, 241)),
        {"per_part": True},
        {"per_part": 4, "k": 20},
        *({"metric": odd} for odd in ("precomputed", "cosinus")),
        {"method": "random"},
        *({"target_weights": odd} for odd in ([1.0, 2.0], "wait", "balanced")),
        {"target_sample": 240},
        {"exclude": [240]},
        {"source": np.eye(3)},
    ],
)
def test_bad_questions_are_refused(options: dict[str, Any], pool: str) -> None:
    asked = {"source": pool, "k": K, **options}
    with refused(next(iter(options))):
        scale_select(asked.pop("source"), asked.pop("k"), **asked)


def test_files_and_clusters_that_are_not_there(pool: str) -> None:
    with pytest.raises(uniproto.InputFileError, match="no file matches"):
        scale_select("nowhere/*.parquet", K)
    with pytest.raises(uniproto.InvalidInputError, match="connected to Ray already"):
        scale_select(pool, K, num_cpus=2)


def test_nodes_with_another_version_are_told_of(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from uniproto.scale import rounds

    def unknown_there(*_: object) -> None: ...

    unknown_there.__module__, unknown_there.__qualname__ = rounds.__name__, "unknown_there"
    monkeypatch.setattr(rounds, "unknown_there", unknown_there, raising=False)
    monkeypatch.setattr(rounds, "read_first_row", unknown_there)
    with pytest.raises(uniproto.UniprotoError, match="Every node must have uniproto"):
        scale_select(pool, K)


def test_a_union_too_large_for_this_machine_is_refused(
    pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uniproto.scale.rounds.free_bytes", lambda: 2000)
    with pytest.raises(uniproto.InfeasibleError, match="Let each shard send fewer"):
        scale_select(pool, K)


def test_a_target_too_large_for_the_nodes_is_refused(
    pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("uniproto.scale.cluster._SHARE_OF_STORE", 1e-9)
    with pytest.raises(uniproto.InfeasibleError, match="Take a sample of it"):
        scale_select(pool, K)
