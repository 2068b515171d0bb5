"""Columns of tables: which are features, and their rows of numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.data.files import first_line
from uniproto.data.whole_numbers import require_whole_numbers
from uniproto.errors import InputFileError, InvalidInputError, UniprotoError, unknown_name

ROW_NUMBERS = {b"uniproto": b"row numbers"}  # of a table whose unnamed column was left out
# Strings for missing values among numbers or dates.
_ERRORS = ["#n/a", "#div/0!", "#name?", "#null!", "#num!", "#ref!", "#value!"]  # of spreadsheets
GAP_WORDS = frozenset(
    ["", "?", "-", "--", ".", "..", "na", "n/a", "nan", "nat", "null", "none", "missing", *_ERRORS]
)
GAPS = sorted({form(word) for word in GAP_WORDS for form in (str, str.upper, str.title)} | {"NaN"})


def numeric_matrix(table: pa.Table, parameter: str) -> NDArray[Any]:
    """Rows of numbers from numeric columns side by side, or from one list column."""
    if 0 in table.shape:
        raise InvalidInputError(
            f"must have at least one row and one column of features (got "
            f"{table.num_rows} rows and {table.num_columns} columns).",
            parameter=parameter,
        )
    if table.num_columns == 1 and is_list(table.schema.field(0).type):
        return _list_matrix(table.column(0), parameter)
    wrong = [f"{field.name} ({field.type})" for field in table.schema if not is_numeric(field.type)]
    if wrong:
        raise InvalidInputError(
            f"must have only numeric columns, or one list column of features "
            f"(got {', '.join(wrong)}). Choose columns by --columns, --column or --ignore (in "
            "Python df[['a', 'b']]); embed texts and pictures by --text or --images.",
            parameter=parameter,
        )
    for field, values in zip(table.schema, table.columns, strict=True):
        if values.null_count:
            raise InvalidInputError(
                f"must have no missing values ({values.null_count} in column "
                f"{field.name!r}). Drop or impute those rows.",
                parameter=parameter,
            )
    columns = [values.to_numpy() for values in table.columns]
    for values in columns:  # next to floats, integers are converted, too
        require_whole_numbers(values, parameter)
    return np.column_stack(columns)


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
        raise InvalidInputError(f"must hold lists of numbers, not of {kind}.", parameter=parameter)
    widths = np.unique(pc.list_value_length(lists).to_numpy())
    parts = [chunk.flatten() for chunk in lists.chunks]
    if lists.null_count or any(part.null_count for part in parts):
        raise InvalidInputError(
            "must have no missing features. Drop those rows.", parameter=parameter
        )
    if len(widths) != 1:
        raise InvalidInputError(
            f"must have feature lists of one length (got {widths[0]} to {widths[-1]}).",
            parameter=parameter,
        )
    flat = np.concatenate([part.to_numpy(zero_copy_only=False) for part in parts])
    return flat.reshape(len(lists), int(widths[0]))


def split_names(given: Sequence[str], known: Collection[str]) -> list[str]:
    """Names from an option, given once or repeatedly: a name, or several separated by commas.

    Commas in the name of an existing column belong to it.

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
    """The columns that --columns names, in its order.

    >>> only_features(["b,a"], ["a", "b", "c"], ["c"], "pool.csv")
    ['b', 'a']
    """
    names = split_names(given, known)
    if not names:
        raise InvalidInputError("must name columns, such as a,b,c.", parameter="features")
    require_columns(names, known, "features", path)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidInputError(
            f"must name a column once, not {', '.join(twice)} twice.", parameter="features"
        )
    if both := [name for name in names if name in aside]:
        raise InvalidInputError(
            f"names {', '.join(both)}, which another option names.", parameter="features"
        )
    return names


def ignored_columns(
    given: Sequence[str],
    schema: pa.Schema,
    path: str | Path,
    *,
    others: Collection[str] = (),
) -> list[str]:
    """The columns that --ignore names; they may be `others`, which only another file has."""
    known = [*schema.names, *(name for name in others if name not in schema.names)]
    names = split_names(given, known)
    if given and not names:
        raise InvalidInputError("must name columns, such as a,b,c.", parameter="ignore")
    require_columns(names, known, "ignore", path)
    return names


def require_columns(
    names: Sequence[str], known: Collection[str], parameter: str, path: str | Path
) -> None:
    """Refuse names of missing columns, and offer the nearest."""
    for name in names:
        if name not in known:
            raise InputFileError.of(path, unknown_name(parameter, name, known))


def checked_table(table: pa.Table, path: Path) -> pa.Table:
    """Refuse text that is not UTF-8, and names that are not unique."""
    table.validate(full=True)
    twice = [name for name, count in Counter(table.column_names).items() if count > 1]
    if twice:
        raise InputFileError(
            f"{path}: every column must have a name of its own, and "
            f"{', '.join(name or 'the empty name' for name in twice)} is there more than once. "
            "Rename the columns; a .csv file needs a first line of names."
        )
    return table


