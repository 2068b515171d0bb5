"""Tables in .csv files (also with semicolons or tabs, in any encoding), .jsonl and .xlsx."""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from uniproto.data.columns import GAPS, ROW_NUMBERS, checked_table, is_text, value_array
from uniproto.data.disk import require_room
from uniproto.data.files import first_line, mapped, unpacked
from uniproto.data.written import written_numbers
from uniproto.errors import InputFileError, InvalidInputError, needing, warn_of_data

_BLOCK = 2**26  # a reader's block must hold a whole line; long documents make long lines
_MOST_NESTED = 100  # levels of JSON
_ESCAPED, _STRING = re.compile(rb"\\.", re.DOTALL), re.compile(rb'"[^"]*"')
_DEEPER, _SHALLOWER = (np.isin(np.arange(256), list(signs)) for signs in (b"[{", b"]}"))
_SAMPLED = 2**20  # bytes from which the dialect of a file is inferred
_WESTERN = "cp1252"  # what most files are that are not UTF-8, Latin-1 among them
_SEPARATORS = ",;\t|"
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_CHANGED = re.compile(r"Column\(/(.*)\) changed from (\w+) to (\w+) in row (\d+)")
_EXACT = 2.0**53  # up to here a decimal number tells all whole ones apart
_ZERO_IN_FRONT = "^0[0-9]{2,}$"  # but for months and hours, which are numbers
_DIGITS = "^[+-]?[0-9]+$"
_CELL = r"(?m)(?:^|[;\t|])\s*[+-]?{}\s*(?=[;\t|]|$)"
_DECIMAL = (  # a mark before three digits may be one between thousands
    _CELL.format(r"(?:0{0}\d+|\d+{0}(?:\d\d?|\d{{4,}}))"),
    _CELL.format(r"\d+{0}\d+"),
)
_WITH_THOUSANDS = r"^\s*[+-]?[0-9]{1,3}(\.[0-9]{3})*(,[0-9]*)?\s*$|^\s*[+-]?[0-9]+(,[0-9]*)?\s*$"


@dataclass(frozen=True)
class CsvForm:
    """The dialect of a .csv file."""

    encoding: str = "utf8"
    separator: str = ","
    decimal: str = "."


def csv_form(path: Path, data: pa.Buffer, encoding: str | None = None) -> CsvForm:
    """The dialect of a .csv file, from its first megabyte; its encoding, from all of it."""
    encoding = encoding or _encoding(path, data)
    try:
        start = bytes(data[:_SAMPLED])
        text = codecs.getincrementaldecoder(encoding)().decode(start).lstrip("\ufeff")
    except LookupError as error:
        raise InvalidInputError(
            f"{encoding} is unknown. Try latin-1.", parameter="encoding"
        ) from error
    except UnicodeDecodeError as error:
        raise InputFileError(
            f"{path} is not written in {encoding} ({first_line(error)}). Name its encoding with "
            "--encoding, or read it with pandas."
        ) from error
    lines = [line for line in _QUOTED.sub("", text).splitlines() if line.strip()]
    whole = lines[: min(20, max(1, len(lines) - 1))]  # the last may have been cut off
    counts = {mark: min((line.count(mark) for line in whole), default=0) for mark in _SEPARATORS}
    separator = max(counts, key=lambda mark: counts[mark])
    for pattern in _DECIMAL:
        points, commas = (len(re.findall(pattern.format(mark), text)) for mark in (r"\.", ","))
        if points or commas:
            break
    return CsvForm(encoding, separator, "," if separator != "," and commas > points else ".")


def _encoding(path: Path, data: pa.Buffer) -> str:
    """UTF-8 or UTF-16; otherwise it is taken for that of western Windows, with a warning."""
    if bytes(data[:2]) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for begin in range(0, data.size, _SAMPLED):
            decoder.decode(data[begin : begin + _SAMPLED])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        warn_of_data(
            f"{path.name} is not UTF-8. It was read as Windows-1252 (Latin-1); if letters look "
            "wrong, name its encoding with --encoding, or read it with pandas."
        )
        return _WESTERN
    return "utf8"


