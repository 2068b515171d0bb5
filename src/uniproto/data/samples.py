"""A random sample of a target that is too large to be met whole."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import as_index, invalid


def sampled_rows(count: int, size: Any, seed: int, parameter: str) -> NDArray[np.int64]:
    """`size` different rows of `count`, ascending, all equally likely: the same for a seed.

    >>> sampled_rows(100, 5, seed=0, parameter="target_sample")
    array([26, 30, 50, 61, 81])
    """
    if seed < 0:
        raise invalid("seed", "must not be negative", seed, "Pass 0 or more.")
    try:
        whole = as_index(size)
    except TypeError:
        whole = 0
    if not 1 <= whole < count:
        raise invalid(
            parameter,
            f"must be a whole number from 1 to {count - 1}, fewer than the target has rows",
            repr(size),
            "Lower it, or leave it out to take the whole target.",
        )
    return np.sort(np.random.default_rng(seed).choice(count, whole, replace=False)).astype(np.int64)
