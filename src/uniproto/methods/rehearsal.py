"""A question asked before its vectors are computed, which may take hours."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

import numpy as np

from uniproto.errors import InfeasibleError, InvalidInputError
from uniproto.methods.contract import Method
from uniproto.methods.dsir import DSIR
from uniproto.problem.problem import Problem


def rehearse(method: Method, k: int, rows: int, targets: int, **conditions: Any) -> None:
    """Refuse what no vectors of these rows would answer; `conditions` are those of a `Problem`.

    >>> from uniproto.methods import Random
    >>> rehearse(Random(), 2, rows=3, targets=1, exclude=[0])
    """
    if isinstance(method, DSIR):
        raise InvalidInputError(
            "'method' dsir counts words. Pass uniproto.features.hashed_ngrams of both to "
            "uniproto.select."
        )
    pool = np.ones((rows, 2), np.float32)  # as models make vectors: memory depends on it
    problem = Problem(pool, -pool[:1].repeat(targets, axis=0), **conditions).with_k(k)
    if (check := getattr(method, "check", None)) is not None:
        check(problem)


def require_enough(
    k: int, usable: Iterable[Any], target: Iterable[Any], of: int, *, copies: str | None
) -> None:
    """Refuse a k that unusable rows and exact copies leave too few of the pool's rows for.

    `usable` are the contents of the pool's `of` rows that can be embedded; `copies` says how to
    allow copies of each other and of the target, None that they are allowed.
    """
    if copies is None:
        which, left = "can be embedded", sum(1 for _ in islice(usable, k))
        remedy = "Lower k, or bring more rows."
    else:
        which = "can be embedded and are no copies of each other or of the target"
        left, seen = 0, set(map(repr, target))
        for each in filter(lambda said: said not in seen, map(repr, usable)):
            seen.add(each)
            if (left := left + 1) == k:  # enough: no more need be kept in memory
                break
        remedy = f"Lower k, bring more rows, or allow copies: {copies}."
    if left < k:
        raise InfeasibleError(
            f"'k' must not exceed the rows of the pool that {which}, {left:,} of {of:,} (got {k}). "
            f"{remedy}"
        )