def read_csv(
    path: Path, memory: int | float | str | None, encoding: str | None = None
) -> tuple[str, pa.Table]:
    """The digest and the table of a .csv file, which is read once.

    Its first line names the columns; codes of digits are texts. A first column without a name is
    the index that pandas and R write.
    """
    require_room(path, memory)
    data = mapped(path)
    form = csv_form(path, data, encoding)
    texts = _may_be_codes(data, form)
    table = checked_table(_without_blank(_csv_table(data, form, texts)), path)
    _require_closed_quotes(table, data, path)
    for place, name in enumerate(table.column_names):
        if name in texts:
            table = table.set_column(place, name, _typed(table.column(place), form))
    if form.decimal == ",":
        table = _without_thousands(table)
    names = table.column_names
    if all(map(_is_number, names)) and not all(name.isdigit() for name in names):
        raise InputFileError(
            f"{path}: the first line must name the columns; it holds numbers. Add a line of names."
        )
    return hashlib.sha256(data).hexdigest(), _without_index(table)


def as_csv_texts(
    table: pa.Table, path: Path, names: Sequence[str], encoding: str | None = None
) -> pa.Table:
    """The table with these columns as the file writes them: .csv does not tell 40 from "40"."""
    named = [name for name in names if not is_text(table.schema.field(name).type)]
    if named:
        data = mapped(path)
        found = _csv_table(data, csv_form(path, data, encoding), named, include_columns=named)
        for name in named:
            table = table.set_column(table.column_names.index(name), name, found.column(name))
    return table


def _csv_options(form: CsvForm, texts: Sequence[str] = (), **convert: Any) -> dict[str, Any]:
    """Options of Arrow's readers; `texts` are columns that are not to be converted."""
    import pyarrow.csv as csv

    return {
        "parse_options": csv.ParseOptions(delimiter=form.separator, newlines_in_values=True),
        "convert_options": csv.ConvertOptions(
            column_types=dict.fromkeys(texts, pa.string()),
            null_values=GAPS,
            decimal_point=form.decimal,
            **convert,
        ),
    }


def _csv_table(
    data: pa.Buffer, form: CsvForm, texts: Sequence[str] = (), **convert: Any
) -> pa.Table:
    """The columns of a .csv file."""
    import pyarrow.csv as csv

    reading = csv.ReadOptions(block_size=_BLOCK, encoding=form.encoding)
    return csv.read_csv(
        pa.BufferReader(data), read_options=reading, **_csv_options(form, texts, **convert)
    )


def _may_be_codes(data: pa.Buffer, form: CsvForm) -> list[str]:
    """Columns whose first values are whole numbers, or missing: they may be codes of digits."""
    import pyarrow.csv as csv

    def first(size: int) -> pa.Table:
        reading = csv.ReadOptions(block_size=size, encoding=form.encoding)
        source = pa.BufferReader(data)
        with csv.open_csv(source, read_options=reading, **_csv_options(form)) as reader:
            try:
                return pa.Table.from_batches([reader.read_next_batch()])
            except StopIteration:
                return reader.schema.empty_table()

    try:
        start = first(_SAMPLED)
    except pa.ArrowInvalid:  # a line is longer
        start = first(_BLOCK)
    return [
        field.name
        for field, values in zip(start.schema, start.columns, strict=True)
        if pa.types.is_integer(field.type)
        or values.null_count == len(values)
        or (pa.types.is_floating(field.type) and _all_whole(values))
    ]


def _all_whole(values: pa.ChunkedArray) -> bool:
    return bool(pc.all(pc.equal(pc.floor(values), values)).as_py())


def _typed(texts: pa.ChunkedArray, form: CsvForm) -> pa.ChunkedArray:
    """Values of the type that they are written in; codes of digits stay texts."""
    values = pc.if_else(pc.is_in(texts, pa.array(GAPS)), None, texts)
    if pc.any(pc.match_substring_regex(values, _ZERO_IN_FRONT)).as_py():
        return values
    if values.null_count == len(values):
        return pa.chunked_array([pa.nulls(len(values))])
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        if pc.all(pc.match_substring_regex(values, _DIGITS)).as_py():
            return values
    import pyarrow.csv as csv

    written = pa.BufferOutputStream()
    csv.write_csv(pa.table({"values": texts}), written)
    form = replace(form, encoding="utf8", separator=",")
    return _csv_table(written.getvalue(), form).column(0)


