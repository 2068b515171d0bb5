"""What is compared of a source and a target: arrays as they are, tables made comparable."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.data.arrays import as_matrix, existing_path, finite_number, is_table
from uniproto.data.columns import arrow_table, as_table
from uniproto.data.disk import LargeTable
from uniproto.data.tables import Input, feature_columns, read_content
from uniproto.errors import (
    InputFileError,
    InvalidInputError,
    asking,
    require_name,
    unknown_name,
)
from uniproto.features.model_features import Images, ModelFeatures
from uniproto.features.preparation import Preparation
from uniproto.features.preparing import SCALES, fit_preparation, is_one_vector


class OwnPreparation:
    """A fitted transformer of the user's own, such as a `ColumnTransformer`. It is not saved."""

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer
        self.rows = [(type(transformer).__name__, "your own", "its features are compared")]

    def matrix(self, rows: Any, parameter: str = "source") -> Any:
        """What the transformer makes of rows."""
        if isinstance(rows, pa.Table):  # which transformers cannot read
            rows = rows.to_pandas()
        try:
            return self.transformer.transform(rows)
        except Exception as error:  # other people's transformers may raise any error
            raise InvalidInputError(
                f"cannot transform {parameter!r} ({str(error).splitlines()[0]}). Pass a "
                "fitted transformer, and rows like those it was fitted on.",
                parameter="features",
            ) from error

    def table(self, shares: Mapping[str, float] | None = None) -> str:
        """A line for the table of columns."""
        return "  ".join(self.rows[0])

    def record(self) -> dict[str, Any]:
        """The entry of a manifest."""
        return {"transformer": self.rows[0][0], "saved": False}


