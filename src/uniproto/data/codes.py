"""Codes of digits in text files, such as 01182 or 12345678901234567890: read as they are written.

Readers take them for numbers, which have no zeros in front and lose digits beyond 64 bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

_EXACT = 2.0**53  # up to here a decimal number tells all whole ones apart
_ZERO_IN_FRONT = "^0[0-9]{2,}$"  # but for months and hours, which are numbers
_DIGITS = "^[+-]?[0-9]+$"


def codes_of_csv(table: pa.Table, read_texts: Callable[[Sequence[str]], pa.Table]) -> pa.Table:
    """The table with its codes as texts; `read_texts` reads columns as they are written."""
    wide = _beyond_exact(table)
    whole = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    if not wide and not whole:
        return table
    texts = read_texts([*whole, *wide])
    for name in texts.column_names:
        values = texts.column(name)
        if name in wide:
            are_codes = pc.all(pc.match_substring_regex(values, _DIGITS)).as_py()
        else:
            are_codes = pc.any(pc.match_substring_regex(values, _ZERO_IN_FRONT)).as_py()
        if are_codes:
            table = table.set_column(table.column_names.index(name), name, values)
    return table


def codes_of_json(table: pa.Table, read: Callable[[], str]) -> pa.Table:
    """The table with whole numbers beyond 64 bits as texts; `read` gives the file's text."""
    wide = _beyond_exact(table)
    if not wide:
        return table
    rows = _values(read())
    for name in wide:
        found = [row.get(name) for row in rows]
        if all(isinstance(value, str | None) for value in found):
            texts = pa.array(found, pa.string())
            table = table.set_column(table.column_names.index(name), name, texts)
    return table


def _beyond_exact(table: pa.Table) -> list[str]:
    """Columns of decimal numbers, all of them whole and some too large to be told apart."""
    found = []
    for field, values in zip(table.schema, table.columns, strict=True):
        if pa.types.is_floating(field.type) and len(values) > values.null_count:
            large = pc.max(pc.abs(values)).as_py() >= _EXACT
            if large and pc.all(pc.equal(pc.floor(values), values)).as_py():
                found.append(field.name)
    return found


def _values(text: str) -> list[dict[str, object]]:
    """The objects of a text, one after the other, whole numbers as they are written."""
    decoder, place, found = json.JSONDecoder(parse_int=str), 0, []
    while place < len(text):
        if text[place].isspace():
            place += 1
        else:
            value, place = decoder.raw_decode(text, place)
            found.append(value)
    return found
