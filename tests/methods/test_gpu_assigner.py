"""The passes of an assigner on a GPU beside those on the processor, on tensors in main memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import uniproto
from uniproto import Compute, Problem, UniProto
from uniproto.methods.search import search, starts
from uniproto.methods.search.assigner import Assigner
from uniproto.methods.search.cell_plan import RowCosts
from uniproto.methods.search.gpu_assigner import GpuAssigner, GpuRowCosts, assigner_of
from uniproto.transport import gpu_balance, prototypes

N, K = 600, 7
METRICS = ("euclidean", "sqeuclidean", "cosine", uniproto.RBF(2.0))


def problem_of(metric: Any, **options: Any) -> Problem:
    random = np.random.default_rng(3)
    centres = 3 * random.standard_normal((9, 4))
    rows = (centres[random.integers(9, size=N)] + random.standard_normal((N, 4))).astype("f4")
    return Problem(rows, metric=metric, compute=Compute(device="cuda"), **options).with_k(K)


@pytest.mark.parametrize("metric", METRICS, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_every_pass_is_that_of_the_processor(
    metric: Any, weighted: bool, pretended_gpu: Any
) -> None:
    weights = np.arange(1.0, N + 1) if weighted else None
    problem = problem_of(metric, target_weights=weights, exclude=[1, 2, 3])
    gpu, cpu = GpuAssigner(problem), Assigner(problem)
    rows = np.arange(10, 10 + 20 * K, 20)
    here, there = cpu.assign(rows), gpu.assign(rows)
    assert there.value == pytest.approx(here.value, rel=1e-3)
    np.testing.assert_allclose(there.columns.numpy(), here.columns, atol=1e-3)
    prices = np.linspace(-0.1, 0.1, K)
    for smoothing in (0.01, 0.1):
        for found, exact in zip(
            gpu.target_costs(there.columns).smoothed_dual(prices, smoothing),
            cpu.target_costs(here.columns).smoothed_dual(prices, smoothing),
            strict=True,
        ):
            np.testing.assert_allclose(found, exact, atol=1e-4)

    swapped = gpu.replaced(there.columns, np.array([2, 5]), np.array([300, 301]))
    expected = cpu.replaced(here.columns, np.array([2, 5]), np.array([300, 301]))
    np.testing.assert_allclose(swapped.numpy(), expected, atol=1e-3)

    own = gpu.own_costs(there)
    sums, totals = gpu.sums(there.cells, own, K)
    wanted, counted = cpu.sums(there.cells, own.numpy().astype(np.float64), K)
    np.testing.assert_allclose(sums, wanted, atol=1e-5)
    np.testing.assert_allclose(totals, counted, rtol=1e-5)

    points = (wanted / counted).astype(np.float32)
    np.testing.assert_allclose(
        gpu.costs_to_own(points, there.cells).numpy(),
        cpu.costs_to_own(points, there.cells),
        atol=1e-2,  # the root of a square that should be 0
    )
    for some in (rows, slice(30, 40)):
        for targets in (slice(None), np.arange(5, N, 7)):
            block, exact = (each(problem)._of(some, targets) for each in (GpuRowCosts, RowCosts))
            np.testing.assert_allclose(block, exact, atol=1e-3)

    near = cpu.nearest_rows(points, 5)
    assert (gpu.nearest_rows(points, 5) == near).mean() > 0.95
    cells = [np.flatnonzero(there.cells == place) for place in range(K)]
    tried = list(near.T)
    np.testing.assert_allclose(gpu.totals(tried, cells), cpu.totals(tried, cells), rtol=1e-4)


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_the_search_ends_at_rows_as_good(
    metric: Any, pretended_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many rows: from a sample to all of them."""
    monkeypatch.setattr(starts, "_PAIRS", 10_000)
    monkeypatch.setattr(search, "_SAMPLE", 200)
    monkeypatch.setattr(search, "_SAMPLE_EACH", 1)
    monkeypatch.setattr(gpu_balance, "_FEWEST_PAIRS", 0)
    assert isinstance(assigner_of(problem_of(metric)), GpuAssigner)
    method = UniProto()
    found = uniproto.select(problem_of(metric), K, method=method)
    monkeypatch.setattr(gpu_balance, "_FEWEST_PAIRS", N * K + 1)
    expected = uniproto.select(problem_of(metric), K, method=method)
    assert found.cost == pytest.approx(expected.cost, rel=0.01)
    assert uniproto.cost(problem_of(metric), found) == pytest.approx(found.cost)


def test_what_does_not_suit_stays_on_the_processor(
    pretended_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert type(assigner_of(problem_of("euclidean"))) is Assigner  # few pairs
    monkeypatch.setattr(gpu_balance, "_FEWEST_PAIRS", 0)
    assert type(assigner_of(problem_of("l1"))) is Assigner  # medians, not means
    monkeypatch.setattr(gpu_balance.GpuLists, "free_memory", lambda lists: 1000)
    assert type(assigner_of(problem_of("euclidean"))) is Assigner


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_plans_of_many_prototypes_begin_from_its_prices(
    metric: Any, pretended_gpu: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.arange(5, N, 40)
    expected = prototypes.transport(problem_of(metric).with_k(len(rows)), rows)
    monkeypatch.setattr(gpu_balance, "_FEWEST_PAIRS", 0)
    monkeypatch.setattr(prototypes, "FEW", 10)
    monkeypatch.setattr(prototypes, "SMALL", 0)
    monkeypatch.setattr("uniproto.transport.cells._MOST_PAIRS", 0)
    begun, prices_on_gpu = [], gpu_balance.prices_on_gpu

    def watched(*asked: Any) -> Any:
        begun.append(prices_on_gpu(*asked))
        return begun[-1]

    monkeypatch.setattr(gpu_balance, "prices_on_gpu", watched)
    found = prototypes.transport(problem_of(metric).with_k(len(rows)), rows)
    assert found.is_exact
    assert found.cost == pytest.approx(expected.cost, rel=1e-9)
    problem = problem_of(metric).with_k(len(rows))
    costs = problem.costs.exact_block(rows).T
    assert begun[0] is not None
    dual = begun[0].mean() + (costs - begun[0]).min(axis=1).mean()
    assert 0.995 * found.cost < dual <= found.cost * (1 + 1e-9)
