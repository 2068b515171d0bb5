"""The exact plan of few prototypes and many targets, from prices on the prototypes.

Prices that give every prototype about its share (`balance.py`) decide where nearly all targets go.
What remains is a handful of targets between prototypes that cost them nearly the same: those are
solved exactly as a small transport problem. The result is proven over all k · n arcs: by the
cheapest way to move a unit from one prototype to another, a graph of k nodes.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.runtime.compiling import njit
from uniproto.runtime.threads import parallel_for, parallel_map, pieces_of
from uniproto.transport.balance import TargetCosts, balance
from uniproto.transport.exact import Plan, solve_arcs
from uniproto.transport.proof import EXACT, TOLERANCE

# Of the band of ties, from round to round: with care first, as a wider one is a larger problem;
# then so fast that it covers all costs where the prices were far off.
_WIDENINGS = (2.0,) * 8 + (16.0,) * 8
_MOST_ARCS = 5_000_000  # of the transport problem that remains
_TARGETS_PER_PIECE = 16384


def few_plan(
    costs: NDArray[np.float64],
    offer: NDArray[np.int64],
    need: int,
    start: NDArray[np.float64] | None = None,
) -> Plan | None:
    """The cheapest plan in which each of k prototypes takes `need`, and all that is offered.

    `costs` are n × k, one row per target; `start` are prices near to those that balance them. None
    where the way through the prices does not end in a proven plan, for example because most targets
    cost several prototypes exactly the same.
    """
    offered = np.flatnonzero(offer)
    target_costs, masses = costs[offered] if len(offered) < len(offer) else costs, offer[offered]
    with np.errstate(all="ignore"):  # costs of extreme magnitude end in no plan, not in a wrong one
        balanced = balance(TargetCosts(target_costs, masses / masses.sum()), start)
        if balanced is None:
            return None
        prices, width = balanced.prices, balanced.width
        for widening in _WIDENINGS:
            plan = _plan_in_band(target_costs, masses, need, prices, width)
            if plan is not None:
                prices, gap, cost = _proof(target_costs, plan)
                if gap <= TOLERANCE * cost:
                    return _as_plan(costs, offered, plan, prices, gap, cost)
            width *= widening
    return None


def _plan_in_band(
    costs: NDArray[np.float64],
    offer: NDArray[np.int64],
    need: int,
    prices: NDArray[np.float64],
    width: float,
) -> sp.csr_array | None:
    """Targets within `width` of a tie by an exact solve, the others where they are cheapest.

    n × k, in whole masses; None where the others leave no room, or the solve would be too large.
    """
    n, k = costs.shape
    cheapest, near = _cheapest_and_near(costs, prices, width)
    tied = np.flatnonzero(near > 1)
    settled = np.flatnonzero(near == 1)
    room = need - np.bincount(cheapest[settled], offer[settled], minlength=k).astype(np.int64)
    if room.min() < 0 or near[tied].sum() > _MOST_ARCS:
        return None
    parts = [sp.coo_array((offer[settled], (settled, cheapest[settled])), shape=(n, k))]
    if len(tied):
        reduced = costs[tied] - prices
        close = reduced <= reduced.min(axis=1, keepdims=True) + width
        takers = np.flatnonzero(room)
        arcs = np.where(close, costs[tied], 0.0)[:, takers]
        where = np.nonzero(close[:, takers])
        graph = sp.csr_array((arcs[where], (where[1], where[0])), shape=(len(takers), len(tied)))
        solved = solve_arcs(graph, room[takers], offer[tied])
        if solved is None:
            return None
        flow = sp.coo_array(solved)
        parts.append(sp.coo_array((flow.data, (tied[flow.col], takers[flow.row])), shape=(n, k)))
    elif room.any():
        return None
    rows = np.concatenate([part.row for part in parts])
    columns = np.concatenate([part.col for part in parts])
    data = np.concatenate([part.data for part in parts]).astype(np.int64)
    return sp.csr_array((data, (rows, columns)), shape=(n, k))


def _cheapest_and_near(
    costs: NDArray[np.float64], prices: NDArray[np.float64], width: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each target is cheapest at these prices, and how many prototypes are that near."""
    cheapest, near = np.empty(len(costs), np.int64), np.zeros(len(costs), np.int64)

    def look(part: slice) -> None:
        _compare(costs[part], prices, width, cheapest[part], near[part])

    parallel_for(look, pieces_of(len(costs), _TARGETS_PER_PIECE))
    return cheapest, near


