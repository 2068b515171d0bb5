"""The certificate of a merged result, from bounds that are computed on each shard.

At any target prices, the bound of `certificate/` sums the k smallest values over *all* source rows.
Prices are optimised over the rows that the shards have sent. Every shard then returns the k
smallest values of its own rows at those prices, in double precision; the k smallest of all make a
bound that is valid for any prices. Rows with smaller values than those at hand are fetched and the
prices optimised again, until no shard has any, or the bound stops rising.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from uniproto.certificate.ascent import certify
from uniproto.certificate.bound import rounded_down
from uniproto.certificate.certificate import SHIFTED, Certificate
from uniproto.fills.priced_fills import cheapest_units_of_rows, exact_values
from uniproto.geometry.blocks import block_rows
from uniproto.geometry.costs import Costs
from uniproto.geometry.rounded_costs import LeastCosts
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress
from uniproto.runtime.threads import parallel_map, pieces_of
from uniproto.scale.cluster import Cluster
from uniproto.scale.parts import (
    GatheredRows,
    Request,
    Settings,
    free_rows,
    groups_of_rows,
    problem_of,
)
from uniproto.scale.shards import Shard, read_features
from uniproto.scale.target import PlacedTarget, Target
from uniproto.selection.selection import Selection

_MOST_PASSES = 8  # over all shards
_LEAST_RISE = 1e-4  # relative, for another pass
_MOST_EXACT_ENTRIES = 10**9  # of a shard, recomputed in double precision; beyond, bounds are used
_SPARE_ROWS = 64
_FEWEST_ADDED = 2000  # rows that a pass may add, from all shards together


@dataclass(frozen=True)
class LowRows:
    """Rows of the smallest values, and the features of those that the driver does not have."""

    rows: NDArray[np.int64]
    groups: NDArray[np.int64]  # the place of every row's group
    values: NDArray[np.float64]
    new: NDArray[np.int64]  # positions in `rows`
    features: NDArray[Any]


def certify_shards(
    request: Request,
    cluster: Cluster,
    placed: PlacedTarget,
    merged: Selection,
    union: GatheredRows,
    bars: Progress,
) -> tuple[Certificate, list[dict[str, Any]]]:
    """The best bound, and a record of each pass over the shards."""
    begin = time.perf_counter()
    deadline = math.inf if request.time_limit is None else begin + request.time_limit
    source, settings = request.source, request.settings
    target = placed.target
    prices, steps = np.zeros(placed.count), 0
    best, best_prices = -math.inf, prices
    passes: list[dict[str, Any]] = []
    while True:
        started = time.perf_counter()
        active = union.problem(settings, target)
        left = None if math.isinf(deadline) else max(deadline - started, 1.0)
        found = (
            merged.certify(seconds=left, progress=bars.shown)
            if not passes
            else certify(active, merged.cost, prices, time_limit=left, progress=bars)
        )
        prices, steps = found.prices, steps + found.steps
        raised = time.perf_counter()
        limits = [
            float(lowest_values(active, rows, prices, count)[1][-1]) if count else -math.inf
            for rows, count in _quotas(active, union.groups, settings)
        ]
        low = _lowest_of_shards(request, cluster, placed, union, prices, limits, bars)
        bound = _combined(active, prices, low, _counts(settings))
        rise = bound - best
        if bound > best:
            best, best_prices = bound, prices
        new_rows, new_features, new_groups = _worth_adding(source.parts, low, settings.k)
        passes.append(
            {
                "round": f"certificate {len(passes) + 1}",
                "rows": source.rows,
                "seconds": time.perf_counter() - started,
                "seconds_raising": raised - started,
                "lower_bound": bound,
                "rows_added": len(new_rows),
                "bytes_read": sum(shard.size for shard in source.parts),
            }
        )
        converged = len(new_rows) == 0 or (len(passes) > 1 and rise <= _LEAST_RISE * abs(best))
        if converged or len(passes) == _MOST_PASSES or time.perf_counter() > deadline:
            break
        union = union.with_rows(new_rows, new_features, new_groups)
    certificate = Certificate(
        lower_bound=best,
        cost=merged.cost,
        prices=best_prices,
        converged=converged,
        steps=steps,
        seconds=time.perf_counter() - begin,
        relative=target.metric not in SHIFTED,
    )
    return certificate, passes


def _lowest_of_shards(
    request: Request,
    cluster: Cluster,
    placed: PlacedTarget,
    union: GatheredRows,
    prices: NDArray[np.float64],
    limits: list[float],
    bars: Progress,
) -> list[LowRows]:
    """Every shard's smallest values at these prices, in the order of the shards."""
    source, settings = request.source, request.settings
    fewest = -(-_FEWEST_ADDED // len(source.parts) // len(limits))
    stored_prices = cluster.put(prices)
    shared = (settings, placed.reference, stored_prices, union.scale, fewest, limits)
    known, excluded = source.split(union.numbers), source.split(request.excluded)
    tasks = [
        (shard, shard.content, *shared, have, unusable)
        for shard, have, unusable in zip(source.parts, known, excluded, strict=True)
    ]
    low: dict[int, LowRows] = {}
    with bars.stage("certificate: shards", len(tasks)) as advance:
        for place, part in cluster.as_finished(low_rows, tasks):
            low[place] = part
            advance(1)
    return [low[place] for place in range(len(tasks))]


def _counts(settings: Settings) -> tuple[int, ...]:
    """The number of rows to sum in each group; without groups, k."""
    return (settings.k,) if settings.groups is None else settings.groups.quotas


def _quotas(
    problem: Problem, groups: NDArray[np.int64], settings: Settings
) -> list[tuple[NDArray[np.intp], int]]:
    """The rows of each group that may be chosen, and how many of them are summed."""
    free = problem.candidates
    counts = enumerate(_counts(settings))
    return [(free[groups[free] == place], count) for place, count in counts]


def _combined(
    problem: Problem, prices: NDArray[np.float64], low: list[LowRows], counts: tuple[int, ...]
) -> float:
    """The bound from the smallest values of all shards, rounded down; at least 0."""
    values = np.concatenate([part.values for part in low])
    groups = np.concatenate([part.groups for part in low])
    total = -math.fsum(problem.masses.offer / problem.masses.need * prices)
    for place, count in enumerate(counts):
        if count:
            total += math.fsum(np.partition(values[groups == place], count - 1)[:count])
    return rounded_down(problem, prices, total)


def _worth_adding(
    shards: tuple[Shard, ...], low: list[LowRows], k: int
) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[np.int64]]:
    """The new rows of smallest values, sorted by number."""
    numbers = np.concatenate(
        [part.rows[part.new] + shard.first for shard, part in zip(shards, low, strict=True)]
    )
    values = np.concatenate([part.values[part.new] for part in low])
    features = np.concatenate([part.features for part in low])
    groups = np.concatenate([part.groups[part.new] for part in low])
    smallest = np.sort(np.argsort(values, kind="stable")[: max(4 * k, _FEWEST_ADDED)])
    return numbers[smallest], features[smallest], groups[smallest]