def _without_thousands(table: pa.Table) -> pa.Table:
    """The table with numbers such as 4.268 or 1.234,5, which Arrow takes for texts, as numbers."""
    for place, field in enumerate(table.schema):
        texts = table.column(place)
        if is_text(field.type) and pc.all(pc.match_substring_regex(texts, _WITH_THOUSANDS)).as_py():
            found = written_numbers(texts.to_pylist(), ",")
            if found is not None:
                numbers = pa.array(found.values, from_pandas=True)
                table = table.set_column(place, field.name, numbers)
    return table


def _without_blank(table: pa.Table) -> pa.Table:
    """The table without columns that have neither a name nor a value, which spreadsheets write."""
    gaps = pa.array(GAPS)
    for place in reversed(range(table.num_columns)):
        values = table.column(place)
        if not table.field(place).name and (
            values.null_count == len(values)
            or (is_text(values.type) and pc.all(pc.is_in(values, gaps)).as_py())
        ):
            table = table.remove_column(place)
    return table


def _require_closed_quotes(table: pa.Table, data: pa.Buffer, path: Path) -> None:
    """Refuse a text whose quotes are never closed: all rows after it would be part of it."""
    last = table.column(-1)[-1].as_py() if all(table.shape) else None
    if isinstance(last, str) and "\n" in last:
        end = bytes(data[max(data.size - 8, 0) :]).rstrip(b"\r\n\0")
        if not end.endswith(b'"'):
            raise InputFileError(
                f'{path}: the quotes of a text are never closed: "{last.split(chr(10))[0][:80]}. '
                "Close them."
            )


def _without_index(table: pa.Table) -> pa.Table:
    """The table without nameless columns, but for a first one that holds more than row numbers."""
    for place in reversed(range(table.num_columns)):
        if table.field(place).name:
            continue
        values = table.column(place)
        counts = pa.types.is_integer(values.type) and not values.null_count
        if counts and place == 0 and (np.diff(values.to_numpy()) == 1).all():
            table = table.remove_column(place).replace_schema_metadata(ROW_NUMBERS)
        elif place == 0 and "index" not in table.column_names:
            table = table.rename_columns(["index", *table.column_names[1:]])
    return table


def read_json(path: Path, column: str | None, memory: int | float | str | None) -> pa.Table:
    """The table of a .jsonl file, a row of fields on each line, or of a .json file's list."""
    import pyarrow.json as arrow_json

    require_room(path, memory)
    begin = b""
    with unpacked(path) as lines:
        for number, line in enumerate(lines, start=1):
            begin = begin or line.strip()[:1]
            _require_shallow(line, path, f"line {number}")
    if not begin:  # Arrow makes a table without columns of blank lines
        raise InputFileError(f"{path} is empty. Check how it was written or filtered.")
    is_list = begin == b"["
    with unpacked(path) as lines:
        content = lines
        if is_list:
            whole = lines.read()
            _require_shallow(whole, path, "its list")
            content = _lines_of_list(whole)
        options = arrow_json.ReadOptions(block_size=_BLOCK)
        try:
            table = arrow_json.read_json(content, options)
        except pa.ArrowInvalid as error:
            with unpacked(path) as again:
                given = again.read()
            mixed = _of_several_kinds(path, error)
            # Perhaps a NaN, which is no JSON and which pandas writes.
            if not mixed and (is_list or b"NaN" not in given):
                raise
            rows = _row(given) if is_list else map(_row, filter(bytes.strip, given.split(b"\n")))
            table = arrow_json.read_json(_lines(_as_texts(rows) if mixed else rows), options)
    try:  # the chosen rows are written as .parquet: learn now what does not fit there
        pq.write_table(table.schema.empty_table(), pa.BufferOutputStream())
    except pa.ArrowException as error:
        raise InputFileError(
            f"{path}: a field does not fit into a .parquet file ({first_line(error)}). Drop it."
        ) from error

    def text() -> str:
        with unpacked(path) as lines:
            content = lines.read()
        return str(_lines_of_list(content).read() if is_list else content, "utf-8-sig")

    return _codes_of_json(checked_table(table, path), text)


