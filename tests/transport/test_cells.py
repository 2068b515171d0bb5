"""Cells: an exact plan that follows every exchange of a prototype."""

from __future__ import annotations

import numpy as np
import pytest

from uniproto.algorithm import transport_cost
from uniproto.problem.masses import Masses, integer_masses
from uniproto.transport.cell_kernels import (
    AFTER,
    FIRST,
    FULL,
    HOLDER,
    MASS,
    TARGET,
    Cells,
    fill_cells,
    least_costs,
    share_out,
    surroundings,
    unit_costs,
)
from uniproto.transport.cells import (
    cells_for,
    cells_plan,
    copied,
    exchange,
    losses,
    restore,
    with_more_room,
    without,
)
from uniproto.transport.exact import partial_plan


def assert_sound(cells: Cells, masses: Masses, total: float) -> None:
    """Shares are equal, every piece lies where it is cheapest, and moves are the cheapest.

    Those whose piece is gone are bounds.
    """
    n, k = cells.costs.shape
    held = np.zeros((k, n), np.int64)
    for p in range(k):
        piece = cells.cell[FIRST, p]
        while piece >= 0:
            assert cells.piece[HOLDER, piece] == p
            held[p, cells.piece[TARGET, piece]] += cells.piece[MASS, piece]
            piece = cells.piece[AFTER, piece]
        assert sorted(surroundings(cells, p, 0)[1]) == np.flatnonzero(held[p]).tolist()
    assert held.sum(axis=0).tolist() == masses.offer.tolist()
    assert held.sum(axis=1).tolist() == [masses.need] * k
    assert total == pytest.approx((held * cells.costs.T).sum())
    reduced = cells.costs.T - cells.prices[:, None]
    assert (reduced - reduced.min(axis=0) <= 1e-9)[held > 0].all()
    for p in range(k):
        own = np.flatnonzero(held[p])
        cheapest = (cells.costs[own] - cells.costs[own, p][:, None]).min(axis=0)
        is_found = cells.via[p] >= 0
        np.testing.assert_allclose(cells.moves[p, is_found], cheapest[is_found], atol=1e-12)
        assert (cells.moves[p] <= cheapest + 1e-12).all()
        for q in np.flatnonzero(is_found):
            piece = cells.via[p, q]
            assert (cells.piece[HOLDER, piece], cells.piece[MASS, piece] > 0) == (p, True)


def problem(seed: int) -> tuple[np.ndarray, Masses, int]:
    rng = np.random.default_rng(seed)
    k, n = int(rng.integers(1, 7)), int(rng.integers(1, 30))
    costs = rng.random((12, n)) if seed % 3 else rng.integers(0, 4, (12, n)).astype(float)
    weights = rng.random(n) * (rng.random(n) > 0.2) + 1e-3 if seed % 2 else None
    return costs, integer_masses(k, n, None if weights is None else weights / weights.sum()), k


@pytest.mark.parametrize("seed", range(40))
def test_the_plan_is_exact_after_every_exchange(seed: int) -> None:
    costs, masses, k = problem(seed)
    rng = np.random.default_rng(seed)
    rows = rng.permutation(12)[:k]
    # Hardly any room, so that it has to grow.
    cells = cells_for(costs[rows].T.copy(), np.zeros(k), -2 * k)
    total = share_out(cells, masses.need, fill_cells(cells, masses.offer), np.inf)
    assert_sound(cells, masses, total)
    for _ in range(8):
        place = int(rng.integers(k))
        row = int(rng.choice(np.setdiff1d(np.arange(12), rows)))
        least, heirs, rise = without(cells, place, masses.need, least_costs(cells))
        assert losses(cells, masses.need)[place] == pytest.approx(rise)
        bound = (
            total + rise + unit_costs(costs, np.array([row]), least, masses.offer, masses.need)[0]
        )
        saved, old = copied(cells), cells.costs[:, place].copy()
        after = exchange(cells, place, costs[row].copy(), masses.need, total, np.inf, least, heirs)
        while after == FULL:
            restore(cells, saved)
            cells.costs[:, place] = old
            cells = with_more_room(cells)
            saved = copied(cells)
            after = exchange(
                cells, place, costs[row].copy(), masses.need, total, np.inf, least, heirs
            )
        rows[place] = row
        total = after
        assert_sound(cells, masses, total)
        exact = transport_cost(costs, rows.tolist(), masses) * masses.total
        assert total == pytest.approx(exact, abs=1e-9 * masses.total)
        assert bound <= total * (1 + 1e-9) + 1e-9


def test_what_reaches_the_limit_is_given_up_and_undone() -> None:
    costs, masses, k = problem(4)
    cells = cells_for(costs[:k].T.copy(), np.zeros(k))
    total = share_out(cells, masses.need, fill_cells(cells, masses.offer), np.inf)
    saved, given_up = copied(cells), 0
    least, heirs, _ = without(cells, 0, masses.need, least_costs(cells))
    for row in range(k, 12):
        old = cells.costs[:, 0].copy()
        limit, new = total * 0.5, costs[row].copy()
        if exchange(cells, 0, new, masses.need, total, limit, least, heirs) == np.inf:
            given_up += 1
        cells.costs[:, 0] = old
        restore(cells, saved)
        assert_sound(cells, masses, total)
    assert given_up > 0


@pytest.mark.parametrize("seed", range(30))
def test_the_plan_and_its_prices_are_those_of_the_solver(seed: int) -> None:
    costs, masses, k = problem(seed)
    offer = masses.offer.copy()
    if seed % 4 == 0 and len(offer) > 2:  # a target without mass
        offer[1], offer[0] = 0, offer[0] + offer[1]
    expected = partial_plan(costs[:k], offer, masses.need)
    found = cells_plan(costs[:k].T.copy(), offer, masses.need)
    assert found is not None
    assert found.cost == pytest.approx(expected.cost, rel=1e-12, abs=1e-12)
    assert found.masses.sum(axis=0).tolist() == offer.tolist()
    assert found.masses.sum(axis=1).tolist() == [masses.need] * k
    reduced = costs[:k] + found.prices - found.potentials[:, None]
    assert reduced.min() >= -1e-9
    assert found.prices.min() >= 0
    bound = masses.need * found.potentials.sum() - offer @ found.prices
    assert bound == pytest.approx(expected.cost, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_a_copy_knows_nothing_of_what_became_of_the_cells(seed: int) -> None:
    costs, masses = np.random.default_rng(seed).random((12, 60)), integer_masses(5, 60)

    def exchanged(cells: Cells, total: float, rows: range) -> float:
        for place, row in enumerate(rows):
            least, heirs, _ = without(cells, place, masses.need, least_costs(cells))
            new = costs[row].copy()
            total = exchange(cells, place, new, masses.need, total, np.inf, least, heirs)
            assert_sound(cells, masses, total)
        return total

    cells = cells_for(costs[:5].T.copy(), np.zeros(5))
    total = share_out(cells, masses.need, fill_cells(cells, masses.offer), np.inf)
    copy = copied(cells)._replace(costs=cells.costs.copy())
    exchanged(cells, total, range(5, 10))
    copy = copied(copy)._replace(costs=copy.costs)
    exchanged(copy, total, range(7, 12))
