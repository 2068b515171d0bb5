"""The two rounds: every shard's picks, then a selection from their union (GreeDi).

Each task sees its own shard and the whole target. What comes here is the picks of each shard with
their features, never a shard. The answer follows from the shards, the target and the seed alone:
not from how many workers there are, which of them dies, or the order in which tasks end.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.certificate import Certificate
from uniproto.errors import invalid
from uniproto.runtime.memory import free_bytes, require_memory
from uniproto.runtime.progress import Progress
from uniproto.scale.asked import Asked
from uniproto.scale.bounds import certify_shards
from uniproto.scale.cluster import Cluster
from uniproto.scale.kept import KeptParts
from uniproto.scale.parts import Part, Union, pick_part
from uniproto.scale.shards import Shards, read_first_row
from uniproto.scale.target import LaidDown, Target, lay_down
from uniproto.select import answer
from uniproto.selection.selection import Selection
from uniproto.version import __version__

_COPIES_OF_UNION = 3  # as they come, joined, and ready for the metric


@dataclass
class Answered:
    """The answer, and what a record says about how it came to be."""

    selection: Selection
    target: LaidDown
    digests: list[str]
    rounds: list[dict[str, Any]] = field(default_factory=list)


def answer_question(
    asked: Asked, cluster: Cluster, *, keep: Path | None = None, progress: bool | None = None
) -> Answered:
    """Both rounds, the exact plan of the answer and, where asked for, its certificate."""
    bars = Progress(progress)
    begin = time.perf_counter()
    source, settings = asked.source, asked.settings
    rounds: list[dict[str, Any]] = []
    first_row = _first_row(cluster, source, settings.columns)
    _require_room_for_union(asked, first_row)
    laid = lay_down(cluster, asked.target or source, asked.aim, first_row)
    rounds.append(
        {
            "round": "target",
            "rows": laid.count,
            "seconds": time.perf_counter() - begin,
            "bytes_in_store": laid.size,
        }
    )
    kept = None if keep is None else KeptParts(keep, _identity(asked, laid))
    parts, first_round = _first_round(asked, cluster, laid, kept, bars)
    rounds.append(first_round)

    begin = time.perf_counter()
    target: Target = cluster.get(laid.reference)
    union = _union(source, parts)
    problem = union.problem(settings, target)
    merged = answer(problem, settings.method, progress=progress)
    cost = merged.cost  # the exact plan, which takes its time now
    seconds = time.perf_counter() - begin
    rounds.append(
        {
            "round": 2,
            "rows": len(union.numbers),
            "seconds": seconds,
            "picks": settings.k,
            "cost": cost,
        }
    )
    timings = {
        "target": rounds[0]["seconds"],
        "parts": rounds[1]["seconds"],
        "union": seconds,
    }
    certificate: Certificate | None = None
    if asked.certify:
        certificate, passes = certify_shards(asked, cluster, laid, merged, union, bars)
        rounds += passes
        timings["certificate"] = certificate.seconds
    shape = (source.rows, laid.count)
    selection = merged.renumbered(union.numbers, None, shape)
    selection.certificate, selection.timings = certificate, timings
    selection.notes |= {
        "engine": "ray",
        "parts": len(parts),
        "per_part": settings.per_part,
        "target_sample": asked.aim.sample,
        "resumed_parts": first_round["resumed"],
        "workers": cluster.workers,
        "rounds": rounds,
    }
    return Answered(selection, laid, [part.digest for part in parts], rounds)


def _first_row(cluster: Cluster, source: Shards, columns: tuple[str, ...]) -> NDArray[Any]:
    """One row of the source, which tells the type and number of its features."""
    shard = next(shard for shard in source.parts if shard.rows)
    return cluster.get(cluster.submit(read_first_row, shard, shard.content, columns))


def _require_room_for_union(asked: Asked, first_row: NDArray[Any]) -> None:
    """Find out before the first round, not after it, that its picks do not fit here."""
    settings = asked.settings
    sent = sum(min(settings.per_part, shard.rows) for shard in asked.source.parts)
    require_memory(
        _COPIES_OF_UNION * sent * first_row.nbytes,
        free_bytes(),
        f"the picks of {len(asked.source.parts):,} shards, {sent:,} rows, come together here",
        "Let each shard send fewer: --per-part (per_part=). Or use fewer, larger shards.",
    )


def _identity(asked: Asked, laid: LaidDown) -> dict[str, Any]:
    """Everything that the picks of a part follow from, but for its shard."""
    settings = asked.settings
    return {
        "uniproto": __version__,
        "target": laid.shards.digest(laid.digests),
        "aim": repr(asked.aim),
        "settings": repr(replace(settings, k=0)),  # a part knows only how many it picks
    }


def _first_round(
    asked: Asked, cluster: Cluster, laid: LaidDown, kept: KeptParts | None, bars: Progress
) -> tuple[list[Part], dict[str, Any]]:
    """Every shard's picks; those of shards finished before are read, not computed."""
    begin = time.perf_counter()
    source = asked.source
    excluded = source.split(asked.excluded)
    # Exchanging single rows is left to the union: a part's picks are only candidates.
    settings = replace(asked.settings, method=replace(asked.settings.method, polish=False))
    identities = [
        {"shard": shard.name, "stamp": shard.stamp, "excluded": barred.tolist()}
        for shard, barred in zip(source.parts, excluded, strict=True)
    ]
    parts: dict[int, Part] = {}
    if kept is not None:
        for place, identity in enumerate(identities):
            if (part := kept.read(identity)) is not None:
                parts[place] = part
    resumed, missing = len(parts), [p for p in range(len(source.parts)) if p not in parts]
    with bars.stage("shards", len(source.parts)) as advance:
        advance(resumed)
        tasks = [
            (
                source.parts[place],
                source.parts[place].content,
                settings,
                laid.reference,
                excluded[place],
            )
            for place in missing
        ]
        for done, part in cluster.as_finished(pick_part, tasks):
            place = missing[done]
            if kept is not None:
                kept.write(identities[place], part)
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


def _union(source: Shards, parts: list[Part]) -> Union:
    numbers = [part.rows + shard.first for shard, part in zip(source.parts, parts, strict=True)]
    shift = max(part.shift for part in parts)
    return Union(
        source.name,
        np.concatenate(numbers),
        np.concatenate([part.features for part in parts]),
        (shift, shift + max(part.reach for part in parts)),
    )


def require_enough(
    asked_k: int, per_part: int, source: Shards, excluded: NDArray[np.int64]
) -> None:
    """Refuse a k that the shards cannot give."""
    free = [
        shard.rows - len(barred)
        for shard, barred in zip(source.parts, source.split(excluded), strict=True)
    ]
    if asked_k > sum(free):
        raise invalid(
            "k",
            f"must not exceed the {sum(free)} rows that may be chosen",
            asked_k,
            "Lower k or exclude fewer rows.",
        )
    sent = sum(min(per_part, count) for count in free)
    if sent < asked_k:
        raise invalid(
            "per_part",
            f"must let the {len(source.parts)} shards send at least k={asked_k} rows",
            f"{per_part}, which lets them send {sent}",
            "Raise it, or leave it out.",
        )
