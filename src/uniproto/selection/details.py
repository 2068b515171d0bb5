"""What a selection was made with and how: for those who want more than the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection


@dataclass(frozen=True, eq=False)
class Details:
    """How a selection came about.

    `gains` is what each pick added to the method's own objective, `beta` (β) the ceiling of the
    costs, `shape` how many source and target rows there were, `options` those of the `method`,
    `notes` what it says about its work, `timings` the seconds of each stage, `proof` why no other
    rows cost less (where that is known), and `preparation` what became of each column of a table.
    """

    gains: NDArray[np.float64]
    beta: float
    shape: tuple[int, int]
    metric: str
    bandwidth: float | None
    method: str
    options: Mapping[str, Any]
    seed: int
    notes: Mapping[str, Any]
    timings: Mapping[str, float]
    proof: str | None
    preparation: Any


def details_of(selection: Selection) -> Details:
    """The details of a selection; nothing is computed."""
    return Details(**{name: getattr(selection, name) for name in Details.__dataclass_fields__})
