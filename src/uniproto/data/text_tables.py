"""Tables in text files: .csv and .jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from uniproto.data.codes import codes_of_csv, codes_of_json
from uniproto.data.columns import checked_table, is_text
from uniproto.data.files import first_line, unpacked
from uniproto.data.sizes import require_room
from uniproto.errors import InputFileError

_BLOCK = 2**26  # a reader's block must hold a whole line; long documents make long lines


def read_csv(path: Path, column: str | None, memory: int | float | str | None) -> pa.Table:
    """The table of a .csv file, whose first line names the columns; codes of digits are texts."""
    require_room(path, memory)
    table = _csv_table(path)
    names = table.column_names
    if all(map(_is_number, names)) and not all(name.isdigit() for name in names):
        raise InputFileError(
            f"{path}: the first line must name the columns. Got the numbers {', '.join(names[:3])} "
            "… instead. Add a line of names."
        )
    return codes_of_csv(
        checked_table(table, path), lambda named: _csv_table(path, named, strings_can_be_null=True)
    )


def as_csv_texts(table: pa.Table, path: Path, names: Sequence[str]) -> pa.Table:
    """The table with these columns as the file writes them: .csv does not tell 40 from "40"."""
    named = [name for name in names if not is_text(table.schema.field(name).type)]
    for name, texts in zip(named, _csv_table(path, named).columns if named else (), strict=True):
        table = table.set_column(table.column_names.index(name), name, texts)
    return table


def _csv_table(path: Path, texts: Sequence[str] = (), **options: Any) -> pa.Table:
    """All columns of a .csv file, or those that are to be read as texts."""
    import pyarrow.csv as csv

    blocks, lines = csv.ReadOptions(block_size=_BLOCK), csv.ParseOptions()
    lines.newlines_in_values = True
    kinds = csv.ConvertOptions(
        include_columns=list(texts), column_types=dict.fromkeys(texts, pa.string()), **options
    )
    return csv.read_csv(path, blocks, lines, kinds)


def read_jsonl(path: Path, column: str | None, memory: int | float | str | None) -> pa.Table:
    """The table of a .jsonl file, a row of fields on each line."""
    import pyarrow.json as json
    import pyarrow.parquet as pq

    require_room(path, memory)
    with unpacked(path) as lines:
        begin = next(filter(None, map(bytes.strip, lines)), b"")
    if not begin:  # Arrow makes a table without columns of blank lines
        raise InputFileError(
            f"{path}: the file must hold a JSON object on each line. It is empty. Check how it was "
            "written or filtered."
        )
    if begin.startswith(b"["):
        raise InputFileError(
            f"{path}: the file must hold a JSON object on each line. It holds a list instead. "
            "Write its objects one below the other."
        )
    with unpacked(path) as lines:
        table = json.read_json(lines, json.ReadOptions(block_size=_BLOCK))
    try:  # the chosen rows are written as .parquet: learn now what does not fit there
        pq.write_table(table.schema.empty_table(), pa.BufferOutputStream())
    except pa.ArrowException as error:
        raise InputFileError(
            f"{path}: every field must fit into a .parquet file. One does not "
            f"({first_line(error)}). Drop that field."
        ) from error

    def text() -> str:
        with unpacked(path) as lines:
            return str(lines.read(), "utf-8-sig")

    return codes_of_json(checked_table(table, path), text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
