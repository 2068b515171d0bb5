"""How much memory an input takes, as far as its file tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from uniproto.runtime.memory import free_bytes, memory_budget, require_memory

_SMALL = 2**26  # bytes that are always allowed: `memory` is for the work, and may be very little
# Bytes of a value, by Parquet's physical types; texts are counted as they are stored.
_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8}


def require_room(path: Path, memory: int | float | str | None) -> None:
    """Refuse a file that is read whole and is larger than the memory there is."""
    allowed = free_bytes() if memory is None else memory_budget(memory)
    require_memory(
        path.stat().st_size,
        max(allowed, _SMALL),
        f"{path} is read whole",
        "Convert it to .parquet or .npy, which are read in parts, or allow more: --memory.",
    )


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
