"""ProtoDash: weighted prototypes whose kernel mean is closest to the target's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.methods.contract import Picks
from uniproto.methods.picking import need_features, pick_greedily
from uniproto.methods.rbf import RBF, check_bandwidth
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress

_RIDGE = 1e-10  # keeps the Gram matrix of near-duplicates invertible
_FLAT = 1e-9  # a slope below this is rounding


@dataclass(frozen=True)
class ProtoDash:
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

    bandwidth: float | None = None

    def __post_init__(self) -> None:
        check_bandwidth(self.bandwidth)

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        kernel = RBF(need_features(problem, self.name), self.bandwidth)
        self.check(problem)
        fit = _WeightedFit(kernel, kernel.means(problem.masses.weights, progress), problem.k)
        rows, gains = pick_greedily(problem, fit, progress)
        total = fit.weights.sum()
        if not total > 0:  # rows that were given, too far from every target
            raise InvalidInputError(
                "'bandwidth' must be wide enough for some target to be similar to a prototype, "
                f"wider than {kernel.bandwidth}."
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

    def __init__(self, kernel: RBF, means: NDArray[np.float64], k: int) -> None:
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