# --- in the cluster -------------------------------------------------------------------------------


def low_rows(
    shard: Shard,
    content: Any,
    settings: Settings,
    target: Target,
    prices: NDArray[np.float64],
    scale: tuple[float, float],
    fewest: int,
    limits: list[float],
    known: NDArray[np.int64],
    excluded: NDArray[np.int64],
) -> LowRows:
    """The smallest values of each group of a shard, at least as many as are summed.

    Includes the features of new rows whose values are below the group's limit.
    """
    free = free_rows(shard, excluded)
    nothing = np.empty(0, np.int64)
    if len(free) == 0:
        return LowRows(nothing, nothing, np.empty(0), nothing, target.rows[:0])
    features = read_features(shard, content, settings.columns)
    costs = target.costs_of(features, shard.name, scale)
    problem = problem_of(costs, settings.k, free, settings, target)
    places = groups_of_rows(shard, content, settings)
    found = [
        lowest_values(problem, own, prices, max(count, fewest))
        for own, count in _quotas(problem, places, settings)
        if count and len(own)
    ]
    rows = np.concatenate([nothing, *(some for some, _ in found)])
    values = np.concatenate([np.empty(0), *(some for _, some in found)])
    groups = places[rows]
    new = np.flatnonzero((values < np.array(limits)[groups]) & ~np.isin(rows, known))
    return LowRows(rows, groups, values, new, features[rows[new]])


def lowest_values(
    problem: Problem, rows: NDArray[np.intp], prices: NDArray[np.float64], count: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The rows of the `count` smallest values at these prices, in ascending order, rounded down.

    Values are computed in the costs' own precision; those that may be among the smallest again in
    double precision, with each cost rounded down. If these are too many, the rest are replaced by
    their lower bounds.
    """
    count = min(count, len(rows))
    offer, need = problem.masses.offer, problem.masses.need

    def value(piece: slice) -> NDArray[np.float64]:
        block = problem.costs.block(rows[piece]).astype(np.float64)
        return cheapest_units_of_rows(block, prices, offer, need)

    pieces = pieces_of(len(rows), block_rows(problem.n, itemsize=8))
    values = np.concatenate(list(parallel_map(value, pieces))) - problem.costs.rounding
    order = np.argsort(values, kind="stable")
    reach = values[order[count - 1]] + 2 * problem.costs.rounding
    likely = int(np.searchsorted(values[order], reach, side="right"))
    allowed = max(2 * count + _SPARE_ROWS, _MOST_EXACT_ENTRIES // problem.n)
    exact = order[: min(likely, allowed)]
    exactly = problem.changed(costs=cast(Costs, LeastCosts(problem.costs)))
    values[exact] = exact_values(exactly, rows[exact], prices)
    smallest = np.argsort(values, kind="stable")[:count]
    return rows[smallest], values[smallest]
