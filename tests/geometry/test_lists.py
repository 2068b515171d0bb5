"""Neighbour lists: short ones, and those built by the processor, FAISS and a GPU.

No GPU is needed: the code for one runs here on tensors in main memory.
"""

from __future__ import annotations

import dataclasses
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from tests.refusals import refused

import uniproto
from uniproto import (
    Entropic,
    Greedy,
    InfeasibleError,
    InvalidInputError,
    MissingExtraError,
    UniProto,
)
from uniproto.algorithm import uniprot
from uniproto.fills import lazy_fills
from uniproto.geometry import cpu_lists, faiss_lists, gpu_lists
from uniproto.geometry.blocks import EVERY
from uniproto.geometry.costs import FEATURE_METRICS, Costs, make_costs
from uniproto.geometry.cpu_lists import CpuLists, nearest, rows_at_once
from uniproto.geometry.faiss_lists import FaissLists
from uniproto.geometry.features import RowsOnDisk
from uniproto.geometry.gpu_lists import GpuIndex, GpuLists
from uniproto.geometry.lists import lists_of, make_builder
from uniproto.methods import greedy_plans
from uniproto.problem.masses import integer_masses
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress

# Lists are what the greedy search reads.
select_greedily = partial(uniproto.select, method=uniproto.Greedy())
select_by_faiss = partial(select_greedily, compute=uniproto.Compute(neighbours="faiss"))
select_on_cpu = partial(select_greedily, compute=uniproto.Compute(device="cpu"))
select_on_gpu = partial(select_greedily, compute=uniproto.Compute(device="cuda"))

# Each pick claims about 12 targets, and the rows come in more than one group of 64.
M, N, K, WIDTH = 100, 160, 13, 6
DTYPES = (np.float32, np.float64)
WEIGHTS = ("uniform", "uneven", "heavy", "zeros")


def points(rows: int, seed: int, dtype: type = np.float64, width: int = WIDTH) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(size=(9, width)) + 0.3
    return (centres[rng.integers(9, size=rows)] + rng.normal(size=(rows, width))).astype(dtype)


