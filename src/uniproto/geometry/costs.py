"""Ground costs C_ij between source rows and target rows, computed block by block.

`Costs` is the only interface of the geometry: everything above it reads blocks of costs and never
sees features. The whole m × n matrix is never formed here unless the user hands one in.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError, require_name
from uniproto.geometry.bandwidth import MedianShare, as_bandwidth
from uniproto.geometry.blocks import COLUMNS_PER_BLOCK, EVERY, Rows
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.matrix_costs import MatrixCosts
from uniproto.geometry.metrics import FEATURE_METRICS, MATRIX_METRICS, METRICS, WITH_BANDWIDTH
from uniproto.geometry.twins import TwinFinder

__all__ = [
    "FEATURE_METRICS",
    "MATRIX_METRICS",
    "METRICS",
    "Costs",
    "checked_bandwidth",
    "make_costs",
    "metric_name",
]

OTHER_NAMES = {  # names used by other libraries
    "l2": "euclidean",
    "manhattan": "l1",
    "cityblock": "l1",
    "inner_product": "dot",
    "gaussian": "rbf",
}


def metric_name(metric: object) -> str:
    """Our name of a metric, which may be given by another library's name.

    >>> metric_name("manhattan"), metric_name("cosine")
    ('l1', 'cosine')
    """
    ours = OTHER_NAMES.get(metric, metric) if isinstance(metric, str) else metric
    require_name("metric", ours, METRICS)
    return str(ours)


class Costs(Protocol):
    """Costs of m source rows against n target rows."""

    metric: str
    bandwidth: float | None  # for metrics that have one
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    ceiling: float  # β: no cost is above it
    rounding: float  # how far `block` may be from `exact_block`

    @property
    def exact_error(self) -> tuple[float, float]:
        """The error of `exact_block`: an absolute part, and a share of the cost."""
        ...

    @property
    def zero_is_exact(self) -> bool:
        """Whether `exact_block` has a 0 only where the true cost is 0."""
        ...

    def block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[Any]:
        """Costs of some rows against some columns, in `dtype`. Read only: it may be a view."""
        ...

    def exact_block(self, rows: Rows, columns: Rows = EVERY) -> NDArray[np.float64]:
        """The same in double precision: what reported numbers are computed from."""
        ...

    def restrict(self, rows: Rows, columns: Rows) -> Costs:
        """The sub-problem of these rows and columns; `ceiling` and any shift stay the same.

        What lies on disk stays there, and is read whenever costs are needed.
        """
        ...

    def read(self, rows: Rows, columns: Rows) -> Costs:
        """The same, with features in memory; `EVERY` leaves a side where it is."""
        ...

    def column_blocks(self, most: int = COLUMNS_PER_BLOCK) -> Iterator[slice]:
        """Slices that walk over all columns, each of which can be read into memory."""
        ...

    def twin_distances(self, row: int, rows: Rows = EVERY) -> NDArray[np.float64]:
        """The distances of source rows from this one, to detect near-duplicates."""
        ...

    def twins(self, row: int, distance: float, rows: Rows = EVERY) -> NDArray[np.bool_]:
        """Which source rows are within `distance` of this one; faster than `distances`."""
        ...

    def twin_finder(self, distance: float) -> TwinFinder:
        """An index that finds whether a row is within `distance` of any row added so far."""
        ...


def make_costs(source: Any, target: Any, metric: str, bandwidth: Any = None) -> Costs:
    """Costs for a metric; for matrix metrics `source` is the m × n matrix and `target` is None.

    `bandwidth` is that of `Problem`, for metrics that have one.

    >>> costs = make_costs(np.array([[0.0]]), np.array([[3.0]]), "rbf", 3.0)
    >>> costs.exact_block(EVERY).round(4), costs.bandwidth
    (array([[0.3935]]), 3.0)
    """
    require_name("metric", metric, METRICS)
    width = checked_bandwidth(metric, bandwidth)
    if metric in MATRIX_METRICS:
        return MatrixCosts(source, metric)
    return FeatureCosts(source, target, metric, bandwidth=width)


def checked_bandwidth(metric: str, bandwidth: Any) -> float | MedianShare | None:
    """The bandwidth of a metric that has one; for others it must be left out."""
    if metric in WITH_BANDWIDTH:
        return as_bandwidth(bandwidth)
    if bandwidth is not None:
        raise InvalidInputError(
            f"is an option of metric={' and '.join(map(repr, WITH_BANDWIDTH))}.",
            parameter="bandwidth",
        )
    return None
