"""Compiled loops over cells: filling them, exchanging a prototype, and sharing out mass."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uniproto.fills.priced_fills import cheapest_first
from uniproto.runtime.compiling import njit

Numbers = NDArray[np.float64]
NEXT = 16  # targets of each pair of cells that are kept in order
_PATHS, _PATHS_TO_LIMIT = 200, 30  # at most: for each target and cell; for each cell
FULL = -1.0  # instead of a cost: there was no room for more pieces


HELD, FIRST, TOUCHED = 0, 1, 2
TARGET, HOLDER, MASS, AFTER, BEFORE, OTHER = 0, 1, 2, 3, 4, 5


class Cells(NamedTuple):
    """The plan: pieces of targets' mass, each in a list of its cell and in one of its target.

    Few arrays, because every function that takes them is compiled for each of them.
    """

    costs: Numbers  # n × k
    prices: Numbers
    moves: Numbers  # k × k: the least C_qj − C_pj over the pieces of p
    via: NDArray[np.int64]  # and the piece it is of; -1: gone, and the cost is a bound
    next: NDArray[np.int64]  # k × k × a few: targets to move next, the cheapest first; -1: no more
    known: Numbers  # k × k: all pieces that cost less to move are among these
    cell: NDArray[np.int64]  # for each: the mass it holds, its first piece, and
    # whether moves from it may have changed since it was last copied
    part: NDArray[np.int64]  # piece of each target
    piece: NDArray[np.int64]  # for each: target, cell, mass, and its places in three lists:
    # the next of its cell (or the next unused one), the one before, the next of its target
    unused: NDArray[np.int64]  # the first unused piece, and how many there are
    work: NDArray[np.int64]  # [0]: elementary steps so far


@njit(cache=True, nogil=True)
def fill_cells(cells: Cells, offer: NDArray[np.int64]) -> float:
    """Every target to its cheapest prototype at the prices; returns what that costs."""
    n, k = cells.costs.shape
    total = 0.0
    for j in range(n):
        if offer[j] > 0:
            p, _ = _cheapest(cells, j, k)
            _note_arrival(cells, _give(cells, j, p, offer[j]))
            total += offer[j] * cells.costs[j, p]
    cells.work[0] += 2 * k * n
    return total


@njit(cache=True, nogil=True)
def least_costs(cells: Cells) -> Numbers:
    """What each target costs where it is cheapest at the prices, less the price."""
    least = np.empty(len(cells.costs))
    for j in range(len(least)):
        piece, least[j] = cells.part[j], 0.0
        if piece >= 0:
            p = cells.piece[HOLDER, piece]
            least[j] = cells.costs[j, p] - cells.prices[p]
    cells.work[0] += len(least)
    return least


@njit(cache=True, nogil=True)
def give_up(cells: Cells, place: int, need: int, least: Numbers, heirs: NDArray[np.int64]) -> float:
    """By how much the cost rises if a prototype goes, at these prices.

    Brings the entries of its targets in `least` up to the next best, and `heirs` says whose that
    is. The rise, plus what a row that takes the place then pays for its unit of mass, is at most
    what that exchange costs.
    """
    rise = -need * cells.prices[place]
    piece = cells.cell[FIRST, place]
    while piece >= 0:
        j = cells.piece[TARGET, piece]
        heirs[j], best = _cheapest(cells, j, place)
        rise += cells.piece[MASS, piece] * (best - (cells.costs[j, place] - cells.prices[place]))
        least[j] = best
        piece = cells.piece[AFTER, piece]
        cells.work[0] += 2 * len(cells.prices)
    return rise


@njit(cache=True, nogil=True)
def surroundings(
    cells: Cells, place: int, most: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """A cell and those it gives mass to, or takes it from, most cheaply, the closest first.

    Also the targets of all of them in that order, and how many there are up to each.
    """
    n, k = cells.costs.shape
    places, ends, apart = np.empty(min(most + 1, k), np.int64), np.empty(k, np.int64), np.empty(k)
    for p in range(k):
        gap = cells.prices[place] - cells.prices[p]
        apart[p] = min(cells.moves[place, p] + gap, cells.moves[p, place] - gap)
    apart[place] = -np.inf
    targets, is_there, size = np.empty(n, np.int64), np.zeros(n, np.bool_), 0
    for position in range(len(places)):
        places[position] = lowest(apart)
        piece = cells.cell[FIRST, places[position]]
        apart[places[position]] = np.inf
        while piece >= 0:
            j = cells.piece[TARGET, piece]
            if not is_there[j]:
                is_there[j], targets[size] = True, j
                size += 1
            piece = cells.piece[AFTER, piece]
        ends[position] = size
    return places, targets[:size], ends[: len(places)]


@njit(cache=True, nogil=True, inner=True)
def lowest(numbers: Numbers) -> int:
    """Where the lowest number is, the first of equal ones."""
    best = 0
    for i in range(len(numbers)):
        if numbers[i] < numbers[best]:
            best = i
    return best


@njit(cache=True, nogil=True)
def unit_costs(
    block: NDArray[Any],
    rows: NDArray[np.int64],
    least: Numbers,
    offer: NDArray[np.int64],
    need: int,
) -> Numbers:
    """What some rows of a block of costs pay for their cheapest unit of mass, above `least`."""
    n = block.shape[1]
    paid = np.empty(len(rows))
    net, mass, place = np.empty(n), np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(len(rows)):
        for j in range(n):
            net[j] = block[rows[i], j] - least[j]
            mass[j] = offer[j]
        paid[i] = cheapest_first(net, mass, place, n, need)[0]
    return paid


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def unit_bounds(
    block: NDArray[Any],
    rows: NDArray[np.int64],
    targets: NDArray[np.int64],
    least: Numbers,
    masses: Numbers,
    need: float,
    dearest: float,
    step: float,
) -> Numbers:
    """The same over some targets, of which there are few enough to take it for what it costs.

    A unit of mass costs t · need − Σ mass · max(t − cost, 0) or more for every t. `dearest` is
    what the last of it may cost, give or take a step.
    """
    bounds = np.empty(len(rows))
    low, high = dearest - step, dearest + step
    for i in range(len(rows)):
        row = block[rows[i]]
        below, at, above = 0.0, 0.0, 0.0
        for j in range(len(targets)):
            net = row[targets[j]] - least[j]
            below += masses[j] * max(low - net, 0.0)
            at += masses[j] * max(dearest - net, 0.0)
            above += masses[j] * max(high - net, 0.0)
        best = max(low * need - below, dearest * need - at)
        bounds[i] = max(best, high * need - above)
    return bounds


@njit(cache=True, nogil=True)
def put_in(
    cells: Cells,
    place: int,
    costs: Numbers,
    need: int,
    total: float,
    least: Numbers,
    heirs: NDArray[np.int64],
) -> float:
    """Give a place to a row with these costs; returns what the plan costs, before shares are equal.

    `least` and `heirs` are those after the place was given up; in `costs` are then those of the row
    before. FULL where there is no room for more pieces: but for costs, the cells are as they were.
    """
    n, k = cells.costs.shape
    pieces = np.empty(cells.piece.shape[1], np.int64)
    net, mass, size = np.empty(len(pieces)), np.empty(len(pieces), np.int64), 0
    for j in range(n):
        piece = cells.part[j]
        while piece >= 0:
            net[size], pieces[size] = costs[j] - least[j], piece
            mass[size] = cells.piece[MASS, piece]
            size += 1
            piece = cells.piece[OTHER, piece]
        cells.costs[j, place], costs[j] = costs[j], cells.costs[j, place]
    if cells.unused[1] < k + 2:
        return FULL
    # int: a literal 0 would be compiled as a type of its own
    _, whole, portion = cheapest_first(net, mass, pieces, int(size), need)
    cells.prices[place], cells.cell[TOUCHED, place] = net[whole], 1
    for p in range(k):
        _forget_move(cells, place, p)
        _forget_move(cells, p, place)
    for position in range(size):
        taken = mass[position] if position < whole else portion if position == whole else 0
        piece, left = pieces[position], mass[position] - taken
        j, p = cells.piece[TARGET, piece], cells.piece[HOLDER, piece]
        to, amount = place, taken
        if p == place:
            to, amount = heirs[j], left
            total += taken * cells.costs[j, place] - mass[position] * costs[j]
            if taken > 0:
                _note_arrival(cells, piece)
        elif taken > 0:
            total -= taken * cells.costs[j, p]
        if p != place and left > 0 and net[position] - cells.prices[p] < cells.moves[p, place]:
            cells.moves[p, place] = net[position] - cells.prices[p]
            cells.via[p, place] = piece
        if amount > 0:
            total += amount * cells.costs[j, to]
            if _take(cells, piece, amount):
                _note_departure(cells, p, piece)
            _note_arrival(cells, _give(cells, j, to, amount))
    cells.work[0] += 16 * size
    return total


@njit(cache=True, nogil=True)
def share_out(cells: Cells, need: int, total: float, limit: float) -> float:
    """Move mass along cheapest paths until every cell holds its share; returns the plan's cost.

    Infinite as soon as it is known to reach `limit`, and FULL where there is no more room: the
    cells are then half way. Where weights make masses of very different sizes, paths may carry next
    to nothing: after so many of them the cost counts as infinite, too.
    """
    n, k = cells.costs.shape
    distance, reached_from = np.empty(k), np.empty(k, np.int64)
    paths, most = 0, _PATHS_TO_LIMIT * (k + 4) if limit < np.inf else _PATHS * (n + k)
    while True:
        paths += 1
        if paths > most:
            return np.inf
        bound, excess = total, 0
        for p in range(k):
            bound += (need - cells.cell[HELD, p]) * cells.prices[p]
            excess += max(cells.cell[HELD, p] - need, 0)
        if excess == 0:
            return _cost(cells)
        if bound >= limit:
            return np.inf
        farthest = (limit - bound) / excess  # all of it must go at least as far as the nearest
        end = _nearest_below(cells, need, distance, reached_from, farthest)
        if end < 0:
            return np.inf
        if cells.unused[1] < k:
            return FULL
        begin, amount = end, need - cells.cell[HELD, end]
        while reached_from[begin] >= 0:
            amount = min(amount, cells.piece[MASS, cells.via[reached_from[begin], begin]])
            begin = reached_from[begin]
        amount = min(amount, cells.cell[HELD, begin] - need)
        q = end
        while q != begin:
            p = reached_from[q]
            piece = cells.via[p, q]
            j = cells.piece[TARGET, piece]
            total += amount * (cells.costs[j, q] - cells.costs[j, p])
            is_gone = _take(cells, piece, amount)
            _note_arrival(cells, _give(cells, j, q, amount))
            if is_gone:
                _note_departure(cells, p, piece)
            q = p


@njit(cache=True, nogil=True, inner=True)
def copy_cells(cells: Cells, to: Cells, place: int) -> None:
    """Make `to`, a copy of earlier, what the cells are now, but for costs, which both share.

    `place` was exchanged since in one of the two.
    """
    for p in range(len(cells.prices)):
        is_whole = cells.cell[TOUCHED, p] > 0 or to.cell[TOUCHED, p] > 0
        cells.cell[TOUCHED, p] = 0
        for q in range(0 if is_whole else place, len(cells.prices) if is_whole else place + 1):
            to.moves[p, q], to.via[p, q] = cells.moves[p, q], cells.via[p, q]
            to.known[p, q] = -np.inf
    copy_numbers(cells.prices, to.prices)
    copy_numbers(cells.cell.ravel(), to.cell.ravel())
    copy_numbers(cells.part, to.part)
    copy_numbers(cells.piece.ravel(), to.piece.ravel())
    copy_numbers(cells.unused, to.unused)


@njit(cache=True, nogil=True, inner=True)
def copy_numbers(numbers: NDArray[Any], to: NDArray[Any]) -> None:
    for i in range(len(numbers)):  # what assigns a slice takes seconds to compile
        to[i] = numbers[i]


@njit(cache=True, nogil=True, inner=True)
def _cost(cells: Cells) -> float:
    """What the plan costs, summed again, free of the rounding of updates."""
    total = 0.0
    for p in range(len(cells.prices)):
        piece = cells.cell[FIRST, p]
        while piece >= 0:
            total += cells.piece[MASS, piece] * cells.costs[cells.piece[TARGET, piece], p]
            piece = cells.piece[AFTER, piece]
    return total


@njit(cache=True, nogil=True, inner=True)
def _nearest_below(
    cells: Cells, need: int, distance: Numbers, reached_from: NDArray[np.int64], farthest: float
) -> int:
    """Dijkstra from all cells above their share to the nearest below it; prices follow.

    A move whose piece is gone is looked for again only where it would be the next one. Returns -1
    where the nearest is farther than `farthest`.
    """
    k = len(cells.prices)
    is_settled = np.zeros(k, np.bool_)
    p, nearest = -1, np.inf
    for q in range(k):
        distance[q], reached_from[q] = np.inf, -1
        if cells.cell[HELD, q] > need:
            distance[q], p, nearest = 0.0, q, 0.0
    while p >= 0:
        if nearest > farthest:
            return -1
        before = reached_from[p]
        if before >= 0 and cells.via[before, p] < 0:
            _find_move(cells, before, int(p))
            distance[p] = np.inf
            for q in range(k):
                if is_settled[q]:
                    gap = cells.prices[q] + cells.moves[q, p] - cells.prices[p]
                    if distance[q] + max(gap, 0.0) < distance[p]:
                        distance[p], reached_from[p] = distance[q] + max(gap, 0.0), q
        elif cells.cell[HELD, p] < need:
            break
        else:
            is_settled[p] = True
            begin = nearest + cells.prices[p]
            for q in range(k):
                through = max(begin + cells.moves[p, q] - cells.prices[q], nearest)
                if through < distance[q]:
                    distance[q], reached_from[q] = through, p
        p, nearest = -1, np.inf
        for q in range(k):
            if not is_settled[q] and distance[q] < nearest:
                p, nearest = q, distance[q]
        cells.work[0] += 2 * k
    for q in range(k):
        if is_settled[q]:
            cells.prices[q] -= nearest - distance[q]
    return p


@njit(cache=True, nogil=True, inner=True)
def _cheapest(cells: Cells, target: int, but: int) -> tuple[int, float]:
    """The prototype that is cheapest for a target at the prices, but for one (k: none); its cost.

    Where there is no other, leaving the target alone costs nothing.
    """
    place, least = -1, np.inf
    for p in range(len(cells.prices)):
        reduced = cells.costs[target, p] - cells.prices[p]
        if p != but and reduced < least:
            place, least = p, reduced
    return (place, least) if place >= 0 else (but, 0.0)


@njit(cache=True, nogil=True, inner=True)
def _forget_move(cells: Cells, p: int, q: int) -> None:
    cells.moves[p, q], cells.via[p, q], cells.known[p, q] = np.inf, -1, -np.inf


@njit(cache=True, nogil=True, inner=True)
def _find_move(cells: Cells, p: int, q: int) -> None:
    """The cheapest move from one cell to another, over all pieces, or the next of those known."""
    cells.cell[TOUCHED, p] = 1
    count, position = cells.next.shape[2], 0
    while cells.known[p, q] > -np.inf and position < count and cells.next[p, q, position] >= 0:
        j = cells.next[p, q, position]
        piece, extra = cells.part[j], cells.costs[j, q] - cells.costs[j, p]
        while piece >= 0 and cells.piece[HOLDER, piece] != p:
            piece = cells.piece[OTHER, piece]
        if piece >= 0 and extra < cells.known[p, q]:
            cells.moves[p, q], cells.via[p, q] = extra, piece
            return
        position += 1
    extras, found = np.empty(count), 0
    _forget_move(cells, p, q)
    piece = cells.cell[FIRST, p]
    while piece >= 0:
        j = cells.piece[TARGET, piece]
        extra = cells.costs[j, q] - cells.costs[j, p]
        if extra < cells.moves[p, q]:
            cells.moves[p, q], cells.via[p, q] = extra, piece
        if found < count or extra < extras[count - 1]:
            found = min(found + 1, count)
            position = found - 1
            while position > 0 and extras[position - 1] > extra:
                extras[position] = extras[position - 1]
                cells.next[p, q, position] = cells.next[p, q, position - 1]
                position -= 1
            extras[position], cells.next[p, q, position] = extra, j
        piece = cells.piece[AFTER, piece]
        cells.work[0] += 2
    cells.known[p, q] = extras[count - 1] if found == count else np.inf
    if found < count:
        cells.next[p, q, found] = -1


@njit(cache=True, nogil=True, inner=True)
def _note_arrival(cells: Cells, piece: int) -> None:
    j, p = cells.piece[TARGET, piece], cells.piece[HOLDER, piece]
    own, cells.cell[TOUCHED, p] = cells.costs[j, p], 1
    for q in range(len(cells.prices)):
        extra = cells.costs[j, q] - own
        cells.known[p, q] = min(cells.known[p, q], extra)
        if extra <= cells.moves[p, q]:
            cells.moves[p, q], cells.via[p, q] = extra, piece
    cells.work[0] += 2 * len(cells.prices)


@njit(cache=True, nogil=True, inner=True)
def _note_departure(cells: Cells, place: int, piece: int) -> None:
    """The moves that belonged to a piece that is gone are bounds from now on."""
    cells.cell[TOUCHED, place] = 1
    for q in range(len(cells.prices)):
        if cells.via[place, q] == piece:
            cells.via[place, q] = -1


@njit(cache=True, nogil=True, inner=True)
def _give(cells: Cells, target: int, place: int, mass: int) -> int:
    """Add mass of a target to a cell; returns its piece there."""
    cells.cell[HELD, place] += mass
    piece = cells.part[target]
    while piece >= 0:
        if cells.piece[HOLDER, piece] == place:
            cells.piece[MASS, piece] += mass
            return piece
        piece = cells.piece[OTHER, piece]
    piece = cells.unused[0]
    cells.unused[0] = cells.piece[AFTER, piece]
    cells.unused[1] -= 1
    cells.piece[TARGET, piece], cells.piece[HOLDER, piece] = target, place
    cells.piece[MASS, piece] = mass
    following = cells.cell[FIRST, place]
    cells.piece[AFTER, piece], cells.piece[BEFORE, piece] = following, -1
    if following >= 0:
        cells.piece[BEFORE, following] = piece
    cells.cell[FIRST, place] = piece
    cells.piece[OTHER, piece], cells.part[target] = cells.part[target], piece
    return piece


@njit(cache=True, nogil=True, inner=True)
def _take(cells: Cells, piece: int, mass: int) -> bool:
    """Take mass from a piece; whether nothing is left of it."""
    place, target = cells.piece[HOLDER, piece], cells.piece[TARGET, piece]
    cells.cell[HELD, place] -= mass
    cells.piece[MASS, piece] -= mass
    if cells.piece[MASS, piece] > 0:
        return False
    before, after = cells.piece[BEFORE, piece], cells.piece[AFTER, piece]
    if before >= 0:
        cells.piece[AFTER, before] = after
    else:
        cells.cell[FIRST, place] = after
    if after >= 0:
        cells.piece[BEFORE, after] = before
    if cells.part[target] == piece:
        cells.part[target] = cells.piece[OTHER, piece]
    else:
        earlier = cells.part[target]
        while cells.piece[OTHER, earlier] != piece:
            earlier = cells.piece[OTHER, earlier]
        cells.piece[OTHER, earlier] = cells.piece[OTHER, piece]
    cells.piece[AFTER, piece], cells.unused[0] = cells.unused[0], piece
    cells.unused[1] += 1
    return True
