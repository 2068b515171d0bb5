"""The certificate of a selection: a lower bound on the cost of any other rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHIFTED = ("dot", "similarity")  # costs with an arbitrary zero, of which only differences matter


@dataclass(frozen=True)
class Certificate:
    """No k admissible prototypes have an optimal-transport cost below `lower_bound`.

    `gap` is cost / lower_bound − 1 (0 when they meet, otherwise infinite when the bound is 0); for
    metrics whose zero is arbitrary (`dot`, `similarity`) use `absolute_gap`, cost − lower_bound.
    `prices` are the target prices that prove the bound. If the search has proven that no rows cost
    less, `proof` says how, and the bound is the cost, rounded down. `converged` is False if the
    search for prices ended at the time limit; if there was no time for a bound, `limit_needed` is
    about the number of seconds required.
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
