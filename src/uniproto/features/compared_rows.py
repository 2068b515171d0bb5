"""What is compared of a source and a target: arrays as they are, tables made comparable."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from uniproto.data.arrays import as_matrix, existing_path, is_table
from uniproto.data.columns import arrow_table
from uniproto.data.disk import LargeTable
from uniproto.data.tables import feature_columns, read_content
from uniproto.errors import InvalidInputError, require_name, unknown_name
from uniproto.features.preparation import Preparation
from uniproto.features.preparing import SCALES, fit_preparation, is_one_vector


class OwnPreparation:
    """A fitted transformer of the user's own, such as a `ColumnTransformer`. It is not saved."""

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer
        self.rows = [(type(transformer).__name__, "your own", "its features are compared")]

    def matrix(self, rows: Any, parameter: str = "source") -> Any:
        """What the transformer makes of rows."""
        if isinstance(rows, pa.Table):  # which transformers do not know
            rows = rows.to_pandas()
        try:
            return self.transformer.transform(rows)
        except Exception as error:  # what other people's transformers raise can be anything
            raise InvalidInputError(
                f"'columns' cannot transform {parameter!r} ({str(error).splitlines()[0]}). Pass a "
                "fitted transformer, and rows like those it was fitted on."
            ) from error

    def table(self) -> str:
        """A line that says so."""
        return "  ".join(self.rows[0])

    def record(self) -> dict[str, Any]:
        """What a manifest says."""
        return {"transformer": self.rows[0][0], "saved": False}


@dataclass(frozen=True)
class Given:
    """Rows as the user has them, for people to look at, and what of them is compared.

    `columns` are those of a table, and empty for arrays. A selection that was loaded has neither
    `source` nor `target`.
    """

    source: Any = None
    target: Any = None
    columns: tuple[str, ...] = ()
    preparation: Preparation | OwnPreparation | None = None

    def features(self, rows: Any, parameter: str = "source") -> Any:
        """What is compared of some rows, which may be new ones: a matrix."""
        if self.preparation is not None:
            return as_matrix(self.preparation.matrix(rows, parameter), parameter)
        if is_table(rows) and self.columns:
            table = arrow_table(rows, parameter)
            if table.num_columns > 1 or len(self.columns) > 1:
                for name in self.columns:
                    if name not in table.column_names:
                        raise unknown_name(f"{parameter}.columns", name, table.column_names)
                rows = table.select(self.columns)
        return as_matrix(rows, parameter)


def compared_rows(
    source: Any,
    target: Any,
    *,
    prepare: Any = None,
    use: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    categories: Sequence[str] = (),
    scale: str = "robust",
    aside: Mapping[str, str] | None = None,
) -> tuple[Any, Any, Given]:
    """What is compared of a source and of a target, and what it was made from.

    Arrays are taken as they are, tables are made comparable. `prepare` is None, True, False or what
    prepares rows; `aside` are columns that are no features, each with the reason.

    >>> table = pa.table({"age": [20, 30, 40, 90], "income": [1e4, 3e4, 2e4, 5e4]})
    >>> compared_rows(table, None)[0].std(axis=0).round(1)
    array([1.5, 1.1])
    """
    require_name("scale", scale, SCALES)
    aside = {name: why for name, why in (aside or {}).items() if name not in (use or ())}
    source, target = _on_disk(source, aside), _on_disk(target, aside)
    if prepare is not None and not isinstance(prepare, bool):
        return _by_given(prepare, source, target)
    if not _is_frame(source):
        if use or ignore or categories or prepare:
            raise InvalidInputError(
                f"'columns' needs a table with named columns, not a {type(source).__name__}."
            )
        return source, target, _given(source, target)
    table, other = _without(arrow_table(source, "source"), aside), None
    if not table.num_rows:
        raise InvalidInputError("'source' is an empty table. Check how it was filtered.")
    _checked_names(categories, table)
    chosen, aim = _only(table, use, ignore), target
    if _is_frame(target):
        other = _without(arrow_table(target, "target"), aside)
        aim = _only(other, use, ignore)
    comparable = is_one_vector(chosen) and (not _is_frame(aim) or is_one_vector(aim))
    comparable = comparable and not categories
    if (
        prepare is False
        or (prepare is None and comparable)
        or not (target is None or _is_frame(target))
    ):
        columns = tuple(chosen.column_names)
        return chosen, aim, _given(source, target, columns)
    preparation = fit_preparation(
        table, other, features=use, ignore=ignore, categories=categories, scale=scale
    )
    preparation = replace(preparation, aside={**preparation.aside, **aside})
    columns = tuple(column.name for column in preparation.columns)
    aim = None if other is None else preparation.matrix(other, "target")
    return preparation.matrix(table), aim, _given(source, target, columns, preparation)


def _is_frame(values: Any) -> bool:
    """Whether this is a table; a single column of one, whose kind has no columns, is none."""
    return is_table(values) and hasattr(values, "columns")


def _given(
    source: Any,
    target: Any,
    columns: tuple[str, ...] = (),
    preparation: Preparation | OwnPreparation | None = None,
) -> Given:
    return Given(source, source if target is None else target, columns, preparation)


def _by_given(prepare: Any, source: Any, target: Any) -> tuple[Any, Any, Given]:
    """Rows as an earlier preparation or a transformer of the user's own makes them."""
    if not isinstance(prepare, Preparation | OwnPreparation):
        if not hasattr(prepare, "transform"):
            raise InvalidInputError(
                "'columns' must be Columns(use=[…]), False or a fitted transformer, not "
                f"{prepare!r}."
            )
        prepare = OwnPreparation(prepare)
    own: Preparation | OwnPreparation = prepare
    aim = None if target is None else own.matrix(target, "target")
    named = own.columns if isinstance(own, Preparation) else ()
    columns = tuple(column.name for column in named)
    return own.matrix(source), aim, _given(source, target, columns, own)


def opened(values: Any, parameter: str, memory: int | float | str | None) -> Any:
    """What a path leads to; everything else as it is.

    A file that would take more than `memory` stays on disk, or is refused.
    """
    if not isinstance(values, str | os.PathLike):
        return values
    path = existing_path(values, parameter)
    content = read_content(path, memory=memory)[1]
    if isinstance(content, pa.Table):
        return content.select(feature_columns(content.schema, (), path))
    return content


def _on_disk(values: Any, aside: Mapping[str, str]) -> Any:
    """The features of a table that is too large to look at every column."""
    if not isinstance(values, LargeTable):
        return values
    return values.features(feature_columns(values.schema, aside, values.name), values.name)


def _without(table: pa.Table, aside: Mapping[str, str]) -> pa.Table:
    return table.drop_columns([name for name in table.column_names if name in aside])


def _only(table: pa.Table, use: Any, ignore: Any) -> pa.Table:
    """The columns that are named, or all but those to ignore."""
    names = table.column_names if use is None else _checked_names(use, table)
    ignored = _checked_names(ignore, table)
    chosen = [name for name in names if name not in ignored]
    return table if chosen == table.column_names else table.select(chosen)


def _checked_names(given: Any, table: pa.Table) -> list[str]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInputError(f"'columns' must hold lists of names, such as [{given!r}].")
    for name in given:
        if name not in table.column_names:
            raise unknown_name("columns", name, table.column_names)
    return list(given)
