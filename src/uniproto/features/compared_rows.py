"""What is compared of a source and a target: arrays as they are, tables made comparable."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.data.arrays import as_matrix, existing_path, is_table
from uniproto.data.columns import (
    arrow_table,
    as_table,
    is_list,
    is_numeric,
    require_columns,
    split_names,
)
from uniproto.data.disk import LargeTable
from uniproto.data.tables import Input, feature_columns, no_table, read_content
from uniproto.errors import (
    InputFileError,
    InvalidInputError,
    UniprotoError,
    asking,
    finite_number,
    require_name,
    unknown_name,
)
from uniproto.features.model_features import Images, ModelFeatures
from uniproto.features.preparation import Preparation
from uniproto.features.preparing import SCALES, fit_preparation, is_one_vector

if TYPE_CHECKING:
    from uniproto.problem.values import Columns


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

    `columns` are those of a table, and empty for arrays. `how` is what was said of `features`, `id`
    the column that names rows, and `inputs` are the source and, where it is another set, the
    target. A selection that was loaded has neither `source` nor `target`. Where the source was read
    or converted, and not an Arrow table before, `as_frame` says that rows are returned as a data
    frame.
    """

    source: Any = None
    target: Any = None
    columns: tuple[str, ...] = ()
    preparation: Preparation | OwnPreparation | None = None
    how: Any = None
    id: str | None = None
    inputs: tuple[Input, ...] = (Input(None),)
    as_frame: bool = False

    @property
    def model(self) -> ModelFeatures | None:
        """What computes the vectors of rows."""
        return self.how if isinstance(self.how, ModelFeatures) else None

    @property
    def without(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The rows of the source and of the target that have no vector."""
        found = [() if each.embedded is None else each.embedded.left_out for each in self.inputs]
        source, target = (np.array([row for row, _ in each], np.intp) for each in (found * 2)[:2])
        return source, target

    def features(self, rows: Any, parameter: str = "source") -> Any:
        """What is compared of some rows, or of those of a file, which may be new ones: a matrix."""
        given = opened(rows, parameter, None, self.how)
        if self.model is not None:
            return self.model.vectors(given)
        if self.preparation is not None:
            return as_matrix(self.preparation.matrix(given.content, parameter), parameter)
        if self.columns and given.names:
            if not isinstance(given.content, LargeTable):
                given = replace(given, content=arrow_table(given.content, parameter))
            one = len(given.names) == len(self.columns) == 1  # a list, of whatever name
            given = given.with_features(given.names if one else self.columns)
        return as_matrix(given.features, parameter)


def compared_rows(
    source: Input, target: Input | None, columns: Columns, aside: Mapping[str, str] | None = None
) -> tuple[Any, Any, Given]:
    """What is compared of a source and of a target, and what it was made from.

    Arrays are taken as they are, tables are made comparable; `aside` are columns that are no
    features, each with the reason.

    >>> from uniproto.problem.values import Columns
    >>> table = pa.table({"age": [20, 30, 40, 90], "income": [1e4, 3e4, 2e4, 5e4]})
    >>> compared_rows(Input(table), None, Columns())[0].std(axis=0).round(1)
    array([1.5, 1.1])
    """
    require_name("scale", columns.scale, SCALES)
    prepare, aside = columns.prepare, dict(aside or {})
    made = {name: getattr(columns, name) for name in ("missing", "cyclic", "weights")}
    named = bool(columns.use is not None or columns.ignore or columns.categories)
    is_large = isinstance(source.content, LargeTable)
    if not is_large and not (prepare is None or isinstance(prepare, bool)):
        return _by_given(prepare, source, target)
    if is_large and not (prepare or columns.categories or any(made.values())):
        return _as_they_are(source, target, columns, aside)
    if not _is_frame(source.content):
        if source.path is not None and source.path.suffix.lower() == ".npz" and columns.use:
            named = len(columns.use) > 1  # else it is the array's name
        if named or prepare or any(made.values()):
            raise _no_columns(source, columns)
        return _as_they_are(source, target, replace(columns, use=None, ignore=()), aside)
    if target is not None and not _is_frame(target.content) and named:
        raise _no_columns(target, columns)
    table, other = arrow_table(source.content, "source"), None
    if not table.num_rows:
        raise source.naming(
            InvalidInputError("is an empty table. Check how it was filtered.", parameter="source")
        )
    as_given = source, target
    source = replace(source, content=table)
    if target is not None and _is_frame(target.content):
        target = replace(target, content=arrow_table(target.content, "target"))
        other = target.content
    for name, given in made.items():
        _require_by_column(name, given, table)
    categories = split_names(columns.categories, table.column_names)
    require_columns(categories, table.column_names, "categories", source.name)
    source = source.with_features(columns.use, columns.ignore, aside, other=target)
    chosen, aim = table.select(source.feature_columns), None
    if target is not None:
        like = source if columns.use is not None else None
        if other is not None:
            target = target.with_features(
                columns.use, columns.ignore, aside, other=source, like=like
            )
        aim = target.content if other is None else other.select(target.feature_columns)
        wrong = [
            field.name
            for field in chosen.schema
            if not (is_numeric(field.type) or is_list(field.type))
        ]
        if other is None and wrong:
            raise target.naming(
                InvalidInputError(
                    "must be a table like the source, whose columns are not all numbers "
                    f"({', '.join(wrong)}). Pass a table with the same columns.",
                    parameter="target",
                )
            )
    comparable = is_one_vector(chosen) and (other is None or is_one_vector(aim))
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
        or not (target is None or other is not None)
    ):
        rows, aim, given = _as_they_are(source, target, columns, aside)
        return rows, aim, _with_rows(given, *as_given)
    hidden = {**aside, **_own_index(table)}
    use = None if columns.use is None else source.feature_columns
    ignored = split_names(columns.ignore, table.column_names)
    preparation = fit_preparation(
        _without(table, hidden),
        None if other is None else _without(other, {**aside, **_own_index(other)}),
        features=use,
        ignore=[name for name in ignored if name in table.column_names],
        categories=categories,
        scale=columns.scale,
        **made,
    )
    preparation = replace(preparation, aside={**preparation.aside, **aside})
    source = replace(source, feature_columns=preparation.names)
    target = target and replace(target, feature_columns=preparation.names)
    aim = None if target is None else preparation.matrix(target.rows, "target")
    return (
        preparation.matrix(table),
        aim,
        _with_rows(_given(source, target, preparation), *as_given),
    )


def _with_rows(given: Given, source: Input, target: Input | None) -> Given:
    """The same of the tables as they were given, before they were converted."""
    before = [source] if target is None else [source, target]
    inputs = tuple(
        replace(each, content=old.content) for each, old in zip(given.inputs, before, strict=True)
    )
    return replace(given, source=source.content, target=inputs[-1].rows, inputs=inputs)


def _is_frame(values: Any) -> bool:
    """Whether this is a table; a single column of one, whose kind has no columns, is none."""
    return is_table(values) and hasattr(values, "columns")


def _no_columns(given: Input, columns: Columns) -> UniprotoError:
    """The error for columns that are named where there are none."""
    parameter = "ignore" if columns.ignore and columns.use is None else "features"
    if given.path is not None:
        return no_table(parameter, given)
    return InvalidInputError(
        f"needs a table with named columns, not a {type(given.content).__name__}.",
        parameter="features",
    )


def _own_index(table: pa.Table) -> dict[str, str]:
    """The index that pandas stored, which is no feature."""
    names = feature_columns(table.schema, (), "")
    return {name: "the index" for name in table.column_names if name not in names}


def _as_they_are(
    source: Input, target: Input | None, columns: Columns, aside: Mapping[str, str]
) -> tuple[Any, Any, Given]:
    """Numbers as they are: of arrays, of some columns, or of tables that stay on disk."""
    if hasattr(source.content, "column_names"):
        source = source.with_features(columns.use, columns.ignore, aside, other=target)
    if target is not None and hasattr(target.content, "column_names"):
        like = source if source.feature_columns else None
        target = target.with_features(columns.use, columns.ignore, aside, other=source, like=like)
    given = _given(source, target, None)
    return source.features, None if target is None else target.features, given


def _given(
    source: Input, target: Input | None, preparation: Preparation | OwnPreparation | None
) -> Given:
    inputs = (source,) if target is None else (source, target)
    return Given(
        source.content,
        inputs[-1].rows,
        source.feature_columns,
        preparation,
        inputs=inputs,
    )


def _by_given(prepare: Any, source: Input, target: Input | None) -> tuple[Any, Any, Given]:
    """Rows as an earlier preparation or a transformer of the user's own makes them."""
    if not isinstance(prepare, Preparation | OwnPreparation):
        if not hasattr(prepare, "transform"):
            raise InvalidInputError(
                f"must be Columns(use=[…]), False or a fitted transformer, not {prepare!r}.",
                parameter="features",
            )
        prepare = OwnPreparation(prepare)
    own: Preparation | OwnPreparation = prepare
    aim = None if target is None else own.matrix(target.rows, "target")
    if isinstance(own, Preparation):
        source = replace(source, feature_columns=own.names)
        target = target and replace(target, feature_columns=own.names)
    return own.matrix(source.content), aim, _given(source, target, own)


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
    encoding = getattr(features, "encoding", None)
    if isinstance(features, ModelFeatures):
        from uniproto.features.files import read_table

        digest, content = read_table(path, encoding)
        return Input(content, path, digest, parameter)
    use = getattr(features, "use", None)
    array = use[0] if use and len(use) == 1 and path.suffix.lower() == ".npz" else None
    digest, content = read_content(path, array, memory=memory, encoding=encoding)
    return Input(content, path, digest, parameter)


def rows_of_model(
    source: Input, target: Input | None, features: ModelFeatures
) -> tuple[Any, Any, Given]:
    """The vectors that a model computes of a source and of a target, and what they are made of.

    A row without a vector has that of another: it is never chosen and weighs nothing.
    """
    source, target = features.inputs(source, target)
    inputs = (source,) if target is None else (source, target)
    given = Given(source.content, inputs[-1].content, how=features, inputs=inputs)
    return _of_every_row(source), None if target is None else _of_every_row(target), given


def _of_every_row(given: Input) -> NDArray[np.float32]:
    found = given.embedded
    if not found.left_out:
        return found.vectors
    every = np.arange(len(given.items))
    place = np.searchsorted(found.rows, every, side="right") - 1
    return found.vectors[np.maximum(place, 0)]


def _without(table: pa.Table, aside: Mapping[str, str]) -> pa.Table:
    return table.drop_columns([name for name in table.column_names if name in aside])


def _require_by_column(name: str, given: Any, table: pa.Table) -> None:
    """Check an option that says something of single columns; `missing` may be about all."""
    if name == "missing" and not isinstance(given, Mapping):
        return
    parameter = f"features.{name}"
    if not isinstance(given, Mapping | None):
        raise InvalidInputError(
            f"must map columns to numbers, not be {given!r}.", parameter=parameter
        )
    for column, value in (given or {}).items():
        if column not in table.column_names:
            raise unknown_name(parameter, column, table.column_names)
        if name != "missing" and not finite_number(value) > 0:
            remedy = " To leave a column out, ignore it." if name == "weights" else ""
            raise InvalidInputError(
                f"must be above 0, not {value!r} for {column!r}.{remedy}", parameter=parameter
            )