def some_weights(kind: str) -> np.ndarray | None:
    rng = np.random.default_rng(3)
    weights = rng.random(N) + 0.05
    if kind == "heavy":  # one target holds the mass of more than two prototypes
        weights[5] = weights.sum() / 3
    if kind == "zeros":
        weights[rng.permutation(N)[: N // 3]] = 0
    return None if kind == "uniform" else weights


def scarce(length: int, rows: int, dtype: Any) -> uniproto.Compute:
    """The least memory in which each row can list this many targets."""
    return uniproto.Compute(memory=2 * rows * (np.dtype(dtype).itemsize + 4) * length)


def assert_picks_of_oracle(
    selection: uniproto.Selection,
    dense: np.ndarray,
    weights: np.ndarray | None = None,
    **options: Any,
) -> None:
    if weights is not None:
        weights = weights / weights.max()
        weights = weights / weights.sum()
    masses = integer_masses(selection.k, dense.shape[1], weights)
    picks, costs = uniprot(dense.astype(np.float64), selection.k, masses, **options)
    assert selection.indices.tolist() == picks
    rtol = 1e-10 if dense.dtype == np.float64 else 1e-4
    np.testing.assert_allclose(
        selection.details.beta - selection.details.gains, costs, rtol=rtol, atol=rtol
    )


@pytest.fixture
def stored_lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the lists that `select` keeps, as they are made."""
    lengths: list[int] = []

    class Noted(lazy_fills.LazyFills):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            assert self._lists.costs.shape == self._lists.columns.shape
            lengths.append(self._lists.columns.shape[1])

    monkeypatch.setattr(greedy_plans, "LazyFills", Noted)
    return lengths


# --- short lists ----------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 3, 8])
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_short_lists_of_a_matrix_give_the_picks_of_the_oracle(
    dtype: type, kind: str, length: int, stored_lengths: list[int]
) -> None:
    costs = np.random.default_rng(5).random((M, N)).astype(dtype)
    weights = some_weights(kind)
    selection = select_greedily(
        costs,
        K,
        metric="precomputed",
        target_weights=weights,
        compute=scarce(length, M, dtype),
    )
    assert stored_lengths == [length]
    assert selection.details.notes["recomputed_rows"] > 0
    assert_picks_of_oracle(selection, costs, weights)


def test_rows_around_a_crowded_place_are_recomputed_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half of the rows have the same nearest targets, so that one pick ends all of their lists."""
    rounds, draw = 0, np.random.default_rng(0)

    class Counted(lazy_fills.LazyFills):
        def _recompute_with(self, row: int) -> None:
            nonlocal rounds
            rounds += 1
            super()._recompute_with(row)

    monkeypatch.setattr(greedy_plans, "LazyFills", Counted)
    crowd, rest = 0.05 * draw.normal(size=(2000, 16)), draw.normal(size=(2000, 16))
    select_greedily(np.concatenate([crowd, rest]), 40)
    assert 0 < rounds < 400  # one row at a time: 2,083


@pytest.mark.parametrize("kind", ["uniform", "uneven"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_short_lists_of_features_give_the_picks_of_the_oracle(
    metric: str, dtype: type, kind: str, stored_lengths: list[int]
) -> None:
    source, target = points(M, 1, dtype), points(N, 2, dtype)
    weights = some_weights(kind)
    selection = select_greedily(
        source,
        K,
        target,
        metric=metric,
        target_weights=weights,
        compute=scarce(4, M, dtype),
    )
    assert stored_lengths == [4]
    assert selection.details.notes["recomputed_rows"] > 0
    assert_picks_of_oracle(selection, make_costs(source, target, metric).block(EVERY), weights)


@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_short_lists_of_sparse_features(metric: str, stored_lengths: list[int]) -> None:
    rng = np.random.default_rng(7)
    source, target = (
        sp.csr_array((rng.random((rows, 40)) + 0.1) * (rng.random((rows, 40)) < 0.3))
        for rows in (M, N)
    )
    selection = select_greedily(source, K, target, metric=metric, compute=scarce(3, M, float))
    assert stored_lengths == [3]
    assert selection.details.notes["recomputed_rows"] > 0
    dense = make_costs(source.toarray(), target.toarray(), metric).block(EVERY)
    assert_picks_of_oracle(selection, dense)


@pytest.mark.parametrize("length", [1, 4])
def test_short_lists_with_rows_given_and_barred(length: int, stored_lengths: list[int]) -> None:
    costs = np.random.default_rng(13).random((M, N))
    initial, exclude = (90, 3, 77), (0, 9, 64)
    selection = select_greedily(
        costs,
        K,
        metric="precomputed",
        include=initial,
        compute=scarce(length, M - 6, float),
        exclude=exclude,
    )
    assert stored_lengths == [length]
    assert_picks_of_oracle(selection, costs, initial=initial, exclude=exclude)


@pytest.mark.parametrize("plan", [{"plan": "resolve"}, {"gains": "exact"}], ids=str)
def test_short_lists_of_other_plans(plan: dict[str, str]) -> None:
    costs = np.random.default_rng(17).random((90, 60))
    selection = select_greedily(
        costs,
        7,
        metric="precomputed",
        method=Greedy(**plan),
        compute=scarce(3, 90, float),
    )
    assert_picks_of_oracle(selection, costs, **plan)


def test_plan_and_certificate_do_not_depend_on_the_length_of_lists() -> None:
    source, target = points(M, 1), points(N, 2)
    question = {"metric": "euclidean", "certify": True}
    plenty = select_greedily(source, K, target, **question)
    short = select_greedily(source, K, target, compute=scarce(2, M, float), **question)
    assert short.indices.tolist() == plenty.indices.tolist()
    assert short.cost == pytest.approx(plenty.cost, rel=1e-12)
    assert short.certificate is not None
    assert short.certificate.lower_bound <= short.cost  # weaker, but no less true


# --- nearest ----------------------------------------------------------------------------------


def brute_force(block: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(block, axis=1, kind="stable")[:, :length]
    return np.take_along_axis(block, order, axis=1), order


KINDS = (
    *FEATURE_METRICS,
    *(f"sparse {metric}" for metric in FEATURE_METRICS),
    "precomputed",
    "similarity",
)


def costs_of(kind: str, dtype: type = np.float64) -> Any:
    if kind in ("precomputed", "similarity"):
        return make_costs(np.random.default_rng(5).random((M, N)).astype(dtype), None, kind)
    source, target = points(M, 1, dtype), points(N, 2, dtype)
    if kind.startswith("sparse "):
        source, target = sp.csr_array(source), sp.csr_array(target)
    return make_costs(source, target, kind.removeprefix("sparse "))


ROW_ORDERS = {
    "all": np.arange(M),
    "a run": np.arange(20, 90),
    "backwards": np.arange(M)[::-1].copy(),
    "shuffled": np.random.default_rng(23).permutation(M)[:75],
    "with gaps": np.arange(0, M, 7),
    "repeated": np.array([4, 4, 80, 4]),
    "one": np.array([33]),
    "none": np.arange(0),
}


@pytest.mark.parametrize("order", ROW_ORDERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_nearest_takes_rows_in_any_order(kind: str, dtype: type, order: str) -> None:
    costs, rows = costs_of(kind, dtype), ROW_ORDERS[order]
    found, where = nearest(costs, rows, 7)
    assert found.dtype == dtype
    assert where.dtype == np.int32
    assert found.shape == where.shape == (len(rows), 7)
    expected, columns = brute_force(costs.block(EVERY)[rows], 7)
    np.testing.assert_array_equal(where, columns)
    np.testing.assert_allclose(found, expected, rtol=1e-12 if dtype is float else 1e-4, atol=1e-6)


@pytest.mark.parametrize("columns", ["from all over", "the nearest ones", "one"])
@pytest.mark.parametrize("length", [1, 7, 60, N - 1, N])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("whole", [False, True])
def test_a_sample_of_columns_changes_nothing(
    whole: bool, dtype: type, length: int, columns: str
) -> None:
    """Nor do one that misleads, and costs that tie."""
    source, target = points(M, 1, dtype), points(N, 2, dtype)
    if whole:
        source, target = np.round(source), np.round(target)
    costs = make_costs(source, target, "l1")
    near = np.sort(costs.block(EVERY)[0].argsort()[:40])
    chosen = {"from all over": np.arange(0, N, 5), "the nearest ones": near, "one": near[:1]}
    sample = costs.read(EVERY, chosen[columns])
    found, where = nearest(costs, np.arange(M), length, sample)
    expected, wanted = brute_force(costs.block(EVERY), length)
    np.testing.assert_array_equal(where, wanted)
    np.testing.assert_array_equal(found, expected)


def test_columns_of_several_blocks_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    costs, rows = costs_of("l1"), np.arange(M)
    expected = CpuLists().index(costs).nearest(rows, 9)
    monkeypatch.setattr(cpu_lists, "_COLUMNS_PER_BLOCK", 50)
    index = CpuLists().index(costs)
    assert index.sample is not None  # type: ignore[attr-defined]
    for one, other in zip(index.nearest(rows, 9), expected, strict=True):
        np.testing.assert_array_equal(one, other)


# --- builders ----------------------------------------------------------------------------------


COLUMN_SETS = {
    "every third": np.arange(0, N, 3),
    "the last": np.arange(N - 40, N),
    "shuffled": np.random.default_rng(29).permutation(N)[:95],
    "one": np.array([17]),
}


@pytest.mark.parametrize("length", [1, 9, 10 * N])
@pytest.mark.parametrize("memory", [1, 2**17, 2**30])
def test_lists_of_many_rows(memory: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    costs = costs_of("cosine", np.float32)
    rows = np.random.default_rng(31).permutation(M)
    groups = []

    def noting(costs: Costs, rows: np.ndarray, *rest: Any) -> Any:
        groups.append(len(rows))
        return nearest(costs, rows, *rest)

    monkeypatch.setattr(cpu_lists, "nearest", noting)
    found, where = lists_of(CpuLists(), costs, rows, length, memory, Progress(shown=False))
    assert sum(groups) == M
    assert max(groups) <= rows_at_once(min(length, N), memory // 8)
    assert (len(groups) > 1) == (memory < 2**30)
    expected, columns = brute_force(costs.block(EVERY)[rows], length)
    assert found.dtype == costs.dtype
    np.testing.assert_array_equal(where, columns)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("source", "metric", "wish"),
    [
        *((points(M, 1), "l1", {"device": odd}) for odd in ("cudda", "CUDA", "cpus")),
        (points(M, 1), "l1", {"device": "tpu9", "neighbours": "faiss"}),
        (points(M, 1), "l1", {"neighbours": "fais"}),
        (points(M, 1), "l1", {"neighbours": "faiss"}),
        (np.ones((M, N)), "precomputed", {"neighbours": "faiss"}),
        (np.ones((M, N)), "similarity", {"neighbours": "faiss"}),
        (sp.csr_array(abs(points(M, 1))), "cosine", {"neighbours": "faiss"}),
    ],
)
def test_wishes_that_are_refused(source: Any, metric: str, wish: Any) -> None:
    with refused(next(iter(wish)), InvalidInputError):
        select_greedily(source, K, metric=metric, compute=uniproto.Compute(**wish))


# --- FAISS ------------------------------------------------------------------------------------

FAISS_METRICS = ("cosine", "dot", "euclidean", "sqeuclidean")


@pytest.fixture
def faiss() -> Any:
    return pytest.importorskip("faiss")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", FAISS_METRICS)
def test_picks_of_faiss_are_nearly_as_good(faiss: Any, metric: str, dtype: type) -> None:
    source, target = points(400, 1, dtype), points(2500, 2, dtype)
    exact = select_greedily(source, 100, target, metric=metric)
    approximate = select_by_faiss(source, 100, target, metric=metric)
    assert 0.8 < approximate.details.notes["list_recall"] <= 1
    assert "list_recall" not in exact.details.notes
    # Costs of `dot` have an arbitrary zero: differences count, beside the spread of costs.
    scale = exact.cost if metric != "dot" else exact.details.beta
    assert approximate.cost == pytest.approx(exact.cost, abs=0.03 * scale)
    again = select_by_faiss(source, 100, target, metric=metric)
    assert again.indices.tolist() == approximate.indices.tolist()
    assert again.details.notes == approximate.details.notes


@pytest.mark.parametrize("metric", FAISS_METRICS)
def test_faiss_with_few_probes_says_that_it_missed_some(
    faiss: Any, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = points(400, 1), points(2500, 2)
    exact = select_greedily(source, 150, target, metric=metric)
    monkeypatch.setattr(faiss_lists, "_PROBES", 5)
    selection = select_by_faiss(source, 150, target, metric=metric)
    assert 0 < selection.details.notes["list_recall"] < 0.95
    scale = exact.cost if metric != "dot" else exact.details.beta
    assert selection.cost == pytest.approx(exact.cost, abs=0.1 * scale)
    assert len(set(selection.indices)) == 150


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", FAISS_METRICS)
def test_faiss_that_searches_everything_is_exact(faiss: Any, metric: str, dtype: type) -> None:
    """32 probes are all the cells of so small a target."""
    costs = make_costs(points(M, 1, dtype), points(900, 2, dtype), metric)
    builder = FaissLists(costs)
    assert not builder.exact
    assert builder.notes() == {"list_recall": 1.0}  # nothing has been searched, nothing missed
    rows = np.random.default_rng(37).permutation(M)[:80]
    for columns in (None, np.arange(0, 900, 2)):
        found, where = builder.index(costs, columns).nearest(rows, 15)
        expected, wanted = CpuLists().index(costs, columns).nearest(rows, 15)
        assert found.dtype == dtype
        assert where.dtype == np.int32
        np.testing.assert_allclose(found, expected, atol=2e-3)  # of single precision, and roots
        agreed = [len(np.intersect1d(a, b)) for a, b in zip(where, wanted, strict=True)]
        assert np.mean(agreed) > 14.9
    assert builder.notes()["list_recall"] > 0.99


def test_faiss_completes_lists_that_its_cells_do_not_fill(
    faiss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faiss_lists, "_PROBES", 1)
    costs = make_costs(points(M, 1), points(2000, 2), "euclidean")
    builder = FaissLists(costs)
    rows = np.array([9, 3, 77])
    found, where = builder.index(costs).nearest(rows, 2000)  # more than any cell holds
    expected, wanted = nearest(costs, rows, 2000)
    np.testing.assert_array_equal(where, wanted)
    np.testing.assert_allclose(found, expected)
    assert builder.notes() == {"list_recall": 1.0}


@pytest.mark.parametrize("n", [1, 5, 38, 80])
def test_faiss_of_few_targets(faiss: Any, n: int) -> None:
    source, target = points(M, 1), points(n, 2)
    selection = select_by_faiss(source, 3, target)
    assert selection.indices.tolist() == select_greedily(source, 3, target).indices.tolist()
    assert selection.details.notes["list_recall"] == 1


def test_faiss_with_weights_groups_and_short_lists(faiss: Any) -> None:
    source, target = points(150, 1), points(800, 2)
    weights = np.random.default_rng(41).random(800)
    labels, target_labels = np.arange(150) % 2, np.arange(800) % 2
    for question in (
        {"target_weights": weights},
        {"groups": uniproto.Groups(labels, target=target_labels)},
        {"compute": scarce(6, 150, float)},
        {"include": [7, 3], "exclude": [1]},
        {"min_distance": "auto"},
    ):
        exact = select_greedily(source, 20, target, **question)
        machine = dataclasses.replace(
            question.get("compute", uniproto.Compute()), neighbours="faiss"
        )
        approximate = select_greedily(source, 20, target, **{**question, "compute": machine})
        assert approximate.cost == pytest.approx(exact.cost, rel=0.05)
        if "groups" in question:
            notes = [approximate.details.notes[label] for label in ("0", "1")]
        else:
            notes = [approximate.details.notes]
        assert all(0 < note["list_recall"] <= 1 for note in notes)


def test_the_certificate_of_faiss_picks_is_no_less_true(
    faiss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is computed from exact lists: missing columns would make the bound too high."""
    monkeypatch.setattr(faiss_lists, "_PROBES", 1)
    source, target = points(60, 1), points(1500, 2)
    selection = select_by_faiss(source, 5, target, certify=True)
    exact = select_greedily(source, 5, target, method=UniProto(seconds=1))
    assert selection.certificate is not None
    assert selection.certificate.lower_bound <= exact.cost


def test_faiss_recall_is_noted_by_every_plan(faiss: Any) -> None:
    source, target = points(60, 1), points(900, 2)
    for method in (
        Greedy(plan="resolve"),
        Greedy(plan=Entropic(reg=0.1, iterations=50)),
        Greedy(sample=0.5),
    ):
        selection = select_by_faiss(source, 4, target, method=method)
        assert 0 < selection.details.notes["list_recall"] <= 1


def test_faiss_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"neighbours='faiss' needs .*'\.\[faiss\]'"):
        select_by_faiss(points(M, 1), K)
    select_greedily(points(M, 1), K)  # which nothing else needs


# --- a GPU, or the lack of one --------------------------------------------------------------------


def index_on(torch: Any, costs: Any, columns: np.ndarray | None = None) -> GpuIndex:
    target = costs.target if columns is None else costs.target[columns]
    return GpuIndex(
        costs,
        torch.from_numpy(costs.source),
        torch.from_numpy(np.ascontiguousarray(target)),
    )


def assert_same_lists(
    found: tuple[np.ndarray, np.ndarray], expected: tuple[np.ndarray, np.ndarray], costs: Costs
) -> None:
    """Costs equal up to rounding; columns may differ only where costs do not."""
    assert found[0].shape == expected[0].shape
    assert found[0].dtype == expected[0].dtype == costs.dtype
    assert found[1].dtype == np.int32
    tolerance = {"atol": 2 * costs.rounding, "rtol": 0}
    np.testing.assert_allclose(found[0], expected[0], **tolerance)
    assert (np.diff(found[0], axis=1) >= 0).all()
    assert (np.diff(np.sort(found[1], axis=1), axis=1) > 0).all()  # no column twice
    # Costs just below 1 differ by the last digit alone, and so does their order.
    assert np.mean(found[1] == expected[1]) > (0.99 if costs.bandwidth is None else 0.9)


def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_lists, "driver_sees_gpu", lambda: False)


def test_cuda_without_a_gpu(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch)
    with refused("device", InvalidInputError):
        select_on_gpu(points(M, 1), K)


def test_cuda_with_a_gpu_that_torch_cannot_use(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_lists, "driver_sees_gpu", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused("device", InvalidInputError):
        select_on_gpu(points(M, 1), K)
    monkeypatch.setattr(gpu_lists, "_SMALLEST_WORK", 0)
    select_greedily(points(M, 1), K, compute=uniproto.Compute(device="auto"))


def test_auto_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    without_gpu(monkeypatch)
    monkeypatch.setattr(gpu_lists, "_SMALLEST_WORK", 0)
    source, target = points(M, 1), points(N, 2)
    picks = [
        select_greedily(source, K, target, compute=uniproto.Compute(device=device))
        for device in ("auto", "cpu")
    ]
    assert picks[0].indices.tolist() == picks[1].indices.tolist()
    assert "device" not in picks[0].details.notes


def test_cuda_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"device='cuda' needs .*'\.\[torch\]'"):
        select_on_gpu(points(M, 1), K)
    select_greedily(points(M, 1), K, compute=uniproto.Compute(device="auto"))


@pytest.mark.parametrize("kind", ["sparse cosine", "precomputed", "similarity"])
def test_cuda_is_refused_where_a_gpu_gains_nothing(kind: str) -> None:
    costs = costs_of(kind)
    with refused("device", InvalidInputError):
        make_builder("cuda", "exact", costs)
    assert isinstance(make_builder("auto", "exact", costs), CpuLists)


def test_auto_takes_a_gpu_where_there_is_work_enough(
    pretended_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = costs_of("cosine")
    assert isinstance(make_builder("auto", "exact", costs), CpuLists)
    assert isinstance(make_builder("cuda", "exact", costs), GpuLists)
    monkeypatch.setattr(gpu_lists, "_SMALLEST_WORK", M * N)
    assert isinstance(make_builder("auto", "exact", costs), GpuLists)


@pytest.mark.parametrize("length", [1, 9, 3 * N])
@pytest.mark.parametrize("chosen", [None, *COLUMN_SETS])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_lists_of_a_gpu_are_those_of_the_processor(
    pretended_gpu: Any, metric: str, dtype: type, chosen: str | None, length: int
) -> None:
    costs = costs_of(metric, dtype)
    columns = None if chosen is None else COLUMN_SETS[chosen]
    rows = ROW_ORDERS["shuffled"]
    expected = CpuLists().index(costs, columns).nearest(rows, length)
    found = index_on(pretended_gpu, costs, columns).nearest(rows, length)
    assert_same_lists(found, expected, costs)
    assert_same_lists(GpuLists().index(costs, columns).nearest(rows, length), expected, costs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("metric", FEATURE_METRICS)
def test_picks_with_a_gpu(pretended_gpu: Any, metric: str, dtype: type) -> None:
    source, target = points(M, 1, dtype), points(N, 2, dtype)
    for question in (
        {},
        {"target_weights": some_weights("uneven")},
        {"compute": scarce(3, M, dtype)},
        {"groups": uniproto.Groups(np.arange(M) % 3, target=np.arange(N) % 3)},
        {"include": [3, 90], "min_distance": "auto", "exclude": [0]},
        {"method": Greedy(plan="resolve")},
    ):
        machine = question.get("compute", uniproto.Compute())
        on_cpu = {**question, "compute": dataclasses.replace(machine, device="cpu")}
        plain = select_greedily(source, K, target, metric=metric, **on_cpu)
        on_gpu = {**question, "compute": dataclasses.replace(machine, device="cuda")}
        quick = select_greedily(source, K, target, metric=metric, **on_gpu)
        assert quick.indices.tolist() == plain.indices.tolist()
        np.testing.assert_allclose(
            quick.details.gains, plain.details.gains, atol=1e-4 * plain.details.beta
        )
        if not question:
            assert quick.details.notes["device"] == "a pretended GPU"


def test_features_on_disk_are_uploaded_a_part_at_a_time(
    pretended_gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "source.npy", points(M, 1))
    on_disk = np.load(tmp_path / "source.npy", mmap_mode="r")
    plain = select_on_cpu(points(M, 1), K)
    monkeypatch.setattr("uniproto.geometry.blocks._BLOCK_BYTES", 7 * 4 * WIDTH)
    read = RowsOnDisk.__getitem__

    def noting(rows_on_disk: RowsOnDisk, rows: Any) -> np.ndarray:
        taken = read(rows_on_disk, rows)
        assert len(taken) <= 7
        return taken

    builder, costs = GpuLists(), Problem(on_disk).with_k(K).costs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowsOnDisk, "__getitem__", noting)
        index = builder.index(costs)
    np.testing.assert_array_equal(index.source.numpy(), costs.source[:])
    quick = select_on_gpu(on_disk, K)
    assert quick.indices.tolist() == plain.indices.tolist()


def test_features_that_may_not_be_written_to(pretended_gpu: Any) -> None:
    """Tables and memory maps give such arrays; torch warns of them, and warnings are errors."""
    source = points(M, 1)
    source.flags.writeable = False
    for metric in FEATURE_METRICS:
        plain = select_on_cpu(source, K, metric=metric)
        quick = select_on_gpu(source, K, metric=metric)
        assert quick.indices.tolist() == plain.indices.tolist()


@pytest.mark.parametrize("spare", [1, 3, 1000])
@pytest.mark.parametrize("metric", ["sqeuclidean", "l1"])
def test_ties_for_the_last_place_go_to_the_lowest_column(
    pretended_gpu: Any, metric: str, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the ties end among the columns fetched to spare or not."""
    monkeypatch.setattr(gpu_lists, "_SPARE", spare)
    monkeypatch.setattr(gpu_lists, "_TIES_SETTLED_TOGETHER", 3 * N)
    rng = np.random.default_rng(43)
    source, target = (rng.integers(0, 3, (rows, 4)).astype(np.float32) for rows in (M, N))
    costs = make_costs(source, target, metric)
    if metric == "sqeuclidean":  # without the centring, whose fractions break ties
        costs.source, costs.target = source, target
    rows = np.arange(M)
    expected = CpuLists().index(costs).nearest(rows, 9)
    found = GpuLists().index(costs).nearest(rows, 9)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


# --- half precision on a GPU ----------------------------------------------------------------------


@pytest.fixture
def half(pretended_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(gpu_lists, "_HALF_FROM", 0)
    return pretended_gpu


@pytest.fixture
def exactly(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each call computes in single precision from the start."""
    counts: list[int] = []
    original = GpuIndex._nearest_exactly

    def noting(index: GpuIndex, source: Any, length: int) -> Any:
        counts.append(len(source))
        return original(index, source, length)

    monkeypatch.setattr(GpuIndex, "_nearest_exactly", noting)
    return counts


@pytest.mark.parametrize("width", [6, 48])
@pytest.mark.parametrize("length", [1, 5, 40])
def test_half_precision_finds_the_same_lists(
    half: Any, exactly: list[int], length: int, width: int
) -> None:
    source, target = points(M, 1, np.float32, width), points(1200, 2, np.float32, width)
    costs = make_costs(source, target, "cosine")
    rows = ROW_ORDERS["shuffled"]
    index = index_on(half, costs)
    assert index._half is not None
    found = index.nearest(rows, length)
    assert sum(exactly) < len(rows) / 2  # most rows are sure
    assert_same_lists(found, CpuLists().index(costs).nearest(rows, length), costs)


def test_half_precision_knows_where_it_is_unsure(half: Any, exactly: list[int]) -> None:
    """600 targets so close together that half precision sees hardly any difference."""
    rng = np.random.default_rng(47)
    source, target = points(M, 1, np.float32), points(1200, 2, np.float32)
    target[:600] = source[3] + rng.normal(size=(600, WIDTH)) * 3e-3
    source[40:60] = source[3] + rng.normal(size=(20, WIDTH)) * 3e-3
    costs = make_costs(source, target, "cosine")
    rows = np.arange(M)
    found = index_on(half, costs).nearest(rows, 9)
    assert 20 < sum(exactly) < M
    expected = CpuLists().index(costs).nearest(rows, 9)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-6)
    far = expected[0][:, 0] > 1e-3  # elsewhere the order hangs on the rounding of the products
    assert far.sum() > M / 2
    assert np.mean(found[1][far] == expected[1][far]) > 0.99
    # What half precision alone would have listed is worse.
    unit = index_on(half, costs)
    products = unit.source.half() @ unit._half.T
    hasty = 1 - np.take_along_axis(
        costs.source @ costs.target.T, products.topk(9, dim=1)[1].numpy(), axis=1
    )
    assert (np.sort(hasty, axis=1)[40:60] - expected[0][40:60]).max() > 1e-6


def test_ties_in_half_precision_go_to_the_lowest_column(half: Any, exactly: list[int]) -> None:
    """Six copies of each target, of which a list of nine has room for three of the second."""
    source, target = points(M, 1, np.float32), points(200, 2, np.float32)
    costs = make_costs(source, np.tile(target, (6, 1)), "cosine")
    index = index_on(half, costs)
    products = costs.source @ costs.target[:200].T  # the same for every copy
    order = np.argsort(-products, axis=1)[:, :2]
    expected = np.stack([order[:, 0] + 200 * copy for copy in range(6)], axis=1)
    where = index.nearest(np.arange(M), 9)[1]
    assert sum(exactly) < M / 2
    clear = np.diff(np.sort(1 - products, axis=1)[:, :3], axis=1).min(axis=1) > 1e-5
    assert clear.sum() > M / 2
    np.testing.assert_array_equal(where[clear, :6], expected[clear])
    np.testing.assert_array_equal(where[clear, 6:], order[clear, 1:] + 200 * np.arange(3))


@pytest.mark.parametrize("width", [1, 2, 16, 300, 2000])
def test_half_precision_is_off_by_no_more_than_it_allows_for(torch: Any, width: int) -> None:
    rng = np.random.default_rng(53)
    for spread in (1.0, 8.0):  # even rows, and rows of a few large entries
        rows = rng.normal(size=(60, width)) * np.exp(spread * rng.normal(size=(60, width)))
        unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
        products = torch.from_numpy(unit).half() @ torch.from_numpy(unit).half().T
        exact = unit.astype(np.float64) @ unit.astype(np.float64).T
        assert np.abs(products.double().numpy() - exact).max() < gpu_lists._HALF_ERROR


def test_picks_in_half_precision(half: Any) -> None:
    source, target = points(M, 1, np.float32, 24), points(1500, 2, np.float32, 24)
    plain = select_on_cpu(source, 100, target)
    quick = select_on_gpu(source, 100, target)
    assert quick.indices.tolist() == plain.indices.tolist()


# --- a GPU that runs out of memory ----------------------------------------------------------------


@pytest.mark.parametrize("first_try", [16, 17, 48, 100, 10_000])
def test_smaller_tiles_where_large_ones_do_not_fit(
    pretended_gpu: Any, first_try: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    tile, sizes = GpuIndex._tile, []

    def cramped(index: GpuIndex, rows: np.ndarray, length: int) -> Any:
        if len(rows) > 16:
            raise pretended_gpu.OutOfMemoryError
        sizes.append(len(rows))
        return tile(index, rows, length)

    monkeypatch.setattr(GpuIndex, "_tile", cramped)
    monkeypatch.setattr(GpuIndex, "_rows_per_tile", lambda index: first_try)
    for metric in FEATURE_METRICS:
        costs, rows = costs_of(metric), ROW_ORDERS["shuffled"]
        sizes.clear()
        found = index_on(pretended_gpu, costs).nearest(rows, 9)
        assert sum(sizes) == len(rows)
        assert max(sizes) <= 16
        assert_same_lists(found, CpuLists().index(costs).nearest(rows, 9), costs)


def test_a_gpu_without_room_for_the_smallest_tile(
    pretended_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def full(index: GpuIndex, rows: np.ndarray, length: int) -> Any:
        tried.append(len(rows))
        raise pretended_gpu.OutOfMemoryError

    monkeypatch.setattr(GpuIndex, "_tile", full)
    with pytest.raises(
        InfeasibleError, match=r"Not enough GPU memory for 16 rows of 160 costs.*device='cpu'"
    ) as caught:
        select_on_gpu(points(M, 1), K, points(N, 2))
    assert tried == [48, 24, 16]
    assert isinstance(caught.value, ValueError)


def test_a_gpu_without_room_for_the_features(
    pretended_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any, **options: Any) -> Any:
        raise pretended_gpu.OutOfMemoryError

    monkeypatch.setattr(pretended_gpu.Tensor, "to", full)
    with pytest.raises(
        InfeasibleError, match=r"GPU memory for 160 rows of 6 features.*device='cpu'"
    ):
        select_on_gpu(points(M, 1), K, points(N, 2))


def test_rows_of_a_tile_follow_the_free_memory(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    index = index_on(torch, costs_of("l1", np.float32))
    for free, rows in ((0, 16), (8 * N * 4 * 1000, 1000), (2**50, 6 * 2**30 // (N * 4))):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 2**50))
        assert index._rows_per_tile() == rows


@pytest.mark.parametrize("room", [1, 100, 10**6])
def test_lists_come_back_whatever_room_there_is_for_them(
    pretended_gpu: Any, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = pretended_gpu.empty(room, dtype=pretended_gpu.uint8)
    monkeypatch.setattr(gpu_lists, "_pinned_memory", lambda: buffer)
    costs = costs_of("l1", np.float32)
    found = index_on(pretended_gpu, costs).nearest(np.arange(M), 9)
    assert_same_lists(found, CpuLists().index(costs).nearest(np.arange(M), 9), costs)
