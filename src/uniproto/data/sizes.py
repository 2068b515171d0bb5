"""How large a file becomes in memory, by its header, footer or lines, before it is read.

A few kilobytes can ask for gigabytes: columns without end, one value repeated, zeros packed.
"""

from __future__ import annotations

import math
import random
import re
import zipfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np

from uniproto.data.files import unpacked
from uniproto.errors import InputFileError
from uniproto.runtime.memory import free_bytes, memory_budget, require_memory

MOST_COLUMNS = 100_000
_SMALL = 2**26  # bytes that are always allowed: `memory` is for the work, and may be very little
_COLUMN = 2**14  # bytes that readers take for a column of however few rows
_NUMBER = 8
_SAMPLED = 2**20  # bytes of lines whose keys are looked at
_ARRAY = b"\x93NUMPY"
_KEY = re.compile(rb'"([^"\\]*)"\s*:')
# Bytes of a value, by Parquet's physical types; texts are counted as they are stored.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}


def room_for_inputs(memory: int | float | str | None = None) -> int:
    """Bytes that an input may take: `memory`, or half of what is free.

    >>> room_for_inputs("1GB") == 2**30
    True
    """
    allowed = free_bytes() // 2 if memory is None else memory_budget(memory)
    return max(allowed, _SMALL)


def require_room(
    needed: int, path: str | Path, what: str, memory: int | float | str | None, remedy: str
) -> None:
    """Refuse to read what would not fit.

    >>> require_room(2**40, "pool.npz", "an array of shape (2, 3)", "1GB", "Use .npy.")
    Traceback (most recent call last):
    uniproto.errors.InfeasibleError: Not enough memory: pool.npz holds an array of shape (2, 3) and
    needs 1024 GiB, more than the 1 GiB allowed. Use .npy. Or allow more: --memory (memory=).
    """
    remedy += " Or allow more: --memory (memory=)."
    require_memory(needed, room_for_inputs(memory), f"{path} holds {what}", remedy)


def require_columns_in_bounds(count: int, path: str | Path) -> None:
    """Refuse tables on whose columns alone readers spend gigabytes."""
    if count > MOST_COLUMNS:
        raise InputFileError(
            f"{path}: a table must have at most {MOST_COLUMNS:,} columns. Got {count:,} instead. "
            "Save the features with np.save, or as one list column of a .parquet file."
        )


def require_jsonl_fits(path: Path, memory: int | float | str | None) -> None:
    """Check lines of objects by their keys: every key is a column, filled up in every row."""
    size = _unpacked_size(path)
    require_room(size, path, "lines", memory, "Split it, or convert it to .parquet.")
    rows, columns = _jsonl_shape(path, min(1.0, _SAMPLED / max(size, 1)))
    if columns > MOST_COLUMNS or 2 * _NUMBER * rows * columns > max(_SMALL, 16 * size):
        rows, columns = _jsonl_shape(path, 1.0)  # so many that it is worth counting them all
    require_columns_in_bounds(columns, path)
    _require_table_fits(path, size, rows, columns, memory)


def _unpacked_size(path: Path) -> int:
    if path.suffix.lower() != ".zst":
        return path.stat().st_size
    with unpacked(path) as content:
        return sum(map(len, iter(lambda: content.read(_SAMPLED), b"")))


def _require_table_fits(
    path: Path, size: int, rows: int, columns: int, memory: int | float | str | None
) -> None:
    """A table is held whole, and its numbers once more as rows of features."""
    numbers = _NUMBER * rows * columns
    require_room(
        columns * _COLUMN + max(size, numbers) + numbers,
        path,
        f"up to {rows:,} rows of {columns:,} columns",
        memory,
        "Convert it to .parquet, from which features are read in parts.",
    )


def _jsonl_shape(path: Path, share: float) -> tuple[int, int]:
    """How many rows and about how many keys lines have, from this share of them drawn at random.

    A key that was met once stands for those that were not met at all.
    """
    draw = random.random
    met: Counter[bytes] = Counter()
    rows = 0
    with unpacked(path) as lines:
        for line in lines:
            rows += 1
            if share == 1.0 or draw() < share:
                met.update(set(_KEY.findall(line)))
    single = sum(count == 1 for count in met.values())
    return rows, len(met) + round(single * (1 / share - 1))


def parquet_bytes(metadata: Any) -> int:
    """How much memory a Parquet file takes by its footer, not counting what texts share.

    A value that is repeated a million times is stored once, so the size of the file tells nothing.
    """
    rows, total = metadata.num_rows, 0
    for place in range(metadata.num_columns):
        column = metadata.schema.column(place)
        width = _width(column)
        if width is not None and column.max_repetition_level == 0:
            total += width * rows
            continue
        for group in range(metadata.num_row_groups):
            chunk = metadata.row_group(group).column(place)
            stored = chunk.total_uncompressed_size
            total += stored if width is None else max(width * chunk.num_values, 0)
    return int(total)


def has_texts(metadata: Any) -> bool:
    """Whether some column's size in memory is not known before it is read."""
    columns = (metadata.schema.column(place) for place in range(metadata.num_columns))
    return any(_width(column) is None for column in columns)


def _width(column: Any) -> int | None:
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return int(column.length)
    return _WIDTHS.get(column.physical_type)


def require_npy_fits(path: Path) -> None:
    """Check that an array's header promises no more than its file holds; others pass."""
    with path.open("rb") as file:
        if file.read(len(_ARRAY)) == _ARRAY:
            file.seek(0)
            _declared(file, path.stat().st_size)


def require_npz_fits(path: Path, name: str, memory: int | float | str | None) -> None:
    """Check an array of an archive by its header."""
    with path.open("rb") as file:
        shape, size = arrays_in(file, [name])[name]
    require_room(
        size, path, f"an array of shape {shape}", memory,
        "Save it with np.save: an .npy file is read in parts.",
    )  # fmt: skip


def arrays_in(
    file: IO[bytes], names: Iterable[str] | None = None
) -> dict[str, tuple[tuple[int, ...], int]]:
    """The shape and the bytes of arrays in an archive, by their headers alone.

    >>> import io
    >>> buffer = io.BytesIO()
    >>> np.savez_compressed(buffer, zeros=np.zeros((1000, 50)))
    >>> arrays_in(buffer)
    {'zeros': ((1000, 50), 400000)}
    """
    found = {}
    with zipfile.ZipFile(file) as archive:
        listed = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        for name in listed if names is None else names:
            entry = listed[name]
            with archive.open(entry) as member:
                found[name] = _declared(member, entry.file_size)
    return found


def _declared(file: IO[bytes], size: int) -> tuple[tuple[int, ...], int]:
    """What the header of an array says of it; the file must be large enough for that."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0
    if version != (1, 0):  # later versions differ in how they write names
        read = np.lib.format.read_array_header_2_0
    shape, _, kind = read(file)
    needed = math.prod(shape) * kind.itemsize
    if not kind.hasobject and needed > size:
        raise ValueError(f"its header promises {needed:,} bytes, and there are {size:,}")
    return shape, needed
