"""The two rounds: every shard's picks, then a selection from their union (GreeDi).

Each task sees its own shard and the whole target. The driver receives the picks of each shard with
their features, never a shard. The result depends on the shards, the target and the seed only, not
on the number of workers, on failures or on the order in which tasks end.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.certificate import Certificate
from uniproto.data.arrays import distinct_labels
from uniproto.errors import InfeasibleError, InvalidInputError
from uniproto.features.compared_rows import Given
from uniproto.geometry.bandwidth import MedianShare, origin_of, sampled_pairs
from uniproto.geometry.costs import make_costs
from uniproto.methods import Greedy, UniProto
from uniproto.problem.checks import require_rows
from uniproto.problem.groups import quotas
from uniproto.runtime.memory import free_bytes, require_memory
from uniproto.runtime.progress import Progress
from uniproto.scale.bounds import certify_shards
from uniproto.scale.cluster import Cluster
from uniproto.scale.parts import (
    FinishedParts,
    GatheredRows,
    GroupQuotas,
    Request,
    ShardResult,
    count_labels,
    pick_part,
)
from uniproto.scale.shards import Shards, read_features, read_first_row
from uniproto.scale.target import PlacedTarget, Target, TargetOptions, place_target, sampled_targets
from uniproto.select import run_method
from uniproto.selection.selection import Selection
from uniproto.transport.prototypes import Transport
from uniproto.version import __version__

_STAGES = ("target", "parts", "union")
_COPIES_OF_UNION = 3  # received, concatenated, and prepared for the metric


@dataclass
class RoundsResult:
    """The selection, and facts for its manifest."""

    selection: Selection
    target: PlacedTarget
    digests: list[str]
    rounds: list[dict[str, Any]] = field(default_factory=list)


def run_rounds(
    request: Request,
    cluster: Cluster,
    *,
    saved_in: Path | None = None,
    progress: bool | None = None,
) -> RoundsResult:
    """Run both rounds, and compute the exact plan and, on request, the certificate.

    Finished parts are saved in the folder `saved_in`, and read from there.
    """
    bars = Progress(progress)
    begin = time.perf_counter()
    source, settings = request.source, request.settings
    rounds: list[dict[str, Any]] = []
    # One row of the source, for the type and number of its features.
    shard = next(shard for shard in source.parts if shard.rows)
    first_row = cluster.get(cluster.submit(read_first_row, shard, shard.content, settings.columns))
    _require_room_for_union(request, first_row)
    aim = request.target or source
    request = replace(request, target_options=_with_bandwidth(cluster, request))
    placed = place_target(cluster, aim, request.target_options, first_row)
    rounds.append(
        {
            "round": "target",
            "rows": placed.count,
            "seconds": time.perf_counter() - begin,
            "bytes_in_store": placed.target.given.nbytes,
        }
    )
    target = placed.target
    if request.target_options.groups is not None:
        settings = replace(settings, groups=_group_quotas(cluster, request, target))
        request = replace(request, settings=settings)
    finished = None
    if saved_in is not None:
        finished = FinishedParts(saved_in, _identity(request, placed))
    parts, first_round = _first_round(request, cluster, placed, finished, bars)
    rounds.append(first_round)

    begin = time.perf_counter()
    union = _union(source, parts)
    problem = union.problem(settings, target)
    merged = run_method(problem, settings.method, progress=progress)
    merged.details.notes.pop("proof", None)  # it holds for the rows that shards sent, not for all
    cost = merged.cost  # solves the exact plan
    seconds = time.perf_counter() - begin
    rows = len(union.numbers)
    rounds.append({"round": 2, "rows": rows, "seconds": seconds, "picks": settings.k, "cost": cost})
    timings = {name: one["seconds"] for name, one in zip(_STAGES, rounds, strict=True)}
    certificate: Certificate | None = None
    if request.certify:
        certificate, passes = certify_shards(request, cluster, placed, merged, union, bars)
        rounds += passes
        timings["certificate"] = certificate.seconds
    shape = (source.rows, placed.count)
    selection = Selection(
        indices=union.numbers[merged.indices].astype(np.int64),
        weights=merged.weights,
        details=replace(merged.details, shape=shape, given=Given(), timings=timings),
        transport=Transport(merged.cost, merged.plan, merged.cost_is_exact),
        group_costs=merged.group_costs,
        certificate=certificate,
    )
    selection.details.notes |= {
        "engine": "ray",
        "parts": len(parts),
        "per_part": settings.per_part,
        "target_sample": request.target_options.sample,
        "resumed_parts": first_round["resumed"],
        "workers": cluster.workers,
        "rounds": rounds,
    }
    return RoundsResult(selection, placed, [part.digest for part in parts], rounds)


def _with_bandwidth(cluster: Cluster, request: Request) -> TargetOptions:
    """The options with a numeric bandwidth, from the same sample that one machine would use.

    A multiple of the median needs one more pass over the shards.
    """
    source, options = request.source, request.target_options
    target = request.target or source
    if not isinstance(options.bandwidth, MedianShare):
        return options
    drawn = sampled_targets(target, options)
    m, n = source.rows, target.rows if drawn is None else len(drawn)
    rows, places = sampled_pairs(m, n)
    others = places if drawn is None else drawn[places]
    costs = make_costs(
        _rows_of(cluster, source, request.settings.columns, rows),
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
    return np.concatenate(cluster.all(read_features, tasks))


def _group_quotas(cluster: Cluster, request: Request, target: Target) -> GroupQuotas:
    """Divide k among the groups of the target, as on one machine."""
    column = request.target_options.groups
    assert column is not None
    assert target.groups is not None
    source, budgets, k = request.source, request.budgets, request.settings.k
    names, group = distinct_labels(target.groups, "groups")
    labels = names.tolist()
    excluded = source.split(request.excluded)
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
            f"must have source rows for every group of the target, also for {missing}.",
            parameter="groups",
        )
    if isinstance(budgets, Mapping):  # labels from the command line are strings
        known = {str(label): label for label in labels}
        budgets = {
            label if label in labels else known.get(str(label), label): count
            for label, count in budgets.items()
        }
    mass = np.bincount(group, target.weights, minlength=len(labels)) / (
        len(group) if target.weights is None else 1.0
    )
    quota = quotas(k, budgets, names, mass, np.zeros_like(free), free)
    sent = [max(1, -(-request.settings.per_part * int(count) // k)) for count in quota]
    return GroupQuotas(column, tuple(labels), tuple(quota.tolist()), tuple(sent))


def _require_room_for_union(request: Request, first_row: NDArray[Any]) -> None:
    """Refuse, before the first round, a union that would not fit in the driver's memory."""
    settings = request.settings
    sent = sum(min(settings.per_part, shard.rows) for shard in request.source.parts)
    require_memory(
        _COPIES_OF_UNION * sent * first_row.nbytes,
        free_bytes(),
        f"the picks of {len(request.source.parts):,} shards, {sent:,} rows, are gathered here",
        "Let each shard send fewer: --per-part (per_part=). Or use fewer, larger shards.",
    )


