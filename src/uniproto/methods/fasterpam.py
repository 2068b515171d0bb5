"""FasterPAM: k-medoids by swaps instead of greedy picks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError, needing, require_int
from uniproto.geometry.blocks import EVERY
from uniproto.geometry.matrix_costs import MatrixCosts
from uniproto.methods.contract import Picks
from uniproto.methods.picking import library_seed, need_one_set
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress


@dataclass(frozen=True)
class FasterPAM:
    """FasterPAM k-medoids: swap prototypes until no swap lowers Σ_j min_{i∈P} C_ij.

    Starts from k random rows and makes at most `iterations` passes over all rows. Needs the extra
    `compare` (the `kmedoids` package), source = target, a metric other than `dot`, and memory for
    all m × m costs; target weights, `include`, `exclude` and `min_distance` are refused. Prototypes
    come from the largest cluster to the smallest, ties by row; their learned weights are the
    cluster sizes over n. All are found together, so gains are 0.

    >>> import uniproto
    >>> sel = uniproto.select([[0.0], [1.0], [2.0], [9.0]], k=2, metric="euclidean",
    ...                       method="fasterpam")
    >>> sel.indices, sel.weights
    (array([1, 3]), array([0.75, 0.25]))

    Reference: Schubert, Rousseeuw, "Fast and eager k-medoids clustering", Information Systems
    2021.
    """

    name: ClassVar[str] = "fasterpam"

    iterations: int = 100

    def __post_init__(self) -> None:
        require_int("iterations", self.iterations, too_small="Try 100.")

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        with needing(f"method={self.name!r}", "compare"):
            from kmedoids import fasterpam
        self.check(problem)
        costs, free = problem.costs, problem.candidates
        if len(free) < problem.m:
            costs = costs.restrict(free, free)
        as_it_is = isinstance(costs, MatrixCosts) and costs.matrix.dtype == costs.dtype
        if costs.metric != "precomputed" or not as_it_is:
            require_memory(
                len(free) ** 2 * costs.dtype.itemsize,
                problem.memory,
                f"method={self.name!r} keeps all m × m costs",
                "Use method='kmedoids', or select from a sample of the source.",
            )
        matrix = np.ascontiguousarray(costs.block(EVERY))
        # One processor: more give the same result, slower.
        found = fasterpam(
            matrix, problem.k, self.iterations, random_state=library_seed(problem), n_cpu=1
        )
        medoids, labels = _all_different(found.medoids, found.labels, matrix)
        sizes = np.bincount(labels, minlength=problem.k)
        order = np.lexsort((medoids, -sizes))
        return Picks(
            free[medoids[order]],
            np.zeros(problem.k),
            sizes[order] / len(free),
            notes={"loss": float(found.loss), "iterations_run": int(found.n_iter)},
        )

    def check(self, problem: Problem) -> None:
        """Refuse a target of its own, and conditions on the rows."""
        if problem.costs.metric == "dot":
            raise InvalidInputError(
                f"must put no cost between a row and itself for method={self.name!r}, "
                "unlike 'dot'. Use metric='cosine', or method='kmedoids'.",
                parameter="metric",
            )
        need_one_set(problem, self.name)
        offer, free = problem.masses.offer, problem.candidates
        given = {
            "target_weights": np.ptp(offer[free]) > 0,
            "include": problem.initial.size > 0,
            "exclude": not np.isin(np.flatnonzero(offer), free).all(),  # what weighs nothing may be
            "min_distance": problem.twin_distance is not None,
            "limits": problem.limits is not None,
        }
        for parameter, present in given.items():
            if present:
                raise InvalidInputError(
                    f"must be left out for method={self.name!r}. Drop it, or use "
                    "method='kmedoids'.",
                    parameter=parameter,
                )


def _all_different(
    medoids: NDArray[Any], labels: NDArray[Any], costs: NDArray[Any]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Medoids and clusters as found; a medoid found twice makes way for the row served worst.

    Among copies, one row more lowers the loss by nothing: the library may then repeat a medoid.
    """
    different = list(dict.fromkeys(medoids.tolist()))
    if len(different) == len(medoids):
        return medoids.astype(np.intp), labels.astype(np.intp)
    while len(different) < len(medoids):
        served = costs[different].min(axis=0)
        served[different] = -1.0
        different.append(int(served.argmax()))
    return np.array(different, np.intp), costs[different].argmin(axis=0)
