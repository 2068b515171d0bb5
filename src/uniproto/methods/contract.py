"""The contract of every selection method: a `Problem` in, `Picks` out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.transport.prototypes import Transport

INTERRUPTED = "Ctrl-C ended it; the best rows at that moment were kept"


@dataclass(frozen=True)
class Optimum:
    """Why no other rows can cost less, in words, and a cost that none is below: rounded down."""

    why: str
    least: float


@dataclass(frozen=True)
class Picks:
    """What a method has chosen, in the order picked.

    `gains` is what each pick added to the method's own objective. `weights` are the prototype
    weights the method learned, or None for equal weights. `plan` is the plan the method had at the
    end, in whole masses, where it had one: its cost is an upper bound of the exact cost.
    `transport` is the optimal plan, where the method has solved it. `proof` says why no other rows
    can cost less, where that is known.
    """

    rows: NDArray[np.intp]
    gains: NDArray[np.float64]
    weights: NDArray[np.float64] | None = None
    plan: sp.csr_array | None = None
    transport: Transport | None = None
    proof: Optimum | None = None
    notes: dict[str, Any] = field(default_factory=dict)


class Method(Protocol):
    """A way of choosing k rows. Options are fields of the object; `pick` has no state.

    A method starts from `problem.initial`, adds rows of `problem.candidates` only, and returns
    exactly `problem.k` different rows. One with `draws = False` picks rows of about the same cost
    whatever the seed is, so `compare` runs it once. One that cannot answer every problem may have a
    `check`, which raises what `pick` would, whatever numbers the vectors hold.
    """

    name: ClassVar[str]

    def pick(self, problem: Problem, progress: Progress) -> Picks: ...
