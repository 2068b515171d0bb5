"""The exact plan of k prototypes as cells of targets, kept up to date when one is exchanged.

With prices u on the prototypes, target j belongs where C_pj − u_p is least. A plan in which every
piece of mass lies where it is cheapest, and every cell holds its share, is optimal. After one
prototype has been exchanged only shares are wrong: mass then moves from cells that hold too much
to cells that hold too little along cheapest paths, on a graph of k nodes whose arcs are the
cheapest move from one cell to another (as in the Hungarian algorithm, prices stay optimal).
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.transport.cell_kernels import (
    AFTER,
    FULL,
    HOLDER,
    MASS,
    TARGET,
    Cells,
    Numbers,
    fill_cells,
    put_in,
    share_out,
)
from uniproto.transport.exact import Plan
from uniproto.transport.proof import prove

_MOST_PATHS = 30  # for each cell: an exchange takes a few
_MOST_PAIRS, _MOST_PAIRS_OF_TARGETS = 5_000_000, 200_000_000


def cells_suit(k: int, n: int) -> bool:
    """Whether cells are the quickest way to a plan of k prototypes and n targets.

    In large cells, looking for the next cheapest move takes most of the time.
    """
    return k * n <= _MOST_PAIRS and n * n <= _MOST_PAIRS_OF_TARGETS * k


def cells_for(costs: Numbers, prices: Numbers, spare: int = 64) -> Cells:
    """Empty cells of prototypes with these n × k costs, with room for a few pieces to spare."""
    n, k = costs.shape
    room = n + 4 * k + spare

    piece = np.full((6, room), -1)
    piece[MASS], piece[AFTER] = 0, np.arange(1, room + 1)
    return Cells(
        costs=costs,
        prices=prices,
        moves=np.full((k, k), np.inf),
        via=np.full((k, k), -1),
        cell=np.stack([np.zeros(k, np.int64), np.full(k, -1)]),
        part=np.full(n, -1),
        piece=piece,
        unused=np.array([0, room]),
        work=np.zeros(1, np.int64),
    )


def filled(
    costs: Numbers, offer: NDArray[np.int64], need: int, prices: Numbers
) -> tuple[Cells, float]:
    """The exact plan of prototypes with these n × k costs, and what it costs.

    `prices` near to those that balance it save work.
    """
    spare, total = 64, FULL
    while total == FULL:
        cells = cells_for(costs, prices.copy(), spare)
        most, total = 200 * sum(costs.shape), fill_cells(cells, offer)
        total, spare = share_out(cells, need, total, np.inf, most), 2 * spare + len(costs)
    return cells, total


def exchange(
    cells: Cells, place: int, costs: Numbers, need: int, total: float, limit: float
) -> float:
    """Give a place to a row with these costs. Returns the cost of the plan then.

    Infinite as soon as it is known to reach `limit`, and FULL where there is no more room: the
    cells are then half way, and must be restored.
    """
    begun = put_in(cells, place, costs, need, total)
    if begun == FULL:
        return FULL
    return float(share_out(cells, need, begun, limit, _MOST_PATHS * (len(cells.prices) + 4)))


_CHANGING = [name for name in Cells._fields if name not in ("costs", "work")]


def copied(cells: Cells) -> Cells:
    """A copy that shares the costs, and counts the same work."""
    return cells._replace(**{name: getattr(cells, name).copy() for name in _CHANGING})


def with_more_room(cells: Cells) -> Cells:
    """The same cells with room for twice as many pieces."""
    room = cells.piece.shape[1]
    piece = np.concatenate([cells.piece] * 2, axis=1)
    piece[MASS, room:], piece[AFTER, room:] = 0, np.arange(room + 1, 2 * room + 1)
    return cells._replace(piece=piece, unused=cells.unused + np.array([0, room]))


def restore(cells: Cells, saved: Cells) -> None:
    """Bring cells back to what they were; the costs are the caller's."""
    for name in _CHANGING:
        np.copyto(getattr(cells, name), getattr(saved, name))


def holders(cells: Cells) -> NDArray[np.int32]:
    """The cell of each target, one of those it is shared by; 0 where it has no mass."""
    held_by = cells.piece[HOLDER, np.maximum(cells.part, 0)]
    return np.where(cells.part >= 0, held_by, 0).astype(np.int32)


