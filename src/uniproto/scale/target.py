"""The target, which is prepared once and put into Ray's object store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import sampled_rows
from uniproto.geometry.bandwidth import MedianShare
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import middle_row, prepare
from uniproto.geometry.metrics import OF_FEATURES
from uniproto.problem.problem import Problem
from uniproto.problem.values import Balanced, Compute, measure
from uniproto.problem.weights import Density
from uniproto.scale.cluster import Cluster
from uniproto.scale.shards import Shard, Shards, read_digest, read_features, read_values


@dataclass(frozen=True)
class Target:
    """The target rows, prepared for the metric, and their weights."""

    rows: NDArray[Any]
    given: NDArray[Any]  # as read, for exact costs
    metric: str
    bandwidth: float | None
    centre: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None
    weights_origin: str | None
    bandwidth_origin: str | None
    groups: NDArray[Any] | None  # the group label of every row

    def costs_of(
        self, source: NDArray[Any], name: str, scale: tuple[float, float] | None = None
    ) -> FeatureCosts:
        """Costs of source rows against the target, the same as on one machine.

        `scale` is the shift and the reach of all costs, if known.
        """
        ready = prepare(
            source,
            self.rows.dtype,
            unit_length=OF_FEATURES[self.metric].distance.unit_length,
            centre=self.centre,
            parameter=name,
        )
        shift, reach = scale or (None, None)
        return FeatureCosts(
            ready,
            self.rows,
            self.metric,
            shift,
            reach,
            prepared=True,
            given=(source, self.given),
            centre=self.centre,
            bandwidth=self.bandwidth,
        )


@dataclass(frozen=True)
class TargetOptions:
    """How to read the target: features, weights and sample."""

    columns: tuple[str, ...]
    metric: str  # or "auto", decided by the rows
    bandwidth: float | MedianShare | None = None
    bandwidth_origin: str | None = None  # set once the bandwidth is a number
    weights: str | Density | Balanced | None = None  # a string is a column's name
    groups: str | None = None
    sample: int | None = None
    seed: int = 0

    @property
    def named(self) -> tuple[str, ...]:
        """The columns to read besides the features."""
        weights = self.weights.labels if isinstance(self.weights, Balanced) else self.weights
        named = (None if isinstance(weights, Density) else weights, self.groups)
        return tuple(dict.fromkeys(name for name in named if name is not None))


@dataclass(frozen=True)
class PlacedTarget:
    """The target and its reference in the object store, with facts for the driver."""

    reference: Any
    target: Target
    shards: Shards
    digests: list[str]
    sampled: NDArray[np.int64] | None

    @property
    def count(self) -> int:
        return len(self.target.given)


def sampled_targets(shards: Shards, options: TargetOptions) -> NDArray[np.int64] | None:
    """The sampled rows of the target, or None without a sample."""
    if options.sample is None:
        return None
    return sampled_rows(shards.rows, options.sample, options.seed, "target_sample")


def place_target(
    cluster: Cluster, shards: Shards, options: TargetOptions, first_row: NDArray[Any]
) -> PlacedTarget:
    """Read the target in tasks, and put it into Ray's object store.

    Shards do not pass through the driver: tasks read them and another task concatenates them.
    """
    rows = sampled_targets(shards, options)
    count = shards.rows if rows is None else len(rows)
    size = count * first_row.shape[1] * first_row.dtype.itemsize
    cluster.require_room(
        size,
        f"The target ({count:,} rows of {first_row.shape[1]} features)",
        "Take a sample of it: --target-sample (target_sample=).",
    )
    wanted = [None] * len(shards.parts) if rows is None else shards.split(rows)
    pieces = [
        cluster.submit(_piece, shard, shard.content, options, some)
        for shard, some in zip(shards.parts, wanted, strict=True)
    ]
    digests = cluster.all(_digest_of_piece, [(piece,) for piece in pieces])
    reference = cluster.submit(_joined, options, first_row, *pieces)
    return PlacedTarget(reference, cluster.get(reference), shards, digests, rows)


# --- in the cluster -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Piece:
    features: NDArray[Any] | None
    named: dict[str, NDArray[Any]]
    digest: str


def _piece(
    shard: Shard, content: Any, options: TargetOptions, rows: NDArray[np.int64] | None
) -> _Piece:
    """A shard's rows of the target."""
    digest = read_digest(shard)
    if shard.rows == 0 or (rows is not None and len(rows) == 0):
        return _Piece(None, {}, digest)
    features = read_features(shard, content, options.columns, rows)
    named = {
        name: read_values(shard, content, name, "target_weights", rows) for name in options.named
    }
    return _Piece(features, named, digest)


def _digest_of_piece(piece: _Piece) -> str:
    return piece.digest


def _joined(options: TargetOptions, first_row: NDArray[Any], *pieces: _Piece) -> Target:
    """The whole target, checked as on one machine and prepared for the metric."""
    filled = [(p.features, p.named) for p in pieces if p.features is not None]
    features = np.concatenate([rows for rows, _ in filled])
    named = {
        name: np.concatenate([columns[name] for _, columns in filled]) for name in options.named
    }
    weights: Any = options.weights
    if isinstance(weights, Balanced):
        weights = Balanced(named[weights.labels])
    elif isinstance(weights, str):
        weights = named[weights]
    problem = Problem(
        first_row,
        features,
        metric=measure(options.metric, cast(float | None, options.bandwidth)),
        target_weights=weights,
        compute=Compute(device="cpu", memory=2**30),
    )
    assert isinstance(problem.costs, FeatureCosts)
    return Target(
        rows=problem.costs.target,
        given=features,
        metric=problem.costs.metric,
        bandwidth=problem.costs.bandwidth,
        centre=middle_row(features) if problem.costs.distance.centred else None,
        weights=problem.target_weights,
        weights_origin=problem.weights_origin,
        bandwidth_origin=options.bandwidth_origin,
        groups=named[options.groups] if options.groups else None,
    )


def named_values(
    cluster: Cluster, shards: Shards, name: str, rows: Sequence[NDArray[np.int64] | None]
) -> NDArray[Any]:
    """A column of all shards, or of some rows of each, as ids of rows."""
    tasks = [
        (shard, shard.content, name, "id", some)
        for shard, some in zip(shards.parts, rows, strict=True)
        if shard.rows
    ]
    return np.concatenate(cluster.all(read_values, tasks))
