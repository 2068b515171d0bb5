"""DSIR: importance resampling of texts by their hashed n-grams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError, require_positive
from uniproto.geometry.blocks import row_blocks
from uniproto.methods.contract import Picks
from uniproto.methods.picking import need_features, pick_in_order
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


@dataclass(frozen=True)
class DSIR:
    """k rows resampled by how much likelier their n-grams are in the target than in the pool.

    Features are counts: `uniproto.features.hashed_ngrams(texts)` gives those of the paper, words
    and pairs of words in 10,000 buckets. The log-weight of a row is Σ_b c_b (log p_b − log q_b),
    where p and q are the shares of bucket b in the target and in the pool (`smoothing` is added to
    every count), and k rows are drawn without replacement in proportion to the weights, by adding
    Gumbel noise. Gains are the log-weights.

    >>> import uniproto
    >>> counts = [[9.0, 0.0], [0.0, 9.0], [8.0, 1.0]]
    >>> uniproto.select(counts, 2, [[5.0, 0.0]], method="dsir").indices.tolist() in ([0, 2], [2, 0])
    True

    Reference: Xie, Santurkar, Ma, Liang, "Data selection for language models via importance
    resampling", NeurIPS 2023.
    """

    name: ClassVar[str] = "dsir"

    smoothing: float = 1.0

    def __post_init__(self) -> None:
        require_positive("smoothing", self.smoothing)

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        costs = need_features(problem, self.name)
        target = _totals(costs.given(1), problem.masses.weights * problem.n)
        pool = _totals(costs.given(0), np.ones(problem.m))
        ratio = self._log_shares(target) - self._log_shares(pool)
        weights = np.empty(problem.m)
        with progress.stage("importance", problem.m) as advance:
            for part in row_blocks(problem.m, len(ratio)):
                weights[part] = np.asarray(costs.given(0, part) @ ratio).ravel()
                advance(part.stop - part.start)
        noise = np.random.default_rng(problem.seed).gumbel(size=problem.m)
        return pick_in_order(problem, weights, weights + noise)

    def _log_shares(self, counts: NDArray[np.float64]) -> NDArray[np.float64]:
        smoothed = counts + self.smoothing
        return np.asarray(np.log(smoothed / smoothed.sum()))


def _totals(rows: Any, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """How often every bucket is counted, in weighted rows."""
    total = np.zeros(rows.shape[1])
    for part in row_blocks(*rows.shape):
        some = rows[part]
        if (some.data if sp.issparse(some) else some).min(initial=0.0) < 0:
            raise InvalidInputError(
                "must hold counts for method='dsir', none of them negative. Pass "
                "uniproto.features.hashed_ngrams(texts).",
                parameter="source",
            )
        total += np.asarray(weights[part] @ some).ravel()
    return total