@njit(nogil=True, cache=True)
def _compare(costs, prices, width, cheapest, near):  # type: ignore[no-untyped-def]
    n, k = costs.shape
    for j in range(n):
        least = np.inf
        for p in range(k):
            if costs[j, p] - prices[p] < least:
                least = costs[j, p] - prices[p]
                cheapest[j] = p
        for p in range(k):
            near[j] += costs[j, p] - prices[p] <= least + width


def _proof(
    costs: NDArray[np.float64], plan: sp.csr_array
) -> tuple[NDArray[np.float64], float, float]:
    """Prices made from the plan, how much another plan could save at most, and its cost.

    A unit that moves from prototype p to q costs at least W_pq more, over the targets that p has.
    Prices with u_q − u_p ≤ W_pq for all pairs prove that no plan costs less; they are the lengths
    of shortest paths in that graph. Where it has a negative cycle, what they fail to prove is the
    gap.
    """
    k = costs.shape[1]
    flow = sp.coo_array(plan)
    targets, holders, masses = flow.row.astype(np.int64), flow.col.astype(np.int64), flow.data
    parts = pieces_of(len(targets), _TARGETS_PER_PIECE)
    moves = np.full((k, k), np.inf)
    for found in parallel_map(
        lambda part: _cheapest_moves(costs, targets[part], holders[part]), parts
    ):
        np.minimum(moves, found, out=moves)
    prices = np.zeros(k)
    for _ in range(k):
        shorter = np.minimum(prices, (prices[:, None] + moves).min(axis=0))
        if np.array_equal(shorter, prices):
            break
        prices = shorter
    used = costs[targets, holders]
    regrets = np.concatenate(
        list(
            parallel_map(lambda part: _regrets(costs, targets[part], holders[part], prices), parts)
        )
    )
    short = regrets > 0  # few: most are where they are cheapest
    return prices, math.fsum(regrets[short] * masses[short]), math.fsum(used * masses)


@njit(nogil=True, cache=True)
def _cheapest_moves(costs, targets, holders):  # type: ignore[no-untyped-def]
    k = costs.shape[1]
    moves = np.full((k, k), np.inf)
    for place in range(len(targets)):
        j, p = targets[place], holders[place]
        for q in range(k):
            moves[p, q] = min(moves[p, q], costs[j, q] - costs[j, p])
    return moves


@njit(nogil=True, cache=True)
def _regrets(costs, targets, holders, prices):  # type: ignore[no-untyped-def]
    """What each part of a target pays more than with the cheapest prototype at these prices."""
    k = costs.shape[1]
    regrets = np.zeros(len(targets))
    for place in range(len(targets)):
        j, p = targets[place], holders[place]
        for q in range(k):
            saved = (costs[j, p] - costs[j, q]) - (prices[p] - prices[q])
            regrets[place] = max(regrets[place], saved)
    return regrets


def _as_plan(
    costs: NDArray[np.float64],
    offered: NDArray[np.intp],
    plan: sp.csr_array,
    prices: NDArray[np.float64],
    gap: float,
    cost: float,
) -> Plan:
    """The plan with prototypes as rows and prices of the targets, as other solvers give it."""
    cheapest, _ = _cheapest_and_near(costs, prices, 0.0)
    of_targets = prices[cheapest] - costs[np.arange(len(costs)), cheapest]
    lowest = float(of_targets[offered].min())
    by_prototype = sp.csr_array(plan.T)
    wide = sp.csr_array(
        (by_prototype.data, offered[by_prototype.indices], by_prototype.indptr),
        shape=(costs.shape[1], len(costs)),
    )
    # Prices far larger than the cost hide differences.
    summed = cost + float(plan.sum()) * float(np.abs(prices).max())
    is_proven = 8 * float(np.finfo(np.float64).eps) * summed <= EXACT * cost
    return Plan(wide, cost, np.maximum(of_targets - lowest, 0.0), prices - lowest, gap, is_proven)
