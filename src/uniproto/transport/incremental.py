"""An exact partial plan that grows row by row, by cheapest augmenting paths.

Re-solving the whole plan after each pick repeats nearly all of the work. Adding one row to an
optimal plan only needs its mass to be pushed along shortest paths of the residual graph: from the
new row to targets, back from a full target to the rows that hold it, until a target with mass to
spare is reached. The dual prices make all reduced costs non-negative, so Dijkstra finds the
paths, and the plan is optimal again after each one. A path ends at a target with spare mass, so
full targets stay full: the residual only shrinks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray


class _State(NamedTuple):
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


class IncrementalPlan:
    """The exact partial plan of the rows added so far.

    >>> plan = IncrementalPlan(np.array([1, 1, 1]), need=1, rows=2)
    >>> plan.add(np.array([0.0, 0.1, 9.0])), plan.add(np.array([0.0, 5.0, 9.0]))
    (0.0, 0.1)
    >>> plan.masses().toarray().tolist()
    [[0, 1, 0], [1, 0, 0]]
    """

    def __init__(self, offer: NDArray[np.int64], need: int, rows: int) -> None:
        n = len(offer)
        arcs = n + 2 * rows + 64
        self.need = need
        self.rows = 0
        self._state = _State(
            costs=np.empty((rows, n)),
            unclaimed=offer.astype(np.int64),
            prices=np.zeros(n),
            potentials=np.zeros(rows),
            first=np.full(n, -1, np.int64),
            following=np.arange(1, arcs + 1),
            holder=np.empty(arcs, np.int64),
            mass=np.empty(arcs, np.int64),
            free=np.zeros(1, np.int64),
        )

    @property
    def unclaimed(self) -> NDArray[np.int64]:
        return self._state.unclaimed

    @property
    def prices(self) -> NDArray[np.float64]:
        """Optimal dual prices of the targets' capacities."""
        return self._state.prices

    def add(self, costs: NDArray[Any], row: int | None = None) -> float:
        """Add a row with these costs; returns by how much the optimal cost rose, per unit.

        `row` is a place that `remove` has left empty; by default the row comes last.
        """
        place = self.rows if row is None else row
        self._state.costs[place] = costs
        self._state, rise = _push(self._state, place, self.need, np.inf)
        self.rows += row is None
        return rise

    def trial(self, costs: NDArray[Any], row: int | None = None, limit: float = np.inf) -> float:
        """By how much the optimal cost would rise (per unit) if such a row were added.

        Infinite as soon as the rise is known to reach `limit`.
        """
        place = self.rows if row is None else row
        self._state.costs[place] = costs
        return _push(_copy(self._state), place, self.need, limit)[1]

    def remove(self, row: int) -> float:
        """Empty a row's place; returns by how much the optimal cost fell, per unit.

        The row is first exchanged for one that costs nothing anywhere, which takes the mass that
        the others can best spare; then that mass is left unclaimed, at price 0.
        """
        state = self._state
        freed = _release(state, row) / self.need
        state.costs[row] = 0.0
        state, rise = _push(state, row, self.need, np.inf)
        floor = state.potentials[row]  # what the free row pays: the lowest price
        state.prices[:] = np.maximum(state.prices - floor, 0.0)
        state.potentials[:] -= floor
        _release(state, row)
        state.prices[state.unclaimed > 0] = 0.0
        self._state = state
        return freed - rise

    def masses(self) -> sp.csr_array:
        """The plan, in whole masses."""
        state = self._state
        rows, columns, masses = [], [], []
        for j in np.flatnonzero(state.first >= 0):
            arc = state.first[j]
            while arc >= 0:
                rows.append(state.holder[arc])
                columns.append(j)
                masses.append(state.mass[arc])
                arc = state.following[arc]
        shape = (self.rows, len(state.unclaimed))
        return sp.csr_array((np.array(masses, np.int64), (rows, columns)), shape=shape)


def _copy(state: _State) -> _State:
    """A state that can change without the other; the costs are shared."""
    fields = (name for name in _State._fields if name != "costs")
    return state._replace(**{name: getattr(state, name).copy() for name in fields})