@dataclass(frozen=True)
class Given:
    """Rows as the user has them, for people to look at, and what of them is compared.

    `columns` are those of a table, and empty for arrays. `model` computes vectors of rows, and
    `inputs` are source and target with what it looked at. A selection that was loaded has neither
    `source` nor `target`. Where the source was read or converted, and not an Arrow table before,
    `as_frame` says that rows are returned as a data frame.
    """

    source: Any = None
    target: Any = None
    columns: tuple[str, ...] = ()
    preparation: Preparation | OwnPreparation | None = None
    model: ModelFeatures | None = None
    inputs: tuple[Input, ...] = ()
    as_frame: bool = False

    @property
    def without(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The rows of the source and of the target that have no vector."""
        left_out: Any = [each.embedded.left_out for each in self.inputs] or [(), ()]
        source, target = (np.array([row for row, _ in each], np.intp) for each in left_out)
        return source, target

    def features(self, rows: Any, parameter: str = "source") -> Any:
        """What is compared of some rows, which may be new ones: a matrix."""
        if self.model is not None:
            return self.model.vectors(opened(rows, parameter, None, self.model))
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
    missing: Any = (),
    cyclic: Mapping[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
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
        if use or ignore or categories or prepare or missing or cyclic or weights:
            raise InvalidInputError(
                f"needs a table with named columns, not a {type(source).__name__}.",
                parameter="features",
            )
        return source, target, _given(source, target)
    table, other = _without(arrow_table(source, "source"), aside), None
    if not table.num_rows:
        raise InvalidInputError("is an empty table. Check how it was filtered.", parameter="source")
    _checked_names(categories, table)
    made = {"missing": missing, "cyclic": cyclic, "weights": weights}
    for name, given in made.items():
        _require_by_column(name, given, table)
    chosen, aim = _only(table, use, ignore), target
    if _is_frame(target):
        other = _without(arrow_table(target, "target"), aside)
        aim = _only(other, use, ignore)
    comparable = is_one_vector(chosen) and (not _is_frame(aim) or is_one_vector(aim))
    comparable = comparable and not (categories or any(made.values()))
    if prepare is False and any(made.values()):
        raise InvalidInputError(
            "can have missing=, cyclic= or weights= only where columns are made "
            "comparable. Leave prepare=False out.",
            parameter="features",
        )
    if (
        prepare is False
        or (prepare is None and comparable)
        or not (target is None or _is_frame(target))
    ):
        columns = tuple(chosen.column_names)
        return chosen, aim, _given(source, target, columns)
    preparation = fit_preparation(
        table, other, features=use, ignore=ignore, categories=categories, scale=scale, **made
    )
    preparation = replace(preparation, aside={**preparation.aside, **aside})
    columns = preparation.names
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
                f"must be Columns(use=[…]), False or a fitted transformer, not {prepare!r}.",
                parameter="features",
            )
        prepare = OwnPreparation(prepare)
    own: Preparation | OwnPreparation = prepare
    aim = None if target is None else own.matrix(target, "target")
    columns = own.names if isinstance(own, Preparation) else ()
    return own.matrix(source), aim, _given(source, target, columns, own)


def opened(
    values: Any, parameter: str, memory: int | float | str | None, features: Any = None
) -> Input:
    """A path with what it leads to, a table of rows that are dicts; other values unchanged.

    A file that would take more than `memory` stays on disk, or is refused.
    """
    if isinstance(values, Input):  # opened already
        return values
    if not isinstance(values, str | os.PathLike):
        return Input(as_table(values), parameter=parameter)
    path = existing_path(values, parameter)
    if path.is_dir():
        from uniproto.features.files import has_pictures, is_picture_folder

        if isinstance(features, Images) and is_picture_folder(path):
            return Input(None, path, parameter=parameter)
        if next(path.rglob("*.parquet"), None) is None and has_pictures(path):
            remedy = asking("features=Images()", "images")
            raise InputFileError(f"{path}: this is a folder of pictures. Pass {remedy}.")
    encoding = features.encoding if isinstance(features, ModelFeatures) else None
    digest, content = read_content(path, memory=memory, encoding=encoding)
    if isinstance(content, pa.Table) and not isinstance(features, ModelFeatures):
        content = content.select(feature_columns(content.schema, (), path))
    return Input(content, path, digest, parameter)


def rows_of_model(
    source: Input, target: Input | None, features: ModelFeatures
) -> tuple[Any, Any, Given]:
    """The vectors that a model computes of a source and of a target, and what they are made of.

    A row without a vector has that of another: it is never chosen and weighs nothing.
    """
    source, target = features.inputs(source, target)
    aim = source if target is None else target
    inputs = source, aim
    given = Given(source.content, aim.content, (), None, features, inputs)
    return _of_every_row(source), None if target is None else _of_every_row(target), given


def _of_every_row(given: Input) -> NDArray[np.float32]:
    found = given.embedded
    if not found.left_out:
        return found.vectors
    every = np.arange(len(given.items))
    place = np.searchsorted(found.rows, every, side="right") - 1
    return found.vectors[np.maximum(place, 0)]


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
        raise InvalidInputError(
            f"must hold lists of names, such as [{given!r}].", parameter="features"
        )
    for name in given:
        if name not in table.column_names:
            raise unknown_name("features", name, table.column_names)
    return list(given)


def _require_by_column(name: str, given: Any, table: pa.Table) -> None:
    """Check an option that says something of single columns; `missing` may be about all."""
    if name == "missing" and not isinstance(given, Mapping):
        return
    if not isinstance(given, Mapping | None):
        raise InvalidInputError(
            f"must have {name}= as a mapping from columns to numbers, not {given!r}.",
            parameter="features",
        )
    for column, value in (given or {}).items():
        if column not in table.column_names:
            raise unknown_name(f"features.{name}", column, table.column_names)
        if name != "missing" and not finite_number(value) > 0:
            raise InvalidInputError(
                f"must have {name}= with numbers above 0, not {value!r} for {column!r}."
                + (" To leave a column out, name it in ignore=." if name == "weights" else ""),
                parameter="features",
            )
