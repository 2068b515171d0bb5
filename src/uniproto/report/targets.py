"""Targets: what they cost, which of them are shown, and where they lie on the map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import svds

from uniproto.data.arrays import dense, take_rows
from uniproto.data.columns import arrow_table
from uniproto.features.column_values import plain_column
from uniproto.features.preparation import Preparation, PreparedColumn
from uniproto.geometry.blocks import spread_rows
from uniproto.geometry.costs import Costs
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.problem.problem import Problem
from uniproto.report.words import NO_DATA, counted

if TYPE_CHECKING:
    from uniproto.report.content import Content

MOST_DRAWN = 8_000  # targets on the map
_FEWEST_DRAWN = 3  # of every prototype
_WORST = 24
_WIDE_GAP = 60.0  # degrees of longitude without a place, where a map may be cut


def is_one_set(problem: Problem | None, shape: tuple[int, int]) -> bool:
    """Whether the target is the source."""
    if problem is not None and isinstance(problem.costs, FeatureCosts):
        return problem.same_set
    return shape[0] == shape[1]


def arc_costs(problem: Problem, rows: NDArray[np.int64], plan: sp.csr_array) -> NDArray[np.float64]:
    """The cost of every entry of the plan."""
    found = np.empty(plan.nnz)
    for place, row in enumerate(rows):
        part = slice(plan.indptr[place], plan.indptr[place + 1])
        columns = plan.indices[part].astype(np.intp)
        found[part] = problem.costs.exact_block(np.array([row]), columns)[0]
    return found


def costs_of_targets(
    plan: sp.csr_array, arcs: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What it costs to reach each target, per unit of its mass; NaN where it has none."""
    carried = np.bincount(plan.indices, plan.data * arcs, minlength=len(weights))
    with np.errstate(all="ignore"):
        return np.where(weights > 0, carried / weights, np.nan)


def typical_cost(costs: NDArray[np.float64], weights: NDArray[np.float64]) -> float:
    """The cost that half of the mass does not exceed."""
    order = np.argsort(costs)[: np.count_nonzero(weights)]  # what has no weight is NaN, and last
    reached = np.cumsum(weights[order]) >= 0.5 * (1 - 1e-12) * weights.sum()
    return float(costs[order[int(np.argmax(reached))]])


def worst_targets(
    costs: NDArray[np.float64] | None, weights: NDArray[np.float64]
) -> NDArray[np.intp]:
    if costs is None:
        return np.empty(0, np.intp)
    order = np.argsort(-np.where(weights > 0, costs, -np.inf), kind="stable")[:_WORST]
    return order[weights[order] > 0]


def owners_of(plan: sp.csr_array) -> NDArray[np.intp]:
    """The prototype that takes most of each target; -1 where it has no weight."""
    owners = np.full(plan.shape[1], -1, np.intp)
    places = np.repeat(np.arange(plan.shape[0]), np.diff(plan.indptr))
    order = np.lexsort((-plan.data, plan.indices))
    targets, first = np.unique(plan.indices[order], return_index=True)
    owners[targets] = places[order][first]
    return owners


