"""Greedy k-medoids (SPOT) and facility location, whose picks are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from uniproto.methods.contract import Picks
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


@dataclass(frozen=True)
class KMedoids:
    """Greedy k-medoids (SPOT, the paper's Eq. 4): every target goes to its nearest prototype.

    Each pick is the row i of largest Σ_j ν_j max(0, c_j − C_ij), where c_j is the cost of target
    j's nearest prototype so far and starts at the largest cost of the problem. The learned weight
    of a prototype is the target mass nearest to it, ties to the earliest pick.

    >>> import uniproto
    >>> sel = uniproto.select([[0.0], [1.0], [2.0], [9.0]], 2, metric="euclidean",
    ...                       method="kmedoids")
    >>> sel.indices, sel.weights
    (array([1, 3]), array([0.75, 0.25]))

    Reference: Gurumoorthy, Jawanpuria, Mishra, "SPOT: a framework for selection of prototypes
    using optimal transport", ECML PKDD 2021.
    """

    name: ClassVar[str] = "kmedoids"
    draws: ClassVar[bool] = False

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        from uniproto.methods.coverage import pick_by_coverage

        return pick_by_coverage(problem, progress)


@dataclass(frozen=True)
class FacilityLocation:
    """Greedy facility location: maximise Σ_j ν_j max_{i∈P} S_ij with S = β − C ≥ 0.

    β is the problem's cost ceiling. The picks are those of k-medoids, because Σ_j ν_j (β − c_j)
    differs from its objective by a constant; only the first gain is counted from another start.
    The learned weight of a prototype is the target mass most similar to it.

    >>> import uniproto
    >>> sel = uniproto.select([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], k=2,
    ...                       method="facility_location")
    >>> sel.indices
    array([1, 2])

    Reference: Krause, Golovin, "Submodular function maximization", Tractability, Cambridge
    University Press 2014; lazy evaluation: Minoux 1978.
    """

    name: ClassVar[str] = "facility_location"
    draws: ClassVar[bool] = False

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        from uniproto.methods.coverage import pick_by_coverage

        return pick_by_coverage(problem, progress, start=problem.costs.ceiling)
