"""An exact partial plan that grows row by row, by cheapest augmenting paths.

Re-solving the whole plan after each pick repeats nearly all of the work. Adding one row to an
optimal plan only needs its mass to be pushed along shortest paths of the residual graph: from the
new row to targets, back from a full target to the rows that hold it, until a target with mass to
spare is reached. The dual prices make all reduced costs non-negative, so Dijkstra finds the
paths, and the plan is optimal again after each one. A path ends at a target with spare mass, so
full targets stay full: the residual only shrinks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.transport.augmenting_paths import State, augment


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
        self._state = State(
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

    def add(self, costs: NDArray[Any]) -> float:
        """Add a row with these costs; returns by how much the optimal cost rose, per unit."""
        self._state.costs[self.rows] = costs
        self._state, rise = _push(self._state, self.rows, self.need, np.inf)
        self.rows += 1
        return rise

    def trial(self, costs: NDArray[Any], limit: float = np.inf) -> float:
        """By how much the optimal cost would rise (per unit) if such a row were added.

        Infinite as soon as the rise is known to reach `limit`.
        """
        self._state.costs[self.rows] = costs
        return _push(_copy(self._state), self.rows, self.need, limit)[1]

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


def _copy(state: State) -> State:
    """A state that can change without the other; the costs are shared."""
    fields = (name for name in State._fields if name != "costs")
    return state._replace(**{name: getattr(state, name).copy() for name in fields})


def _push(state: State, row: int, need: int, limit: float) -> tuple[State, float]:
    """Give a new row its mass; returns the state, which may have grown, and the rise per unit."""
    cost, missing = augment(state, row, need, limit * need)
    while missing > 0:  # no room left for arcs
        state = _with_more_arcs(state)
        more, missing = augment(state, row, missing, limit * need - cost)
        cost += more
    return state, cost / need


def _with_more_arcs(state: State) -> State:
    old = len(state.holder)
    return state._replace(
        following=np.concatenate([state.following, np.arange(old + 1, 2 * old + 1)]),
        holder=np.resize(state.holder, 2 * old),
        mass=np.resize(state.mass, 2 * old),
    )
