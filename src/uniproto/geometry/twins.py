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

from uniproto.geometry.distances import are_within


class TwinFinder(Protocol):
    """The rows noted so far."""

    def note(self, row: int) -> None: ...

    def has_twin_of(self, row: int) -> bool: ...


class FeatureTwins:
    """Noted feature rows, copied together so that they are read in one pass.

    >>> twins = FeatureTwins(np.array([[0.0], [0.1], [5.0]]), "euclidean", 0.5)
    >>> twins.note(0)
    >>> twins.has_twin_of(1), twins.has_twin_of(2)
    (True, False)
    """

    def __init__(self, source: Any, metric: str, distance: float) -> None:
        self._source, self._metric, self._distance = source, metric, distance
        self._count = 0
        self._noted: Any = source[:0]

    def note(self, row: int) -> None:
        own = self._source[row : row + 1]
        if sp.issparse(own):
            self._noted = sp.vstack([self._noted, own], format="csr")
        else:
            if self._count == len(self._noted):
                larger = np.empty((max(64, 2 * self._count), own.shape[1]), own.dtype)
                larger[: self._count] = self._noted
                self._noted = larger
            self._noted[self._count] = own[0]
        self._count += 1

    def has_twin_of(self, row: int) -> bool:
        if not self._count:
            return False
        own, noted = self._source[row : row + 1], self._noted[: self._count]
        return bool(are_within(own, noted, self._metric, self._distance).any())


class NotedTwins:
    """Noted rows of costs that come without features."""

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
