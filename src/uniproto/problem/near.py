"""Rows of the pool that are too close to other examples, such as those of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import InvalidInputError
from uniproto.geometry.blocks import row_blocks
from uniproto.geometry.costs import Costs, metric_name
from uniproto.geometry.metrics import OF_FEATURES
from uniproto.problem.checks import checked_costs, require_distance
from uniproto.runtime.threads import parallel_for

if TYPE_CHECKING:
    from uniproto.features.embedded import Embedded

_NO_DISTANCES = ("dot", "precomputed", "similarity")


@dataclass(frozen=True)
class NearRows:
    """Rows within `distance` of another example: their numbers, the examples, and the distances.

    Rows that repeat another have no distance: `rules` names the rule, `words` the shared words.
    """

    distance: float
    rows: NDArray[np.intp]
    nearest: NDArray[np.intp]
    distances: NDArray[np.float64]
    rules: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    def only(self, kept: NDArray[np.intp]) -> NearRows:
        """The matches among the rows `kept`."""
        there = np.flatnonzero(np.isin(self.rows, kept))
        return replace(
            self,
            rows=self.rows[there],
            nearest=self.nearest[there],
            distances=self.distances[there],
            rules=tuple(self.rules[place] for place in there if self.rules),
            words=tuple(self.words[place] for place in there if self.words),
        )

    def reasons(self, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """Each row with the reason to drop it, as recorded for the file `name`."""
        for place, row in enumerate(self.rows.tolist()):
            rule, words = ("near", "") if not self.rules else (self.rules[place], self.words[place])
            yield row, {"rule": rule, "of": name, "row": int(self.nearest[place]), "words": words}

    def __len__(self) -> int:
        return len(self.rows)


def rows_near(
    source: Any, others: Any, distance: float, *, metric: str = "cosine", name: str = "exclude_near"
) -> NearRows:
    """The source rows within `distance` of one of the other rows.

    Decontamination: no row of a benchmark, nor one that says the same, should be trained on.

    >>> found = rows_near([[1.0, 0.0], [0.0, 1.0]], [[2.0, 0.1]], 0.01)
    >>> found.rows, found.nearest
    (array([0]), array([0]))
    """
    metric = metric_name(metric)
    if metric in _NO_DISTANCES:
        raise InvalidInputError(
            f"needs a distance, such as cosine, not metric={metric!r}.", parameter=name
        )
    limit = require_distance(distance, name)
    told_by = OF_FEATURES[metric].apart or metric  # as for near-duplicates of the pool
    return near_targets(checked_costs(source, others, told_by, warn=False), limit)


def vectors_near(
    source: Embedded, others: Embedded, distance: float, *, metric: str = "cosine"
) -> NearRows:
    """The same of rows that a model has turned into vectors, where it could."""
    near = rows_near(source.vectors, others.vectors, distance, metric=metric)
    return replace(near, rows=source.rows[near.rows], nearest=others.rows[near.nearest])


def near_targets(costs: Costs, distance: float) -> NearRows:
    """The rows within `distance` of a target, each with its nearest one."""
    m = costs.shape[0]
    lowest, nearest = np.full(m, np.inf), np.zeros(m, np.intp)
    for columns in costs.column_blocks():
        part = costs.read(slice(None), columns)

        def look(rows: slice, part: Costs = part, first: int = columns.start) -> None:
            block = part.block(rows)
            found = block.argmin(axis=1)
            values = np.take_along_axis(block, found[:, None], axis=1)[:, 0].astype(np.float64)
            nearer = values < lowest[rows]
            lowest[rows] = np.where(nearer, values, lowest[rows])
            nearest[rows] = np.where(nearer, found + first, nearest[rows])

        parallel_for(look, row_blocks(m, columns.stop - columns.start))
    # Blocks are rounded: recompute possible matches in double precision.
    rows = np.flatnonzero(lowest <= distance + costs.rounding)
    exact = np.array(
        [
            costs.exact_block(rows[i : i + 1], nearest[rows[i : i + 1]])[0, 0]
            for i in range(len(rows))
        ]
    )
    near = exact <= distance if len(rows) else np.zeros(0, bool)
    return NearRows(distance, rows[near], nearest[rows[near]], exact[near] if len(rows) else exact)
