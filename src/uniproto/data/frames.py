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
    if hasattr(values, "to_frame") and not hasattr(values, "columns"):
        remedy = "Pass a table with that column alone: values.to_frame()."
        raise invalid(parameter, "must be a table or rows of numbers", "a single column", remedy)
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


def column_name(table: Any, values: Any) -> str | None:
    """The name of the table's column that these values are, such as `df.species`; else None.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [20, 30], "kind": ["a", "b"]})
    >>> column_name(frame, frame.kind), column_name(frame, frame.kind.str.upper())
    ('kind', None)
    """
    name = getattr(values, "name", None)
    if not isinstance(name, str) or not hasattr(values, "equals") or isinstance(table, pa.Table):
        return None
    if name not in getattr(table, "columns", ()) or type(table[name]) is not type(values):
        return None
    return name if table[name].equals(values) else None


def _with_known_levels(table: pa.Table) -> pa.Table:
    """The same table, texts and categories of polars in types that can be computed with."""
    for place, field in enumerate(table.schema):
        kind = field.type
        if pa.types.is_dictionary(kind) and str(kind.value_type) == "string_view":
            kind = pa.dictionary(pa.int32(), pa.large_string(), kind.ordered)
            chunks = [
                pa.DictionaryArray.from_arrays(
                    chunk.indices.cast(pa.int32()),
                    chunk.dictionary.cast(pa.large_string()),
                    ordered=kind.ordered,
                )
                for chunk in table.column(place).chunks
            ]
            table = table.set_column(place, field.name, pa.chunked_array(chunks, kind))
        elif str(kind) == "string_view":
            texts = table.column(place).cast(pa.large_string())
            table = table.set_column(place, field.name, texts)
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
    if hasattr(values, "cat"):  # such as pandas.cut makes, whose order counts
        levels = pa.array(map(str, values.cat.categories), pa.large_string())
        codes = pa.array(values.cat.codes.to_numpy(), mask=values.isna().to_numpy())
        return pa.DictionaryArray.from_arrays(codes, levels, ordered=bool(values.cat.ordered))
    shown = [None if gap else str(each) for each, gap in zip(values, values.isna(), strict=True)]
    return pa.array(shown, pa.large_string())
