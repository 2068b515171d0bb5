"""The exact plan of few prototypes and many targets, from prices on the prototypes.

With prices u on the k prototypes, target j goes to the one with the least C_pj − u_p. Prices that
give every prototype its share maximise the concave dual

    Σ_p need · u_p + Σ_j offer_j · min_p (C_pj − u_p),

a function of k numbers. They are found by Newton's method on its smoothed form (a softmin instead
of the minimum), first on a sample of the targets, then on more of them. What remains is a handful
of targets between prototypes that cost them nearly the same: those are solved exactly as a small
transport problem, and all others are where they belong. The result is proven over all k · n arcs:
by the cheapest way to move a unit from one prototype to another, a graph of k nodes.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.runtime.compiling import njit
from uniproto.runtime.threads import available_cores, parallel_map, pieces_of
from uniproto.transport.exact import Plan, solve_arcs
from uniproto.transport.proof import TOLERANCE

_FIRST_SAMPLE = 40  # targets per prototype
_GROWTH = 8  # of the sample, from one level to the next
_SMOOTHING = (0.2, 0.05, 0.0125)  # of the first level, as shares of a typical difference of costs
_NEWTON_STEPS = 12
_WIDENING = 2.0
_MOST_ROUNDS = 16
_MOST_ARCS = 5_000_000  # of the transport problem that remains
_NEGLIGIBLE = 20.0  # smoothing lengths: a prototype that much dearer gets e^-20 of a target


def few_plan(costs: NDArray[np.float64], offer: NDArray[np.int64], need: int) -> Plan | None:
    """The cheapest plan in which each of k prototypes takes `need`, and all that is offered.

    `costs` are n × k, one row per target. None where the way through the prices does not end in a
    proven plan, for example because most targets cost several prototypes exactly the same.
    """
    offered = np.flatnonzero(offer)
    target_costs, masses = costs[offered] if len(offered) < len(offer) else costs, offer[offered]
    with np.errstate(all="ignore"):  # costs of extreme magnitude end in no plan, not in a wrong one
        found = _prices(target_costs, masses / masses.sum())
        if found is None:
            return None
        prices, width = found
        for _ in range(_MOST_ROUNDS):
            plan = _plan_in_band(target_costs, masses, need, prices, width)
            if plan is None:
                width *= _WIDENING
                continue
            prices, gap, cost = _proof(target_costs, plan)
            if gap <= TOLERANCE * cost:
                return _as_plan(costs, offered, plan, prices, gap, cost)
            width *= _WIDENING
    return None


def _prices(
    costs: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float] | None:
    """Prices that give every prototype about its share, and how near to a tie a target may be."""
    n, k = costs.shape
    if k == 1:
        return np.zeros(1), 0.0  # nothing to decide
    order = np.random.default_rng(0).permutation(n)
    some = costs[order[: min(n, 2000)]]
    typical = float(np.median(some - some.min(axis=1, keepdims=True)))
    if not 0 < typical < math.inf:
        return None
    prices, size, smoothing = _first_prices(some), min(n, _FIRST_SAMPLE * k), 0.0
    lengths = [share * typical for share in _SMOOTHING]
    while True:
        part = np.sort(order[:size]) if size < n else slice(None)
        sample_costs, share = np.ascontiguousarray(costs[part]), weights[part]
        # No closer than what a sample of this size can tell; the last level is no sample.
        accuracy = (0.3 if size < n else 0.03) / math.sqrt(size / k)
        for smoothing in lengths:
            prices = _newton(sample_costs, share / share.sum(), prices, smoothing, accuracy)
        if not np.isfinite(prices).all():
            return None
        if size == n:
            return prices, smoothing
        size = min(n, _GROWTH * size)
        lengths = [_SMOOTHING[-1] * typical * math.sqrt(_FIRST_SAMPLE * k / size)]


def _first_prices(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each prototype alone would have to be lowered by to win its share, far ones too."""
    two = np.partition(costs, 1, axis=1)[:, :2]
    rivals = np.where(costs == two[:, :1], two[:, 1:], two[:, :1])
    return np.quantile(costs - rivals, 1 / costs.shape[1], axis=0)


