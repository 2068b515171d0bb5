"""Targets: what they cost, which of them are shown, and where they lie on the map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.problem.problem import Problem
from uniproto.report.examples import Examples
from uniproto.report.projection import Projection, project
from uniproto.report.words import NO_DATA, counted

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection

MOST_DRAWN = 8_000  # targets on the map
_FEWEST_DRAWN = 3  # of every prototype
_WORST = 24


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


def worst_targets(
    costs: NDArray[np.float64] | None, weights: NDArray[np.float64]
) -> NDArray[np.intp]:
    if costs is None:
        return np.empty(0, np.intp)
    order = np.argsort(-np.where(weights > 0, costs, -np.inf), kind="stable")[:_WORST]
    return order[weights[order] > 0]


def drawn_targets(
    plan: sp.csr_array, weights: NDArray[np.float64], worst: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Targets for the map: all that weigh something, or a sample with a share of each prototype's.

    A target without weight is nobody's: it may be a row that could not be read.
    """
    k, n = plan.shape[0], int((weights > 0).sum())
    if n <= MOST_DRAWN:
        return np.flatnonzero(weights)
    # Each target counts with the prototype that takes most of it.
    places = np.repeat(np.arange(k), np.diff(plan.indptr))
    order = np.lexsort((-plan.data, plan.indices))
    columns, first = np.unique(plan.indices[order], return_index=True)
    owners = places[order][first]
    generator = np.random.default_rng(0)
    drawn = [worst]
    for place in range(k):
        own = columns[owners == place]
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


def map_of(
    selection: Selection,
    problem: Problem | None,
    source: Examples,
    target: Examples,
    plan: sp.csr_array,
    drawn: NDArray[np.intp],
    n: int,
) -> tuple[Projection | None, str]:
    k = selection.k
    if source.positions is not None and target.positions is not None:
        projection = Projection(
            target.positions[drawn],
            source.positions[selection.indices],
            ("first coordinate", "second coordinate"),
            "Axes: the coordinates that were given.",
        )
    elif problem is not None:
        projection = project(problem.costs, plan, selection.indices, drawn)
    else:
        return None, NO_DATA
    sampled = (
        f"Shown {len(drawn):,} of {n:,} targets: a sample in which every prototype keeps its "
        f"share, and the {_WORST} worst-covered. All {counted(k, 'prototype')} are drawn. "
        if len(drawn) < n
        else f"All {counted(n, 'target')} and {counted(k, 'prototype')} are drawn. "
    )
    return projection, sampled + projection.words
