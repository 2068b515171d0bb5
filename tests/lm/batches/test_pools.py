"""Exchanges in small pools: the best of few sets, and never worse rows."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from uniproto.algorithm import transport_cost
from uniproto.lm.batches.methods import fill_picks
from uniproto.problem.masses import integer_masses


def pool(size: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(size, 3)) * rng.lognormal(size=(size, 1))
    if seed % 4 == 0:
        points = np.round(points)  # ties, and copies
    costs = np.linalg.norm(points[:, None] - points[None], axis=2)
    return costs.astype(np.float32) if seed % 3 == 0 else costs


def picks(costs: np.ndarray, k: int, *, exchanges: bool = True) -> np.ndarray:
    return fill_picks([costs], [k], exchanges=exchanges)[0][0]


def cost(costs: np.ndarray, rows: np.ndarray) -> float:
    masses = integer_masses(len(rows), costs.shape[1], None)
    return transport_cost(costs.astype(float), list(map(int, rows)), masses)


@pytest.mark.parametrize("k", [1, 4, 5, 9, 10])
@pytest.mark.parametrize("seed", range(6))
def test_of_few_sets_the_best_is_found(k: int, seed: int) -> None:
    costs = pool(10, seed)
    found = picks(costs, k)
    assert len(set(found.tolist())) == k
    best = min(cost(costs, np.array(some)) for some in combinations(range(10), k))
    assert cost(costs, found) == pytest.approx(best, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("size", "k"), [(128, 64), (40, 7), (33, 32)])
def test_exchanges_never_raise_the_cost_and_mostly_lower_it(size: int, k: int) -> None:
    lower = 0
    for seed in range(8):
        costs = pool(size, seed)
        picked, found = picks(costs, k, exchanges=False), picks(costs, k)
        assert len(set(found.tolist())) == k
        assert cost(costs, found) <= cost(costs, picked) * (1 + 1e-9)
        lower += cost(costs, found) < 0.999 * cost(costs, picked)
    assert lower >= 2 or k == size - 1


def test_all_rows_and_equal_costs_stay_as_they_are() -> None:
    assert picks(pool(6, 1), 6).tolist() == list(range(6))
    assert picks(np.ones((30, 30)), 8).tolist() == list(range(8))


def test_sources_in_one_call_are_chosen_as_each_alone() -> None:
    sizes, counts = [40, 9, 1, 10, 17, 6], [18, 5, 1, 4, 1, 6]
    parts = [pool(size, seed) for seed, size in enumerate(sizes)]
    together, _ = fill_picks(parts, counts, exchanges=True)
    for part, k, found in zip(parts, counts, together, strict=True):
        assert found.tolist() == picks(part, k).tolist()
