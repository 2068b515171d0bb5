"""MMD-critic: prototypes whose kernel mean is closest to the target's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.contract import Picks
from uniproto.methods.picking import need_features, pick_greedily
from uniproto.methods.rbf import RBF, check_bandwidth
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


@dataclass(frozen=True)
class MMDCritic:
    """Greedy MMD-critic prototypes under an RBF kernel of bandwidth σ.

    The objective is J(P) = 2/|P| Σ_{i∈P} μ_i − 1/|P|² Σ_{i,s∈P} k(x_i, x_s) with the target mean
    μ_i = Σ_j ν_j k(x_i, y_j): a constant minus the squared maximum mean discrepancy. Each pick is
    argmax_c 2 μ_c − [2 Σ_{s∈P} k(x_s, x_c) + k(x_c, x_c)] / (|P| + 1). J is not monotone: a gain
    may be negative. Distances are Euclidean, between unit rows where the metric is cosine;
    `bandwidth=None` takes their median. Needs features; all prototypes have equal weight.

    >>> import uniproto
    >>> sel = uniproto.select([[0.0], [1.0], [2.0], [9.0]], k=2, metric="euclidean",
    ...                       method=uniproto.MMDCritic(bandwidth=2.0))
    >>> sel.indices
    array([1, 3])

    Reference: Kim, Khanna, Koyejo, "Examples are not enough, learn to criticize!", NeurIPS 2016.
    """

    name: ClassVar[str] = "mmd_critic"
    draws: ClassVar[bool] = False

    bandwidth: float | None = None

    def __post_init__(self) -> None:
        check_bandwidth(self.bandwidth)

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        kernel = RBF(need_features(problem, self.name), self.bandwidth)
        discrepancy = _Discrepancy(kernel, kernel.means(problem.masses.weights, progress))
        rows, gains = pick_greedily(problem, discrepancy, progress)
        return Picks(rows, gains, notes={"bandwidth": kernel.bandwidth})


class _Discrepancy:
    """The sums that J(P) is made of."""

    def __init__(self, kernel: RBF, means: NDArray[np.float64]) -> None:
        self.kernel, self.means = kernel, means
        self.similarity = np.zeros(len(means))  # Σ_{s∈P} k(x_s, x_i) for every source row i
        self.picked, self.value = 0, 0.0
        self._mean_sum = self._pair_sum = 0.0

    def best(self, free: NDArray[np.intp]) -> int:
        crowding = (2 * self.similarity[free] + 1) / (self.picked + 1)
        return int(free[np.argmax(2 * self.means[free] - crowding)])

    def add(self, row: int) -> float:
        self.picked += 1
        self._mean_sum += float(self.means[row])
        self._pair_sum += float(2 * self.similarity[row] + 1)
        self.similarity += self.kernel.row(row)
        before = self.value
        self.value = 2 * self._mean_sum / self.picked - self._pair_sum / self.picked**2
        return self.value - before
