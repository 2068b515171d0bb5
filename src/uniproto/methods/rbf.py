"""The RBF kernel k(x, y) = exp(−|x − y|² / 2σ²) of MMD-critic and ProtoDash."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.geometry.bandwidth import MedianShare, as_bandwidth, sampled_pairs
from uniproto.geometry.blocks import EVERY, Rows, row_blocks
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import parallel_map

_MEDIAN = MedianShare(1.0)  # the median heuristic


def check_bandwidth(bandwidth: float | str | None) -> None:
    """Refuse a σ that is neither a positive number nor a share of the median distance."""
    if bandwidth is not None:
        as_bandwidth(bandwidth)


class RBF:
    """The kernel of the rows as the metric sees them: of unit length for cosine, raw for others.

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
                "'bandwidth' must be wide enough for some target to be similar to some source row, "
                f"wider than {self.bandwidth}."
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