def drawn_targets(
    plan: sp.csr_array, weights: NDArray[np.float64], worst: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Targets for the map: all that weigh something, or a sample with a share of each prototype's.

    A target without weight belongs to no prototype: it may be a row that could not be read.
    """
    k, n = plan.shape[0], int((weights > 0).sum())
    if n <= MOST_DRAWN:
        return np.flatnonzero(weights)
    owners = owners_of(plan)
    generator = np.random.default_rng(0)
    drawn = [worst]
    for place in range(k):
        own = np.flatnonzero(owners == place)
        count = min(len(own), max(_FEWEST_DRAWN, round(len(own) * MOST_DRAWN / n)))
        drawn.append(generator.choice(own, count, replace=False))
    return np.unique(np.concatenate(drawn)).astype(np.intp)


def cited_targets(
    plan: sp.csr_array,
    arcs: NDArray[np.float64] | None,
    place: int,
    own_rows: NDArray[np.int64] | None,
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The targets a prototype's card shows: by mass, the nearest first; not the row itself."""
    part = slice(plan.indptr[place], plan.indptr[place + 1])
    targets, shares = plan.indices[part].astype(np.intp), plan.data[part] * plan.shape[0]
    near = np.zeros(len(targets)) if arcs is None else arcs[part]
    order = np.lexsort((near, -shares.round(9)))
    if own_rows is not None:
        order = order[targets[order] != own_rows[place]]
    most = 8 if plan.shape[0] <= 200 else 6 if plan.shape[0] <= 500 else 5
    return targets[order[:most]], shares[order[:most]]


def map_of(content: Content, drawn: NDArray[np.intp]) -> tuple[TargetMap | None, str]:
    """Where targets and prototypes lie on the map, and a note about it."""
    source, target, rows = content.source, content.target, content.selection.indices
    k, n = content.k, content.weighed
    if source.positions is not None and target.positions is not None:
        projection = TargetMap(
            target.positions[drawn],
            source.positions[rows],
            ("first coordinate", "second coordinate"),
            "Axes: the coordinates that were given.",
        )
    elif content.problem is not None:
        projection = project(content.problem, content.plan, rows, drawn)
    else:
        return None, NO_DATA
    sampled = (
        f"Shown {len(drawn):,} of {n:,} targets: a sample in which every {content.noun} keeps its "
        f"share, and the {_WORST} worst-covered. All {counted(k, content.noun)} are drawn. "
        if len(drawn) < n
        else f"All {counted(n, 'target')} and {counted(k, content.noun)} are drawn. "
    )
    return projection, sampled + projection.words


_SAMPLED_ROWS = 10_000  # the directions are learned from
_SAMPLED_VALUES = 40_000_000  # and fewer rows where they are wide
_FEWEST_ROWS = 200
_DENSE_COMPONENTS = 500  # columns, or rows, whose directions are all computed
_LANDMARKS = 256  # prototypes whose costs describe a target that has no features


@dataclass(frozen=True)
class TargetMap:
    """Coordinates of targets and prototypes, the axes' names, and a note on how they were made."""

    targets: NDArray[np.float64]
    prototypes: NDArray[np.float64]
    axes: tuple[str, str]
    words: str
    degree: float | None = None  # of places: the length of a unit of x, in units of y


def project(
    problem: Problem,
    plan: sp.csr_array,
    prototypes: NDArray[np.int64],
    targets: NDArray[np.intp],
) -> TargetMap:
    """Longitude and latitude, or the two directions along which the target varies most.

    Features are seen as the metric sees them: of unit length for `cosine`. Without features a
    target is described by what it costs to reach it from the prototypes.
    """
    given, costs = problem.given, problem.costs
    if isinstance(given.preparation, Preparation):
        for column in given.preparation.columns:
            if column.pair:
                axes = (column.pair, column.name)
                words = f"Axes: {column.pair} and {column.name}."
                shown = ((given.target, targets), (given.source, prototypes))
                places = [_places(column, take_rows(rows, some)) for rows, some in shown]
                west = _western_end(np.concatenate(places)[:, 0])
                for each in places:
                    each[:, 0] = (each[:, 0] - west) % 360 + west
                low, high = np.radians((places[0][:, 1].min(), places[0][:, 1].max()))
                return TargetMap(places[0], places[1], axes, words, float(np.cos((low + high) / 2)))
    if isinstance(costs, FeatureCosts):
        return _of_features(costs, prototypes, targets)
    return _of_costs(costs, plan, prototypes, targets)


def _places(column: PreparedColumn, rows: Any) -> NDArray[np.float64]:
    """Longitude and latitude; a gap lies in the middle of the others."""
    table = arrow_table(rows, "source")
    read = [column.numbers(plain_column(table.column(name))) for name in column.names]
    found = np.column_stack(read[::-1])
    middle = np.nanmean(found, axis=0) if (~np.isnan(found)).any(axis=0).all() else 0.0
    return np.where(np.isnan(found), middle, found)


def _western_end(longitudes: NDArray[np.float64]) -> float:
    """Where a map begins: east of a wide gap, so that what lies near is near across 180°.

    >>> _western_end(np.array([-170.0, -60.0, 145.0])), _western_end(np.array([5.0, 8.0]))
    (145.0, 5.0)
    """
    known = np.unique(longitudes)
    gaps = np.diff(known)
    if not len(gaps) or gaps.max() < max(_WIDE_GAP, known[0] + 360 - known[-1]):
        return float(known[0])
    return float(known[np.argmax(gaps) + 1])


def _of_features(
    costs: FeatureCosts, prototypes: NDArray[np.int64], targets: NDArray[np.intp]
) -> TargetMap:
    n, width = costs.target.shape
    drawn, chosen = costs.target[targets], costs.source[prototypes]
    seen = " of unit length, as cosine compares directions only" if costs.metric == "cosine" else ""
    if width <= 2 and not sp.issparse(drawn):
        return TargetMap(
            _two(np.asarray(drawn, np.float64)),
            _two(np.asarray(chosen, np.float64)),
            ("first feature", "second feature"),
            f"Axes: the features themselves{seen}.",
        )
    most = max(_FEWEST_ROWS, min(_SAMPLED_ROWS, _SAMPLED_VALUES // width))
    sample = np.arange(n)
    if n > most:
        sample = np.sort(np.random.default_rng(0).choice(n, most, replace=False))
    fitted, shares = _fit(costs.target[sample])
    of = "" if len(sample) == n else f", learned from {len(sample):,} of {n:,} targets"
    return TargetMap(
        fitted(drawn),
        fitted(chosen),
        _axes("principal direction", shares),
        f"Axes: principal components of the features{seen}{of}. The two show {shares.sum():.0%} "
        "of the variance; points that seem close may be far apart in the rest.",
    )


def _of_costs(
    costs: Costs,
    plan: sp.csr_array,
    prototypes: NDArray[np.int64],
    targets: NDArray[np.intp],
) -> TargetMap:
    m, n = costs.shape
    landmarks = prototypes[spread_rows(len(prototypes), _LANDMARKS)]
    described = costs.block(landmarks, targets).T.astype(np.float64)
    fitted, shares = _fit(described)
    if m == n:  # a square matrix: the prototypes are targets themselves
        chosen = fitted(costs.block(landmarks, prototypes).T.astype(np.float64))
        where = "a prototype lies where it lies as a target"
    else:
        part = sp.csr_array(sp.csc_array(plan)[:, targets])
        total = np.asarray(part.sum(axis=1)).ravel()
        positions = fitted(described)
        chosen = (part @ positions) / np.where(total > 0, total, 1)[:, None]
        where = "a prototype lies in the middle of the targets it represents"
    return TargetMap(
        fitted(described),
        chosen,
        _axes("direction of costs", shares),
        "The metric has no features, so a target is described by its costs from "
        f"{len(landmarks):,} prototypes; axes: principal components of these ({shares.sum():.0%} "
        f"of the variance); {where}.",
    )


def _fit(rows: Any) -> tuple[Any, NDArray[np.float64]]:
    """A function to two principal components, and their shares of the variance.

    Sparse rows stay sparse: their components are those around 0.
    """
    count = min(2, *rows.shape)
    if stays_sparse := sp.issparse(rows) and min(rows.shape) > count and rows.nnz > 0:
        middle: Any = 0.0
        total = float(rows.power(2).mean(axis=0).sum() - np.square(rows.mean(axis=0)).sum())
    else:
        rows = dense(rows)
        middle = rows.mean(axis=0)
        rows = rows - middle
        total = float(np.square(rows).mean(axis=0).sum())
    components = _components(rows, count) if total > 0 else np.eye(count, rows.shape[1])
    # Of a direction and its opposite, the one whose largest loading is positive.
    loading = components[np.arange(count), np.abs(components).argmax(axis=1)]
    components = components * np.where(loading < 0, -1.0, 1.0)[:, None]
    shares = np.asarray(rows @ components.T).var(axis=0) / total if total > 0 else np.zeros(count)

    def transform(some: Any) -> NDArray[np.float64]:
        if not stays_sparse:
            some = dense(some) - middle
        return _two(np.asarray(some @ components.T, np.float64))

    return transform, shares


def _components(rows: Any, count: int) -> NDArray[np.float64]:
    """The first right singular vectors; scikit-learn's would take a second to load."""
    if sp.issparse(rows) or min(rows.shape) > _DENSE_COMPONENTS:
        return np.asarray(svds(rows, count, v0=np.ones(min(rows.shape)))[2][::-1])
    if rows.shape[0] < rows.shape[1]:
        return np.asarray(np.linalg.svd(rows, full_matrices=False)[2][:count])
    return np.asarray(np.linalg.eigh(rows.T @ rows)[1][:, ::-1][:, :count].T)


def _two(values: NDArray[np.float64]) -> NDArray[np.float64]:
    found = np.zeros((len(values), 2))
    found[:, : values.shape[1]] = values[:, :2]
    return np.nan_to_num(found)


def _axes(name: str, shares: NDArray[np.float64]) -> tuple[str, str]:
    first, second = [*shares.tolist(), 0.0, 0.0][:2]
    return f"first {name} ({first:.0%} of variance)", f"second {name} ({second:.0%} of variance)"
