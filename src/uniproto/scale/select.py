"""`uniproto.scale.select`: selection on Ray."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.data.arrays import as_rows
from uniproto.data.tables import compared_columns
from uniproto.errors import (
    InputFileError,
    InvalidInputError,
    require_int,
    require_name,
    unknown_name,
)
from uniproto.geometry.bandwidth import MedianShare
from uniproto.geometry.costs import FEATURE_METRICS, checked_bandwidth, metric_name
from uniproto.geometry.lists import DEVICES
from uniproto.methods import FasterPAM, Method, Random, as_method
from uniproto.problem.checks import AUTO, require_distance
from uniproto.problem.problem import ProblemOptions, Unpack, takes_problem_options
from uniproto.problem.values import (
    RBF,
    Balanced,
    Compute,
    Groups,
    Laplacian,
    as_columns,
    metric_of,
)
from uniproto.problem.weights import Density
from uniproto.runtime.memory import memory_budget
from uniproto.scale.cluster import Cluster
from uniproto.scale.parts import Request, Settings
from uniproto.scale.rounds import require_enough, run_rounds
from uniproto.scale.shards import Shards, shards_of
from uniproto.scale.target import TargetOptions
from uniproto.selection.selection import Selection, as_time_limit

_COLUMNS_ON_RAY = ("use", "ignore", "prepare", "id", "labels")
MEMORY = 2**30  # of a task by default; fixed, so that results do not depend on free memory


@takes_problem_options
def select(
    source: Any,
    k: int,
    target: Any = None,
    *,
    method: str | Method = "uniproto",
    certify: bool | float = False,
    target_sample: int | None = None,
    per_part: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    address: str | None = None,
    num_cpus: int | None = None,
    progress: bool | None = None,
    **problem: Unpack[ProblemOptions],
) -> Selection:
    """Choose k rows of a source in shards, on Ray.

    Rows are selected from each shard against the whole target; a second selection chooses k from
    the union of their picks. The result does not depend on the number of workers. Its quality is
    only guaranteed as far as `certify` proves.

    Of the options of a `Problem`, labels, weights and groups are names of columns here, rows are
    compared as they are (`features` says which columns are features), `min_distance` must be a
    number, and `include` and `limits` are not offered. `compute.memory` is that of each task,
    besides its shard and the target (default: 1 GiB); `compute.device` gives each task of the first
    round a GPU where nodes have some (`auto`), none (`cpu`), or requires one (`cuda`).

    Args:
        source: Parquet files: a path, a folder, a pattern such as `"pool/*.parquet"`, an address
            such as `"s3://bucket/pool/*.parquet"`, or a list of those; or a Ray Dataset, whose
            blocks are the shards. Files count in sorted order, and rows across them.
        k: how many rows to choose.
        target: what the chosen rows must represent, given like the source. Default: the source
            itself, all of its rows. It must fit in half of each node's object store.
        method: any but `"random"` and `"fasterpam"`. It picks from every shard, and again from
            their picks; `"uniproto"` picks greedily from shards and searches their union.
        certify: also compute the certificate, with passes over all shards. A number is the seconds
            after which no further pass begins.
        target_sample: select against a random sample of this many target rows. The cost, the plan
            and the certificate are then those of the sample.
        per_part: the number of rows that each shard sends to the second round. Default: k.
        checkpoint: a folder in which finished parts are saved; the same call resumes from there.
        address: a running Ray: `"auto"`, `"HOST:PORT"` or `"ray://HOST:PORT"`.
        num_cpus: start a local Ray of this size, and stop it afterwards. Without both, the Ray in
            use, the one RAY_ADDRESS names, or a local one with all cores.
        progress: True or False to force or forbid progress bars. Default: on a terminal, and a
            line every 30 seconds elsewhere.
        problem: as for `Problem`.

    Returns:
        A `Selection`, with row numbers of the whole source; `details.notes["rounds"]` describes the
        rounds. To certify it, pass `certify=True`.

    >>> import uniproto.scale
    >>> sel = uniproto.scale.select("pool/*.parquet", 10_000, num_cpus=4)  # doctest: +SKIP
    >>> sel.details.notes["rounds"][1]["picks_per_part"]  # doctest: +SKIP
    [10000, 10000, 10000]
    """
    with Cluster(address, num_cpus) as cluster:
        request = make_request(
            cluster,
            source,
            k,
            target,
            method=method,
            certify=certify,
            target_sample=target_sample,
            per_part=per_part,
            **problem,
        )
        saved_in = None if checkpoint is None else Path(checkpoint)
        given = (request.source, request.target or request.source)
        if saved_in is not None and not all(shards.from_files for shards in given):
            raise InvalidInputError(
                "needs files, not a Ray Dataset. Leave it out.", parameter="checkpoint"
            )
        return run_rounds(request, cluster, saved_in=saved_in, progress=progress).selection


def make_request(
    cluster: Cluster,
    source: Any,
    k: Any,
    target: Any = None,
    *,
    method: str | Method = "uniproto",
    certify: bool | float = False,
    target_sample: int | None = None,
    per_part: Any = None,
    **problem: Unpack[ProblemOptions],
) -> Request:
    """Check every argument of `select`, reading only the footers of files."""
    for name in refused_on_ray(problem):
        raise InvalidInputError("is not offered on Ray. Select on one machine.", parameter=name)
    count = require_int("k", k)
    sent = count if per_part is None else require_int("per_part", per_part)
    chosen = _checked_method(method)
    weights = problem.get("target_weights")
    groups = problem.get("groups")
    groups = groups if isinstance(groups, Groups | None) else Groups(groups)
    compute, seed = problem.get("compute") or Compute(), problem.get("seed", 0)
    apart = problem.get("min_distance")
    certified, limit = as_time_limit(certify)
    pool = shards_of(source, "source", cluster)
    given_target = None if target is None else shards_of(target, "target", cluster)
    aim = given_target or pool
    grouped = None if groups is None else _column(groups.labels, "groups", pool, aim)
    labels = weights.labels if isinstance(weights, Balanced) else weights
    weighted = None
    if labels is not None and not isinstance(weights, Density):
        weighted = _column(labels, "target_weights", aim)
    require_name("device", compute.device, DEVICES)
    aside = [name for name in (grouped, weighted) if name is not None]
    asked = as_columns(problem.get("features"))
    aside += [name for name in (asked.id, asked.labels) if name is not None]

    def columns_of(each: Shards, other: Shards, like: Sequence[str] | None = None) -> list[str]:
        named, others = (asked.use, asked.ignore, aside), other.schema.names
        return compared_columns(each.schema, each.name, *named, others=others, like=like)

    columns = columns_of(pool, aim)
    metric, width = _checked_metric(problem.get("metric", AUTO))
    excluded = as_rows(problem.get("exclude"), "exclude", pool.rows).astype(np.int64)
    require_enough(count, sent, pool, excluded)
    return Request(
        source=pool,
        target=given_target,
        settings=Settings(
            k=count,
            per_part=sent,
            columns=tuple(columns),
            method=chosen,
            seed=require_int("seed", seed, least=0),
            memory=MEMORY if compute.memory is None else memory_budget(compute.memory),
            min_distance=None if apart is None else require_distance(apart, "min_distance"),
            device=compute.device,
        ),
        target_options=TargetOptions(
            columns=tuple(columns_of(aim, pool, columns)),
            metric=metric,
            bandwidth=width,
            weights=weights,
            groups=grouped,
            sample=target_sample,
            seed=seed,
        ),
        excluded=np.sort(excluded),
        certify=certified,
        time_limit=limit,
        budgets="proportional" if groups is None else groups.budgets,
    )


def refused_on_ray(problem: Mapping[str, Any]) -> list[str]:
    """The options that the two rounds have no answer to yet: refused, never ignored."""
    compute, groups = problem.get("compute"), problem.get("groups")
    asked = as_columns(problem.get("features"))
    others = isinstance(groups, Groups) and groups.target not in (None, groups.labels)
    given = {
        "include": np.size(problem.get("include", ())) > 0,
        "limits": problem.get("limits") is not None,
        "neighbours": compute is not None and compute.neighbours != "exact",
        "features": not (asked.prepare is None or isinstance(asked.prepare, bool)),
        "groups.target": others,
        **{
            f"features.{each.name}": getattr(asked, each.name) != each.default
            for each in fields(asked)
            if each.name not in _COLUMNS_ON_RAY
        },
        "features.prepare": asked.prepare is True,
    }
    return [name for name in given if given[name]]


def _column(name: Any, parameter: str, *shards: Shards) -> str:
    """Check that all of these have the column."""
    for each in shards:
        if not isinstance(name, str) or name not in each.schema.names:
            error = unknown_name(parameter, name, each.schema.names)
            raise InputFileError.of(each.name, error)
    return str(name)


def _checked_method(method: str | Method) -> Method:
    chosen = as_method(method)
    for kind, reason, remedy in (
        (Random, "draws as many rows of a small shard as of a large one", "Draw rows yourself."),
        (FasterPAM, "needs the target to be the shard itself", "Use kmedoids."),
    ):
        if isinstance(chosen, kind):
            raise InvalidInputError(
                f"cannot be {chosen.name} on Ray: it {reason}. {remedy}", parameter="method"
            )
    return chosen


def _checked_metric(metric: str | RBF | Laplacian) -> tuple[str, float | MedianShare | None]:
    """The name of a metric of features, or `auto`, and its bandwidth if it has one."""
    bandwidth = metric.bandwidth if isinstance(metric, RBF | Laplacian) else None
    given = metric_of(metric)
    if given == AUTO:
        return AUTO, None
    name = metric_name(given)
    if name not in FEATURE_METRICS:
        raise InvalidInputError(
            f"must be one of {', '.join(FEATURE_METRICS)} on Ray, not {metric!r}.",
            parameter="metric",
        )
    return name, checked_bandwidth(name, bandwidth)
