"""How many examples of each source a step keeps.

Shares are fractions: 4 of 64 examples from 22 sources give most sources a fifth of an example. By
largest remainder, what a source did not get of its share (or got beyond it) is carried over to the
next step, so that over the steps every source gets its share, large or small.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def shares(keep: int, sizes: Counts, balanced: bool = False) -> NDArray[np.float64]:
    """What each source should get of `keep`: in proportion to its size, or equal parts.

    No share exceeds its source: what a small one cannot give, the others share.

    >>> shares(4, np.array([6, 1, 1])).tolist()
    [3.0, 0.5, 0.5]
    >>> shares(5, np.array([6, 4, 1]), balanced=True).tolist()
    [2.0, 2.0, 1.0]
    """
    if not balanced:
        return keep * sizes / sizes.sum()
    found = np.zeros(len(sizes))
    for place, source in enumerate(np.argsort(sizes, kind="stable")):
        found[source] = min(sizes[source], (keep - found.sum()) / (len(sizes) - place))
    return found


def by_largest_remainder(
    keep: int,
    wanted: NDArray[np.float64],
    sizes: Counts,
    random: np.random.Generator,
) -> Counts:
    """Whole numbers near `wanted` that sum to `keep`, none above its source's size.

    Each is rounded down, then those with the largest remainders get one more. Of equal remainders
    the smallest source comes first, of equal sources one by lot.

    >>> lots = np.random.default_rng(0)
    >>> by_largest_remainder(4, np.array([2.7, 0.9, 0.4]), np.array([9, 9, 9]), lots).tolist()
    [3, 1, 0]
    """
    # A share that is whole but for rounding counts as whole.
    counts = np.clip(np.floor(wanted + 1e-9), 0, sizes).astype(np.int64)
    lots = random.permutation(len(sizes))
    while missing := keep - int(counts.sum()):
        step = 1 if missing > 0 else -1
        left = np.round(step * (wanted - counts), 9)
        order = np.lexsort((lots, step * sizes, -left))
        free = counts < sizes if step > 0 else counts > 0
        counts[order[free[order]][: abs(missing)]] += step
    return counts


def carry_over(
    carried: dict[Hashable, float], names: Sequence[Any], wanted: Any, counts: Counts
) -> None:
    """Note what each source still has to get, or has got too much."""
    for name, share, count in zip(names, wanted, counts, strict=True):
        carried[name] = float(share) - int(count)


def small_sources(sizes: Mapping[Any, int], share: float) -> tuple[Any, ...]:
    """The sources with less than a share of all examples, in the order of their names.

    >>> small_sources({"web": 900, "law": 60, "logic": 40}, 0.05)
    ('logic',)
    """
    least = share * sum(sizes.values())
    return tuple(sorted((name for name, size in sizes.items() if size < least), key=str))
