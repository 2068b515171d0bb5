"""The exact transport between prototypes of equal weight and the whole target."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.blocks import block_rows
from uniproto.geometry.rounded_costs import error_of_mean
from uniproto.problem.problem import Problem
from uniproto.runtime.threads import parallel_for, parallel_map, pieces_of
from uniproto.transport.exact import Plan, partial_plan, sparse_plan
from uniproto.transport.line import carried, line_of, plan_on_line
from uniproto.transport.proof import EXACT, TOLERANCE, prove
from uniproto.transport.weights import plan_for_weights

SMALL = 60_000  # pairs of rows and targets up to which nothing is compiled, and POT is loaded
_DENSE_ENTRIES = 200_000  # of prototypes and targets, that POT solves quickly
_NEAREST = 16  # prototypes that each target may be sent to at first
_ADDED = 4  # and those added first where the prices show that something cheaper was left out
LARGEST_TARGET = 400_000  # beyond this the exact solver takes too long
_TARGETS_PER_PIECE = 4096
FEW = 300  # prototypes up to which prices on them are found in a moment
_TARGETS_OF_FEW = 100  # the fewest targets for each, for prices to be the quickest way
_MANY, _TARGETS_OF_MANY = 1_000, 150  # so many prototypes need more
_TARGETS_IN_CELLS, _PAIRS_IN_CELLS = 20, 100_000_000  # of many: where cells are quicker than arcs
_LEAST_MEMORY = 2**26  # allowed for a plan in any case: no more than libraries take
_EPS = float(np.finfo(np.float64).eps)
_VANISHING = float(np.finfo(np.float64).tiny) / _EPS  # products below it lose their digits
_OF_ANGLES = 1e-15  # what costs of angles, of 2 at most, may be off


@dataclass(frozen=True)
class Transport:
    """Which targets each prototype represents: `plan[p, j]` is the share of all mass between
    prototype p and target j. Rows sum to 1/k, columns to the target weights.
    """

    cost: float
    plan: sp.csr_array
    is_exact: bool
    prices: NDArray[np.float64] | None = None  # optimal dual prices of the targets, if exact


def transport(
    problem: Problem,
    rows: NDArray[np.intp],
    plan: sp.csr_array | None = None,
    prices: NDArray[np.float64] | None = None,
) -> Transport:
    """The optimal plan of these prototypes.

    `prices` on them that nearly balance it save work. `plan` is any plan the prototypes already
    have; where an exact solve would take too long, it is returned: its cost is an upper bound, and
    `is_exact` is False. A solved plan is called exact if its dual prices prove its cost, but for
    1e-12 of it, or if all rows lie on a line; and if neither the weights, which its whole masses
    differ from by a hair, nor the rounding of costs change that by more than 1e-9.
    """
    solved = _of_masses(problem, rows, plan, prices)
    if (weights := problem.target_weights) is not None and np.ptp(weights):
        solved = _of_weights(problem, rows, solved, weights)
    error = _error_of_cost(problem, rows, solved)
    allowed = max(EXACT * solved.cost, _OF_ANGLES if problem.costs.metric == "cosine" else 0.0)
    if error <= allowed:
        return solved
    return replace(solved, cost=solved.cost + error, is_exact=False)


def _error_of_cost(problem: Problem, rows: NDArray[np.intp], solved: Transport) -> float:
    """How far the cost may be from that of true costs and weights, by what rounding has taken."""
    cost, plan, costs = solved.cost, solved.plan, problem.costs
    if cost == 0 and costs.zero_is_exact:
        arcs = _arcs(problem, rows, plan)
        if not any(paid[shares > 0].any() for paid, shares in arcs):
            return 0.0
    error = error_of_mean(costs, cost) + (_VANISHING if cost < _VANISHING else 0.0)
    if (weights := problem.target_weights) is not None:  # of which the least have lost digits
        error += float(weights[weights < _VANISHING].sum()) * costs.ceiling
    return error


def _of_masses(
    problem: Problem,
    rows: NDArray[np.intp],
    plan: sp.csr_array | None,
    prices: NDArray[np.float64] | None,
) -> Transport:
    masses, is_dense = problem.masses, len(rows) * problem.n <= _DENSE_ENTRIES
    if not is_dense and (line := line_of(problem.costs)) is not None:
        on_line, paid = plan_on_line(line, rows, masses)
        return Transport(float(paid.sum()) / masses.total, _shares(on_line, masses.total), True)
    solved = None if problem.m * problem.n <= SMALL else _plan_of_few(problem, rows, prices)
    if solved is None and is_dense:
        solved = partial_plan(problem.costs.exact_block(rows), masses.offer, masses.need)
    if solved is not None:
        return _transport_of(solved, masses.total, solved.is_proven)
    if plan is None:
        plan = feasible_plan(problem, rows)
    if problem.n > LARGEST_TARGET:
        shares = _shares(plan, masses.total)
        return Transport(cost_of(problem, rows, shares), shares, False)
    return _by_column_generation(problem, rows, plan)


def _of_weights(
    problem: Problem, rows: NDArray[np.intp], solved: Transport, weights: NDArray[np.float64]
) -> Transport:
    """The plan for the weights ν of targets whose whole masses are a little short of them.

    No plan for ν costs less than that for the masses less Σ_j v_j short_j, by the same prices v.
    """
    short, slack = weights - problem.masses.weights, EXACT / 4 * solved.cost
    plan = plan_for_weights(problem.costs, rows, solved.plan, weights, slack)
    cost, least = cost_of(problem, rows, plan), -np.inf
    if solved.prices is not None:
        summed = solved.cost + float(solved.prices @ np.abs(short))
        rounding = problem.n * _EPS * summed + 4 * _EPS * float(solved.prices @ weights)
        least = solved.cost - float(solved.prices @ short) - rounding
    elif (line := line_of(problem.costs)) is not None:
        least = solved.cost - carried(line, problem.masses, weights, len(rows), solved.cost)
    if cost - least > EXACT * cost and len(rows) * problem.n <= _DENSE_ENTRIES:
        least = _least_by_its_arcs(problem, rows, plan, weights)
        is_exact = cost - least <= EXACT * cost
    else:
        is_exact = solved.is_exact and cost - least <= EXACT * cost
    return Transport(cost, plan, is_exact, solved.prices)


def _least_by_its_arcs(
    problem: Problem, rows: NDArray[np.intp], plan: sp.csr_array, weights: NDArray[np.float64]
) -> float:
    """What no plan for the weights costs less than, by the arcs of one that is nearly for them."""
    used = np.flatnonzero(plan.sum(axis=0))
    part = sp.csr_array(plan[:, used])
    proof = prove(problem.costs.exact_block(rows, used), part)
    short = np.abs(weights[used] - part.sum(axis=0)) @ np.abs(proof.prices)
    short += np.abs(1 / len(rows) - part.sum(axis=1)) @ np.abs(proof.potentials)
    return proof.cost - proof.gap - proof.rounding - float(short)


def memory_of_plan(k: int, n: int) -> int:
    """The memory that the exact plan of few rows and many targets takes, in bytes."""
    return 16 * k * n


def _plan_of_few(
    problem: Problem, rows: NDArray[np.intp], prices: NDArray[np.float64] | None
) -> Plan | None:
    """The plan of few prototypes by their prices, where all their costs fit into memory."""
    from uniproto.transport.cells import cells_plan, cells_suit

    k, n = len(rows), problem.n
    in_cells, is_few = cells_suit(k, n), k <= FEW and n >= _TARGETS_OF_FEW * k
    fits = memory_of_plan(k, n) <= max(problem.memory, _LEAST_MEMORY)
    if k <= FEW:  # column generation takes more, where it is still possible
        fits |= n <= LARGEST_TARGET
    elif k <= _MANY and not in_cells:
        is_few = n >= _TARGETS_OF_MANY * k
        in_cells = not is_few and n >= _TARGETS_IN_CELLS * k and k * n <= _PAIRS_IN_CELLS
    if not (in_cells or is_few) or not fits:
        return None
    if k > FEW and not cells_suit(k, n) and prices is None:
        prices = _prices_of_many(problem, rows)
    costs = np.empty((n, k))

    def fill(piece: slice) -> None:
        costs[piece] = problem.costs.exact_block(rows, piece).T

    parallel_for(fill, _pieces(problem, rows))
    if in_cells:
        found = cells_plan(costs, problem.masses.offer, problem.masses.need, prices)
        if found is not None or not is_few:
            return found
    from uniproto.transport.few import few_plan

    return few_plan(costs, problem.masses.offer, problem.masses.need, prices)


def _prices_of_many(problem: Problem, rows: NDArray[np.intp]) -> NDArray[np.float64] | None:
    """Prices on many prototypes, where a GPU finds them in a moment."""
    from uniproto.transport.gpu_balance import prices_on_gpu, suits_gpu

    return prices_on_gpu(problem, rows) if suits_gpu(problem) else None


def _by_column_generation(
    problem: Problem, rows: NDArray[np.intp], plan: sp.csr_array
) -> Transport:
    """Solve over few arcs; add those the dual prices show to be missing; repeat.

    When no arc has a negative reduced cost, the plan is optimal over all k × n of them. What they
    are short of 0, summed over the rows, is what another plan could save at most.
    """
    masses = problem.masses
    arcs = sp.csr_array((np.ones(plan.nnz, np.int8), plan.indices, plan.indptr), shape=plan.shape)
    nothing = np.zeros(len(rows)), np.zeros(problem.n)
    arcs = arcs + _cheapest_arcs(problem, rows, *nothing, _NEAREST, np.inf)[0]
    added = _ADDED
    while True:
        costs = _costs_of_arcs(problem, rows, arcs)
        solved = sparse_plan(costs, masses.offer, masses.need)
        negligible = TOLERANCE / 2 * solved.cost / masses.total
        missing, lowest = _cheapest_arcs(
            problem, rows, solved.potentials, solved.prices, added, -negligible
        )
        added *= 2  # where nearly all rows are prototypes, a few targets are sent to hundreds
        left_out = masses.need * float(np.maximum(-lowest, 0.0).sum())
        highest = float(np.abs(solved.potentials).max() + np.abs(solved.prices).max())
        rounding = 4 * _EPS * (solved.cost + masses.total * highest)
        is_proven = (
            solved.is_proven
            and left_out <= TOLERANCE * solved.cost
            and rounding <= EXACT * solved.cost
        )
        if is_proven or missing.nnz == 0:
            return _transport_of(solved, masses.total, is_proven)
        arcs = arcs + missing


def _cheapest_arcs(
    problem: Problem,
    rows: NDArray[np.intp],
    potentials: NDArray[np.float64],
    prices: NDArray[np.float64],
    count: int,
    below: float,
) -> tuple[sp.csr_array, NDArray[np.float64]]:
    """For each target, the `count` arcs of lowest reduced cost, if they are below a limit.

    Also the lowest reduced cost of each row.
    """
    count = min(count, len(rows))

    def search(
        piece: slice,
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]:
        reduced = problem.costs.exact_block(rows, piece)
        reduced -= potentials[:, None]
        reduced += prices[piece]
        reduced[:, problem.masses.offer[piece] == 0] = np.inf
        lowest = np.argpartition(reduced, count - 1, axis=0)[:count]
        wanted = np.take_along_axis(reduced, lowest, axis=0) < below
        columns = np.broadcast_to(np.arange(piece.start, piece.stop), lowest.shape)
        return lowest[wanted], columns[wanted], reduced.min(axis=1)

    found = list(parallel_map(search, _pieces(problem, rows)))
    places = np.concatenate([part for part, _, _ in found])
    columns = np.concatenate([part for _, part, _ in found])
    shape = (len(rows), problem.n)
    arcs = sp.csr_array((np.ones(len(places), np.int8), (places, columns)), shape=shape)
    return arcs, np.min([part for _, _, part in found], axis=0)


def _costs_of_arcs(problem: Problem, rows: NDArray[np.intp], arcs: sp.csr_array) -> sp.coo_array:
    """The arcs, weighted by their costs in double precision."""
    by_target = sp.csc_array(arcs)
    values = np.empty(by_target.nnz)

    def fill(piece: slice) -> None:
        first, last = by_target.indptr[piece.start], by_target.indptr[piece.stop]
        counts = np.diff(by_target.indptr[piece.start : piece.stop + 1])
        block = problem.costs.exact_block(rows, piece)
        columns = np.repeat(np.arange(piece.stop - piece.start), counts)
        values[first:last] = block[by_target.indices[first:last], columns]

    parallel_for(fill, _pieces(problem, rows))
    return sp.coo_array(
        sp.csc_array((values, by_target.indices, by_target.indptr), by_target.shape)
    )


def _pieces(problem: Problem, rows: NDArray[np.intp]) -> list[slice]:
    """Targets in pieces whose costs, in double precision, make a block at most."""
    return pieces_of(problem.n, min(_TARGETS_PER_PIECE, block_rows(len(rows), itemsize=8)))


def feasible_plan(problem: Problem, rows: NDArray[np.intp]) -> sp.csr_array:
    """A feasible plan of these prototypes: each claims its fill in turn, the cheapest first."""
    from uniproto.fills.lazy_fills import LazyFills

    fills = LazyFills(problem, rows, problem.masses.offer.copy(), len(rows))
    fills.pick_and_claim(len(rows))
    claimed = fills.plan()
    return sp.csr_array(claimed[np.argsort(fills.picks)])


def best_plan(problem: Problem, rows: NDArray[np.intp]) -> sp.csr_array:
    """The optimal plan of these prototypes in whole units of mass, as that of `feasible_plan`."""
    shares = _of_masses(problem, rows, None, None).plan
    masses = np.rint(shares.data * problem.masses.total).astype(np.int64)
    return sp.csr_array((masses, shares.indices, shares.indptr), shape=shares.shape)


def cost_of(problem: Problem, rows: NDArray[np.intp], plan: sp.csr_array) -> float:
    """What a plan costs in double precision."""
    return sum(float(costs @ shares) for costs, shares in _arcs(problem, rows, plan))


def _arcs(
    problem: Problem, rows: NDArray[np.intp], plan: sp.csr_array
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """The costs of each row's arcs in double precision, and what the plan moves over them."""
    for place in range(len(rows)):
        line = slice(plan.indptr[place], plan.indptr[place + 1])
        costs = problem.costs.exact_block(rows[place : place + 1], plan.indices[line])[0]
        yield costs, plan.data[line]


def _transport_of(solved: Plan, total: int, is_exact: bool) -> Transport:
    shares = _shares(solved.masses, total)
    return Transport(solved.cost / total, shares, is_exact, solved.prices)


def _shares(masses: sp.csr_array, total: int) -> sp.csr_array:
    return sp.csr_array((masses.data / total, masses.indices, masses.indptr), shape=masses.shape)
