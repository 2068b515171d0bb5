"""TSDS: each target's mass is spread over its nearest rows, thinly where rows lie close together.

The transport plan γ minimises α/C ⟨d, γ⟩ + (1 − α) n max_ij ρ_j |γ_ji − share_j|, where ρ_j is the
density of the pool around row j and share_j ∝ 1/ρ_j. For a given largest density u of mass, each
target fills its nearest rows up to u/ρ_j, so that the best plan is found by a search over u alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import require_int, require_positive
from uniproto.geometry.blocks import row_blocks, spread_rows
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.contract import Picks
from uniproto.methods.picking import nearest_rows, need_features, pick_in_order
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import parallel_for

_SEARCH_STEPS = 80
_SAMPLED = 64  # rows that show a typical distance
_SHARE_OF_MEDIAN = 0.5  # the bandwidth for metrics other than cosine


@dataclass(frozen=True)
class TSDS:
    """k rows drawn by the optimal-transport distribution of TSDS, with kernel density (KNN-KDE).

    `alpha` weighs closeness against spread, `scale` is the paper's C, `neighbours` how many of
    its nearest rows a target may spread over, `bandwidth` that of the Epanechnikov kernel, by
    which near-duplicates share what one of them would get (0.75 for cosine, where rows have
    length 1; otherwise half the median distance). Rows are drawn without replacement; where fewer
    than k rows have any probability, mass is spread more thinly until k do. Gains are the
    probabilities.

    >>> import uniproto
    >>> pool = [[1.0, 0.0], [0.99, 0.1], [0.0, 1.0], [-1.0, 0.0]]
    >>> close = TSDS(alpha=0.99)
    >>> sorted(uniproto.select(pool, 2, [[1.0, 0.05]], method=close).indices.tolist())
    [0, 1]

    Reference: Liu, Karbasi, Rekatsinas, "TSDS: data selection for task-specific model
    finetuning", NeurIPS 2024.
    """

    name: ClassVar[str] = "tsds"

    alpha: float = 0.6
    scale: float = 5.0
    neighbours: int = 1000
    bandwidth: float | None = None

    def __post_init__(self) -> None:
        require_positive("alpha", self.alpha, below=1)
        require_positive("scale", self.scale)
        if self.bandwidth is not None:
            require_positive("bandwidth", self.bandwidth)
        require_int("neighbours", self.neighbours)

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        costs = need_features(problem, self.name)
        neighbours = min(self.neighbours, len(problem.candidates))
        while True:
            plan = _Spread(problem, costs, neighbours, self.bandwidth, progress)
            every = neighbours == len(problem.candidates)
            if plan.widest_support() >= problem.k or every:
                break
            neighbours = min(2 * neighbours, len(problem.candidates))
        density = plan.best_density(self.alpha / self.scale, 1 - self.alpha, problem.k)
        shares = np.zeros(problem.m)
        shares[plan.rows] = plan.shares(density)
        drawn = shares > 0
        noise = np.random.default_rng(problem.seed).gumbel(size=problem.m)
        order = np.full(problem.m, -np.inf)
        order[drawn] = np.log(shares[drawn]) + noise[drawn]
        # Rows without any probability come last, the nearest to a target first.
        rest = plan.rows[np.argsort(plan.nearest, kind="stable")]
        rest = rest[~drawn[rest]]
        order[rest] = order[drawn].min() - 1 - np.arange(len(rest))
        notes = {"support": int(drawn.sum()), "neighbours": neighbours}
        return pick_in_order(problem, shares, order, notes=notes)


class _Spread:
    """Each target's nearest candidates, how far they are, and how densely the pool lies there."""

    def __init__(
        self,
        problem: Problem,
        costs: FeatureCosts,
        neighbours: int,
        bandwidth: float | None,
        progress: Progress,
    ) -> None:
        weights = problem.masses.weights
        self.targets = np.flatnonzero(weights > 0)
        self.weights = weights[self.targets]
        near, far = nearest_rows(costs, problem.candidates, self.targets, neighbours, progress)
        self.rows, places = np.unique(near, return_inverse=True)
        self.places = places.reshape(near.shape)
        self.distances = far
        self.nearest = np.full(len(self.rows), np.inf)
        np.minimum.at(self.nearest, self.places.ravel(), far.ravel())
        self.thinness = 1 / _densities(costs, self.rows, bandwidth)
        each = self.thinness[self.places]  # 1/ρ: what a row takes for every unit of density
        self.room = np.cumsum(each, axis=1)
        self.spent = np.cumsum(each * far, axis=1)

    def widest_support(self) -> int:
        """How many rows have some probability when mass is spread as thinly as can be."""
        return int((self.shares(self._thinnest()) > 0).sum())

    def _thinnest(self) -> float:
        """The smallest density at which the lists hold all of every target's mass."""
        return float((1 / self.room[:, -1]).max()) * (1 + 1e-12)

    def best_density(self, closeness: float, spread: float, k: int) -> float:
        """The density of mass that minimises the objective, which is convex in it."""
        low, high = np.log(self._thinnest()), np.log(1 / self.thinness.min())
        for _ in range(_SEARCH_STEPS):
            first, second = low + (high - low) / 3, high - (high - low) / 3
            if self._objective(first, closeness, spread) <= self._objective(
                second, closeness, spread
            ):
                high = second
            else:
                low = first
        density = float(np.exp((low + high) / 2))
        thinnest = self._thinnest()
        while (self.shares(density) > 0).sum() < k and density > thinnest:
            density = max(density / 1.1, thinnest)
        return density

    def _objective(self, log_density: float, closeness: float, spread: float) -> float:
        density = float(np.exp(log_density))
        last, before_room, before_spent = self._filled(density)
        far = np.take_along_axis(self.distances, last[:, None], axis=1)[:, 0]
        cost = density * before_spent + (1 - density * before_room) * far
        return closeness * float(self.weights @ cost) + spread * density

    def _filled(
        self, density: float
    ) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
        """Of every target: the last row it fills, and what the rows before that one hold."""
        last = (self.room < 1 / density).sum(axis=1)
        last = np.minimum(last, self.room.shape[1] - 1)
        before = np.maximum(last - 1, 0)[:, None]
        some = last > 0
        room = np.where(some, np.take_along_axis(self.room, before, axis=1)[:, 0], 0.0)
        spent = np.where(some, np.take_along_axis(self.spent, before, axis=1)[:, 0], 0.0)
        return last, room, spent

    def shares(self, density: float) -> NDArray[np.float64]:
        """The probability of each of `rows`; they sum to 1."""
        last, before, _ = self._filled(density)
        places = np.arange(self.room.shape[1])
        mass = np.where(places < last[:, None], density * self.thinness[self.places], 0.0)
        np.put_along_axis(mass, last[:, None], np.maximum(1 - density * before, 0)[:, None], axis=1)
        mass *= self.weights[:, None] / mass.sum(axis=1, keepdims=True)
        shares = np.bincount(self.places.ravel(), mass.ravel(), minlength=len(self.rows))
        return shares.astype(np.float64)


def _densities(
    costs: FeatureCosts, rows: NDArray[np.intp], bandwidth: float | None
) -> NDArray[np.float64]:
    """Σ_j' max(0, 1 − |x_j − x_j'|²/h²) over the rows, itself included."""
    features = costs.source[rows]
    squares = FeatureCosts(features, features, "sqeuclidean")
    if bandwidth is None:
        bandwidth = 0.75
        if costs.metric != "cosine":
            some = spread_rows(len(rows), _SAMPLED)
            median = float(np.median(np.sqrt(squares.block(some))))
            bandwidth = _SHARE_OF_MEDIAN * median or 1.0
    found = np.empty(len(rows))

    def look(part: slice) -> None:
        near = 1 - squares.block(part).astype(np.float64) / bandwidth**2
        found[part] = np.maximum(near, 0.0).sum(axis=1)

    parallel_for(look, row_blocks(len(rows), len(rows)))
    return np.maximum(found, 1.0)
