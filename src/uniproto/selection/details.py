"""What a selection was made with and how: for those who want more than the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(eq=False)
class Details:
    """How a selection came about.

    `gains` is what each pick added to the method's own objective, `beta` (β) the ceiling of the
    costs, `shape` how many source and target rows there were, `options` those of the `method`,
    `notes` what it says about its work, `timings` the seconds of each stage, `proof` why no other
    rows cost less (where that is known), and `preparation` what became of each column of a table
    (None where rows are compared as they are).
    """

    gains: NDArray[np.float64]
    beta: float
    shape: tuple[int, int]
    metric: str
    bandwidth: float | None
    method: str
    options: Mapping[str, Any]
    seed: int
    notes: dict[str, Any]
    timings: dict[str, float]
    preparation: Any = None

    @property
    def proof(self) -> str | None:
        return self.note("proof")

    @property
    def proven(self) -> tuple[str, float] | None:
        """The proof, where there is one, and a cost that no choice is below: rounded down."""
        least = self.notes.get("least")
        return (self.proof, least) if self.proof and isinstance(least, float) else None

    def note(self, name: str) -> str | None:
        """A text among the `notes` of the whole selection, or None. Those of a group are no text.

        >>> import uniproto
        >>> found = uniproto.select([[0.0], [1.0], [5.0], [6.0]], k=2, metric="euclidean")
        >>> found.details.note("search")
        'thorough'
        """
        found = self.notes.get(name)
        return found if isinstance(found, str) else None
