"""Initial prices, of two kinds.

From the cells of a selection: a prototype collects its unit of mass from its cell, at the cell's
mean cost. If prices offset that mean, each prototype breaks even, and so, approximately, does any
other row in the middle of a cell. A target far outside is priced by its own distance; otherwise a
row close to it would have a very low value.

From a small copy of the problem that is solved exactly: if costs differ by orders of magnitude, so
must prices, and ascent from zero would take very long. A copy of some eighty places has prices of
the right size everywhere; every target gets the price of its place.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import linprog

from uniproto.geometry.blocks import row_blocks
from uniproto.problem.problem import Problem
from uniproto.runtime.threads import parallel_map

_RADIUS = 0.8  # of a cell's mass lies within its radius


def cell_prices(
    problem: Problem, rows: NDArray[np.intp], plan: sp.csr_array
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Prices of the targets, and the mean cost of each one's cell.

    A target that several prototypes share has the mean of each.
    """

    def worths(place: int) -> tuple[NDArray[np.float64], float]:
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        costs = problem.costs.exact_block(rows[place : place + 1], plan.indices[part])[0]
        masses = plan.data[part]
        mean = float(costs @ masses / masses.sum())
        return mean + np.maximum(costs - _quantile(costs, masses, _RADIUS), 0.0), mean

    found = list(parallel_map(worths, range(len(rows))))
    held = np.bincount(plan.indices, plan.data, problem.n)
    held[held == 0] = 1.0  # no mass, so that the price does not matter
    means = np.repeat([mean for _, mean in found], np.diff(plan.indptr))

    def averaged(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(plan.indices, plan.data * values, problem.n) / held

    worth = averaged(np.concatenate([worth for worth, _ in found]))
    return worth.max() - worth, averaged(means)


def _quantile(values: NDArray[np.float64], masses: NDArray[np.float64], share: float) -> float:
    order = np.argsort(values)
    within = np.searchsorted(np.cumsum(masses[order]), share * masses.sum())
    return float(values[order[min(int(within), len(values) - 1)]])


_PLACES = 80  # a linear program of 80² variables takes a fifth of a second
_DRAWS = 4 * _PLACES  # some targets share their nearest row
_SEED = 0


def coarse_prices(problem: Problem, rows: NDArray[np.intp]) -> NDArray[np.float64] | None:
    """Prices of the relaxed problem over places, or None if the copy has no solution.

    `rows` are those that may be chosen.

    A place is a target and the row nearest to it. Places are drawn in proportion to the current
    costs of the targets (as in k-means++), so that distant ones are found, too.
    """
    capacity = problem.masses.offer / problem.masses.need
    marks, costs = _places(problem, rows, capacity)
    place = costs.argmin(axis=0)
    held = np.bincount(place, capacity, len(marks)).astype(np.float64)
    filled = np.flatnonzero(held)
    shares = sp.csr_array((capacity, (np.arange(problem.n), place)), (problem.n, len(marks)))
    coarse = (costs @ shares)[:, filled] / held[filled]
    found = _relaxed(coarse, held[filled], _rows_near(problem, rows, marks), problem.k)
    if found is None:
        return None
    prices = np.zeros(len(marks))
    prices[filled] = found
    return prices[place]


def _places(
    problem: Problem, rows: NDArray[np.intp], capacity: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The targets of the places, and the costs of their rows to all targets."""
    draw = np.random.default_rng(_SEED)
    marks: list[int] = []
    chosen: dict[int, NDArray[np.float64]] = {}  # costs by row
    nearest = np.ones(problem.n)  # uniform at first, then the current costs
    for _ in range(_DRAWS):
        worth = capacity * nearest
        if len(chosen) == _PLACES or not worth.any():
            break
        target = int(draw.choice(problem.n, p=worth / worth.sum()))
        row = int(rows[np.argmin(problem.costs.exact_block(rows, np.array([target])))])
        if row in chosen:
            nearest[target] = 0.0
            continue
        costs = problem.costs.exact_block(np.array([row]))[0]
        nearest = np.minimum(nearest, costs) if chosen else costs.copy()
        chosen[row] = costs
        marks.append(target)
    return np.array(marks), np.array(list(chosen.values()))


def _rows_near(
    problem: Problem, rows: NDArray[np.intp], marks: NDArray[np.intp]
) -> NDArray[np.float64]:
    """The number of rows nearest to each place's target."""
    counts = np.zeros(len(marks))
    for part in row_blocks(len(rows), len(marks)):
        near = problem.costs.block(rows[part], marks).argmin(axis=1)
        counts += np.bincount(near, minlength=len(marks))
    return counts


def _relaxed(
    costs: NDArray[np.float64],
    capacity: NDArray[np.float64],
    available: NDArray[np.float64],
    k: int,
) -> NDArray[np.float64] | None:
    """Dual prices of the targets' capacities in the linear relaxation.

    Masses γ_ab and shares y_a: Σ_b γ_ab = y_a, Σ_a γ_ab ≤ capacity_b, γ_ab ≤ capacity_b y_a,
    Σ_a y_a = k.
    """
    sources, targets = costs.shape
    largest = float(costs.max())  # the solver's tolerances are absolute
    if largest == 0:
        return None
    pairs = sources * targets
    sums = sp.kron(sp.eye_array(sources), np.ones((1, targets)))
    equal = sp.vstack(
        [
            sp.hstack([sums, -sp.eye_array(sources)]),
            sp.hstack([sp.csr_array((1, pairs)), np.ones((1, sources))]),
        ]
    )
    taken = sp.kron(np.ones((1, sources)), sp.eye_array(targets))
    each = sp.kron(sp.eye_array(sources), capacity[:, None])
    below = sp.vstack(
        [
            sp.hstack([taken, sp.csr_array((targets, sources))]),
            sp.hstack([sp.eye_array(pairs), -each]),
        ]
    )
    most = np.concatenate([np.full(pairs, np.inf), available])
    solved = linprog(
        np.concatenate([costs.ravel() / largest, np.zeros(sources)]),
        A_ub=below.tocsr(),
        b_ub=np.concatenate([capacity, np.zeros(pairs)]),
        A_eq=equal.tocsr(),
        b_eq=np.concatenate([np.zeros(sources), [float(k)]]),
        bounds=np.column_stack([np.zeros_like(most), most]),
        method="highs",
    )
    return -solved.ineqlin.marginals[:targets] * largest if solved.success else None
