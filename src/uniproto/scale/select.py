"""`uniproto.scale.select`: the front door to selection on Ray."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.data.arrays import as_rows, finite_number
from uniproto.data.columns import ignored_columns, only_features, require_columns
from uniproto.data.tables import aligned_columns, feature_columns
from uniproto.errors import InputFileError, invalid, require_int, require_name, unknown_name
from uniproto.geometry.costs import FEATURE_METRICS, checked_bandwidth, metric_name
from uniproto.geometry.lists import DEVICES
from uniproto.methods import FasterPAM, Method, Random, as_method
from uniproto.problem.weights import DensityWeights, density_from
from uniproto.runtime.memory import memory_budget
from uniproto.scale.cluster import Cluster
from uniproto.scale.groups import Budgets
from uniproto.scale.parts import Request, Settings
from uniproto.scale.rounds import require_enough, run_rounds
from uniproto.scale.shards import Shards, shards_of
from uniproto.scale.target import TargetOptions
from uniproto.selection.selection import Selection

MEMORY = 2**30  # of a task by default: fixed, so that no answer depends on what is free


def select(
    source: Any,
    k: int,
    target: Any = None,
    *,
    column: str | None = None,
    aside: Collection[str] = (),
    method: str | Method = "uniproto",
    metric: str = "cosine",
    bandwidth: float | str | None = None,
    target_weights: str | DensityWeights | None = None,
    target_labels: str | None = None,
    target_sample: int | None = None,
    groups: str | None = None,
    budgets: Budgets = "proportional",
    per_part: int | None = None,
    exclude: Any = None,
    distinct: float | None = None,
    seed: int = 0,
    certify: bool = False,
    time_limit: float | None = None,
    memory: int | float | str | None = None,
    device: str = "auto",
    address: str | None = None,
    num_cpus: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Selection:
    """Choose k rows of a source that no machine holds, on Ray. Shards stay where they are.

    Every shard selects from its own rows against the whole target; a second selection chooses k
    from the union of their picks. The answer is the same however many workers there are. Nothing
    is promised of its quality but what `certify` proves.

    Args:
        source: Parquet files: a path, a folder, a pattern such as `"pool/*.parquet"`, an address
            such as `"s3://bucket/pool/*.parquet"`, or a list of those; or a Ray Dataset, whose
            blocks are the shards. Files count in sorted order, and rows across them.
        k: how many rows to choose.
        target: what the chosen rows must represent, given like the source. Default: the source
            itself, all of its rows. It must fit in half of each node's object store.
        column: the list column of features. Default: every column not set aside, all numeric.
        aside: columns that are no features.
        method: any but `"random"` and `"fasterpam"`. It picks from every shard, and again from
            their picks; `"uniproto"` picks greedily from shards and searches their union.
        metric: `cosine`, `euclidean`, `sqeuclidean`, `l1`, `dot`, `rbf` or `laplacian`.
        bandwidth: of `rbf` and `laplacian`, as for `uniproto.select`. A share of the median costs
            one more reading of the shards; a number does not.
        target_weights: the name of a column of the target; `"balanced"`, the same total for every
            class of `target_labels`; `"density"` or `DensityWeights(…)`. Default: all equal.
        target_labels: the name of the target's column of classes.
        target_sample: select against so many rows of the target, drawn with the seed. The cost,
            the plan and the certificate are then those of the sample.
        groups: the name of a column of groups, in the source and in the target: a separate
            selection inside each group.
        budgets: how k is shared among groups: `proportional` to target mass, `balanced`, or a
            mapping from label to count.
        per_part: how many rows each shard sends to the second round. Default: k.
        exclude: row numbers never to choose.
        distinct: a distance: never choose two rows that close to each other. Every shard sends
            only such rows; where k are not left in the end, raise `per_part`.
        seed: for the sample, and for methods that draw random numbers.
        certify: also compute the certificate, with passes over all shards.
        time_limit: seconds after which no further pass of the certificate begins.
        memory: working memory of each task beside its shard and the target (1 GiB).
        device: `auto` gives each task of the first round a GPU where nodes have some, `cpu` none,
            `cuda` requires one.
        address: a running Ray: `"auto"`, `"HOST:PORT"` or `"ray://HOST:PORT"`.
        num_cpus: start a local Ray of this size, and stop it afterwards. Without both, the Ray in
            use, the one RAY_ADDRESS names, or a local one with all cores.
        checkpoint: a folder in which finished parts are saved; the same call resumes from there.
        progress: True or False to force or forbid progress bars. Default: on a terminal, and a
            line every 30 seconds elsewhere.

    Returns:
        A `Selection` as `uniproto.select` makes it, with row numbers of the whole source;
        `notes["rounds"]` says what each round took. To certify it, pass `certify=True`.

    >>> import uniproto.scale
    >>> sel = uniproto.scale.select("pool/*.parquet", 10_000, num_cpus=4)  # doctest: +SKIP
    >>> sel.notes["rounds"][1]["picks_per_part"]  # doctest: +SKIP
    [10000, 10000, 10000]
    """
    with Cluster(address, num_cpus) as cluster:
        request = make_request(
            cluster,
            source,
            k,
            target,
            column=column,
            aside=aside,
            method=method,
            metric=metric,
            bandwidth=bandwidth,
            target_weights=target_weights,
            target_labels=target_labels,
            target_sample=target_sample,
            groups=groups,
            budgets=budgets,
            per_part=per_part,
            exclude=exclude,
            distinct=distinct,
            seed=seed,
            certify=certify,
            time_limit=time_limit,
            memory=memory,
            device=device,
        )
        saved_in = None if checkpoint is None else Path(checkpoint)
        if saved_in is not None and not (request.source.from_files and _from_files(request.target)):
            raise invalid(
                "checkpoint",
                "needs files, whose changes can be noticed",
                "a Ray Dataset",
                "Leave it out, or pass the paths of the files.",
            )
        return run_rounds(request, cluster, saved_in=saved_in, progress=progress).selection


def _from_files(shards: Shards | None) -> bool:
    return shards is None or shards.from_files


def make_request(
    cluster: Cluster,
    source: Any,
    k: Any,
    target: Any = None,
    *,
    column: str | None = None,
    aside: Collection[str] = (),
    method: str | Method = "uniproto",
    metric: str | None = None,
    bandwidth: float | str | None = None,
    target_weights: Any = None,
    target_labels: str | None = None,
    target_sample: int | None = None,
    groups: str | None = None,
    budgets: Budgets = "proportional",
    per_part: Any = None,
    exclude: Any = None,
    distinct: Any = None,
    seed: int = 0,
    certify: bool = False,
    time_limit: float | None = None,
    memory: int | float | str | None = None,
    device: str = "auto",
    features: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Request:
    """Check every argument of `select`, as far as the footers of the files allow.

    `features` and `ignore` are those of the command line, which names columns by them.
    """
    count = require_int("k", k)
    sent = count if per_part is None else require_int("per_part", per_part)
    chosen = _checked_method(method)
    metric = _checked_metric(metric)
    width = checked_bandwidth(metric, bandwidth)
    weights = _checked_weights(target_weights, target_labels)
    pool = shards_of(source, "source", cluster)
    given_target = None if target is None else shards_of(target, "target", cluster)
    target_shards = given_target or pool
    by_column = weights if isinstance(weights, str) and weights != "balanced" else None
    aside = [*aside, *(name for name in (by_column, target_labels, groups) if name)]
    if groups is None and str(budgets) != "proportional":
        raise invalid("budgets", "needs 'groups' as well", repr(budgets), "Name their column.")
    require_name("device", device, DEVICES)
    named = (features, ignore)
    columns = _columns(pool, column, aside, *named, None, target_shards)
    if isinstance(target_weights, str) and by_column is None:
        for shards in (pool, target_shards):
            if target_weights in shards.schema.names:
                raise invalid(
                    "target_weights",
                    "must be the name of a column, or a word that is none",
                    f"{target_weights!r}, which is both in {shards.name}",
                    "Rename the column, or leave it out of the files.",
                )
    for parameter, name, shards in (
        ("target_weights", by_column, target_shards),
        ("target_labels", target_labels, target_shards),
        ("groups", groups, pool),
        ("groups", groups, target_shards),
    ):
        if name is not None and name not in shards.schema.names:
            error = unknown_name(parameter, name, shards.schema.names)
            raise InputFileError(f"{shards.name}: {error}")
    excluded = as_rows(exclude, "exclude", pool.rows).astype(np.int64)
    require_enough(count, sent, pool, excluded)
    return Request(
        source=pool,
        target=given_target,
        settings=Settings(
            k=count,
            per_part=sent,
            columns=columns,
            method=chosen,
            seed=require_int("seed", seed, least=0),
            memory=MEMORY if memory is None else memory_budget(memory),
            distinct=_checked_distance(distinct),
            device=device,
        ),
        target_options=TargetOptions(
            columns=_columns(target_shards, column, aside, *named, (columns, pool.name), pool),
            metric=metric,
            bandwidth=width,
            weights=weights,
            labels=target_labels,
            groups=groups,
            sample=target_sample,
            seed=seed,
        ),
        excluded=np.sort(excluded),
        certify=certify,
        time_limit=time_limit,
        groups=groups,
        budgets=budgets,
    )


def _checked_distance(distinct: Any) -> float | None:
    if distinct is None or distinct is False:
        return None
    if isinstance(distinct, bool) or not finite_number(distinct) >= 0:
        raise invalid(
            "distinct",
            "must be a distance of at least 0 on Ray, where no machine sees how far rows are apart",
            repr(distinct),
            "Pass the largest distance at which two examples count as the same.",
        )
    return float(distinct)


def _columns(
    shards: Shards,
    column: str | None,
    aside: Collection[str],
    features: Sequence[str],
    ignore: Sequence[str],
    like: tuple[tuple[str, ...], str] | None,
    other: Shards,
) -> tuple[str, ...]:
    """The columns of features; those of a target in the order of its source's."""
    if column is not None:
        if column not in shards.schema.names:
            error = unknown_name("column", column, shards.schema.names)
            raise InputFileError(f"{shards.name}: {error}")
        return (column,)
    if features and like is not None:
        require_columns(like[0], shards.schema.names, "--features", shards.name)
        return like[0]
    if features:
        return tuple(only_features(features, shards.schema.names, aside, shards.name))
    ignored = ignored_columns(ignore, shards.schema, shards.name, others=other.schema.names)
    names = feature_columns(shards.schema, [*aside, *ignored], shards.name)
    return tuple(names if like is None else aligned_columns(names, shards.name, *like))


