"""Texts, pictures and labels of rows, for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels
from uniproto.data.disk import LargeTable
from uniproto.data.examples import as_text
from uniproto.errors import InvalidInputError
from uniproto.features.pictures import ENDINGS

Rows = NDArray[np.intp]
Reader = Callable[[Rows], list[Any]]  # the values of some rows
_SAMPLED_PICTURES = 64
_FEW_LEVELS = 64  # a smaller maximum means few levels of grey, not dark pictures


@dataclass(frozen=True)
class Examples:
    """The rows of the source or of the target. Unknown fields are None.

    Readers return the values of the rows they are called with, so that large data sets are not
    loaded. `white` is the largest value of pictures given as arrays.
    """

    count: int
    text: Reader | None = None
    pictures: Reader | None = None
    white: float | None = None
    labels: NDArray[Any] | None = None
    groups: NDArray[Any] | None = None
    ids: NDArray[Any] | None = None
    fields: Callable[[Rows], list[dict[str, Any]]] | None = None
    positions: NDArray[np.float64] | None = None
    table: pa.Table | None = None  # all columns


def examples(
    count: int,
    *,
    text: Any = None,
    images: Any = None,
    labels: Any = None,
    groups: Any = None,
    ids: Any = None,
    positions: Any = None,
    fields: Any = None,
) -> Examples:
    """Examples from sequences with one entry per row; texts and pictures may be readers."""
    pictures, white = None, None
    if images is not None:
        pictures, white = _pictures(images, count, "images")
    return Examples(
        count,
        text=None if text is None else sequence(text, "text", count),
        pictures=pictures,
        white=white,
        labels=None if labels is None else as_labels(labels, "labels", count),
        groups=None if groups is None else as_labels(groups, "groups", count),
        ids=None if ids is None else as_labels(ids, "ids", count),
        positions=None if positions is None else pairs(positions, "positions", count),
        fields=fields,
    )


def sequence(values: Any, parameter: str, count: int) -> Reader:
    """A reader of any sequence with one entry per row; readers as they are."""
    if callable(values):
        return values
    length = (
        len(values) if hasattr(values, "__len__") and not isinstance(values, str | bytes) else 0
    )
    if length != count:
        raise InvalidInputError(
            f"must hold one entry per row, {count:,} in all (got {length:,}).", parameter=parameter
        )
    if hasattr(values, "iloc"):  # pandas, which has its own index
        values = values.to_numpy()
    return lambda rows: [values[int(row)] for row in rows]


def column(table: pa.Table | LargeTable, name: str) -> Reader:
    """A reader of a table's column."""

    def read(rows: Rows) -> list[Any]:
        some = table.select([name]).take(rows) if isinstance(table, pa.Table) else table.take(rows)
        return list(some.column(name).to_pylist())

    return read


def texts(table: pa.Table | LargeTable, names: Sequence[str]) -> Reader:
    """A reader of the texts or messages of a column, or of several, joined by blank lines."""
    readers = [column(table, name) for name in names]

    def read(rows: Rows) -> list[Any]:
        if len(readers) == 1:
            return [as_text(value) for value in readers[0](rows)]
        parts = zip(*(values(rows) for values in readers), strict=True)
        return ["\n\n".join(str(part) for part in some if part is not None) for some in parts]

    return read


def fields_of(
    table: pa.Table | LargeTable, hidden: Sequence[str]
) -> Callable[[Rows], list[dict[str, Any]]]:
    """A reader of rows without their hidden columns."""
    names = [name for name in table.column_names if name not in hidden]

    def read(rows: Rows) -> list[dict[str, Any]]:
        return list(table.take(rows).select(names).to_pylist())

    return read


def paths(values: Reader, folder: Path) -> Reader:
    """A reader whose entries are resolved as file names in a folder."""

    def read(rows: Rows) -> list[Any]:
        return [
            folder / value if isinstance(value, str) and "://" not in value[:32] else value
            for value in values(rows)
        ]

    return read


def folder_of_pictures(folder: Path, count: int, ids: NDArray[Any] | None = None) -> Reader:
    """The pictures of a folder: those named by ids, otherwise all of them in sorted order."""
    if ids is not None:
        names = {file.name: file for file in folder.iterdir()}
        names = {file.stem: file for file in names.values()} | names
        if any(str(value) in names for value in ids):
            return lambda rows: [names.get(str(ids[row]), folder / str(ids[row])) for row in rows]
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS)
    if len(files) != count:
        raise InvalidInputError(
            f"must be a folder with one picture per row, {count:,} in all; {folder} has "
            f"{len(files):,}. Name a column of file names instead, or select with --id.",
            parameter="images",
        )
    return lambda rows: [files[row] for row in rows]


def pairs(values: Any, parameter: str, count: int) -> NDArray[np.float64]:
    """Two finite numbers per row."""
    try:
        found = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.shape != (count, 2) or not np.isfinite(found).all():
        raise InvalidInputError(
            f"must hold two finite numbers for each of {count:,} rows.", parameter=parameter
        )
    return found


def _pictures(images: Any, count: int, parameter: str) -> tuple[Reader, float | None]:
    if isinstance(images, str | Path):
        return folder_of_pictures(Path(images), count), None
    if hasattr(images, "dtype") and images.dtype != object:
        return array_of_pictures(images, count, parameter)
    return sequence(images, parameter, count), None


def array_of_pictures(images: Any, count: int, parameter: str) -> tuple[Reader, float]:
    """A reader of (rows, height, width[, channels]), and its largest value, from a sample."""
    read = sequence(images, parameter, count)
    if getattr(images, "ndim", 0) not in (3, 4):
        raise InvalidInputError(
            f"must be pictures: (rows, height, width[, channels]), not "
            f"{images.shape}. Reshape it, for example with images.reshape(-1, 28, 28).",
            parameter=parameter,
        )
    some = np.asarray(images[:: max(1, count // _SAMPLED_PICTURES)], np.float64)
    top = float(np.nanmax(some, initial=0.0))
    if images.dtype == np.uint8 and top > _FEW_LEVELS:
        return read, 255.0
    return read, top or 1.0