def _push(state: _State, row: int, need: int, limit: float) -> tuple[_State, float]:
    """Give a new row its mass; returns the state, which may have grown, and the rise per unit."""
    cost, missing = _augment(state, row, need, limit * need)
    while missing > 0:  # no room left for arcs
        state = _with_more_arcs(state)
        more, missing = _augment(state, row, missing, limit * need - cost)
        cost += more
    return state, cost / need


def _with_more_arcs(state: _State) -> _State:
    old = len(state.holder)
    return state._replace(
        following=np.concatenate([state.following, np.arange(old + 1, 2 * old + 1)]),
        holder=np.resize(state.holder, 2 * old),
        mass=np.resize(state.mass, 2 * old),
    )


@njit(cache=True)
def _move(state: _State, row: int, column: int, mass: int) -> None:
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
def _arc_mass(state: _State, row: int, column: int) -> int:
    arc = state.first[column]
    while state.holder[arc] != row:
        arc = state.following[arc]
    return state.mass[arc]


@njit(cache=True)
def _room(state: _State, wanted: int) -> bool:
    """Whether at least `wanted` arcs are free."""
    arc, count = state.free[0], 0
    while arc < len(state.holder) and count < wanted:
        arc, count = state.following[arc], count + 1
    return count >= wanted


@njit(cache=True)
def _augment(state: _State, new_row: int, missing: int, limit: float) -> tuple[float, int]:
    """Push `missing` units from a new row along shortest paths.

    Returns the rise in cost, and the mass still missing because room for arcs ran out. Each path
    is at least as long as the one before, so a rise that will reach `limit` is known long before
    the last path: it is given up as infinite.
    """
    n = state.costs.shape[1]
    u, v = state.potentials, state.prices
    rise = 0.0
    distance = np.empty(n)
    reached_from = np.empty(n, np.int64)
    passed = np.empty(n, np.bool_)
    rows = len(u)
    row_distance = np.empty(rows)
    row_via = np.empty(rows, np.int64)  # the target through which a row was reached
    settled = np.empty(rows, np.int64)  # rows in the order they were settled
    u[new_row] = (state.costs[new_row] + v).min()
    while missing > 0:
        # Dijkstra from the new row. A held target passes its distance on to its holders as it
        # is, because flow arcs have reduced cost 0: rows settle the moment they are reached.
        distance[:] = np.inf
        passed[:] = False
        row_distance[:] = np.inf
        row_distance[new_row], row_via[new_row] = 0.0, -1
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
                break
            passed[end] = True
            arc = state.first[end]
            while arc >= 0:
                q = state.holder[arc]
                if row_distance[q] == np.inf:
                    row_distance[q], row_via[q] = nearest, end
                    settled[count] = q
                    count += 1
                arc = state.following[arc]
        if not _room(state, count + 1):
            return rise, missing
        # The bottleneck of the path, walked back from its end to the new row.
        amount = min(missing, state.unclaimed[end])
        j = end
        while row_via[reached_from[j]] >= 0:
            p = reached_from[j]
            j = row_via[p]
            amount = min(amount, _arc_mass(state, p, j))
        # Raise potentials and prices so that the path becomes tight and the rest stays feasible.
        for t in range(count):
            u[settled[t]] += nearest - row_distance[settled[t]]
        for j in range(n):
            if distance[j] < nearest:
                v[j] += nearest - distance[j]
        length = u[new_row] - v[end]  # of the path, now that it is tight
        if rise + missing * length >= limit:
            return np.inf, 0
        rise += amount * length
        state.unclaimed[end] -= amount
        j = end
        while True:
            p = reached_from[j]
            _move(state, p, j, amount)
            if row_via[p] < 0:
                break
            j = row_via[p]
            _move(state, p, j, -amount)
        missing -= amount
    return rise, 0


@njit(cache=True)
def _leads_on(state: _State, column: int, row_distance: NDArray[np.float64]) -> bool:
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
def _release(state: _State, row: int) -> float:
    """Take a row's mass back; returns what it had cost."""
    freed = 0.0
    for j in range(state.costs.shape[1]):
        arc = state.first[j]
        while arc >= 0 and state.holder[arc] != row:
            arc = state.following[arc]
        if arc >= 0:
            mass = state.mass[arc]
            freed += mass * state.costs[row, j]
            state.unclaimed[j] += mass
            _move(state, row, j, -mass)
    return freed
