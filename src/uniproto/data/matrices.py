"""Rows of numbers from Arrow columns: numeric ones side by side, or one column of lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.errors import invalid


def numeric_matrix(table: pa.Table, parameter: str) -> NDArray[Any]:
    """Rows of numbers from numeric columns side by side, or from one list column."""
    if 0 in table.shape:
        raise invalid(
            parameter,
            "must have at least one row and one column of features",
            f"{table.num_rows} rows and {table.num_columns} columns",
            "Check how it was loaded or filtered.",
        )
    if table.num_columns == 1 and is_list(table.schema.field(0).type):
        return _list_matrix(table.column(0), parameter)
    wrong = [f"{field.name} ({field.type})" for field in table.schema if not is_numeric(field.type)]
    if wrong:
        raise invalid(
            parameter,
            "must have only numeric columns, or one list column of features",
            f"the columns {', '.join(wrong)}",
            "Keep only the features; on the command line name them by --features (a list column "
            "by --column), leave other columns aside by --ignore, --id, --labels, --groups and "
            "--weights, or embed a column of texts or pictures by --text or --images.",
        )
    for field, values in zip(table.schema, table.columns, strict=True):
        if values.null_count:
            raise invalid(
                parameter,
                "must have no missing values",
                f"{values.null_count} in column {field.name!r}",
                "Drop or impute those rows.",
            )
    return np.column_stack([values.to_numpy() for values in table.columns])


def is_numeric(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def is_text(kind: pa.DataType) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _list_matrix(lists: pa.ChunkedArray, parameter: str) -> NDArray[Any]:
    import pyarrow.compute as pc

    kind = lists.type.value_type
    if not is_numeric(kind):
        raise invalid(parameter, "must hold lists of numbers", f"lists of {kind}", "Convert them.")
    if lists.null_count:
        raise invalid(
            parameter,
            "must have no missing feature lists",
            f"{lists.null_count} missing",
            "Drop those rows.",
        )
    widths = np.unique(pc.list_value_length(lists).to_numpy())
    if len(widths) != 1:
        raise invalid(
            parameter,
            "must have feature lists of one length",
            f"lengths from {widths[0]} to {widths[-1]}",
            "Give every row the same number of features.",
        )
    parts = [chunk.flatten() for chunk in lists.chunks]
    if missing := sum(part.null_count for part in parts):
        raise invalid(
            parameter,
            "must have no missing features",
            f"{missing} missing",
            "Drop or impute those rows.",
        )
    flat = np.concatenate([part.to_numpy(zero_copy_only=False) for part in parts])
    return flat.reshape(len(lists), int(widths[0]))