def _checked_method(method: str | Method) -> Method:
    chosen = as_method(method)
    for kind, reason, remedy in (
        (Random, "draws as many rows of a small shard as of a large one", "Draw rows yourself."),
        (FasterPAM, "needs the target to be the shard itself", "Use kmedoids."),
    ):
        if isinstance(chosen, kind):
            raise invalid(
                "method",
                "must be uniproto on Ray, or another that picks from shards as it does from all",
                f"{chosen.name!r}, which {reason},",
                remedy,
            )
    return chosen


def _checked_metric(metric: str | None) -> str:
    chosen = "cosine" if metric is None else metric_name(metric)
    if chosen not in FEATURE_METRICS:
        raise invalid(
            "metric",
            f"must be one of {', '.join(FEATURE_METRICS)} on Ray, where shards hold features",
            repr(metric),
            "Pass features, or run on one machine.",
        )
    return chosen


def _checked_weights(weights: Any, labels: str | None) -> str | DensityWeights | None:
    if weights is not None and not isinstance(weights, str | DensityWeights):
        raise invalid(
            "target_weights",
            "must be the name of a column, 'balanced', 'density' or DensityWeights(…) on Ray",
            f"a {type(weights).__name__}",
            "Put the weights in a column of the target.",
        )
    if isinstance(weights, str) and weights.partition(":")[0] == "density":
        return density_from(weights, "target_weights")
    if weights == "balanced" and labels is None:
        raise invalid(
            "target_labels",
            "must name the classes' column for 'balanced' weights",
            "None",
            "Pass it.",
        )
    if labels is not None and weights != "balanced":
        raise invalid(
            "target_labels",
            "are for target_weights='balanced'",
            f"{labels!r} with target_weights={weights!r}",
            "Drop them, or set the column aside by aside=[…].",
        )
    return weights
