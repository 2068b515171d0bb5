"""The rule of an update: all but a few of the rows must be those that were chosen before."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uniproto.problem.groups import SourceLimits

_KEPT = 0  # the source of the rows to keep; all others are of source 1


def keep_all_but(changes: int, rows: NDArray[np.intp], k: int, m: int) -> SourceLimits:
    """Of k chosen rows of m, at most `changes` may be others than `rows`.

    >>> keep = keep_all_but(1, np.array([0, 1, 2]), k=3, m=9)
    >>> keep.broken(np.array([0, 1, 7])), keep.broken(np.array([0, 8, 7]))
    ([], ['earlier prototypes'])
    """
    source_of_row = np.ones(m, np.intp)
    source_of_row[rows] = _KEPT
    least = np.array([max(k - changes, 0), 0])
    return SourceLimits(["earlier prototypes", "others"], source_of_row, least, np.array([m, m]))


def is_kept(keep: SourceLimits, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which of some rows are among those to keep."""
    return np.asarray(keep.source_of_row[rows] == _KEPT)


def least_kept(keep: SourceLimits) -> int:
    """How many of the rows to keep must be chosen."""
    return int(keep.least[_KEPT])


def kept_in_words(least: int, count: int) -> str:
    """The condition on a choice of rows.

    >>> kept_in_words(27, 30)
    ' that keeps 27 of the 30 earlier ones'
    """
    return f" that keeps {least:,} of the {count:,} earlier ones"
