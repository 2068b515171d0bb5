"""Quotas and limits: how many rows each group or source may and must give."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels, distinct_labels
from uniproto.errors import InfeasibleError, InvalidInputError, require_int, require_name
from uniproto.problem.values import Counts, Limits

EVERY = "*"  # as a label in a mapping of limits: every other one


def quotas(
    k: int,
    budgets: str | Mapping[Hashable, int],
    labels: NDArray[Any],
    mass: NDArray[Any],
    smallest: NDArray[np.int64],
    largest: NDArray[np.int64],
) -> NDArray[np.int64]:
    """One quota per group (in the order of `labels`) that sum to k.

    "proportional" gives each group the floor of its share of the target mass, "balanced" of an
    equal share; what remains goes one each to the smallest groups first. Quotas stay between
    `smallest` (prototypes already given) and `largest` (rows there are). A group without target
    mass has nothing to represent, and gets no more than it was given.

    >>> quotas(5, "proportional", np.array(["a", "b"]), np.array([0.7, 0.3]),
    ...        np.array([0, 0]), np.array([9, 9])).tolist()
    [3, 2]
    """
    if isinstance(budgets, Mapping):
        return _given_quotas(k, budgets, labels, smallest, largest)
    shares = {"proportional": mass, "balanced": mass > 0}
    require_name("budgets", budgets, shares)
    share = shares[budgets] / shares[budgets].sum()
    largest = np.where(mass > 0, largest, smallest)
    if largest.sum() < k:
        raise InfeasibleError(
            f"must not exceed the {largest.sum()} rows that may be chosen in groups with "
            f"target mass (got {k}).",
            parameter="k",
        )
    # A share of k that is whole up to rounding counts as whole.
    wanted = np.floor(k * share + 1e-9).astype(np.int64)
    quota = np.clip(wanted, smallest, largest)
    smallest_first = np.argsort(mass, kind="stable")
    while quota.sum() != k:
        step = 1 if quota.sum() < k else -1
        order = smallest_first if step > 0 else smallest_first[::-1]
        limit = largest if step > 0 else smallest
        for group in order:
            if quota.sum() == k:
                break
            if quota[group] != limit[group]:
                quota[group] += step
    return quota


def _given_quotas(
    k: int,
    budgets: Mapping[Hashable, int],
    labels: NDArray[Any],
    smallest: NDArray[np.int64],
    largest: NDArray[np.int64],
) -> NDArray[np.int64]:
    names = labels.tolist()
    budgets, unknown = _by_label(budgets, names)
    if unknown:
        raise InvalidInputError(
            f"must name groups of the source {names}, not {unknown}.", parameter="budgets"
        )
    counts = [require_int("budgets", budgets.get(name, 0), least=0) for name in names]
    if sum(counts) != k:
        raise InvalidInputError(
            f"must sum to k={k} (got a sum of {sum(counts)}).", parameter="budgets"
        )
    for name, count, low, high in zip(names, counts, smallest, largest, strict=True):
        if not low <= count <= high:
            raise InfeasibleError(
                f"for group {name!r} must lie between {low} (rows included) and {high} "
                f"(rows that may be chosen). Got {count}.",
                parameter="budgets",
            )
    return np.array(counts, np.int64)


@dataclass(frozen=True)
class SourceLimits:
    """The sources of the pool's rows, as integers, and the limits on rows of each."""

    names: list[Hashable]
    source_of_row: NDArray[np.intp]
    least: NDArray[np.int64]
    most: NDArray[np.int64]

    def counts(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """The number of these rows from each source."""
        return np.bincount(self.source_of_row[rows], minlength=len(self.names))

    def among(self, rows: NDArray[np.intp]) -> SourceLimits:
        """The same limits for these rows alone, renumbered from 0."""
        return replace(self, source_of_row=self.source_of_row[rows])

    def broken(self, rows: NDArray[Any]) -> list[str]:
        """The sources with too few or too many of these rows."""
        counts = self.counts(rows)
        wrong = (counts < self.least) | (counts > self.most)
        return [str(self.names[place]) for place in np.flatnonzero(wrong)]

    def open_sources(self, counts: NDArray[np.int64], left: int) -> NDArray[np.bool_]:
        """The sources that may give another row, where they gave `counts` and `left` are missing.

        Once as many rows are missing as sources are owed, only those may.
        """
        owed = np.maximum(self.least - counts, 0)
        is_open = counts < self.most
        return np.asarray(is_open & (owed > 0) if owed.sum() >= left else is_open)

    def require(self, k: int, initial: NDArray[np.intp], candidates: NDArray[np.intp]) -> None:
        """Refuse a k that the limits and the available rows do not allow."""
        given = self.counts(initial)
        available = given + self.counts(candidates)
        for name, low, high, has, rows in zip(
            self.names, self.least, self.most, given, available, strict=True
        ):
            if has > high:
                raise InfeasibleError(
                    f"for source {name!r} must allow the {has} of 'include'.", parameter="at_most"
                )
            if low > rows:
                raise InfeasibleError(
                    f"for source {name!r} must not exceed its {rows} rows.", parameter="at_least"
                )
        owed = int(np.maximum(self.least, given).sum())
        if owed > k:
            raise InfeasibleError(
                f"asks for {owed} rows, more than k={k}. Lower it.", parameter="at_least"
            )
        allowed = int(np.minimum(self.most, available).sum())
        if allowed < k:
            raise InfeasibleError(
                f"must allow k={k} rows in all, of the {available.sum()} that may be "
                f"chosen. It allows {allowed}: raise it, or lower k.",
                parameter="at_most",
            )


def checked_limits(limits: Limits | None, labels: Any, m: int) -> SourceLimits | None:
    """The given limits, if any; `labels` are those of the rows.

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
        raise InvalidInputError(
            f"must not exceed 'at_most' for {names[wrong[0]]!r}.", parameter="at_least"
        )
    return SourceLimits(names, source_of_row, least, most)


def _by_label(
    counts: Mapping[Hashable, int], names: list[Any]
) -> tuple[dict[Hashable, int], list[Any]]:
    """Counts by labels, which may be given as texts, and the names of no label."""
    by_text = {str(name): name for name in names}
    label = {name: name if name in names else by_text.get(str(name)) for name in counts}
    unknown = [name for name in counts if label[name] is None]
    return {label[name]: counts[name] for name in counts if name not in unknown}, unknown


def _checked_counts(
    counts: Counts | None, parameter: str, names: list[Any], default: int
) -> NDArray[np.int64]:
    if counts is None:
        return np.full(len(names), default, np.int64)
    if not isinstance(counts, Mapping):
        return np.full(len(names), require_int(parameter, counts, least=0), np.int64)
    rest = default if EVERY in names else counts.get(EVERY, default)
    counts, unknown = _by_label(counts, names)
    if unknown not in ([], [EVERY]):
        shown = ", ".join(map(str, names[:20])) + (" …" if len(names) > 20 else "")
        raise InvalidInputError(f"must name sources ({shown}), not {unknown}.", parameter=parameter)
    given = [counts.get(name, rest) for name in names]
    return np.array(
        [default if n is None else require_int(parameter, n, least=0) for n in given], np.int64
    )
