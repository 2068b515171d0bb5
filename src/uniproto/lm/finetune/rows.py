"""Rows of instruction data, read from files or from the Hugging Face hub, and checked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.data.files import json_objects, unpacked
from uniproto.data.hub import local_data
from uniproto.errors import InputFileError, UniprotoError, invalid
from uniproto.features.cache import cache_folder
from uniproto.features.text import is_unicode
from uniproto.lm.features.language import FURTHER, has_further, whole_prompt
from uniproto.lm.finetune.chats import Turns, as_turns
from uniproto.lm.finetune.settings import FinetuneSettings

_AT_ONCE = 1000
_ENDINGS = (".jsonl", ".jsonl.zst", ".parquet")


@dataclass(frozen=True)
class InstructionRow:
    """A question and its answer, or the turns of a chat."""

    source: str
    prompt: str
    answer: str
    turns: Turns = ()

    @property
    def question(self) -> str:
        """The prompt, or what comes before the answers of a chat."""
        return self.prompt or "\n".join(text for role, text in self.turns if role != "assistant")


def read_files(
    settings: FinetuneSettings, names: Sequence[str], beside: bool = False
) -> list[InstructionRow]:
    """The rows of files, or of data sets on the hub, one after another.

    Files that are read `beside` the training data may lack its column of sources.
    """
    rows: list[InstructionRow] = []
    for name in names:
        rows += read_rows(
            name,
            prompt=settings.prompt,
            answer=settings.answer,
            source=settings.source,
            messages=settings.messages,
            needs_source=not beside,
        )
    return rows


def read_rows(
    path: str | Path,
    *,
    prompt: str,
    answer: str,
    source: str | None,
    messages: str | None = None,
    needs_source: bool = True,
) -> list[InstructionRow]:
    """Rows of a .jsonl, .jsonl.zst or .parquet file; without a source column, all are `all`.

    The file streams through: only these columns stay in memory. A data set of the Hugging Face
    hub is named as for `uniproto curate`.
    """
    columns = {"--prompt": prompt, "--answer": answer}
    if messages is not None:
        columns = {"--messages": messages}
    if source is not None:
        columns["--source"] = source
    path = Path(local_data(str(path), cache_folder() / "datasets"))
    if not any(path.name.lower().endswith(ending) for ending in _ENDINGS):
        raise InputFileError(
            f"{path}: the file name must end in one of {', '.join(_ENDINGS)}. Got "
            f"{path.suffix or 'no ending'!r} instead. Convert the file to one of those."
        )
    try:
        table = (
            _parquet(path, list(columns.values()))
            if path.suffix.lower() == ".parquet"
            else _json_lines(path)
        )
        rows = list(_checked(table, path, columns, needs_source))
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
    table: Iterable[dict[str, Any]], path: Path, columns: dict[str, str], needs_source: bool
) -> Iterator[InstructionRow]:
    """Rows whose columns are there and hold texts; a source can be anything but nothing."""
    source, messages = columns.get("--source"), columns.get("--messages")
    for number, row in enumerate(table):
        for option, column in columns.items():
            if column not in row and column == source and not needs_source:
                continue
            if column not in row:
                raise invalid(
                    option,
                    f"must name a column of {path.name} ({', '.join(row)})",
                    f"{column!r}, which row {number} does not have",
                    "Name another column.",
                )
            if column == messages:
                continue
            if row[column] is None or (column != source and not isinstance(row[column], str)):
                raise InputFileError(
                    f"{path}: column {column!r} must hold a text in every row. Row {number} has "
                    f"{type(row[column]).__name__} instead. Correct or drop that row."
                )
        label = "all" if source is None else str(row.get(source, path.stem))
        if messages is not None:
            found = InstructionRow(label, "", "", as_turns(row[messages], path, number))
        else:
            question, answer = columns["--prompt"], columns["--answer"]
            more = row[FURTHER] if has_further(row, question, answer) else None
            found = InstructionRow(label, whole_prompt(row[question], more), row[answer])
        _require_unicode(found, path, number)
        yield found


def _require_unicode(row: InstructionRow, path: Path, number: int) -> None:
    texts = (row.source, row.prompt, row.answer, *itertools.chain(*row.turns))
    if not all(map(is_unicode, texts)):
        raise InputFileError(
            f"{path}: every row must hold Unicode text. Row {number} has half of a surrogate pair "
            "in it. Correct or drop that row."
        )


# Files are opened here, not by Arrow: it takes every path for UTF-8, which not every one is.


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with unpacked(path) as lines:
        for _, row in json_objects(lines, path):
            yield row


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    with path.open("rb") as file, pq.ParquetFile(file) as table:
        # Where a column is missing, the others are shown.
        present = table.schema_arrow.names
        further = {FURTHER} & set(present)  # of the prompt, perhaps
        wanted = list({*columns, *further}) if set(columns) <= set(present) else None
        for batch in table.iter_batches(_AT_ONCE, columns=wanted):
            yield from batch.to_pylist()