def _newton(
    costs: NDArray[np.float64],
    weights: NDArray[np.float64],
    prices: NDArray[np.float64],
    smoothing: float,
    accuracy: float,
) -> NDArray[np.float64]:
    """Raise the smoothed dual until every share is within `accuracy` of 1/k."""
    k = costs.shape[1]
    value, shares, overlap = _smoothed_dual(costs, weights, prices, smoothing)
    for _ in range(_NEWTON_STEPS):
        missing = 1 / k - shares
        worst = float(np.abs(missing).max())
        if worst <= accuracy / k or not math.isfinite(value):
            break
        curvature = np.diag(shares + 1e-3 / k) - overlap
        step = smoothing * np.linalg.solve(curvature, missing)
        step -= step.mean()
        length = 1.0
        while True:
            trial = prices + length * step
            new = _smoothed_dual(costs, weights, trial, smoothing)
            rises = new[0] >= value + 1e-4 * length * float(missing @ step)
            if rises or float(np.abs(1 / k - new[1]).max()) < 0.9 * worst or length < 1e-3:
                break
            length /= 4
        prices, (value, shares, overlap) = trial, new
    return prices


def _smoothed_dual(
    costs: NDArray[np.float64],
    weights: NDArray[np.float64],
    prices: NDArray[np.float64],
    smoothing: float,
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """The dual with a softmin, each prototype's share, and how far pairs share their targets."""

    if len(costs) <= _FIRST_SAMPLE * len(prices):  # much smoothing: most pairs share targets
        value, shares, overlap = _softmin_products(costs, weights, prices, smoothing)
        return value + float(prices.mean()), shares, overlap

    def of(piece: slice) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
        return _softmin_sums(costs[piece], weights[piece], prices, smoothing)

    pieces = pieces_of(len(costs), max(1, -(-len(costs) // available_cores())))
    sums = list(parallel_map(of, pieces))
    value = sum(value for value, _, _ in sums) + float(prices.mean())
    return (
        value,
        np.sum([part for _, part, _ in sums], axis=0),
        np.sum([p for *_, p in sums], axis=0),
    )


def _softmin_products(
    costs: NDArray[np.float64],
    weights: NDArray[np.float64],
    prices: NDArray[np.float64],
    smoothing: float,
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """The same sums as `_softmin_sums` by matrix products."""
    reduced = costs - prices
    least = reduced.min(axis=1)
    likely = np.exp((least[:, None] - reduced) / smoothing)
    total = likely.sum(axis=1)
    likely /= total[:, None]
    weighted = likely * weights[:, None]
    value = float(weights @ (least - smoothing * np.log(total)))
    return value, weighted.sum(axis=0), weighted.T @ likely


@njit(nogil=True, cache=True)
def _softmin_sums(costs, weights, prices, smoothing):  # type: ignore[no-untyped-def]
    n, k = costs.shape
    shares, overlap, value = np.zeros(k), np.zeros((k, k)), 0.0
    likely, places = np.empty(k), np.empty(k, np.int64)
    for j in range(n):
        least = np.inf
        for p in range(k):
            least = min(least, costs[j, p] - prices[p])
        count, total = 0, 0.0
        for p in range(k):
            above = costs[j, p] - prices[p] - least
            if above < _NEGLIGIBLE * smoothing:
                likely[count] = math.exp(-above / smoothing)
                places[count] = p
                total += likely[count]
                count += 1
        value += weights[j] * (least - smoothing * math.log(total))
        for a in range(count):
            share = weights[j] * likely[a] / total
            shares[places[a]] += share
            for b in range(count):
                overlap[places[a], places[b]] += share * likely[b] / total
    return value, shares, overlap


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


@njit(nogil=True, cache=True)
def _cheapest_and_near(costs, prices, width):  # type: ignore[no-untyped-def]
    n, k = costs.shape
    cheapest, near = np.empty(n, np.int64), np.zeros(n, np.int64)
    for j in range(n):
        least = np.inf
        for p in range(k):
            if costs[j, p] - prices[p] < least:
                least = costs[j, p] - prices[p]
                cheapest[j] = p
        for p in range(k):
            near[j] += costs[j, p] - prices[p] <= least + width
    return cheapest, near


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
    moves = _cheapest_moves(costs, targets, holders)
    prices = np.zeros(k)
    for _ in range(k):
        shorter = np.minimum(prices, (prices[:, None] + moves).min(axis=0))
        if np.array_equal(shorter, prices):
            break
        prices = shorter
    used = costs[targets, holders]
    regret = _regrets(costs, targets, holders, prices)
    return prices, math.fsum(regret * masses), math.fsum(used * masses)


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
    return Plan(wide, cost, np.maximum(of_targets - lowest, 0.0), prices - lowest, gap, True)
