"""The rows of a file of instruction data: source, prompt and answer of each."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.data.files import json_objects
from uniproto.errors import InputFileError, UniprotoError, invalid

_AT_ONCE = 1000
_ENDINGS = (".jsonl", ".jsonl.zst", ".parquet")


@dataclass(frozen=True)
class TuningRow:
    source: str
    prompt: str
    answer: str


def read_rows(path: str | Path, *, prompt: str, answer: str, source: str | None) -> list[TuningRow]:
    """Rows of a .jsonl, .jsonl.zst or .parquet file; without a source column, all are `all`.

    The file streams through: only these columns of it are kept.
    """
    path = Path(path)
    if not any(path.name.lower().endswith(ending) for ending in _ENDINGS):
        raise InputFileError(
            f"{path}: the file name must end in one of {', '.join(_ENDINGS)}. Got "
            f"{path.suffix or 'no ending'!r} instead. Convert the file to one of those."
        )
    columns = {"--prompt": prompt, "--answer": answer}
    if source is not None:
        columns["--source"] = source
    try:
        table = (
            _parquet(path, list(columns.values()))
            if path.suffix.lower() == ".parquet"
            else _json_lines(path)
        )
        rows = list(_checked(table, path, columns))
    except (UniprotoError, MemoryError):
        raise
    except Exception as error:  # what a parser makes of a damaged file can be anything
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputFileError(
            f"{path}: the file must hold one object per line, or a Parquet table. It could not be "
            f"read ({getattr(error, 'strerror', None) or reason}). Check that it is there and "
            "complete."
        ) from error
    if not rows:
        raise InputFileError(f"{path}: the file must hold training examples. It is empty.")
    return rows


def _checked(
    table: Iterable[dict[str, Any]], path: Path, columns: dict[str, str]
) -> Iterator[TuningRow]:
    """Rows whose columns are there and hold texts; a source can be anything but nothing."""
    source = columns.get("--source")
    for number, row in enumerate(table):
        for option, column in columns.items():
            if column not in row:
                raise invalid(
                    option,
                    f"must name a column of {path.name} ({', '.join(row)})",
                    f"{column!r}, which row {number} does not have",
                    "Name another column.",
                )
            if row[column] is None or (column != source and not isinstance(row[column], str)):
                raise InputFileError(
                    f"{path}: column {column!r} must hold a text in every row. Row {number} has "
                    f"{type(row[column]).__name__} instead. Correct or drop that row."
                )
        label = "all" if source is None else str(row[source])
        yield TuningRow(label, row[columns["--prompt"]], row[columns["--answer"]])


# Files are opened here, not by Arrow: it takes every path for UTF-8, which not every one is.


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    with path.open("rb") as file:
        lines: Any = file
        if path.suffix.lower() == ".zst":
            lines = io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"))
        for _, row in json_objects(lines, path):
            yield row


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with path.open("rb") as file, pq.ParquetFile(file) as table:
        # Where a column is missing, the others are shown.
        wanted = list(columns) if set(columns) <= set(table.schema_arrow.names) else None
        for batch in table.iter_batches(_AT_ONCE, columns=wanted):
            yield from batch.to_pylist()