def shares(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The target, the cell and the mass of every piece."""
    targets, held_by, masses = cells.piece[: MASS + 1, cells.piece[MASS] > 0]
    return targets, held_by, masses


def targets_of(cells: Cells, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """The targets of some cells, ascending."""
    is_meant = np.zeros(len(cells.prices), np.bool_)
    is_meant[places] = True
    is_there = np.zeros(len(cells.part), np.bool_)
    targets, held_by, masses = cells.piece[: MASS + 1]
    is_there[targets[is_meant[held_by] & (masses > 0)]] = True
    return np.flatnonzero(is_there)


def neighbours(cells: Cells, place: int, count: int) -> NDArray[np.int64]:
    """The cells that a cell gives mass to, or takes it from, most cheaply; the closest first."""
    gaps = cells.prices[place] - cells.prices
    apart = np.minimum(cells.moves[place] + gaps, cells.moves[:, place] - gaps)
    apart[place] = np.inf
    return np.argsort(apart, kind="stable")[: min(count, len(apart) - 1)]


def least_costs(cells: Cells) -> Numbers:
    """What each target costs where it is cheapest at the prices, less the price."""
    used = cells.piece[MASS] > 0
    least = np.zeros(len(cells.part))
    targets, held_by = cells.piece[TARGET, used], cells.piece[HOLDER, used]
    least[targets] = cells.costs[targets, held_by] - cells.prices[held_by]
    return least


def without(
    cells: Cells, place: int, need: int, least: Numbers | None = None
) -> tuple[Numbers, float]:
    """What targets cost where they are cheapest without a prototype, less the price; and the rise.

    The rise of the cost, plus what a row that takes the place then pays for its unit of mass above
    those costs, is at most what that exchange costs. `least` are the `least_costs`, where known.
    """
    least = least_costs(cells) if least is None else least.copy()
    pieces = np.flatnonzero((cells.piece[HOLDER] == place) & (cells.piece[MASS] > 0))
    rise = _rises(cells, pieces, least)
    return least, float(rise.sum()) - need * float(cells.prices[place])


def losses(cells: Cells, need: int) -> Numbers:
    """The rise of `without` for every place."""
    pieces = np.flatnonzero(cells.piece[MASS] > 0)
    rises = _rises(cells, pieces, np.empty(len(cells.part)))
    k = len(cells.prices)
    return np.bincount(cells.piece[HOLDER, pieces], rises, minlength=k) - need * cells.prices


def _rises(cells: Cells, pieces: NDArray[np.intp], least: Numbers) -> Numbers:
    """What pieces cost more at the next best cell; notes in `least` what their targets then cost.

    Where there is no other cell, leaving a target alone costs nothing.
    """
    targets, held_by = cells.piece[TARGET, pieces], cells.piece[HOLDER, pieces]
    reduced = cells.costs[targets] - cells.prices
    every = np.arange(len(pieces))
    own = reduced[every, held_by]
    reduced[every, held_by] = np.inf
    best = reduced.min(axis=1) if reduced.shape[1] > 1 else np.zeros(len(pieces))
    least[targets] = best
    cells.work[0] += 4 * reduced.size
    return np.asarray(cells.piece[MASS, pieces] * (best - own))


def cells_plan(
    costs: Numbers, offer: NDArray[np.int64], need: int, prices: Numbers | None = None
) -> Plan | None:
    """The cheapest plan in which each of k prototypes takes `need`, and all that is offered.

    `costs` are n × k, one row per target; `prices` near to those that balance it save work. None
    where rounding leaves no proof.
    """
    offered = np.flatnonzero(offer)
    part = costs if len(offered) == len(offer) else costs[offered]
    start = np.zeros(part.shape[1]) if prices is None else prices
    cells, total = filled(part, offer[offered], need, start)
    if not np.isfinite(total):
        return None
    targets, held_by, amounts = shares(cells)
    masses = sp.csr_array((amounts, (held_by, offered[targets])), shape=costs.shape[::-1])
    with np.errstate(all="ignore"):
        proof = prove(part.T, sp.csr_array(masses[:, offered]), cells.prices)
    if not proof.holds:
        return None
    floor = float(proof.prices.min())
    potentials = proof.potentials - floor
    # A target without mass gets the lowest price at which no row claims it.
    of_targets = np.maximum((potentials - costs).max(axis=1), 0.0)
    of_targets[offered] = np.maximum(proof.prices - floor, 0.0)
    return Plan(masses, proof.cost, of_targets, potentials, proof.gap, True)
