"""The UniPROT algorithm in plain NumPy: a tutorial, and the oracle every fast path must match.

Chanda et al., "UniPROT: Uniform Prototype Selection via Partial Optimal Transport with Submodular
Guarantees", AISTATS 2026. Comments name the lines of its Algorithm 1 and its equations.

The paper maximises similarity S = β − C. In cost form nothing depends on β: each pick is the
candidate whose fill of one unit of unclaimed target mass is cheapest. Masses are integers
(see `problem/masses.py`): target j offers `offer[j]`, each of the k prototypes needs `need`, and
dividing by `need` gives the paper's scale, where a prototype needs 1 and target j offers k·ν_j.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from uniproto.problem.masses import Masses
from uniproto.transport.entropic import entropic_plan
from uniproto.transport.exact import partial_plan

Matrix = NDArray[np.float64]


def uniprot(
    costs: Matrix,
    k: int,
    masses: Masses,
    plan: str = "extend",
    gains: str = "approx",
    reg: float = 0.01,
    iterations: int = 1000,
    initial: tuple[int, ...] = (),
    exclude: tuple[int, ...] = (),
) -> tuple[list[int], list[float]]:
    """Algorithm 1 on a full cost matrix: the k picks and what each pick cost (β − its gain).

    >>> from uniproto.problem.masses import integer_masses
    >>> costs = np.array([[0.0, 0.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0], [0.5, 0.5, 0.5, 0.5]])
    >>> uniprot(costs, 2, integer_masses(k=2, n=4))
    ([0, 1], [0.0, 0.0])
    """
    picks = list(initial)  # line 1, where some prototypes may be given
    claimed, cost_per_row = start_plan(costs, picks, masses)
    pick_costs = list(cost_per_row)
    while len(picks) < k:  # line 2
        if plan == "resolve" and picks:  # line 3 with λ = 0: the exact plan of the whole set
            claimed = partial_plan(costs[picks], masses.offer, masses.need).masses.toarray()
        elif plan == "entropic" and picks:  # line 3 as printed
            capacity = masses.offer / masses.need
            solved = entropic_plan(costs[picks], capacity, reg, iterations)
            claimed = solved.plan * masses.need
        unclaimed = np.maximum(masses.offer - claimed.sum(axis=0), 0)
        candidates = (i for i in range(len(costs)) if i not in picks and i not in exclude)
        if gains == "exact":
            best, cost = cheapest(exact_rises(costs, picks, candidates, masses))
        else:  # line 4
            best, cost = cheapest(fill_costs(costs, candidates, unclaimed, masses.need))
        picks.append(best)  # line 5
        pick_costs.append(cost)
        if plan == "extend":  # earlier rows stay as they are; the new one claims its fill
            claimed = np.vstack([claimed, fill(costs[best], unclaimed, masses.need)])
    return picks, pick_costs  # line 7


def fill(cost_row: Matrix, unclaimed: NDArray, need: float) -> NDArray:
    """The cheapest `need` units of unclaimed mass: the fractional knapsack of Eq. 8.

    Targets are taken from near to far, each as far as it has unclaimed mass, until the need is
    met. Equal costs are taken in the order of the targets.
    """
    taken = np.zeros_like(unclaimed)
    order = np.argsort(cost_row, kind="stable")
    supply = np.cumsum(unclaimed[order])
    before = supply - unclaimed[order]
    taken[order] = np.clip(need - before, 0, unclaimed[order])
    return taken


def fill_costs(
    costs: Matrix, candidates: Iterator[int], unclaimed: NDArray, need: float
) -> Iterator[tuple[int, float]]:
    """Each candidate's approximate marginal gain (Eq. 8) in cost form, per unit of mass."""
    for i in candidates:
        yield i, float(costs[i] @ fill(costs[i], unclaimed, need)) / need


def exact_rises(
    costs: Matrix, picks: list[int], candidates: Iterator[int], masses: Masses
) -> Iterator[tuple[int, float]]:
    """Each candidate's exact marginal gain f(x | P) in cost form, per unit of mass."""
    before = objective_cost(costs, picks, masses)
    for i in candidates:
        yield i, objective_cost(costs, [*picks, i], masses) - before


def objective_cost(costs: Matrix, picks: list[int], masses: Masses) -> float:
    """min ⟨C, γ⟩ over plans of the picks: f(P) = β·|P| − this (the paper's submodular form)."""
    if not picks:
        return 0.0
    return partial_plan(costs[picks], masses.offer, masses.need).cost / masses.need


def transport_cost(costs: Matrix, picks: list[int], masses: Masses) -> float:
    """The exact goal: OT(P) between the uniformly weighted picks and the target."""
    return objective_cost(costs, picks, masses) / len(picks)


def start_plan(costs: Matrix, picks: list[int], masses: Masses) -> tuple[NDArray, Matrix]:
    """The joint exact plan of the given prototypes, and what each of them costs in it."""
    if not picks:
        return np.zeros((0, costs.shape[1]), np.int64), np.zeros(0)
    claimed = partial_plan(costs[picks], masses.offer, masses.need).masses.toarray()
    return claimed, (claimed * costs[picks]).sum(axis=1) / masses.need


def cheapest(candidates: Iterator[tuple[int, float]]) -> tuple[int, float]:
    """The candidate of lowest cost; among equals the one with the lowest index."""
    return min(candidates, key=lambda candidate: (candidate[1], candidate[0]))
