"""The target: read in the cluster, prepared once, put into Ray's object store for every task."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import distinct_labels, sampled_rows
from uniproto.data.tables import InputData
from uniproto.errors import InfeasibleError
from uniproto.geometry.bandwidth import MedianShare, origin_of, sampled_pairs
from uniproto.geometry.costs import make_costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.features import mean_row, prepare
from uniproto.geometry.metrics import OF_FEATURES
from uniproto.problem.groups import quotas
from uniproto.problem.problem import Problem
from uniproto.problem.values import RBF, Balanced, Compute, Laplacian
from uniproto.problem.weights import Density
from uniproto.runtime.threads import one_thread
from uniproto.scale.cluster import Cluster
from uniproto.scale.shards import Shard, Shards, read_columns, read_digest, read_features


@dataclass(frozen=True)
class Target:
    """What every part is selected against: rows ready for the metric, and their weights."""

    rows: NDArray[Any]
    given: NDArray[Any]  # as they were read: what exact costs are computed from
    metric: str
    bandwidth: float | None
    centre: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None
    weights_origin: str | None
    bandwidth_origin: str | None
    groups: NDArray[Any] | None  # the label of every row, where there are groups

    def costs_of(
        self, source: NDArray[Any], name: str, scale: tuple[float, float] | None = None
    ) -> FeatureCosts:
        """Costs of source rows against the target, the same as those of one machine.

        `scale` is the shift and the reach of all costs, where they are known.
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
    """How to read the target: its features, weights (a column, a word) and a sample of it."""

    columns: tuple[str, ...]
    metric: str  # or "auto", which the rows decide
    bandwidth: float | MedianShare | None = None
    bandwidth_origin: str | None = None  # once it is a number
    weights: str | Density | Balanced | None = None  # a column's name; labels are one, too
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
    """The target in the object store: a reference to a `Target`, and facts for the driver."""

    reference: Any
    shards: Shards
    digests: list[str]
    sampled: NDArray[np.int64] | None
    count: int
    width: int  # how many features a row has
    size: int  # bytes


def with_bandwidth(
    cluster: Cluster,
    source: Shards,
    columns: tuple[str, ...],
    target: Shards,
    options: TargetOptions,
) -> TargetOptions:
    """The options with a bandwidth in numbers, from the rows that one machine would look at.

    A share of the median costs one more reading of the shards.
    """
    if not isinstance(options.bandwidth, MedianShare):
        return options
    drawn = _drawn(target, options)
    m, n = source.rows, target.rows if drawn is None else len(drawn)
    rows, places = sampled_pairs(m, n)
    others = places if drawn is None else drawn[places]
    costs = make_costs(
        _rows_of(cluster, source, columns, rows),
        _rows_of(cluster, target, options.columns, others),
        options.metric,
        str(options.bandwidth),
    )
    origin = origin_of(options.bandwidth, m, n)
    return replace(options, bandwidth=costs.bandwidth, bandwidth_origin=origin)


def _rows_of(
    cluster: Cluster, shards: Shards, columns: tuple[str, ...], rows: NDArray[np.integer[Any]]
) -> NDArray[Any]:
    """The features of some rows, in their order within the data set."""
    wanted = zip(shards.parts, shards.split(np.sort(rows).astype(np.int64)), strict=True)
    tasks = [(shard, shard.content, columns, some) for shard, some in wanted if len(some)]
    return np.concatenate(cluster.all(_features_of_rows, tasks))


def _drawn(shards: Shards, options: TargetOptions) -> NDArray[np.int64] | None:
    """The rows of the sample of the target, if it is one."""
    if options.sample is None:
        return None
    return sampled_rows(shards.rows, options.sample, options.seed, "target_sample")


def place_target(
    cluster: Cluster, shards: Shards, options: TargetOptions, first_row: NDArray[Any]
) -> PlacedTarget:
    """Read the target where its shards are, and put it into Ray's object store.

    No shard comes to the driver: tasks read the pieces and another joins them.
    """
    rows = _drawn(shards, options)
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
    cluster.get(cluster.submit(_ready, reference))  # an error in it is raised now
    return PlacedTarget(reference, shards, digests, rows, count, first_row.shape[1], size)


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
    with one_thread():
        digest = read_digest(shard)
        if shard.rows == 0 or (rows is not None and len(rows) == 0):
            return _Piece(None, {}, digest)
        every = slice(None) if rows is None else rows
        features = read_features(shard, content, options.columns)[every]
        named = {}
        if options.named:
            table = read_columns(shard, content, options.named)
            data = InputData(Path(shard.name), "", features, table)
            for name in options.named:
                named[name] = data.column(name, "target_weights")[every]
        return _Piece(features, named, digest)


def _features_of_rows(
    shard: Shard, content: Any, columns: tuple[str, ...], rows: NDArray[np.int64]
) -> NDArray[Any]:
    with one_thread():
        return read_features(shard, content, columns)[rows]


def _digest_of_piece(piece: _Piece) -> str:
    return piece.digest


def _ready(target: Target) -> bool:
    return target is not None


def _joined(options: TargetOptions, first_row: NDArray[Any], *pieces: _Piece) -> Target:
    """The whole target, checked as on one machine and prepared for the metric."""
    with one_thread():
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
        metric: Any = options.metric
        if options.bandwidth is not None:
            metric = (RBF if metric == RBF.metric else Laplacian)(cast(float, options.bandwidth))
        problem = Problem(
            first_row,
            features,
            metric=metric,
            target_weights=weights,
            compute=Compute(device="cpu", memory=2**30),
        )
        assert isinstance(problem.costs, FeatureCosts)
        return Target(
            rows=problem.costs.target,
            given=features,
            metric=problem.costs.metric,
            bandwidth=problem.costs.bandwidth,
            centre=mean_row(features) if problem.costs.distance.centred else None,
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
        (shard, shard.content, name, some)
        for shard, some in zip(shards.parts, rows, strict=True)
        if shard.rows
    ]
    return np.concatenate(cluster.all(_values, tasks))


def _values(shard: Shard, content: Any, name: str, rows: NDArray[np.int64] | None) -> NDArray[Any]:
    with one_thread():
        table = read_columns(shard, content, [name])
        data = InputData(Path(shard.name), "", None, table)
        values = data.column(name, "--id")
        return values if rows is None else values[rows]


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
            f"'groups' must have source rows for every group of the target, also for {missing}."
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
