"""Compiled loops of a growing plan: cheapest augmenting paths, and the arcs that hold its flow."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from uniproto.runtime.compiling import njit


class State(NamedTuple):
    """The plan: rows, targets and the flow between them, in whole masses."""

    costs: NDArray[np.float64]  # (capacity, n), one line per row of the plan
    unclaimed: NDArray[np.int64]
    prices: NDArray[np.float64]  # v_j ≥ 0, and 0 wherever mass is unclaimed
    potentials: NDArray[np.float64]  # u_i ≤ C_ij + v_j, with equality where mass flows
    # Flow arcs, as one linked list per target.
    first: NDArray[np.int64]
    following: NDArray[np.int64]
    holder: NDArray[np.int64]
    mass: NDArray[np.int64]
    free: NDArray[np.int64]  # free[0]: the first unused arc, chained through `following`


class _Paths(NamedTuple):
    """What a search for the shortest path has found, and where the next one writes."""

    distance: NDArray[np.float64]  # of every target from the new row
    reached_from: NDArray[np.int64]  # the row before every target
    passed: NDArray[np.bool_]
    row_distance: NDArray[np.float64]
    row_via: NDArray[np.int64]  # the target through which a row was reached; -1: the new row
    settled: NDArray[np.int64]  # rows in the order they were settled


@njit(cache=True)
def augment(state: State, new_row: int, missing: int, limit: float) -> tuple[float, int]:
    """Push `missing` units from a new row along shortest paths.

    Returns the rise in cost, and the mass still missing because room for arcs ran out. Each path
    is at least as long as the one before, so a rise that will reach `limit` is known long before
    the last path: it is given up as infinite.
    """
    u, v = state.potentials, state.prices
    n, rows = len(v), len(u)
    paths = _Paths(
        np.empty(n),
        np.empty(n, np.int64),
        np.empty(n, np.bool_),
        np.empty(rows),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
    )
    u[new_row] = (state.costs[new_row] + v).min()
    rise = 0.0
    while missing > 0:
        end, count = _search(state, paths, new_row)
        if not _room(state, count + 1):
            return rise, missing
        amount = min(missing, _bottleneck(state, paths, end))
        _tighten(state, paths, end, count)
        length = u[new_row] - v[end]  # of the path, now that it is tight
        if rise + missing * length >= limit:
            return np.inf, 0
        rise += amount * length
        _shift(state, paths, end, amount)
        missing -= amount
    return rise, 0


@njit(cache=True)
def _search(state: State, paths: _Paths, new_row: int) -> tuple[int, int]:
    """Dijkstra from a new row to the nearest target with mass to spare.

    Returns that target and how many rows were settled. A held target passes its distance on to
    its holders as it is, because flow arcs have reduced cost 0: rows settle the moment they are
    reached.
    """
    u, v, n = state.potentials, state.prices, len(state.prices)
    distance, row_distance, settled = paths.distance, paths.row_distance, paths.settled
    reached_from, passed = paths.reached_from, paths.passed
    distance[:] = np.inf
    passed[:] = False
    row_distance[:] = np.inf
    row_distance[new_row], paths.row_via[new_row] = 0.0, -1
    settled[0] = new_row
    scanned, count = 0, 1
    while True:
        end, nearest = -1, np.inf
        while scanned < count:
            p = settled[scanned]
            scanned += 1
            offset, costs = row_distance[p] - u[p], state.costs[p]
            for j in range(n):
                reach = offset + costs[j] + v[j]
                # Rounding must not lead back to a target the way has already passed.
                if reach < distance[j] and not passed[j]:
                    distance[j], reached_from[j] = reach, p
        for j in range(n):
            if distance[j] < nearest and _leads_on(state, j, row_distance):
                end, nearest = j, distance[j]
        if state.unclaimed[end] > 0:
            return end, count
        passed[end] = True
        arc = state.first[end]
        while arc >= 0:
            q = state.holder[arc]
            if row_distance[q] == np.inf:
                row_distance[q], paths.row_via[q] = nearest, end
                settled[count] = q
                count += 1
            arc = state.following[arc]


@njit(cache=True)
def _leads_on(state: State, column: int, row_distance: NDArray[np.float64]) -> bool:
    """Whether a target ends a path, or leads to a row that no path has reached yet."""
    if state.unclaimed[column] > 0:
        return True
    arc = state.first[column]
    while arc >= 0:
        if row_distance[state.holder[arc]] == np.inf:
            return True
        arc = state.following[arc]
    return False


@njit(cache=True)
def _bottleneck(state: State, paths: _Paths, end: int) -> int:
    """The most that a path can carry, walked back from its end to the new row."""
    amount = state.unclaimed[end]
    j = end
    while paths.row_via[paths.reached_from[j]] >= 0:
        p = paths.reached_from[j]
        j = paths.row_via[p]
        amount = min(amount, _arc_mass(state, p, j))
    return amount


@njit(cache=True)
def _tighten(state: State, paths: _Paths, end: int, count: int) -> None:
    """Raise potentials and prices so that the path becomes tight and the rest stays feasible."""
    nearest = paths.distance[end]
    for t in range(count):
        row = paths.settled[t]
        state.potentials[row] += nearest - paths.row_distance[row]
    for j in range(len(state.prices)):
        if paths.distance[j] < nearest:
            state.prices[j] += nearest - paths.distance[j]


@njit(cache=True)
def _shift(state: State, paths: _Paths, end: int, amount: int) -> None:
    """Let every row of a path take mass from the target after it and give up the one before."""
    state.unclaimed[end] -= amount
    j = end
    while True:
        p = paths.reached_from[j]
        _move(state, p, j, amount)
        if paths.row_via[p] < 0:
            return
        j = paths.row_via[p]
        _move(state, p, j, -amount)


@njit(cache=True)
def _move(state: State, row: int, column: int, mass: int) -> None:
    """Add mass (of either sign) to the arc from a row to a target, making or freeing the arc."""
    before, arc = -1, state.first[column]
    while arc >= 0 and state.holder[arc] != row:
        before, arc = arc, state.following[arc]
    if arc < 0:
        arc = state.free[0]
        state.free[0] = state.following[arc]
        state.holder[arc], state.mass[arc] = row, mass
        state.following[arc] = state.first[column]
        state.first[column] = arc
        return
    state.mass[arc] += mass
    if state.mass[arc] == 0:
        if before < 0:
            state.first[column] = state.following[arc]
        else:
            state.following[before] = state.following[arc]
        state.following[arc] = state.free[0]
        state.free[0] = arc


@njit(cache=True)
def _arc_mass(state: State, row: int, column: int) -> int:
    arc = state.first[column]
    while state.holder[arc] != row:
        arc = state.following[arc]
    return state.mass[arc]


@njit(cache=True)
def _room(state: State, wanted: int) -> bool:
    """Whether at least `wanted` arcs are free."""
    arc, count = state.free[0], 0
    while arc < len(state.holder) and count < wanted:
        arc, count = state.following[arc], count + 1
    return count >= wanted
