"""What is proven about a selection: a cost that no other choice of rows can be below."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHIFTED = ("dot", "similarity")  # their costs have an arbitrary zero: only differences mean much


@dataclass(frozen=True)
class Certificate:
    """No k admissible prototypes have an optimal-transport cost below `lower_bound`.

    `gap` is cost / lower_bound − 1 (0 when they meet, otherwise infinite when the bound is 0); for
    metrics whose zero is arbitrary (`dot`, `similarity`) look at `absolute_gap`, cost −
    lower_bound.
    `prices` prove the bound: anyone can put them into the formula. Where the search has proven
    that no choice costs less, `proof` says how, and the bound is the cost, rounded down.
    `converged` says whether the search for prices ended by itself rather than at the time limit.
    Where that left no time for a bound, `limit_needed` is about how many seconds it must be.
    """

    lower_bound: float
    cost: float
    prices: NDArray[np.float64]
    converged: bool
    steps: int
    seconds: float
    relative: bool = True
    limit_needed: float | None = None
    proof: str | None = None

    @property
    def absolute_gap(self) -> float:
        return 0.0 if self.proof is not None else max(self.cost - self.lower_bound, 0.0)

    @property
    def gap(self) -> float:
        if self.absolute_gap == 0:
            return 0.0
        return self.cost / self.lower_bound - 1 if self.lower_bound > 0 else np.inf

    def __str__(self) -> str:
        gap = f"gap {self.gap:.2%}" if self.relative else f"absolute gap {self.absolute_gap:.4g}"
        if self.limit_needed is not None:
            gap = f"a bound needs a time limit of about {self.limit_needed:.0f} s"
        elif self.relative and not self.converged and np.isinf(self.gap):
            return f"cost {self.cost:.6g}; no bound above 0 was found in time: allow more"
        return (
            f"cost {self.cost:.6g}; no choice can be below {self.lower_bound:.6g} ({gap}"
            f"{'' if self.converged else ', stopped early'})"
        )
