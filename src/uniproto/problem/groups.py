"""Quotas: how many prototypes each group may have."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InfeasibleError, as_index, invalid, require_name


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
            f"'k' must not exceed the rows that may be chosen. Got k={k} for {largest.sum()} rows "
            "of groups with target mass instead. Lower k or exclude fewer rows."
        )
    # A share of k that is whole but for rounding counts as whole.
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
    unknown = [name for name in budgets if name not in names]
    if unknown:
        raise invalid(
            "budgets", f"must name groups of the source ({names})", unknown, "Correct the names."
        )
    counts = [_checked_count(budgets.get(name, 0)) for name in names]
    if sum(counts) != k:
        raise invalid(
            "budgets", f"must sum to k={k}", f"a sum of {sum(counts)}", "Adjust budgets or k."
        )
    for name, count, low, high in zip(names, counts, smallest, largest, strict=True):
        if not low <= count <= high:
            raise InfeasibleError(
                f"'budgets' for group {name!r} must lie between {low} (prototypes already given) "
                f"and {high} (rows that may be chosen). Got {count} instead. Adjust the budget."
            )
    return np.array(counts, np.int64)


def _checked_count(count: Any) -> int:
    try:
        return as_index(count)
    except TypeError:
        raise invalid(
            "budgets", "must give each group a whole number", repr(count), "Pass integers."
        ) from None
