"""Columns of tables: which of them are the features, and the rows of numbers they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.errors import InputFileError, invalid, unknown_name

# What stands for a gap among numbers or dates, in tables as people have them.
GAP_WORDS = frozenset(
    ("", "?", "-", "--", ".", "..", "na", "n/a", "#n/a", "nan", "nat", "null", "none", "missing")
)
GAPS = sorted({form(word) for word in GAP_WORDS for form in (str, str.upper, str.title)} | {"NaN"})


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
            "Pass the columns of numbers, or the list column, alone: df[['a', 'b']]; on the "
            "command line by --features (a list column by --column) or by --ignore. Texts and "
            "pictures are embedded first, by --text or --images.",
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


def split_names(given: Sequence[str], known: Collection[str]) -> list[str]:
    """Names as an option gives them, once or often: one whole name, or names with commas between.

    Where a column is called so, commas belong to its name.

    >>> split_names(["a,b", "net, EUR"], ["a", "b", "net, EUR"])
    ['a', 'b', 'net, EUR']
    """
    names = []
    for text in given:
        parts = [text] if text in known else text.split(",")
        names += [part if part in known else part.strip() for part in parts]
    return [name for name in names if name]


def only_features(
    given: Sequence[str], known: Collection[str], aside: Collection[str], path: str | Path
) -> list[str]:
    """The columns that --features names, in its order.

    >>> only_features(["b,a"], ["a", "b", "c"], ["c"], "pool.csv")
    ['b', 'a']
    """
    names = split_names(given, known)
    if not names:
        raise invalid("--features", "must name columns", repr(",".join(given)), "Try a,b,c.")
    require_columns(names, known, "--features", path)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise invalid("--features", "must name a column once", ", ".join(twice), "Drop the rest.")
    if both := [name for name in names if name in aside]:
        raise invalid(
            "--features",
            "must name columns that no other option sets aside",
            ", ".join(both),
            "Leave them out of one of the two.",
        )
    return names


def ignored_columns(
    given: Sequence[str],
    schema: pa.Schema,
    path: str | Path,
    *,
    others: Collection[str] = (),
    in_target: bool = False,
) -> list[str]:
    """The columns that --ignore names. Those of `others`, another file's, need not be in this one.

    With `in_target`, names this file does not have may be of the target, which is read later.
    """
    known = [*schema.names, *(name for name in others if name not in schema.names)]
    names = split_names(given, known)
    if given and not names:
        raise invalid("--ignore", "must name columns", repr(",".join(given)), "Try a,b,c.")
    # A misspelt name leaves a column in. Where that is one of text, it is known at once.
    left = [field for field in schema if field.name not in names]
    if not (in_target and all(is_numeric(field.type) for field in left)):
        require_columns(names, known, "--ignore", path)
    return names


def require_columns(
    names: Sequence[str], known: Collection[str], parameter: str, path: str | Path
) -> None:
    """Refuse names of no column, and offer the nearest."""
    for name in names:
        if name not in known:
            raise InputFileError(f"{path}: {unknown_name(parameter, name, known)}")


def checked_table(table: pa.Table, path: Path) -> pa.Table:
    """Refuse text that is not UTF-8, and names that are not unique."""
    table.validate(full=True)
    twice = [name for name, count in Counter(table.column_names).items() if count > 1]
    if twice:
        raise InputFileError(
            f"{path}: every column must have a name of its own. Got {', '.join(twice)} more than "
            "once instead. Rename the columns; a .csv file needs a first line of names."
        )
    return table