_NOT_CONVERTED = (pa.ArrowException, AttributeError, OverflowError, TypeError, ValueError)


def arrow_table(values: Any, parameter: str) -> pa.Table:
    """An Arrow table from an Arrow, pandas or polars one.

    Values without an Arrow type become text: intervals, whole numbers beyond 64 bits, values of
    several kinds in one column. A column of objects becomes one for each of their fields:
    `patient.age`.
    """
    if hasattr(values, "to_frame") and not hasattr(values, "columns"):
        raise InvalidInputError(
            "must be a table, not a single column or row. Pass "
            "values.to_frame(), or values.to_frame().T for a row.",
            parameter=parameter,
        )
    try:
        if type(values).__module__.startswith("pandas"):
            return _flattened(_from_pandas(values, parameter))
        return _flattened(_with_known_levels(pa.table(values)))
    except UniprotoError:
        raise
    except _NOT_CONVERTED as error:
        raise InvalidInputError(
            f"must be a table or an array of numbers. This "
            f"{type(values).__name__} does not convert ({first_line(error)}).",
            parameter=parameter,
        ) from error


def as_frame(table: pa.Table, instead: str) -> Any:
    """A table as a pandas data frame; `instead` names an alternative without pandas."""
    try:
        import pandas  # noqa: F401
    except ImportError:
        raise UniprotoError(
            f"A data frame needs pandas: pip install pandas. Or call {instead}."
        ) from None
    return table.to_pandas()


def as_table(values: Any) -> Any:
    """A table of a dict of columns, a list of dicts, or a lazy frame; other values unchanged.

    >>> as_table([{"age": 20}, {"age": 30, "kind": "a"}]).column_names
    ['age', 'kind']
    """
    if hasattr(values, "collect") and hasattr(values, "collect_schema"):
        return values.collect()
    if isinstance(values, list) and values and all(isinstance(row, Mapping) for row in values):
        names = dict.fromkeys(name for row in values for name in row)
        values = {name: [row.get(name) for row in values] for name in names}
    if not isinstance(values, Mapping):
        return values
    for name, column in values.items():
        if np.ndim(column) == 0 and not hasattr(column, "__len__"):
            raise InvalidInputError(f"Column {name!r} must hold one value per row. Pass a list.")
    columns = {str(name): value_array(column) for name, column in values.items()}
    if len({len(column) for column in columns.values()}) > 1:
        raise InvalidInputError("Columns must all be of one length. Fill them up with None.")
    return pa.table(columns)


def value_array(values: Any) -> Any:
    """Values of one column; converted to texts where their types differ."""
    try:
        return pa.array(values, from_pandas=True)
    except _NOT_CONVERTED:
        return pa.array([None if value is None else str(value) for value in values])


def _flattened(table: pa.Table) -> pa.Table:
    """Split columns of objects into one column per field; pictures stay whole."""
    for name in [field.name for field in table.schema if pa.types.is_struct(field.type)]:
        place = table.column_names.index(name)
        kind = table.schema.field(place).type
        parts = [f"{name}.{kind.field(at).name}" for at in range(kind.num_fields)]
        is_picture = {f"{name}.bytes", f"{name}.path"} & set(parts)
        if is_picture or set(parts) & set(table.column_names):
            continue
        columns = table.select([name]).flatten().columns
        table = table.remove_column(place)
        for at, (part, values) in enumerate(zip(parts, columns, strict=True), start=place):
            table = table.add_column(at, part, values)
    return table


def column_name(table: Any, values: Any) -> str | None:
    """The name of the table's column with these values, such as `df.species`, or None.

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
    """The same table, with texts and categories of polars in types that support computing."""
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
        raise InvalidInputError(
            f"must have a name of its own for every column, not "
            f"{', '.join(twice)} twice. Rename the columns.",
            parameter=parameter,
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
    """Whether only pandas can compute with this type, such as its intervals."""
    values = kind.value_type if pa.types.is_dictionary(kind) else kind
    return isinstance(values, pa.BaseExtensionType)


def _texts(values: Any) -> pa.Array:
    if hasattr(values, "cat"):  # as made by pandas.cut; their order matters
        levels = pa.array(map(str, values.cat.categories), pa.large_string())
        codes = pa.array(values.cat.codes.to_numpy(), mask=values.isna().to_numpy())
        return pa.DictionaryArray.from_arrays(codes, levels, ordered=bool(values.cat.ordered))
    shown = [None if gap else str(each) for each, gap in zip(values, values.isna(), strict=True)]
    return pa.array(shown, pa.large_string())
