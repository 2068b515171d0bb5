"""Round one: each shard's own selection against the whole target, as a task where the shard is."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.geometry.costs import Costs
from uniproto.methods import UniProto
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import one_thread
from uniproto.scale.shards import Shard, read_digest, read_features
from uniproto.scale.target import Target


@dataclass(frozen=True)
class Settings:
    """What every task must know of the question."""

    k: int
    per_part: int
    columns: tuple[str, ...]
    method: UniProto
    seed: int
    memory: int


@dataclass(frozen=True)
class Part:
    """What a shard sends on: its picks with their features, and what the whole must know of it.

    `shift` and `reach` make up the ceiling of its costs: ceiling = shift + reach.
    """

    rows: NDArray[np.int64]
    features: NDArray[Any]
    shift: float
    reach: float
    digest: str
    seconds: float


def problem_of(
    costs: Costs, k: int, candidates: NDArray[np.intp], settings: Settings, target: Target
) -> Problem:
    """The question of one part, or of the union: k of these rows against the whole target."""
    return Problem.from_costs(
        costs,
        k,
        seed=settings.seed,
        memory=settings.memory,
        target_weights=target.weights,
        candidates=candidates,
        weights_origin=target.weights_origin,
    )


@dataclass(frozen=True)
class Union:
    """Rows of all shards that have come together here, with their numbers in the whole source."""

    source: str
    numbers: NDArray[np.int64]
    features: NDArray[Any]
    scale: tuple[float, float]  # shift and ceiling of the costs, the same for all shards

    def problem(self, settings: Settings, target: Target) -> Problem:
        """k of these rows against the whole target."""
        costs = target.costs_of(self.features, self.source, self.scale)
        every = np.arange(len(self.numbers), dtype=np.intp)
        return problem_of(costs, settings.k, every, settings, target)

    def with_rows(self, numbers: NDArray[np.int64], features: NDArray[Any]) -> Union:
        """These rows, too."""
        return replace(
            self,
            numbers=np.concatenate([self.numbers, numbers]),
            features=np.concatenate([self.features, features]),
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
) -> Part:
    """Select from one shard, on one core. A shard with too few rows to choose sends them all."""
    begin = time.perf_counter()
    with one_thread():
        digest = read_digest(shard)
        free = free_rows(shard, excluded)
        if shard.rows == 0 or len(free) == 0:
            nothing = np.empty((0, target.rows.shape[1]), target.rows.dtype)
            return Part(np.empty(0, np.int64), nothing, 0.0, 0.0, digest, 0.0)
        features = read_features(shard, content, settings.columns)
        costs = target.costs_of(features, shard.name)
        rows = free
        if len(free) > settings.per_part:
            problem = problem_of(costs, settings.per_part, free, settings, target)
            rows = np.sort(settings.method.pick(problem, Progress(shown=False)).rows)
        return Part(
            rows.astype(np.int64),
            features[rows],
            costs.shift,
            costs.ceiling - costs.shift,
            digest,
            time.perf_counter() - begin,
        )
