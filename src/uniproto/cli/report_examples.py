"""What a page can show of the rows: their texts, pictures, classes, names and places on the map."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uniproto.data.arrays import as_labels
from uniproto.data.columns import is_list, is_numeric, is_text
from uniproto.data.disk import LargeTable
from uniproto.data.tables import require_column
from uniproto.errors import InputFileError, InvalidInputError, unknown_name
from uniproto.features.files import is_picture_folder, read_items
from uniproto.problem.values import Balanced
from uniproto.report.columns import shown_table
from uniproto.report.examples import (
    Examples,
    array_of_pictures,
    column,
    fields_of,
    folder_of_pictures,
    pairs,
    paths,
    texts,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.cli.report import ReportSpec
    from uniproto.data.tables import Input
    from uniproto.features.files import Items
    from uniproto.problem.problem import Problem
    from uniproto.report.examples import Reader


def examples_of(
    problem: Problem, call: Mapping[str, Any], manifest: Mapping[str, Any], page: ReportSpec
) -> tuple[Examples, Examples]:
    """What is known of the source's rows, and of the target's."""
    labels, others = problem._group_labels or (None, None)
    features, weights, limits = (
        call.get(name) for name in ("features", "target_weights", "limits")
    )
    classes = weights.labels if isinstance(weights, Balanced) else None
    # The classes that a record names, or the sources that it tells of or limits.
    recorded = classes or getattr(features, "labels", None)
    recorded = recorded or manifest.get("command", {}).get("source") or (limits and limits.labels)
    inputs, name = problem.given.inputs, problem.given.id
    source = _known(inputs[0], "source", name, recorded, page, labels)
    if len(inputs) > 1:
        return source, _known(inputs[1], "target", name, recorded, page, others)
    if source.count == problem.n:
        return source, source
    return source, Examples(problem.n)


def _known(
    data: Input,
    role: str,
    id_column: str | None,
    recorded: str | None,
    page: ReportSpec,
    groups: NDArray[Any] | None,
) -> Examples:
    ids = _column(data, id_column) if id_column in data.names else None
    pictures, white = _pictures(data, page, ids)
    labels = _labels(data, role, page.labels, recorded)
    names, folders = _file_names(data)
    return Examples(
        len(data),
        text=_text(data, role, page),
        pictures=pictures,
        white=white,
        labels=folders if labels is None else labels,
        groups=groups,
        ids=names if ids is None else ids,
        fields=_fields(data, id_column),
        positions=_positions(data, page.map),
        table=_shown_table(data),
    )


def _array(data: Input, name: str, parameter: str) -> NDArray[Any]:
    """Another array of the .npz file that holds the features."""
    if data.name.suffix.lower() != ".npz":
        raise InvalidInputError(
            f"needs a table or an .npz file, not {data.name.name}.", parameter=parameter
        )
    with np.load(data.name, allow_pickle=False) as archive:
        if name not in archive.files:
            raise InputFileError.of(data.name, unknown_name(parameter, name, archive.files))
        return np.asarray(archive[name])


def _file_names(data: Input) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
    """The names of picture files, and the folders they are sorted into, where there are any."""
    items: Items | None = data.items
    if items is None or items.kind != "images" or data.table is None:
        return None, None
    values = data.table.column(items.column)
    if not is_text(values.type):
        return None, None
    paths = [PurePosixPath(value or "") for value in values.to_pylist()]
    folders = [path.parent.name for path in paths]
    sorted_into = 1 < len(set(folders)) <= len(folders) // 2 and "" not in folders
    return (
        np.array([path.name for path in paths], object),
        np.array(folders, object) if sorted_into else None,
    )


def _text(data: Input, role: str, page: ReportSpec) -> Reader | None:
    """The texts of --text, or those that the selection was made from."""
    items: Items | None = data.items
    if page.text is not None:
        if data.table is None:
            raise InvalidInputError(
                f"needs a table, and {data.name.name} is an array.", parameter="text"
            )
        if role == "source":
            require_column(data.table, page.text, "text", data.name)
        return column(data.table, page.text) if page.text in data.names else None
    if items is None or page.images is not None or not items.columns:
        return None
    return texts(data.table, items.columns)


def _labels(
    data: Input, role: str, option: str | None, recorded: str | None
) -> NDArray[Any] | None:
    """The classes: of the option they must be there; of a record, they may be the target's."""
    name = option or recorded
    if name is None or (data.table is None and option is None):
        return None
    if data.table is None:
        return as_labels(_array(data, name, "labels"), "labels", len(data))
    may_be_missing = option is None or role == "target"
    return None if may_be_missing and name not in data.names else _column(data, name)


