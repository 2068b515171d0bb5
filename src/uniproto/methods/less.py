"""LESS: the rows whose gradients point the way the target's do, over several checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import dense
from uniproto.errors import InvalidInputError, finite_number, require_int
from uniproto.geometry.blocks import row_blocks
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.contract import Picks
from uniproto.methods.picking import need_features, pick_in_order
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


@dataclass(frozen=True)
class LESS:
    """The k rows of largest influence Σ_t η_t Σ_j ν_j cos(Γ_t(x), ∇_t(y_j)) on the target's loss.

    A row of features holds its gradients at `checkpoints` checkpoints of a warm-up run, one next to
    the other, all of one width: those of the pool as steps of Adam, those of the target plain
    (`uniproto.features.gradients` with `lora=True`, and `adam=True` for the pool). `rates` are the
    learning rates η_t; all equal where none are given. Gains are the influences.

    >>> import uniproto
    >>> pool = [[1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]]
    >>> uniproto.select(pool, 1, [[2.0, 0.0, 3.0, 0.1]], method=LESS(checkpoints=2)).indices
    array([1])

    Reference: Xia, Malladi, Gururangan, Arora, Chen, "LESS: selecting influential data for
    targeted instruction tuning", ICML 2024.
    """

    name: ClassVar[str] = "less"
    draws: ClassVar[bool] = False

    checkpoints: int = 1
    rates: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        require_int("checkpoints", self.checkpoints)
        if self.rates is not None and (
            len(self.rates) != self.checkpoints
            or not all(0 < finite_number(rate) < np.inf for rate in self.rates)
        ):
            raise InvalidInputError(
                f"must be a positive learning rate for each of {self.checkpoints} "
                "checkpoints, or None.",
                parameter="rates",
            )

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        costs = need_features(problem, self.name)
        width = costs.source.shape[1]
        if width % self.checkpoints:
            raise InvalidInputError(
                f"must divide the {width} numbers of a row into parts of one width.",
                parameter="checkpoints",
            )
        return pick_in_order(problem, self._influences(costs, problem, progress))

    def _influences(
        self, costs: FeatureCosts, problem: Problem, progress: Progress
    ) -> NDArray[np.float64]:
        rates = self.rates or (1.0,) * self.checkpoints
        wanted = np.zeros(costs.source.shape[1])
        for part in row_blocks(problem.n, len(wanted)):
            rows = self._unit_parts(costs.given(1, part))
            wanted += problem.masses.weights[part] @ rows
        wanted *= np.repeat(rates, len(wanted) // self.checkpoints)
        influences = np.empty(problem.m)
        with progress.stage("influences", problem.m) as advance:
            for part in row_blocks(problem.m, len(wanted)):
                influences[part] = self._unit_parts(costs.given(0, part)) @ wanted
                advance(part.stop - part.start)
        return influences

    def _unit_parts(self, rows: Any) -> NDArray[np.float64]:
        """Rows whose parts, one for each checkpoint, all have length 1; a part of zeros stays."""
        parts = dense(rows).astype(np.float64).reshape(rows.shape[0], self.checkpoints, -1)
        lengths = np.linalg.norm(parts, axis=2, keepdims=True)
        return np.divide(parts, lengths, out=parts, where=lengths > 0).reshape(len(parts), -1)
