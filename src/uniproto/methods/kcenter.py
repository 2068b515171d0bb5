"""k-centre by farthest-first traversal: no target far from its prototype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.blocks import EVERY
from uniproto.methods.contract import Picks
from uniproto.methods.picking import pick_greedily
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


@dataclass(frozen=True)
class KCenter:
    """Farthest-first k-centre: lower the covering radius max_j c_j, c_j = min_{i∈P} C_ij.

    Each pick is the free row nearest to the worst-covered target: j* = argmax_j c_j, then
    argmin_i C_ij*. A target whose nearest free row is no nearer than its prototype is left
    alone; once that holds for all, a new round begins, counting only what it picks itself. The
    first target of a round is drawn from the seed in proportion to its weight; otherwise weights
    only matter by being zero or not. With a metric distance, source = target and no row given or
    ruled out, the radius is at most twice the smallest possible. Gains are the falls of the
    radius, which starts at β.

    >>> import uniproto
    >>> sel = uniproto.select([[0.0], [1.0], [5.0], [9.0]], k=3, metric="euclidean",
    ...                       method="kcenter")
    >>> sorted(sel.indices.tolist()) in ([0, 2, 3], [1, 2, 3])
    True

    Reference: Gonzalez, "Clustering to minimize the maximum intercluster distance", Theoretical
    Computer Science 1985.
    """

    name: ClassVar[str] = "kcenter"

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        return Picks(*pick_greedily(problem, _FarthestFirst(problem), progress))


class _FarthestFirst:
    """How well every target is covered, and which may still be covered better."""

    def __init__(self, problem: Problem) -> None:
        self.costs = problem.costs
        self.target_weights = problem.masses.weights
        self.radius = problem.costs.ceiling
        self._random = np.random.default_rng(problem.seed)
        self._begin_round()

    def best(self, free: NDArray[np.intp]) -> int:
        while True:
            if not self.open.any():
                self._begin_round()
            worst = self._worst_target()
            self.open[worst] = False
            costs = self.costs.block(EVERY, np.array([worst]))[free, 0]
            nearest = int(np.argmin(costs))
            if costs[nearest] < self.covered_at[worst]:
                return int(free[nearest])

    def add(self, row: int) -> float:
        costs = self.costs.block(np.array([row]))[0]
        np.minimum(self.covered_at, costs, out=self.covered_at)
        radius = float(self.covered_at[self.target_weights > 0].max())
        gain = max(0.0, self.radius - radius)
        self.radius = min(self.radius, radius)
        return gain

    def _begin_round(self) -> None:
        self.open = self.target_weights > 0
        self.covered_at = np.full(len(self.open), np.inf)

    def _worst_target(self) -> int:
        if np.isinf(self.covered_at[0]):  # nothing is covered yet
            return int(self._random.choice(len(self.open), p=self.target_weights))
        return int(np.argmax(np.where(self.open, self.covered_at, -np.inf)))
