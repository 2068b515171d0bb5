"""Arrow tables from the data frames that people have."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from uniproto.data.files import first_line
from uniproto.errors import UniprotoError, invalid

_NOT_CONVERTED = (pa.ArrowException, AttributeError, OverflowError, TypeError, ValueError)


def arrow_table(values: Any, parameter: str) -> pa.Table:
    """An Arrow table from an Arrow, pandas or polars one.

    What Arrow has no type for becomes text: intervals, whole numbers beyond 64 bits, values of
    several kinds in one column.
    """
    try:
        if type(values).__module__.startswith("pandas"):
            return _from_pandas(values, parameter)
        return _with_known_levels(pa.table(values))
    except UniprotoError:
        raise
    except _NOT_CONVERTED as error:
        raise invalid(
            parameter,
            "must be a table of numeric columns, or with one column of lists",
            f"a {type(values).__name__} that does not convert ({first_line(error)})",
            "Pass a data frame or a NumPy array of numbers.",
        ) from error


def _with_known_levels(table: pa.Table) -> pa.Table:
    """The same table, categories of polars in a type that can be computed with and written."""
    for place, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type) and str(field.type.value_type) == "string_view":
            chunks = [
                pa.DictionaryArray.from_arrays(
                    chunk.indices.cast(pa.int32()), chunk.dictionary.cast(pa.large_string())
                )
                for chunk in table.column(place).chunks
            ]
            kind = pa.dictionary(pa.int32(), pa.large_string())
            table = table.set_column(place, field.name, pa.chunked_array(chunks, kind))
    return table


def _from_pandas(frame: Any, parameter: str) -> pa.Table:
    names = list(map(str, frame.columns))
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise invalid(
            parameter,
            "must have a name of its own for every column",
            f"{', '.join(twice)} more than once",
            "Rename the columns.",
        )
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except _NOT_CONVERTED:
        return pa.table({name: _column(frame.iloc[:, at]) for at, name in enumerate(names)})
    for place, field in enumerate(table.schema):
        if _is_foreign(field.type):
            table = table.set_column(place, field.name, _texts(frame.iloc[:, place]))
    return table


def _column(values: Any) -> pa.Array:
    try:
        found = pa.array(values, from_pandas=True)
    except _NOT_CONVERTED:
        return _texts(values)
    return _texts(values) if _is_foreign(found.type) else found


def _is_foreign(kind: pa.DataType) -> bool:
    """Whether a type is one that only pandas computes with, such as its intervals."""
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return isinstance(values, pa.BaseExtensionType)


def _texts(values: Any) -> pa.Array:
    shown = [None if gap else str(each) for each, gap in zip(values, values.isna(), strict=True)]
    return pa.array(shown, pa.large_string())
