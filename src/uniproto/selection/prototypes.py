"""The prototypes themselves: one by one, and as a table for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.arrays import is_table, take_rows
from uniproto.data.columns import arrow_table

if TYPE_CHECKING:
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
    plan = selection.plan
    part = slice(plan.indptr[place], plan.indptr[place + 1])
    order = np.argsort(-plan.data[part], kind="stable")
    rows = chosen_rows(selection, np.array([place]))
    return Prototype(
        rank=place + 1,
        index=int(selection.indices[place]),
        weight=float(selection.weights[place]),
        gain=float(selection.details.gains[place]),
        targets=plan.indices[part][order].astype(np.intp),
        shares=plan.data[part][order] * selection.k,
        values={} if rows is None else rows.to_pylist()[0],
    )


def prototype_table(selection: Selection, rows: pa.Table | None = None) -> pa.Table:
    """A line per prototype: its row number, rank, how many targets it represents, its own values.

    Where weights differ, its weight as well. `rows` are the values, if they are at hand.
    """
    weights = selection.weights
    columns: dict[str, Any] = {
        "row": selection.indices,
        "rank": np.arange(1, selection.k + 1),
        "represents": np.diff(selection.plan.indptr),
        **({} if np.ptp(weights) == 0 else {"weight": weights}),
    }
    rows = chosen_rows(selection, np.arange(selection.k)) if rows is None else rows
    if rows is not None:
        for name in rows.column_names:
            columns[f"{name}_" if name in columns else name] = rows.column(name)
    return pa.table(columns)


def chosen_rows(selection: Selection, places: NDArray[np.intp]) -> pa.Table | None:
    """The prototypes' own values: columns of a table, or x0, x1, … of an array."""
    if selection.prototypes is not None:
        return selection.prototypes.take(places)
    given = selection.given
    if given is None or given.source is None:
        return None
    rows = take_rows(given.source, selection.indices[places])
    if is_table(rows):
        return arrow_table(rows, "source")
    if hasattr(rows, "detach"):
        rows = rows.detach().cpu().float()
    dense = rows.toarray() if sp.issparse(rows) else np.asarray(rows)
    return pa.table({f"x{place}": column for place, column in enumerate(dense.T)})


def flat_table(table: pa.Table) -> pa.Table:
    """The columns that a CSV file has room for: no lists and no bytes."""
    names = [
        field.name
        for field in table.schema
        if not (pa.types.is_nested(field.type) or _is_bytes(field.type))
    ]
    return table.select(names)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    ) or pa.types.is_fixed_size_binary(kind)


def write_csv(table: pa.Table, file: Any) -> None:
    """Write a table's flat columns as CSV."""
    import pyarrow.csv as csv

    flat = flat_table(table)
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in flat.columns
    ]
    csv.write_csv(pa.table(columns, names=flat.column_names), file)
