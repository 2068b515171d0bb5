"""The rows of a pool or a target: of a file, a data set, a stream, a table or a list."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from uniproto.data.columns import arrow_table, as_table, is_text
from uniproto.data.tables import Input
from uniproto.errors import InvalidInputError
from uniproto.features.cache import local_path
from uniproto.features.compared_rows import opened
from uniproto.features.model_features import ModelFeatures
from uniproto.lm.features.language import what_is_wrong_with

_STREAMED_AT_ONCE = 10_000  # rows


def read_rows(values: Any, parameter: str, features: ModelFeatures) -> Input:
    """A file with its rows, or an Arrow table of the rows of anything else."""
    if isinstance(values, Input):  # read already
        return values
    if not isinstance(values, str | os.PathLike):
        return Input(_table(values, parameter), parameter=parameter)
    return opened(local_path(values, features.cache), parameter, None, features)


def _table(values: Any, parameter: str) -> pa.Table:
    if isinstance(values, Mapping) and all(hasattr(one, "with_format") for one in values.values()):
        if len(values) != 1:  # a datasets.DatasetDict
            raise InvalidInputError(
                f"has the splits {', '.join(map(str, values))}. Pass one of them, such as "
                f"dataset[{next(iter(values))!r}].",
                parameter=parameter,
            )
        (values,) = values.values()
    if hasattr(values, "with_format") and hasattr(values, "__len__"):
        values = values.with_format("arrow")[:]  # a datasets.Dataset, which is one already
    if isinstance(values, pa.Table) or hasattr(values, "columns"):
        table = arrow_table(values, parameter)
        rows: list[Any] = [{}] * min(1, len(table))
    elif hasattr(values, "__len__"):
        rows, table = list(values), None
    else:
        return _streamed(values, parameter)
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidInputError(
            "must be a file, a data set of 'datasets', a data frame or a list of mappings.",
            parameter=parameter,
        )
    return _table_of(rows, parameter) if table is None else table


def _table_of(rows: list[Any], parameter: str) -> pa.Table:
    table = arrow_table(as_table(rows), parameter)
    for name in (field.name for field in table.schema if is_text(field.type)):
        values = [row.get(name) for row in rows]
        if any(isinstance(value, list) for value in values):  # that have no Arrow type
            reason = next(filter(None, map(what_is_wrong_with, values)), "values of several kinds")
            raise InvalidInputError(f"has in {name!r} {reason}.", parameter=parameter)
    return table


def _streamed(values: Iterable[Any], parameter: str) -> pa.Table:
    """The rows of a stream, which is read once, in files that are mapped into memory."""
    remaining = iter(values)
    parts: list[pa.Table] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        while rows := list(islice(remaining, _STREAMED_AT_ONCE)):
            part = Path(folder, str(len(parts)))
            table = _table(rows, parameter)
            with pa.OSFile(str(part), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
                file.write_table(table)
            parts.append(pa.ipc.open_file(pa.memory_map(str(part))).read_all())
    if not parts:
        return _table([], parameter)
    return pa.concat_tables(parts, promote_options="permissive")
