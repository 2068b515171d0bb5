"""Where the search starts: the greedy algorithm, rows apart from each other, and random rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.methods.contract import Optimum, Picks
from uniproto.methods.picking import Pool
from uniproto.methods.thorough.table import Numbers, Places, Table
from uniproto.problem.problem import Problem
from uniproto.transport.exact import partial_plan
from uniproto.transport.line import line_of, plan_on_line
from uniproto.transport.prototypes import Transport, transport

_AT_ONCE = 32  # fills that are computed anew together
_ROUNDING = 1e-14  # of the largest cost: fills that differ by less are equal


@dataclass(frozen=True)
class Picked:
    """Rows in the order picked, what the fill of each cost, and the masses that it claimed."""

    places: Places
    costs: Numbers
    masses: NDArray[np.int64]


def pick_greedily(table: Table) -> Picked:
    """The picks of the paper's algorithm: each time the row whose fill is cheapest.

    A fill never gets cheaper as mass is claimed, so what it cost before is a lower bound, and
    only the rows with the lowest bounds are looked at again.
    """
    return _Greedy(table).run()


class _Greedy:
    def __init__(self, table: Table) -> None:
        self.table, self.pool = table, Pool(table.problem)
        self.need = table.problem.masses.need
        self.unclaimed = table.offer.copy()
        self.order = np.argsort(table.costs, axis=1, kind="stable")
        self.bounds = np.zeros(len(table.rows))
        self.slack = _ROUNDING * float(table.costs.max())

    def run(self) -> Picked:
        table = self.table
        places = list(range(table.given))
        costs: list[float] = []
        masses: list[NDArray[np.int64]] = []
        if places:  # in their joint exact plan
            plan = partial_plan(table.costs[places], table.offer, self.need)
            claimed = plan.masses.toarray()
            self.unclaimed -= claimed.sum(axis=0)
            costs += ((claimed * table.costs[places]).sum(axis=1) / self.need).tolist()
            masses += list(claimed)
        while len(places) < table.k:
            self.pool.require_free()
            best = self._cheapest(table.given + np.flatnonzero(self.pool.free))
            taken = self._fills(np.array([best]))[0]
            self.unclaimed -= taken
            self.pool.take(best - table.given)
            places.append(best)
            costs.append(float(self.bounds[best]))
            masses.append(taken)
        return Picked(np.array(places, np.intp), np.array(costs), np.array(masses))

    def _cheapest(self, free: Places) -> int:
        """The free row whose fill costs least, the first among equals; brings `bounds` up."""
        fresh = np.zeros(len(self.bounds), np.bool_)
        while True:
            lowest = free[np.argsort(self.bounds[free], kind="stable")]
            stale = lowest[~fresh[lowest]][:_AT_ONCE]
            if fresh[lowest[0]]:
                equal = lowest[self.bounds[lowest] <= self.bounds[lowest[0]] + self.slack]
                stale = equal[~fresh[equal]]
                if not len(stale):
                    return int(equal.min())
            taken = self._fills(stale)
            self.bounds[stale] = (taken * self.table.costs[stale]).sum(axis=1) / self.need
            fresh[stale] = True

    def _fills(self, places: Places) -> NDArray[np.int64]:
        """What the rows would take of each target, from near to far until they have enough."""
        self.table.work += 100 + places.size * self.order.shape[1] // 4
        nearest = self.order[places]
        offered = self.unclaimed[nearest]
        before = np.cumsum(offered, axis=1) - offered
        taken = np.empty(offered.shape, np.int64)
        np.put_along_axis(taken, nearest, np.clip(self.need - before, 0, offered), axis=1)
        return taken


def draw(table: Table, random: np.random.Generator, *, apart: bool) -> Places:
    """Random rows, or rows each likelier the farther targets are from those drawn before.

    Near-duplicates and limits of sources may leave fewer than k.
    """
    pool = Pool(table.problem)
    places = list(range(table.given))
    nearest = table.costs[places].min(axis=0) if places else np.full(len(table.weights), np.inf)
    while len(places) < table.k and pool.free.any():
        free = np.flatnonzero(pool.free)
        if apart and np.isfinite(nearest).all() and (worth := table.weights * nearest).any():
            # A target far from all rows so far, and the free row nearest to it.
            target = random.choice(len(worth), p=worth / worth.sum())
            place = int(free[np.argmin(table.costs[table.given + free, target])])
        else:
            place = int(random.choice(free))
        pool.take(place)
        places.append(table.given + place)
        nearest = np.minimum(nearest, table.costs[table.given + place])
    return np.array(places, np.intp)


_PROVEN = 5e-5  # of the cost: what proves less would be shown with a gap of 0.01 %
_MOST_COSTS = 4_000_000  # of the rows: beyond, the greedy algorithm would take seconds


def picks_of(
    problem: Problem, rows: NDArray[np.intp], proof: Optimum | None, notes: dict[str, Any]
) -> Picks:
    """Rows in the order in which the greedy algorithm picks them among themselves.

    Their gains are what each adds then. Rows on a line with more targets than that come by what
    they pay in the best plan, the cheapest first. A proof is one of this cost or none.
    """
    free = np.setdiff1d(rows, problem.initial)
    line = line_of(problem.costs) if problem.k * problem.n > _MOST_COSTS else None
    if line is None:
        table = Table(problem.changed(candidates=free))
        picked = pick_greedily(table)
        ordered, paid = table.rows[picked.places], picked.costs * table.unit
        masses = np.zeros((problem.k, problem.n), np.int64)
        masses[:, np.flatnonzero(problem.masses.offer)] = picked.masses
        plan = sp.csr_array(masses)
    else:
        ordered = np.concatenate([problem.initial, free])
        costs = plan_on_line(line, ordered, problem.masses)[1]
        by_cost = np.argsort(costs[len(problem.initial) :], kind="stable")
        ordered = np.concatenate([problem.initial, free[by_cost]])
        plan, costs = plan_on_line(line, ordered, problem.masses)
        paid = costs / problem.masses.need
    solved = transport(problem, ordered, plan)
    return Picks(
        rows=ordered,
        gains=problem.costs.ceiling - paid,
        plan=plan,
        transport=solved,
        proof=proof and proof_of_cost(proof, solved),
        notes=notes,
    )


def proof_of_cost(proof: Optimum, solved: Transport, slack: float = 0.0) -> Optimum | None:
    """The proof that rows with this plan cost least, or None where it proves less."""
    holds = solved.is_exact and proof.least + slack >= (1 - _PROVEN) * solved.cost
    return replace(proof, least=min(proof.least, solved.cost)) if holds else None
