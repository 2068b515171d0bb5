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
    NEXT,
    Cells,
    Numbers,
    fill_cells,
    give_up,
    least_costs,
    put_in,
    share_out,
)
from uniproto.transport.exact import Plan
from uniproto.transport.proof import prove

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
        next=np.empty((k, k, NEXT), np.int64),
        known=np.full((k, k), -np.inf),
        cell=np.array([[0] * k, [-1] * k, [1] * k]),
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
        total = share_out(cells, need, fill_cells(cells, offer), np.inf)
        spare = 2 * spare + len(costs)
    return cells, total


def exchange(
    cells: Cells,
    place: int,
    costs: Numbers,
    need: int,
    total: float,
    limit: float,
    least: Numbers,
    heirs: NDArray[np.int64],
) -> float:
    """What `put_in` and `share_out` do together: the cells must be restored if they fail."""
    begun = put_in(cells, place, costs, need, total, least, heirs)
    return FULL if begun == FULL else float(share_out(cells, need, begun, limit))


_CHANGING = [name for name in Cells._fields if name not in ("costs", "work", "next", "known")]


def copied(cells: Cells) -> Cells:
    """A copy that shares the costs, counts the same work, and knows no next moves."""
    own = {name: getattr(cells, name).copy() for name in _CHANGING}
    own |= {"next": np.empty_like(cells.next), "known": np.full_like(cells.known, -np.inf)}
    return cells._replace(**own)


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
    cells.known[:] = -np.inf


def holders(cells: Cells) -> NDArray[np.int32]:
    """The cell of each target, one of those it is shared by; 0 where it has no mass."""
    held_by = cells.piece[HOLDER, np.maximum(cells.part, 0)]
    return np.where(cells.part >= 0, held_by, 0).astype(np.int32)


def shares(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The target, the cell and the mass of every piece."""
    targets, held_by, masses = cells.piece[: MASS + 1, cells.piece[MASS] > 0]
    return targets, held_by, masses


def without(
    cells: Cells, place: int, need: int, least: Numbers
) -> tuple[Numbers, NDArray[np.int64], float]:
    """What targets cost where they are cheapest without a prototype, less the price; and the rise.

    Also which cells that are, of its own targets. The rise of the cost, plus what a row that takes
    the place then pays for its unit of mass above those costs, is at most what that exchange costs.
    """
    least, heirs = least.copy(), np.empty(len(least), np.int64)
    return least, heirs, give_up(cells, place, need, least, heirs)


def losses(cells: Cells, need: int) -> Numbers:
    """The rise of `without` for every place."""
    least, heirs = least_costs(cells), np.empty(len(cells.part), np.int64)
    return np.array([give_up(cells, p, need, least, heirs) for p in range(len(cells.prices))])


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
    of_targets = np.empty(len(offer))
    of_targets[offered] = np.maximum(proof.prices - floor, 0.0)
    # A target without mass gets the lowest price at which no row claims it.
    others = np.flatnonzero(offer == 0)
    of_targets[others] = (potentials - costs[others]).max(axis=1, initial=0.0)
    return Plan(masses, proof.cost, of_targets, potentials, proof.gap, True)