def _require_shallow(text: bytes, path: Path, where: str) -> None:
    """Refuse deeply nested values, which overflow the parser's stack and end the process.

    Most lines have few brackets. Of the others all but brackets outside of texts is left out.
    """
    if text.count(b"[") + text.count(b"{") <= _MOST_NESTED:
        return
    signs = np.frombuffer(_STRING.sub(b"", _ESCAPED.sub(b"", text)), np.uint8)
    depth = np.cumsum(_DEEPER[signs].astype(np.int32) - _SHALLOWER[signs])
    if depth.max(initial=0) > _MOST_NESTED:
        raise InputFileError(
            f"{path}: values must be nested at most {_MOST_NESTED} deep. In {where} they are "
            "deeper: flatten or drop them."
        )


def _lines_of_list(content: bytes) -> io.BytesIO:
    """The objects of a JSON list, one on each line."""
    return _lines(_row(content))


def _of_several_kinds(path: Path, error: pa.ArrowInvalid) -> bool:
    """Whether a column holds numbers and texts; other columns of several kinds are refused."""
    mixed = _CHANGED.search(str(error))
    if mixed is None:
        return False
    if "/" not in mixed[1] and {mixed[2], mixed[3]} == {"number", "string"}:
        return True
    name = mixed[1].replace("/[]", "")
    images = " Images in conversations are not supported." if name.endswith("/content") else ""
    raise InputFileError(
        f"{path}: every value of {name} must be of one kind, not {mixed[2]} in some rows and "
        f"{mixed[3]} in others, such as row {mixed[4]}. Write all of them as texts.{images}"
    ) from error


def _as_texts(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows with the numbers of columns that hold texts, too, as texts."""
    rows = list(rows)
    texts = {name for row in rows for name, value in row.items() if isinstance(value, str)}
    return [
        {
            name: str(value) if name in texts and type(value) in (int, float) else value
            for name, value in row.items()
        }
        for row in rows
    ]


def _lines(rows: Iterable[Any]) -> io.BytesIO:
    return io.BytesIO("\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode())


def _row(text: bytes) -> Any:
    """What JSON means, with a gap for NaN."""
    return json.loads(text, parse_constant=_gap)


def _gap(word: str) -> None:
    if word != "NaN":
        raise ValueError(f"it holds {word}, which is no number")


def read_excel(path: Path, column: str | None, memory: int | float | str | None) -> pa.Table:
    """The table of the first sheet of an .xlsx file, whose first row names the columns."""
    with needing("Reading .xlsx files", "excel"):
        from openpyxl import load_workbook

    require_room(path, memory)
    with closing(load_workbook(path, read_only=True, data_only=True)) as book:
        cells = book.worksheets[0].iter_rows(values_only=True)
        rows = [row for row in cells if any(value is not None for value in row)]
    if not rows:
        raise InputFileError(f"{path} is empty. The table must be on its first sheet.")
    names = ["" if name is None else str(name) for name in rows[0]]
    columns = [value_array(values) for values in zip(*rows[1:], strict=True)]
    columns = columns or [pa.nulls(0)] * len(names)
    return _without_index(checked_table(pa.Table.from_arrays(columns, names), path))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Codes of digits, such as 01182 or 12345678901234567890, are read as they are written: numbers
# have no zeros in front and lose digits beyond 64 bits.


def _codes_of_json(table: pa.Table, read: Callable[[], str]) -> pa.Table:
    """The table with whole numbers beyond 64 bits as texts; `read` gives the file's text."""
    wide = _beyond_exact(table)
    if not wide:
        return table
    rows = _objects(read())
    for name in wide:
        found = [row.get(name) for row in rows]
        if all(isinstance(value, str | None) for value in found):
            texts = pa.array(found, pa.string())
            table = table.set_column(table.column_names.index(name), name, texts)
    return table


def _beyond_exact(table: pa.Table) -> list[str]:
    """Columns of decimal numbers, all of them whole and some too large to be exact."""
    found = []
    for field, values in zip(table.schema, table.columns, strict=True):
        if pa.types.is_floating(field.type) and len(values) > values.null_count:
            large = pc.max(pc.abs(values)).as_py() >= _EXACT
            if large and _all_whole(values):
                found.append(field.name)
    return found


def _objects(text: str) -> list[dict[str, object]]:
    """The objects of a text, one after the other, whole numbers as they are written."""
    decoder, place, found = json.JSONDecoder(parse_int=str), 0, []
    while place < len(text):
        if text[place].isspace():
            place += 1
        else:
            value, place = decoder.raw_decode(text, place)
            found.append(value)
    return found