def _identity(request: Request, placed: PlacedTarget) -> dict[str, Any]:
    """Everything that the picks of a part depend on, except its shard."""
    settings = request.settings
    return {
        "uniproto": __version__,
        "target": placed.shards.digest(placed.digests),
        "aim": repr(request.target_options),
        "settings": repr(replace(settings, k=0)),  # a part does not depend on k
    }


def _first_round(
    request: Request,
    cluster: Cluster,
    placed: PlacedTarget,
    finished: FinishedParts | None,
    bars: Progress,
) -> tuple[list[ShardResult], dict[str, Any]]:
    """The picks of every shard; finished parts are read from disk."""
    begin = time.perf_counter()
    source = request.source
    excluded = source.split(request.excluded)
    settings = request.settings
    if isinstance(settings.method, UniProto):
        # Parts are not searched for better rows: their picks are only candidates.
        settings = replace(settings, method=Greedy())
    parts: dict[int, ShardResult] = {}
    if finished is not None:
        for place, shard in enumerate(source.parts):
            if (part := finished.read(shard, excluded[place])) is not None:
                parts[place] = part
    resumed, missing = len(parts), [p for p in range(len(source.parts)) if p not in parts]
    with bars.stage("shards", len(source.parts)) as advance:
        advance(resumed)
        shards = [(source.parts[place], excluded[place]) for place in missing]
        tasks = [(shard, shard.content, settings, placed.reference, out) for shard, out in shards]
        on_gpus = settings.device != "cpu"
        for done, part in cluster.as_finished(pick_part, tasks, on_gpus=on_gpus):
            place = missing[done]
            if finished is not None:
                finished.write(source.parts[place], excluded[place], part)
            parts[place] = part
            advance(1)
    ordered = [parts[place] for place in range(len(source.parts))]
    record = {
        "round": 1,
        "rows": source.rows,
        "seconds": time.perf_counter() - begin,
        "bytes_read": sum(shard.size for shard in source.parts),
        "bytes_returned": sum(part.features.nbytes + part.rows.nbytes for part in ordered),
        "picks_per_part": [len(part.rows) for part in ordered],
        "seconds_per_part": [round(part.seconds, 3) for part in ordered],
        "resumed": resumed,
    }
    return ordered, record


def _union(source: Shards, parts: list[ShardResult]) -> GatheredRows:
    numbers = [part.rows + shard.first for shard, part in zip(source.parts, parts, strict=True)]
    shift = max(part.shift for part in parts)
    return GatheredRows(
        source.name,
        np.concatenate(numbers),
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.groups for part in parts]),
        (shift, max(part.reach for part in parts)),
    )


def require_enough(k: int, per_part: int, source: Shards, excluded: NDArray[np.int64]) -> None:
    """Refuse a k larger than the number of rows that the shards send."""
    free = [
        shard.rows - len(unusable)
        for shard, unusable in zip(source.parts, source.split(excluded), strict=True)
    ]
    require_rows(k, sum(free))
    sent = sum(min(per_part, count) for count in free)
    if sent < k:
        raise InvalidInputError(
            f"must let the {len(source.parts)} shards send at least k={k} rows; with "
            f"{per_part} they send {sent}.",
            parameter="per_part",
        )
