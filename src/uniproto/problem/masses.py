"""Integer masses: what each target offers and what each prototype needs.

The paper's marginals are fractions (a target offers k·ν_j, a prototype needs 1). Measured in
small enough units both are integers, so claiming mass never rounds: nothing is left over when k
does not divide n, and the last prototype finds exactly the mass it needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Exact in int64; small enough that a float64 solver which rescales its marginals changes them by
# less than a twentieth of a unit in total, so that rounding restores whole masses.
_LARGEST_TOTAL = 2**46


@dataclass(frozen=True)
class Masses:
    """`offer[j]` units lie at target j; each of the k prototypes needs `need` units.

    The total offered equals k · need.
    """

    offer: NDArray[np.int64]
    need: int

    @property
    def total(self) -> int:
        return int(self.offer.sum())

    @property
    def weights(self) -> NDArray[np.float64]:
        """The target distribution ν these masses represent."""
        return self.offer / self.total


def integer_masses(k: int, n: int, weights: NDArray[np.float64] | None = None) -> Masses:
    """Turn the target weights (None: uniform; otherwise summing to 1) into integer masses.

    Weights that are uniform, but for zeros, are represented exactly; others to within 2^-46 of the
    total mass, but none that is positive by nothing: what a target costs can be as large as its
    weight is small.

    >>> integer_masses(k=4, n=6)
    Masses(offer=array([2, 2, 2, 2, 2, 2]), need=3)
    """
    weighing = np.ones(n, bool) if weights is None else weights > 0
    if weights is None or (weights[weighing] == weights.max()).all():
        count = int(weighing.sum())
        common = math.gcd(k, count)
        return Masses(weighing * np.int64(k // common), count // common)
    need = _LARGEST_TOTAL // k
    total = k * need
    exact = weights * total
    offer = np.maximum(np.floor(exact), weights > 0).astype(np.int64)
    # Largest remainders make the sum exact; stable, so equal remainders go to the lowest index.
    missing = min(max(total - int(offer.sum()), 0), n)
    offer[np.argsort(offer - exact, kind="stable")[:missing]] += 1
    offer[np.argmax(offer)] += total - int(offer.sum())  # what float rounding of ν·total leaves
    return Masses(offer, need)
