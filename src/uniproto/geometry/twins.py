"""Whether a row is a near-duplicate of one of those noted so far, such as those chosen already.

To compare every candidate with each pick as it is made reads the whole pool k times. To compare
only the next candidate with the picks so far reads k rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.geometry.distances import differences
from uniproto.geometry.metrics import Metric

_HEAD = 128  # numbers of a row that are compared first, which decide most pairs


def distances_from(own: Any, rows: Any, metric: Metric) -> NDArray[np.float64]:
    """The distances of `rows` from the row `own`; exactly 0 for copies."""
    apart = metric.distance.of_differences(differences(rows, own), rows.dtype)
    return metric.curve_for(None).of(apart)


def are_within(own: Any, rows: Any, metric: Metric, distance: float) -> NDArray[np.bool_]:
    """Which of `rows` are within `distance` of the row `own`, as by `distances_from`.

    >>> from uniproto.geometry.metrics import OF_FEATURES
    >>> rows = np.array([[0.0, 3.0], [0.0, 1.5]])
    >>> are_within(np.array([[0.0, 1.0]]), rows, OF_FEATURES["euclidean"], 1.0)
    array([False,  True])
    """
    limit = _largest_sum(metric, distance, rows)
    if limit is None:
        return np.asarray(distances_from(own, rows, metric) <= distance)
    from uniproto.geometry.kernels import rows_within

    return rows_within(rows, own[0], limit, metric.distance.absolute)


def _largest_sum(metric: Metric, distance: float, rows: Any) -> float | None:
    """The sum of squared (or absolute) differences up to which dense rows are within `distance`."""
    if sp.issparse(rows):
        return None
    return metric.distance.largest_sum(metric.curve_for(None).largest_distance(distance), rows)


class TwinFinder(Protocol):
    """The rows added so far."""

    def note(self, row: int) -> None: ...

    def has_twin_of(self, row: int) -> bool: ...


class FeatureTwins:
    """Noted feature rows, copied together so that they are read in one pass.

    The first numbers of each lie together once more: where they decide, nothing else
    is read.

    >>> from uniproto.geometry.metrics import OF_FEATURES
    >>> rows = np.array([[0.0], [0.1], [5.0]])
    >>> twins = FeatureTwins(rows, OF_FEATURES["euclidean"], 0.5)
    >>> twins.note(0)
    >>> twins.has_twin_of(1), twins.has_twin_of(2)
    (True, False)
    """

    def __init__(self, source: Any, metric: Metric, distance: float) -> None:
        self._source, self._metric, self._distance = source, metric, distance
        self._count = 0
        self._noted: Any = source[:0]
        self._limit = _largest_sum(metric, distance, self._noted)
        self._heads: Any = self._noted[:, :_HEAD]

    def note(self, row: int) -> None:
        own = self._source[row : row + 1]
        if sp.issparse(own):
            self._noted = sp.vstack([self._noted, own], format="csr")
            self._count += 1
            return
        if self._count == len(self._noted):
            self._noted, self._heads = map(self._lengthened, (self._noted, self._heads))
        self._noted[self._count] = own[0]
        self._heads[self._count] = own[0, :_HEAD]
        self._count += 1

    def _lengthened(self, rows: NDArray[Any]) -> NDArray[Any]:
        longer = np.empty((max(64, 2 * len(rows)), rows.shape[1]), rows.dtype)
        longer[: len(rows)] = rows
        return longer

    def has_twin_of(self, row: int) -> bool:
        if not self._count:
            return False
        own, noted = self._source[row : row + 1], self._noted[: self._count]
        if self._limit is not None:
            from uniproto.geometry.kernels import rows_within

            heads = self._heads[: self._count]
            absolute = self._metric.distance.absolute
            near = rows_within(heads, own[0, :_HEAD], self._limit, absolute)
            if not near.any():
                return False
            noted = noted[near]
        return bool(are_within(own, noted, self._metric, self._distance).any())


class NotedTwins:
    """Added rows of costs without features."""

    def __init__(
        self, twins: Callable[[int, float, NDArray[np.intp]], NDArray[np.bool_]], distance: float
    ) -> None:
        self._twins, self._distance = twins, distance
        self._rows: list[int] = []

    def note(self, row: int) -> None:
        self._rows.append(row)

    def has_twin_of(self, row: int) -> bool:
        noted = np.array(self._rows, np.intp)
        return bool(len(noted)) and bool(self._twins(row, self._distance, noted).any())
