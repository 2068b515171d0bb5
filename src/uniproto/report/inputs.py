"""What a page shows of the rows: as the caller passes it, or as their files and tables have it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from uniproto.data.columns import arrow_table, is_list, is_numeric, is_text
from uniproto.data.disk import LargeTable
from uniproto.data.tables import no_table
from uniproto.errors import InputFileError, InvalidInputError, unknown_name
from uniproto.features.files import picture_items
from uniproto.problem.values import Balanced, NamedColumns
from uniproto.report.columns import shown_table
from uniproto.report.examples import (
    Examples,
    column,
    examples,
    fields_of,
    folder_of_pictures,
    paths,
    texts,
)
from uniproto.report.targets import is_one_set

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.data.tables import Input
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection


def examples_of(
    selection: Selection,
    problem: Problem | None,
    known: Mapping[str, Any],
    classes: str | None = None,
) -> tuple[Examples, Examples]:
    """What is known of the source's rows, and of the target's.

    `known` are arguments of `Selection.report`: the name of a column, one value per row, or a pair
    of such. `classes` is the column of labels where neither they nor the problem name one.
    """
    given = selection.details.given if problem is None else problem.given
    named = NamedColumns(*given.inputs)
    pairs = {name: _pair(named, name, values) for name, values in known.items()}
    first, second = ({name: pair[side] for name, pair in pairs.items()} for side in (0, 1))
    labels, others = None, None
    if problem is not None:
        classes = _classes(problem.asked, classes)
        labels, others = problem._group_labels or (None, None)
    (m, n), (pool, *aims) = selection.details.shape, given.inputs
    source = _PageRows(pool, m, first, given.id, classes, labels).examples()
    if is_one_set(problem, (m, n)):
        own = {name: one for name, one in second.items() if not (one is None or one is first[name])}
        other = examples(n, **own)
        changed = {name: one for name, one in vars(other).items() if one is not None}
        return source, replace(source, **changed) if own else source
    if not aims:
        return source, examples(n, **{k: v for k, v in second.items() if not isinstance(v, str)})
    return source, _PageRows(aims[0], n, second, given.id, classes, others, True).examples()


def _pair(named: NamedColumns, name: str, values: Any) -> tuple[Any, Any]:
    """What is passed of the source's rows, and of the target's; names of columns stay names."""
    if isinstance(values, str | Path):
        return values, values
    if name not in ("images", "positions"):
        return named.both(values, name)
    is_pair = isinstance(values, tuple) and len(values) == 2
    return values if is_pair else (values, None)


def _classes(asked: Mapping[str, Any], recorded: str | None) -> str | None:
    """The column of classes that the question names, or of the sources that it limits."""
    weights, limits = asked.get("target_weights"), asked.get("limits")
    found = weights.labels if isinstance(weights, Balanced) else None
    found = found or getattr(asked.get("features"), "labels", None) or recorded
    found = found or (limits and limits.labels)
    return found if isinstance(found, str) else None


class _PageRows:
    """What is known of the rows of one input."""

    def __init__(
        self,
        data: Input,
        count: int,
        known: Mapping[str, Any],
        id_column: str | None,
        classes: str | None,
        groups: NDArray[Any] | None,
        is_target: bool = False,
    ) -> None:
        self.data, self.count, self.items = data, count, data.items
        self.known, self.id, self.classes, self.groups = known, id_column, classes, groups
        self.is_target = is_target
        self.table = data.table
        if self.table is None and data.names:
            self.table = arrow_table(data.rows, data.parameter)

    def examples(self) -> Examples:
        ids = self._labels("ids")
        if ids is None and self.id in self.data.names:
            ids = self._column(str(self.id), "ids")
        labels, groups = self._labels("labels"), self._labels("groups")
        if labels is None and self.classes in self.data.names:
            labels = self._column(str(self.classes), "labels")
        names, folders = self._file_names()
        found = examples(
            self.count,
            text=self._text(),
            images=self._pictures(ids),
            labels=folders if labels is None else labels,
            groups=self.groups if groups is None else groups,
            ids=names if ids is None else ids,
            positions=self._positions(),
            fields=self._fields(),
        )
        is_shown = self.table is not None or found.text is found.pictures is None
        return replace(found, table=self._shown_table() if is_shown else None)

    def _array(self, name: str, parameter: str) -> NDArray[Any]:
        """Another array of the .npz file that holds the features."""
        data = self.data
        if data.path is None:
            raise no_table(parameter, data)
        if data.path.suffix.lower() != ".npz":
            raise InvalidInputError(
                f"needs a table or an .npz file, not {data.name.name}.", parameter=parameter
            )
        with np.load(data.path, allow_pickle=False) as archive:
            if name not in archive.files:
                raise data.naming(unknown_name(parameter, name, archive.files))
            return np.asarray(archive[name])

    def _has(self, name: str, parameter: str) -> bool:
        """Whether there is such a column, which a target need not have."""
        if name in self.data.names:
            return True
        if not self.is_target:
            raise self.data.naming(unknown_name(parameter, name, self.data.names))
        return False

    def _labels(self, parameter: str) -> Any:
        values = self.known.get(parameter)
        if not isinstance(values, str):
            return values
        if self.table is None:
            return self._array(values, parameter)
        return self._column(values, parameter) if self._has(values, parameter) else None

    def _column(self, name: str, parameter: str) -> NDArray[Any]:
        """A column of labels, in which a gap is a class of its own: a page shows what there is."""
        try:
            return self.data.column(name, parameter)
        except InvalidInputError:
            values = self.table.column(name).to_pylist()
            filled = ["(none)" if value is None else str(value) for value in values]
            return np.array(filled, object)

    def _file_names(self) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
        """The names of picture files, and the folders they are sorted into, if there are any."""
        items = self.items
        if items is None or items.kind != "images":
            return None, None
        values = items.table.column(items.column)
        if not is_text(values.type):
            return None, None
        files = [PurePosixPath(value or "") for value in values.to_pylist()]
        folders = [path.parent.name for path in files]
        sorted_into = 1 < len(set(folders)) <= len(folders) // 2 and "" not in folders
        return (
            np.array([path.name for path in files], object),
            np.array(folders, object) if sorted_into else None,
        )

    def _text(self) -> Any:
        """The texts that are passed or named, or those that a model has compared."""
        named, items = self.known.get("text"), self.items
        if named is None:
            compared = items is not None and items.columns and self.known.get("images") is None
            return texts(items.table, items.columns) if compared else None
        if not isinstance(named, str):
            return named
        if self.table is None:
            raise InvalidInputError(
                f"needs a table, and {self.data.name.name} is an array.", parameter="text"
            )
        return column(self.table, named) if self._has(named, "text") else None

    def _pictures(self, ids: Any) -> Any:
        """The pictures that are passed or named, or those that a model has compared."""
        data, items, named = self.data, self.items, self.known.get("images")
        if named is None:
            if self.known.get("text") is None and items is not None and items.folder is not None:
                return paths(column(items.table, items.column), items.folder)
            return None
        if not isinstance(named, str | Path):
            return named
        name, folder = str(named), Path(named).expanduser()
        if name in data.names:
            home = Path() if data.path is None else data.path
            return paths(column(self.table, name), home if home.is_dir() else home.parent)
        if folder.is_dir():
            if data.path is not None and data.table is not None:
                with suppress(InputFileError):  # the table names no files
                    found = picture_items(data.table, name, data.path, "")
                    return paths(column(data.table, found.column), folder)
            return folder_of_pictures(folder, self.count, ids)
        if self.table is None and data.path is not None:
            return self._array(name, "images")
        error = unknown_name("images", name, data.names)
        raise InputFileError.of(data.name, error, "Or name a folder of pictures.")

    def _positions(self) -> Any:
        """Coordinates for the map: those passed or named, or the only column of pairs there is."""
        named = self.known.get("positions")
        if named is None:
            named = self._only_column_of_pairs()
        if not isinstance(named, str):
            return named
        if self.table is None:
            return self._array(named, "positions")
        if named in self.data.names:
            return self.table.column(named).to_pylist()
        sides = [part.strip() for part in named.split(",")]
        for side in sides:
            if side not in self.data.names:
                raise self.data.naming(unknown_name("positions", side, self.data.names))
        values = [self.table.column(side).to_pylist() for side in sides]
        return values[0] if len(sides) == 1 else list(zip(*values, strict=True))

    def _only_column_of_pairs(self) -> str | None:
        if self.table is None or isinstance(self.table, LargeTable):
            return None
        found = []
        for field in self.table.schema:
            is_numbers = is_list(field.type) and is_numeric(field.type.value_type)
            if is_numbers and field.name not in self.data.feature_columns:
                values = self.table.column(field.name)
                lengths = pc.unique(pc.list_value_length(values)).to_pylist()
                if lengths == [2] and not pc.list_flatten(values).null_count:
                    found.append(field.name)
        return found[0] if len(found) == 1 else None

    def _fields(self) -> Any:
        """What is shown with a row: the columns of its table."""
        if self.table is None:
            return None
        hidden, features = [] if self.id is None else [self.id], self.data.feature_columns
        if len(features) == 1 and features[0] in self.table.column_names:
            # A list of features is not for people.
            kind = self.table.schema.field(features[0]).type
            hidden += features if pa.types.is_nested(kind) else ()
        return fields_of(self.table, hidden)

    def _shown_table(self) -> Any:
        """The columns that can be looked at one by one."""
        if self.table is None:
            return shown_table(self.data.rows)
        if isinstance(self.table, LargeTable):
            return None
        embedded = () if self.data.embedded is None else self.data.feature_columns
        names = [name for name in embedded if name in self.table.column_names]
        return self.table.drop_columns(names)  # texts are read, not counted
