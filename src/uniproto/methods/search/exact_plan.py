"""The contract of an exact plan that the search improves by exchanging one row for another."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from uniproto.problem.problem import Problem

LEAST_GAIN = 1e-9  # of the cost: what is better by less is the same

Rows = NDArray[np.intp]
Numbers = NDArray[np.float64]


class ExactPlan(Protocol):
    """k rows of a problem, their exact plan, and what the plan says of other rows.

    `place` is the position of a prototype among the k. Given rows come first and are never moved.
    """

    problem: Problem
    rows: Rows

    @property
    def cost(self) -> float:
        """What the plan costs."""
        ...

    def start(self, rows: Rows) -> None:
        """Go on from these rows."""
        ...

    def exchange(self, place: int, row: int, below: float) -> bool:
        """Give a place to a row if the plan then costs less than `below`; else change nothing."""
        ...

    def bounds(self, place: int, rows: Rows, *, near: bool) -> Numbers:
        """What the plan costs at least if one of these rows stood at a place.

        `near` compares them on the targets around alone, which is quicker and nearly as good.
        """
        ...

    def likely(self, place: int) -> Rows:
        """The rows that may serve the targets of a place best."""
        ...

    def around(self, place: int) -> list[int]:
        """The places that share targets with one, the closest first."""
        ...

    def losses(self) -> Numbers:
        """By how much the cost rises where a prototype is taken away, for every place."""
        ...

    def saved(self) -> Any:
        """What `restore` needs to bring the plan back."""
        ...

    def restore(self, saved: Any) -> None: ...


class CostsOfRows(Protocol):
    """What rows of a problem cost."""

    def column(self, target: int, rows: Rows) -> NDArray[Any]:
        """What rows pay for one target."""
        ...

    def row(self, row: int) -> NDArray[Any]:
        """What a row pays for every target."""
        ...
