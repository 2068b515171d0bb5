"""Groups on Ray: how many rows of each group are chosen, and how many every shard sends."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import distinct_labels
from uniproto.data.tables import InputData
from uniproto.errors import InfeasibleError
from uniproto.problem.groups import quotas
from uniproto.runtime.threads import one_thread
from uniproto.scale.cluster import Cluster
from uniproto.scale.shards import Shard, Shards, read_columns

Budgets = str | Mapping[Hashable, int]


@dataclass(frozen=True)
class GroupQuotas:
    """The groups of the target in order. Rows carry the place of theirs, or -1."""

    column: str
    labels: tuple[Any, ...]
    quotas: tuple[int, ...]
    sent: tuple[int, ...]  # rows of each group that a shard sends at most

    def places(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """Each row's group by its label.

        >>> GroupQuotas("kind", ("a", "b"), (1, 1), (1, 1)).places(np.array(["b", "c", "a"]))
        array([ 1, -1,  0])
        """
        place = {label: number for number, label in enumerate(self.labels)}
        return np.array([place.get(label, -1) for label in labels.tolist()], np.int64)

    @property
    def budgets(self) -> dict[Hashable, int]:
        return dict(zip(self.labels, self.quotas, strict=True))


def make_groups(
    cluster: Cluster,
    source: Shards,
    excluded: Sequence[NDArray[np.int64]],
    column: str,
    budgets: Budgets,
    k: int,
    per_part: int,
    target_labels: NDArray[Any],
    weights: NDArray[np.float64] | None,
) -> GroupQuotas:
    """Share k among the groups of the target, as one machine does that sees every row."""
    names, group = distinct_labels(target_labels, "groups")
    labels = names.tolist()
    tasks = [
        (shard, shard.content, column, barred)
        for shard, barred in zip(source.parts, excluded, strict=True)
        if shard.rows
    ]
    present: set[Any] = set()
    free = np.zeros(len(labels), np.int64)
    for counts in cluster.all(count_labels, tasks):
        present |= counts.keys()
        free += np.array([counts.get(label, 0) for label in labels])
    if missing := [label for label in labels if label not in present]:
        raise InfeasibleError(
            "'groups' must have source rows for every group of the target. Got none for "
            f"{missing} instead. Drop those target rows or add source rows for them."
        )
    if isinstance(budgets, Mapping):  # on the command line labels are texts
        known = {str(label): label for label in labels}
        budgets = {
            label if label in labels else known.get(str(label), label): count
            for label, count in budgets.items()
        }
    mass = np.bincount(group, weights, minlength=len(labels)) / (
        len(group) if weights is None else 1.0
    )
    quota = quotas(k, budgets, names, mass, np.zeros_like(free), free)
    sent = [max(1, -(-per_part * int(count) // k)) for count in quota]
    return GroupQuotas(column, tuple(labels), tuple(quota.tolist()), tuple(sent))


# --- in the cluster -------------------------------------------------------------------------------


def count_labels(
    shard: Shard, content: Any, column: str, excluded: NDArray[np.int64]
) -> dict[Any, int]:
    """How many rows of a shard may be chosen of each group; 0 where all are excluded."""
    with one_thread():
        values = labels_of(shard, content, column)
        free = np.ones(shard.rows, bool)
        free[excluded] = False
        names, group = distinct_labels(values, "groups")
        counts = np.bincount(group[free], minlength=len(names))
        return dict(zip(names.tolist(), counts.tolist(), strict=True))


def labels_of(shard: Shard, content: Any, column: str) -> NDArray[Any]:
    """The group of every row of a shard."""
    table = read_columns(shard, content, [column])
    return InputData(Path(shard.name), "", None, table).column(column, "groups")
