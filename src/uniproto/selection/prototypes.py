"""The prototypes themselves, one by one and as a table for people; and which rows are theirs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.arrays import take_rows
from uniproto.data.tables import rows_as_table
from uniproto.errors import InvalidInputError
from uniproto.geometry.blocks import EVERY, row_blocks
from uniproto.geometry.costs import MATRIX_METRICS
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.report.targets import owners_of

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection


@dataclass(frozen=True)
class Prototype:
    """One prototype: its rank from 1, its row of the source, and what it represents.

    `targets` are the target rows it represents and `shares` how much of its mass goes to each;
    they sum to 1. `values` are the row's own values by column, where they are known.
    """

    rank: int
    index: int
    weight: float
    gain: float
    targets: NDArray[np.intp]
    shares: NDArray[np.float64]
    values: dict[str, Any]


def prototype(selection: Selection, place: int) -> Prototype:
    """The prototype at a place of the picks, from 0."""
    targets, masses = targets_of(selection.plan, place)
    rows = chosen_rows(selection, np.array([place]))
    return Prototype(
        rank=place + 1,
        index=int(selection.indices[place]),
        weight=float(selection.weights[place]),
        gain=float(selection.details.gains[place]),
        targets=targets,
        shares=masses * selection.k,
        values={} if rows is None else rows.to_pylist()[0],
    )


def targets_of(plan: sp.csr_array, place: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The targets of a prototype and the mass of each, those it serves most of first."""
    part = slice(plan.indptr[place], plan.indptr[place + 1])
    order = np.argsort(-plan.data[part], kind="stable")
    return plan.indices[part][order].astype(np.intp), plan.data[part][order]


def prototype_table(selection: Selection, rows: pa.Table | None = None) -> pa.Table:
    """A line per prototype: its row number, rank, how many targets it represents, its own values.

    A target counts with the prototype that takes most of it. Where weights differ, there is the
    weight as well. `rows` are the values, if they are at hand; their columns keep their names.
    """
    weights, owners = selection.weights, owners_of(selection.plan)
    ours: dict[str, Any] = {
        "row": selection.indices,
        "rank": np.arange(1, selection.k + 1),
        "represents": np.bincount(owners[owners >= 0], minlength=selection.k),
        **({} if np.ptp(weights) == 0 else {"weight": weights}),
    }
    rows = chosen_rows(selection, np.arange(selection.k)) if rows is None else rows
    values = {} if rows is None else dict(zip(rows.column_names, rows.columns, strict=True))
    named = {f"prototype_{name}" if name in values else name: of for name, of in ours.items()}
    return pa.table({**named, **values})


def chosen_rows(selection: Selection, places: NDArray[np.intp]) -> pa.Table | None:
    """The prototypes' own values: columns of a table, or x0, x1, … of an array."""
    if selection.details.prototypes is not None:
        return selection.details.prototypes.take(places)
    if selection.details.given.source is None:
        return None
    return rows_as_table(selection.details.given.source, selection.indices[places])


def write_csv(table: pa.Table, file: Any) -> None:
    """Write the columns that a CSV file has room for: no lists and no bytes."""
    import pyarrow.csv as csv

    columns = {}
    for name, values in zip(table.column_names, table.columns, strict=True):
        kind = values.type
        if not (pa.types.is_nested(kind) or "binary" in str(kind)):
            plain = values.cast(kind.value_type) if pa.types.is_dictionary(kind) else values
            columns[name] = plain
    csv.write_csv(pa.table(columns), file)


# --- which prototype a row belongs to, and how far it is from it ----------------------------------


class Assignment(NamedTuple):
    """For every row: the position of its prototype in `Selection.indices`, and its distance."""

    prototype: NDArray[np.intp]
    distance: NDArray[np.float64]


def assigned_targets(selection: Selection, problem: Problem | None) -> Assignment:
    """The prototype that takes most of each target, by the plan.

    A target without weight has the position -1. A selection that was loaded has no
    problem any more, and then knows no distances: they are NaN.
    """
    owners = owners_of(selection.plan)
    distances = np.full(len(owners), np.nan)
    if problem is not None:
        for place in np.unique(owners[owners >= 0]):
            own = np.flatnonzero(owners == place)
            distances[own] = problem.costs.exact_block(selection.indices[place : place + 1], own)[0]
    return Assignment(owners, distances)


def nearest_of(selection: Selection, problem: Problem | None, rows: Any) -> Assignment:
    """The nearest prototype of each row."""
    if selection.details.metric in MATRIX_METRICS:
        raise InvalidInputError(
            f"New rows have no cost under metric={selection.details.metric!r}. Call assign() for "
            "the targets."
        )
    given, chosen = selection.details.given, selection.details.prototypes
    if given.source is not None:
        chosen = take_rows(given.source, selection.indices)
    is_lost = problem is None and (not given.columns or selection.details.metric == "dot")
    if chosen is None or is_lost:
        raise InvalidInputError(
            "This selection was loaded without its prototypes' features. Select again; results of "
            "a table keep them."
        )
    features, prototypes = given.features(rows, "rows"), given.features(chosen)
    if features.shape[1] != prototypes.shape[1]:
        raise InvalidInputError(
            f"must have as many features as the prototypes, {prototypes.shape[1]} (got "
            f"{features.shape[1]}).",
            parameter="rows",
        )
    shift = None if problem is None else problem.costs.shift  # type: ignore[attr-defined]
    how = (selection.details.metric, shift or 0.0, selection.details.bandwidth)
    nearest, distances = [], []
    for costs in _costs_of_blocks(features, prototypes, *how):
        apart = _all_costs(costs.unsaturated())  # which rises with every distance
        place = apart.argmin(axis=1)
        own = apart if selection.details.bandwidth is None else _all_costs(costs)
        nearest.append(place)
        distances.append(np.take_along_axis(own, place[:, None], axis=1)[:, 0])
    return Assignment(np.concatenate(nearest), np.concatenate(distances))


def costs_by_block(
    rows: Any,
    prototypes: Any,
    metric: str,
    shift: float | None,
    bandwidth: float | None = None,
    *,
    saturated: bool = True,
) -> Iterator[NDArray[np.float64]]:
    """Costs of all rows to all prototypes, some rows at a time; `shift` is that of `dot`.

    Without `saturated`, costs that rise with every distance, for finding the nearest.
    """
    for costs in _costs_of_blocks(rows, prototypes, metric, shift, bandwidth):
        yield _all_costs(costs if saturated else costs.unsaturated())


def _costs_of_blocks(
    rows: Any, prototypes: Any, metric: str, shift: float | None, bandwidth: float | None
) -> Iterator[FeatureCosts]:
    prototypes = prototypes.astype(np.float64)
    for part in row_blocks(rows.shape[0], prototypes.shape[0]):
        block = rows[part].astype(np.float64)  # single precision blurs distances near 0
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses such costs
            costs = FeatureCosts(block, prototypes, metric, shift, 0.0, bandwidth=bandwidth)
        yield costs


def _all_costs(costs: FeatureCosts) -> NDArray[np.float64]:
    with np.errstate(over="ignore", invalid="ignore"):
        found = costs.block(EVERY)
        return found if costs.metric == "dot" else np.maximum(found, 0.0)
