"""MMD-critic and ProtoDash: prototypes whose kernel mean is closest to the target's."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.geometry.bandwidth import MedianShare, as_bandwidth, sampled_pairs
from uniproto.geometry.blocks import EVERY, Rows, row_blocks
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.contract import Picks
from uniproto.methods.picking import need_features, pick_greedily
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import parallel_map

_MEDIAN = MedianShare(1.0)  # the median heuristic


class RBFKernel:
    """The kernel k(x, y) = exp(−|x − y|² / 2σ²) of the rows as the metric sees them.

    They have unit length for cosine, and are raw for other metrics.

    Without a bandwidth, σ is that of the metric if it is `rbf` too, and else the median distance
    between a source row and a target row that is no copy of it (the median heuristic), over a
    fixed sample of at most 1,000 rows of each.
    """

    def __init__(self, costs: FeatureCosts, bandwidth: float | str | None) -> None:
        source, target = costs.source, costs.target
        prepared = costs.distance.refined  # rows are centred or of unit length already
        self._across = FeatureCosts(source, target, "sqeuclidean", prepared=prepared)
        self._within = (
            self._across
            if source is target
            else FeatureCosts(source, source, "sqeuclidean", prepared=prepared)
        )
        self.dtype = costs.dtype
        self.shape = costs.shape
        if bandwidth is None and costs.metric == "rbf":
            bandwidth = costs.bandwidth
        sigma = _MEDIAN if bandwidth is None else as_bandwidth(bandwidth)
        if isinstance(sigma, MedianShare):
            sigma = sigma.of(np.sqrt(self._across.exact_block(*sampled_pairs(*self.shape))))
        self.bandwidth = sigma

    def means(self, target_weights: NDArray[np.float64], progress: Progress) -> NDArray[np.float64]:
        """μ_i = Σ_j ν_j k(x_i, y_j) for every source row."""

        means = np.zeros(self.shape[0])

        def add(column_costs: FeatureCosts, columns: slice, part: slice) -> int:
            means[part] += self._kernel(column_costs.block(part)) @ target_weights[columns]
            return part.stop - part.start

        blocks = list(self._across.column_blocks())
        with progress.stage("kernel means", len(means) * len(blocks)) as advance:
            for columns in blocks:
                column_costs = self._across.read(EVERY, columns)
                parts = row_blocks(*column_costs.shape)
                for count in parallel_map(partial(add, column_costs, columns), parts):
                    advance(count)
        if not means.max() > 0:  # all 0, or 0/0
            raise InvalidInputError(
                "must be wide enough for some target to be similar to some source row, "
                f"wider than {self.bandwidth}.",
                parameter="bandwidth",
            )
        return means

    def row(self, row: int) -> NDArray[Any]:
        """k(x_row, x_i) for every source row i."""
        return self._kernel(self._within.block(np.array([row])))[0]

    def exact_block(self, rows: Rows, others: Rows) -> NDArray[np.float64]:
        """k between some source rows and some others, in double precision."""
        return self._kernel(self._within.exact_block(rows, others))

    def _kernel(self, squared: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):  # so far apart that the kernel is 0
            return np.exp(squared / (-2 * self.bandwidth * self.bandwidth))


@dataclass(frozen=True)
class _KernelMethod:
    """What both share: σ is a positive number or a share of the median distance."""

    bandwidth: float | None = None

    def __post_init__(self) -> None:
        if self.bandwidth is not None:
            as_bandwidth(self.bandwidth)


@dataclass(frozen=True)
class MMDCritic(_KernelMethod):
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

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        kernel = RBFKernel(need_features(problem, self.name), self.bandwidth)
        discrepancy = _Discrepancy(kernel, kernel.means(problem.masses.weights, progress))
        rows, gains = pick_greedily(problem, discrepancy, progress)
        return Picks(rows, gains, notes={"bandwidth": kernel.bandwidth})


class _Discrepancy:
    """The sums that J(P) is made of."""

    def __init__(self, kernel: RBFKernel, means: NDArray[np.float64]) -> None:
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


_RIDGE = 1e-10  # keeps the Gram matrix of near-duplicates invertible
_FLAT = 1e-9  # a slope below this is rounding


@dataclass(frozen=True)
class ProtoDash(_KernelMethod):
    """ProtoDash under an RBF kernel of bandwidth σ.

    The objective is max_{w ≥ 0} wᵀμ − ½ wᵀKw over weights of the prototypes, with the target mean
    μ_i = Σ_j ν_j k(x_i, y_j). Each pick is argmax_i μ_i − K_iP w; all weights are then solved for
    again. The learned weights are w / Σw; a prototype the target has no use for gets 0. Distances
    are Euclidean, between unit rows where the metric is cosine; `bandwidth=None` takes their
    median. Needs features.

    >>> import uniproto
    >>> sel = uniproto.select([[0.0], [1.0], [2.0], [9.0]], k=2, metric="euclidean",
    ...                       method=uniproto.ProtoDash(bandwidth=2.0))
    >>> sel.indices, sel.weights.round(2)
    (array([1, 3]), array([0.73, 0.27]))

    Reference: Gurumoorthy, Dhurandhar, Cecchi, Aggarwal, "Efficient data representation by
    selecting prototypes with importance weights", ICDM 2019.
    """

    name: ClassVar[str] = "protodash"
    draws: ClassVar[bool] = False

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        kernel = RBFKernel(need_features(problem, self.name), self.bandwidth)
        self.check(problem)
        fit = _WeightedFit(kernel, kernel.means(problem.masses.weights, progress), problem.k)
        rows, gains = pick_greedily(problem, fit, progress)
        total = fit.weights.sum()
        if not total > 0:  # rows that were given, too far from every target
            raise InvalidInputError(
                "must be wide enough for some target to be similar to a prototype, "
                f"wider than {kernel.bandwidth}.",
                parameter="bandwidth",
            )
        return Picks(rows, gains, fit.weights / total, notes={"bandwidth": kernel.bandwidth})

    def check(self, problem: Problem) -> None:
        """Refuse more kernel rows than memory holds."""
        require_memory(
            problem.k * (problem.m * problem.costs.dtype.itemsize + problem.k * 8),
            problem.memory,
            f"method={self.name!r} keeps k kernel rows of length m",
            "Lower k, or select from a sample of the source.",
        )


class _WeightedFit:
    """The prototypes, their optimal weights and the kernel rows both were computed from."""

    def __init__(self, kernel: RBFKernel, means: NDArray[np.float64], k: int) -> None:
        self.kernel, self.means = kernel, means
        self.rows = np.empty(0, np.intp)
        self.weights = np.empty(0)
        self.value = 0.0
        self._kernel_rows = np.empty((k, len(means)), kernel.dtype)
        self._gram = np.empty((k, k))

    def best(self, free: NDArray[np.intp]) -> int:
        explained = self.weights.astype(self.kernel.dtype) @ self._kernel_rows[: len(self.rows)]
        return int(free[np.argmax(self.means[free] - explained[free])])

    def add(self, row: int) -> float:
        place = len(self.rows)
        self.rows = np.append(self.rows, row)
        self._kernel_rows[place] = self.kernel.row(row)
        similarity = self.kernel.exact_block(self.rows[place:], self.rows)[0]
        self._gram[place, : place + 1] = self._gram[: place + 1, place] = similarity
        self._gram[place, place] += _RIDGE
        gram, means = self._gram[: place + 1, : place + 1], self.means[self.rows]
        self.weights = nonnegative_optimum(gram, means, np.append(self.weights, 0.0))
        before = self.value
        self.value = float(means @ self.weights - self.weights @ gram @ self.weights / 2)
        return max(0.0, self.value - before)  # a fall is rounding: more prototypes never fit worse


def nonnegative_optimum(
    gram: NDArray[np.float64], means: NDArray[np.float64], start: NDArray[np.float64]
) -> NDArray[np.float64]:
    """argmax_w wᵀμ − ½ wᵀKw over w ≥ 0, by active sets (Lawson and Hanson) from a feasible start.

    >>> nonnegative_optimum(np.eye(2), np.array([0.5, -1.0]), np.zeros(2))
    array([0.5, 0. ])
    """
    from scipy.linalg import cho_factor, cho_solve

    weights, positive = start.copy(), start > 0
    for _ in range(3 * len(start)):  # far more than it takes; rounding must not make it endless
        slope = np.where(positive, -np.inf, means - gram @ weights)
        steepest = int(np.argmax(slope))
        if slope[steepest] <= _FLAT:
            break
        positive[steepest] = True
        while True:
            free = np.flatnonzero(positive)
            aim = np.zeros(len(start))
            aim[free] = cho_solve(cho_factor(gram[np.ix_(free, free)]), means[free])
            falling = free[aim[free] <= 0]
            if not falling.size:
                weights = aim
                break
            # Walk towards the aim until the first weight reaches 0, and let go of it.
            reach = weights[falling] / (weights[falling] - aim[falling])
            weights = weights + reach.min() * (aim - weights)
            weights[falling[np.argmin(reach)]] = 0.0
            positive = weights > 0
            weights[~positive] = 0.0
    return weights
