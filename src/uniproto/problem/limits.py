"""How many rows each source of the pool may and must give to one selection over all of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels, distinct_labels
from uniproto.errors import InfeasibleError, as_index, invalid
from uniproto.problem.values import Counts, Limits


@dataclass(frozen=True)
class SourceLimits:
    """The sources of the pool's rows, as numbers, and how many rows of each may be chosen."""

    names: list[Hashable]
    source_of_row: NDArray[np.intp]
    least: NDArray[np.int64]
    most: NDArray[np.int64]

    def counts(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """How many of these rows each source gives."""
        return np.bincount(self.source_of_row[rows], minlength=len(self.names))

    def among(self, rows: NDArray[np.intp]) -> SourceLimits:
        """The same limits of these rows alone, which are numbered anew."""
        return replace(self, source_of_row=self.source_of_row[rows])

    def broken(self, rows: NDArray[Any]) -> list[str]:
        """The sources that give too few or too many of these rows."""
        counts = self.counts(rows)
        wrong = (counts < self.least) | (counts > self.most)
        return [str(self.names[place]) for place in np.flatnonzero(wrong)]

    def may_replace(self, rows: NDArray[Any], place: int) -> NDArray[np.bool_]:
        """Which rows of the pool may stand where `rows[place]` stands now."""
        others = self.counts(np.delete(rows, place))
        wanting = others < self.least  # at most one: the source of the row that goes
        allowed = wanting if wanting.any() else others < self.most
        return np.asarray(allowed[self.source_of_row])

    def require(self, k: int, initial: NDArray[np.intp], candidates: NDArray[np.intp]) -> None:
        """Refuse a k that the limits, and the rows there are, do not allow."""
        given = self.counts(initial)
        available = given + self.counts(candidates)
        for name, low, high, has, rows in zip(
            self.names, self.least, self.most, given, available, strict=True
        ):
            if has > high:
                raise InfeasibleError(
                    f"'at_most' for source {name!r} must allow the {has} of 'include'. Got "
                    f"{high} instead. Raise it."
                )
            if low > rows:
                raise InfeasibleError(
                    f"'at_least' for source {name!r} must not exceed the {rows} rows of it that "
                    f"may be chosen. Got {low} instead. Lower it."
                )
        owed = int(np.maximum(self.least, given).sum())
        if owed > k:
            raise InfeasibleError(
                f"'at_least' must not ask for more than k={k} rows in all. Got {owed} instead. "
                "Lower it, or raise k."
            )
        allowed = int(np.minimum(self.most, available).sum())
        if allowed < k:
            raise InfeasibleError(
                f"'at_most' must allow k={k} rows in all. Got {allowed} instead (of the "
                f"{available.sum()} rows that may be chosen). Raise it, or lower k."
            )


def checked_limits(limits: Limits | None, labels: Any, m: int) -> SourceLimits | None:
    """The limits that are given, if any; `labels` are those of the rows.

    >>> limits = checked_limits(Limits("kind", at_most={"b": 1}), ["a", "b", "b"], 3)
    >>> limits.names, limits.least.tolist(), limits.most.tolist()
    (['a', 'b'], [0, 0], [3, 1])
    """
    if limits is None:
        return None
    found, source_of_row = distinct_labels(as_labels(labels, "limits", m), "limits")
    names = found.tolist()
    least = _checked_counts(limits.at_least, "at_least", names, 0)
    most = _checked_counts(limits.at_most, "at_most", names, m)
    wrong = np.flatnonzero(least > most)
    if len(wrong):
        raise invalid(
            "at_least",
            f"must not exceed 'at_most', {most[wrong[0]]} for source {names[wrong[0]]!r}",
            least[wrong[0]],
            "Lower it.",
        )
    return SourceLimits(names, source_of_row, least, most)


def _checked_counts(
    counts: Counts | None, parameter: str, names: list[Any], default: int
) -> NDArray[np.int64]:
    if counts is None:
        return np.full(len(names), default, np.int64)
    if not isinstance(counts, Mapping):
        return np.full(len(names), _count(counts, parameter), np.int64)
    unknown = [name for name in counts if name not in names]
    if unknown:
        shown = ", ".join(map(str, names[:20])) + (" …" if len(names) > 20 else "")
        raise invalid(
            parameter, f"must name sources of the pool ({shown})", unknown, "Correct the names."
        )
    given = [counts.get(name) for name in names]
    return np.array([default if n is None else _count(n, parameter) for n in given], np.int64)


def _count(value: Any, parameter: str) -> int:
    try:
        count = as_index(value)
    except TypeError:
        count = -1
    if count < 0:
        raise invalid(
            parameter,
            "must be a whole number of at least 0, or one for each source",
            repr(value),
            "Pass integers.",
        )
    return count