def _column(data: Input, name: str) -> NDArray[Any]:
    """A column of labels, in which a gap is a class of its own: a page shows what there is."""
    assert data.table is not None
    try:
        return data.column(name, "labels")
    except InvalidInputError:
        values = data.table.column(name).to_pylist()
        return np.array(["(none)" if value is None else str(value) for value in values], object)


def _pictures(
    data: Input, page: ReportSpec, ids: NDArray[Any] | None
) -> tuple[Reader | None, float | None]:
    """The pictures of --images or those embedded, and the value of white of an array."""
    items: Items | None = data.items
    if page.images is None:
        if page.text is None and items is not None and items.folder is not None:
            return paths(column(data.table, items.column), items.folder), None
        return None, None
    if page.images in data.names:
        home = data.name if data.name.is_dir() else data.name.parent
        return paths(column(data.table, page.images), home), None
    folder = Path(page.images).expanduser()
    if folder.is_dir():
        with suppress(InputFileError):  # the table names no files
            named = None if data.table is None else read_items(data.name, None, page.images)
            if named is not None and named.folder is not None and not is_picture_folder(named.path):
                return paths(column(data.table, named.column), named.folder), None
        return folder_of_pictures(folder, len(data), ids), None
    if data.table is None:
        values = _array(data, page.images, "images")
        return array_of_pictures(values, len(data), "images")
    error = unknown_name("images", page.images, data.names)
    raise InputFileError.of(data.name, error, "Or name a folder of pictures.")


def _positions(data: Input, option: str | None) -> NDArray[Any] | None:
    """Coordinates for the map: those of --map, or the only column of pairs there is."""
    name = _only_column_of_pairs(data) if option is None else option
    if name is None:
        return None
    if data.table is None:
        return pairs(_array(data, name, "map"), "map", len(data))
    sides = [name] if name in data.names else [part.strip() for part in name.split(",")]
    for side in sides:
        require_column(data.table, side, "map", data.name)
    values = [data.table.column(side).to_pylist() for side in sides]
    points = values[0] if len(sides) == 1 else list(zip(*values, strict=True))
    return pairs(points, "map", len(data))


def _only_column_of_pairs(data: Input) -> str | None:
    if data.table is None or isinstance(data.table, LargeTable):
        return None
    found = []
    for field in data.table.schema:
        is_numbers = is_list(field.type) and is_numeric(field.type.value_type)
        if is_numbers and field.name not in data.feature_columns:
            values = data.table.column(field.name)
            lengths = pc.unique(pc.list_value_length(values)).to_pylist()
            if lengths == [2] and not pc.list_flatten(values).null_count:
                found.append(field.name)
    return found[0] if len(found) == 1 else None


def _fields(data: Input, id_column: str | None) -> Any:
    """What is shown with a row: the columns of its table; of an array the page knows the values."""
    if data.table is None:
        return None
    hidden = [] if id_column is None else [id_column]
    if len(data.feature_columns) == 1:  # a list of features, which is not for people
        kind = data.table.schema.field(data.feature_columns[0]).type
        hidden += data.feature_columns if pa.types.is_nested(kind) else ()
    return fields_of(data.table, hidden)


def _shown_table(data: Input) -> Any:
    """The columns that can be looked at one by one."""
    if data.table is None:
        return shown_table(data.rows)
    if isinstance(data.table, LargeTable):
        return None
    embedded = () if data.embedded is None else data.feature_columns
    return data.table.drop_columns(list(embedded))  # texts are read, not counted
