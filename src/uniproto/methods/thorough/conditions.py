"""Which sets of rows are allowed: no row twice, no near-duplicates, limits of sources kept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.thorough.table import Places, Table


class Conditions:
    """The conditions of a problem, by the positions of a table."""

    def __init__(self, table: Table) -> None:
        problem, rows = table.problem, table.rows
        self.table, self.limits = table, problem.limits
        self.twins: NDArray[np.bool_] | None = None
        if problem.twin_distance is not None:
            near = [problem.costs.twins(int(row), problem.twin_distance, rows) for row in rows]
            self.twins = np.array(near) | np.array(near).T

    @property
    def any(self) -> bool:
        return self.twins is not None or self.limits is not None

    def may_replace(self, places: Places, place: int) -> NDArray[np.bool_]:
        """Which rows may stand where `places[place]` stands now, itself among them."""
        others = np.delete(places, place)
        allowed = np.ones(len(self.table.rows), np.bool_)
        allowed[: self.table.given] = False
        allowed[others] = False
        if self.twins is not None:
            allowed &= ~self.twins[others].any(axis=0)
        if self.limits is not None:
            allowed &= self.limits.may_replace(self.table.rows[places], place)[self.table.rows]
        return allowed

    def allowed(self, sets: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Which of these sets of rows, one to a line, are allowed."""
        fine = np.ones(len(sets), np.bool_)
        k, given = sets.shape[1], self.table.given
        if self.twins is not None:
            for first in range(k):
                for second in range(max(first + 1, given), k):
                    fine &= ~self.twins[sets[:, first], sets[:, second]]
        if self.limits is not None:
            sources = self.limits.source_of_row[self.table.rows][sets]
            for source, (low, high) in enumerate(
                zip(self.limits.least, self.limits.most, strict=True)
            ):
                count = (sources == source).sum(axis=1)
                fine &= (count >= low) & (count <= high)
        return fine
