"""Exchanges in blocks: each round looks around the rows that the last one exchanged."""

from __future__ import annotations

import numpy as np
import pytest

from uniproto import Problem
from uniproto.methods.search import blocks as module
from uniproto.methods.search.blocks import Block, Blocks, ImprovedBlock
from uniproto.runtime.budget import Budget
from uniproto.transport.prototypes import best_plan, transport


def posed(seed: int, n: int = 700, k: int = 60) -> tuple[Problem, np.ndarray]:
    """A problem with given rows, and rows to begin from."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 3)) + 5 * rng.integers(4, size=(n, 1))
    problem = Problem(rows, metric="euclidean", include=[3, 11]).with_k(k)
    free = rng.choice(problem.candidates, k - 2, replace=False)
    return problem, np.concatenate([problem.initial, free])


@pytest.mark.parametrize("seed", range(4))
def test_rounds_end_where_no_block_around_an_exchanged_row_is_better(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAIRS", 2_000)  # small blocks, so that there are many
    problem, rows = posed(seed)
    budget = Budget()
    blocks = Blocks(problem, rows, best_plan(problem, rows), budget, to_end=True)
    begun, changed, rounds = blocks.cost, set(range(problem.k)), 0
    seen: list[set[int]] = []
    improved = Blocks._all_improved

    def noted(self: Blocks, wave: list[Block]) -> list[ImprovedBlock]:
        seen.extend(set(block.places.tolist()) for block in wave)
        return improved(self, wave)

    monkeypatch.setattr(Blocks, "_all_improved", noted)
    goes_on = True
    while goes_on:
        before, rounds = blocks.rows.copy(), rounds + 1
        seen.clear()
        goes_on = blocks.improve()
        assert all(places & changed for places in seen)
        assert changed <= set().union(*seen)
        assert sum(map(len, seen)) == len(set().union(*seen))  # no place in two blocks
        changed = set(np.flatnonzero(before != blocks.rows).tolist())
    assert rounds > 2
    assert not changed

    done = budget.done
    assert not blocks.improve()  # nothing is left to look at
    assert budget.done == done
    assert blocks.rows[:2].tolist() == problem.initial.tolist()
    assert len(np.unique(blocks.rows)) == problem.k
    exact = transport(problem, blocks.rows)
    assert exact.cost <= blocks.cost * (1 + 1e-6)
    assert blocks.cost < 0.95 * begun
    assert blocks.paid.mean() == pytest.approx(blocks.cost, rel=1e-5)
