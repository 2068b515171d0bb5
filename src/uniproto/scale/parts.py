"""The first round: a selection from each shard against the whole target, as one task.

Finished parts are saved (`FinishedParts`), so that a run whose driver was killed resumes from them.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import TooFewApartError
from uniproto.geometry.costs import Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.lists import make_builder
from uniproto.methods import Method
from uniproto.problem.problem import Problem
from uniproto.runs.atomic import writing
from uniproto.runs.checkpoint import Checkpoint
from uniproto.runs.lock import PRIVATE, private_folder
from uniproto.runtime.progress import Progress
from uniproto.scale.shards import Shard, Shards, read_digest, read_features, read_values
from uniproto.scale.target import Target, TargetOptions

PARTS = "parts.npz"  # stem and suffix of the file names


Budgets = str | Mapping[Hashable, int]


@dataclass(frozen=True)
class GroupQuotas:
    """The groups of the target. Rows are labelled by index into them, or -1."""

    column: str
    labels: tuple[Any, ...]
    quotas: tuple[int, ...]
    sent: tuple[int, ...]  # the most rows of each group that a shard sends

    def places(self, labels: NDArray[Any]) -> NDArray[np.int64]:
        """The group index of each row.

        >>> GroupQuotas("kind", ("a", "b"), (1, 1), (1, 1)).places(np.array(["b", "c", "a"]))
        array([ 1, -1,  0])
        """
        place = {label: number for number, label in enumerate(self.labels)}
        return np.array([place.get(label, -1) for label in labels.tolist()], np.int64)

    @property
    def budgets(self) -> dict[Hashable, int]:
        return dict(zip(self.labels, self.quotas, strict=True))


@dataclass(frozen=True)
class Settings:
    """The settings of a selection that every task needs."""

    k: int
    per_part: int
    columns: tuple[str, ...]
    method: Method
    seed: int
    memory: int
    min_distance: float | None = None
    device: str = "cpu"
    groups: GroupQuotas | None = None  # known once the target has been read


@dataclass(frozen=True)
class Request:
    """A selection from shards, checked as far as possible before any of them is read."""

    source: Shards
    target: Shards | None
    settings: Settings
    target_options: TargetOptions
    excluded: NDArray[np.int64]
    certify: bool = False
    time_limit: float | None = None
    budgets: Budgets = "proportional"


@dataclass(frozen=True)
class ShardResult:
    """The result of one shard: its picks with their features, and the scale of its costs.

    `reach` bounds the distances that its costs are made from, `shift` is added to them, and
    `groups` are the group indices of the rows.
    """

    rows: NDArray[np.int64]
    features: NDArray[Any]
    shift: float
    reach: float
    digest: str
    seconds: float
    groups: NDArray[np.int64]


def problem_of(
    costs: Costs, k: int, candidates: NDArray[np.intp], settings: Settings, target: Target
) -> Problem:
    """The problem of choosing k of these rows for the whole target."""
    return Problem.from_costs(
        costs,
        k,
        seed=settings.seed,
        memory=settings.memory,
        target_weights=target.weights,
        candidates=candidates,
        weights_origin=target.weights_origin,
        bandwidth_origin=target.bandwidth_origin,
        twin_distance=settings.min_distance,
        lists=make_builder(settings.device, "exact", costs),
    )


@dataclass(frozen=True)
class GatheredRows:
    """Rows gathered from all shards, with their numbers in the whole source."""

    source: str
    numbers: NDArray[np.int64]
    features: NDArray[Any]
    groups: NDArray[np.int64]  # the place of every row's group
    scale: tuple[float, float]  # shift and reach of the costs, the same for all shards

    def problem(self, settings: Settings, target: Target) -> Problem:
        """k of these rows against the whole target."""
        costs = target.costs_of(self.features, self.source, self.scale)
        every = np.arange(len(self.numbers), dtype=np.intp)
        if settings.device == "cuda":  # applies to tasks; the driver may have no GPU
            settings = replace(settings, device="auto")
        problem = problem_of(costs, settings.k, every, settings, target)
        groups = settings.groups
        if groups is None:
            return problem
        labels = np.array(groups.labels)[self.groups]
        return problem.changed(
            _group_labels=(labels, target.groups), _budgets=groups.budgets
        ).with_k(settings.k)

    def with_rows(
        self, numbers: NDArray[np.int64], features: NDArray[Any], groups: NDArray[np.int64]
    ) -> GatheredRows:
        """A copy with more rows."""
        return replace(
            self,
            numbers=np.concatenate([self.numbers, numbers]),
            features=np.concatenate([self.features, features]),
            groups=np.concatenate([self.groups, groups]),
        )


def free_rows(shard: Shard, excluded: NDArray[np.int64]) -> NDArray[np.intp]:
    """The rows of a shard that may be chosen.

    >>> free_rows(Shard("a", "", 4, 0), np.array([1]))
    array([0, 2, 3])
    """
    return np.setdiff1d(np.arange(shard.rows), excluded).astype(np.intp)


def pick_part(
    shard: Shard,
    content: Any,
    settings: Settings,
    target: Target,
    excluded: NDArray[np.int64],
) -> ShardResult:
    """Select from one shard, on one core. A shard with too few rows sends all of them."""
    begin = time.perf_counter()
    digest = read_digest(shard)
    free = free_rows(shard, excluded)
    if len(free) == 0:
        none = np.empty(0, np.int64)
        return ShardResult(none, target.rows[:0], 0.0, 0.0, digest, 0.0, none)
    features = read_features(shard, content, settings.columns)
    costs = target.costs_of(features, shard.name)
    groups = groups_of_rows(shard, content, settings)
    places = range(1 if settings.groups is None else len(settings.groups.labels))
    picked = [
        _picked(costs, free[groups[free] == place], settings, target, place) for place in places
    ]
    rows = np.sort(np.concatenate(picked))
    return ShardResult(
        rows.astype(np.int64),
        features[rows],
        costs.shift,
        costs.reach,
        digest,
        time.perf_counter() - begin,
        groups[rows],
    )


def groups_of_rows(shard: Shard, content: Any, settings: Settings) -> NDArray[np.int64]:
    """The group index of every row of a shard; 0 without groups."""
    if settings.groups is None:
        return np.zeros(shard.rows, np.int64)
    return settings.groups.places(read_values(shard, content, settings.groups.column, "groups"))


def count_labels(
    shard: Shard, content: Any, column: str, excluded: NDArray[np.int64]
) -> dict[Any, int]:
    """The number of rows of each group in a shard that may be chosen."""
    values = read_values(shard, content, column, "groups")
    free = values[free_rows(shard, excluded)]
    return {**dict.fromkeys(values.tolist(), 0), **Counter(free.tolist())}


def _picked(
    costs: FeatureCosts,
    free: NDArray[np.intp],
    settings: Settings,
    target: Target,
    place: int,
) -> NDArray[np.intp]:
    """The rows of a group that a shard sends; all that may be chosen, if they are few."""
    groups = settings.groups
    sent = settings.per_part if groups is None else groups.sent[place]
    if len(free) <= sent or (groups is not None and groups.quotas[place] == 0):
        return free[:sent]  # none of a group without a quota is chosen, so any rows will do
    if groups is None:
        problem = problem_of(costs, sent, free, settings, target)
    else:
        assert target.groups is not None
        columns = np.flatnonzero(groups.places(target.groups) == place)
        weights = None if target.weights is None else target.weights[columns]
        weights = None if weights is None else weights / weights.sum()
        aim = replace(target, weights=weights, weights_origin=None)
        every = np.arange(len(free), dtype=np.intp)
        problem = problem_of(costs.restrict(free, columns), sent, every, settings, aim)
    try:
        rows = settings.method.pick(problem, Progress(shown=False)).rows
    except TooFewApartError:
        rows = _apart(problem)  # fewer rows than requested are that far apart: send all of them
    return rows if groups is None else free[rows]


def _apart(problem: Problem) -> NDArray[np.intp]:
    """Rows that are no near-duplicates of an earlier one."""
    free = np.ones(len(problem.candidates), bool)
    kept = []
    for place, row in enumerate(problem.candidates):
        if free[place]:
            kept.append(row)
            free[problem.twins(int(row))] = False
    return np.array(kept, np.intp)


class FinishedParts:
    """The finished parts of a selection, saved as checkpoints in the hidden folder of the run.

    Files are named by a digest of everything that the picks depend on: the settings, the target,
    the excluded rows and the shard. So parts of other selections are never read.
    """

    def __init__(self, out: Path, identity: Mapping[str, Any]) -> None:
        with writing(out, "the finished parts"):
            self._all = Checkpoint(private_folder(out) / PARTS, {})
        self._identity = identity

    def read(self, shard: Shard, excluded: NDArray[np.int64]) -> ShardResult | None:
        """The part of a shard, if it was finished before."""
        arrays = self._file(shard, excluded).read_arrays()
        if arrays is None:
            return None
        values: Any = {n: one if one.ndim else one.item() for n, one in arrays.items()}
        return ShardResult(**values)

    def write(self, shard: Shard, excluded: NDArray[np.int64], part: ShardResult) -> None:
        """Save a finished part."""
        self._file(shard, excluded).write_arrays(vars(part))

    def _file(self, shard: Shard, excluded: NDArray[np.int64]) -> Checkpoint:
        part = {"shard": shard.name, "stamp": shard.stamp, "excluded": excluded.tolist()}
        return self._all.part(json.dumps({**self._identity, **part}, sort_keys=True, default=str))


def remove_finished_parts(out: Path) -> None:
    """Remove the finished parts of a run whose result is saved."""
    with suppress(OSError):  # the result is saved, so leftovers do no harm
        Checkpoint(out / PRIVATE / PARTS, {}).remove()
