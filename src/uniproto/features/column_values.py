"""The values of a column as numbers, days or levels, in whatever form people keep them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uniproto.data.columns import GAP_WORDS, is_numeric, is_text
from uniproto.errors import InvalidInputError

MISSING = "(missing)"  # the level of a category's gaps
DAY = 86_400.0  # seconds
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DATES = (
    (r"^([0-9]{4})/([0-9]{2})/([0-9]{2})", r"\1-\2-\3"),
    (r"^([0-9]{2})\.([0-9]{2})\.([0-9]{4})", r"\3-\2-\1"),
)
_FIRST_YEAR, _LAST_YEAR = 1900, 2100  # of dates that are written as 20201231


def plain_column(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without dictionary encoding, whose levels are texts even where they are numbers."""
    if pa.types.is_dictionary(values.type):
        kind = values.type.value_type
        named = is_numeric(kind)
        decoded = [_decoded(chunk, named) for chunk in values.chunks]
        values = pa.chunked_array(decoded, pa.large_string() if named else kind)
    return values


def _decoded(values: pa.DictionaryArray, as_texts: bool) -> pa.Array:
    levels = values.dictionary
    if as_texts:
        levels = pa.array(map(_text, levels.to_pylist()), pa.large_string())
    return levels.take(values.indices)


def ordered_levels(values: pa.ChunkedArray) -> tuple[str, ...]:
    """The levels of an ordered category, as its owner has ordered them."""
    if not (pa.types.is_dictionary(values.type) and values.type.ordered and values.num_chunks):
        return ()
    return tuple(_text(level) or MISSING for level in values.chunk(0).dictionary.to_pylist())


def distinct_values(values: pa.ChunkedArray) -> tuple[list[Any], NDArray[np.intp]]:
    """The different values of a column, and each row's place among them; -1 is a gap."""
    encoded = values.dictionary_encode().unify_dictionaries().combine_chunks()
    return encoded.dictionary.to_pylist(), encoded.indices.fill_null(-1).to_numpy().astype(np.intp)


def levels_of(values: pa.ChunkedArray, name: str) -> tuple[list[str], NDArray[np.intp]]:
    """The levels of a category in order, and each row's place among them; gaps are a level.

    >>> levels_of(pa.chunked_array([["b", "a", "?", None, "b"]]), "kind")
    (['(missing)', 'a', 'b'], array([2, 1, 0, 0, 2]))
    """
    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
        raise InvalidInputError(f"Column {name!r} must hold texts or numbers, not {values.type}.")
    found, codes = distinct_values(values)
    texts = [MISSING if is_gap(value) else str(_text(value)) for value in found] + [MISSING]
    used = np.unique(codes)  # a gap is the last of them
    levels = sorted({texts[code] for code in used})
    place = {level: number for number, level in enumerate(levels)}
    return levels, np.array([place.get(text, -1) for text in texts], np.intp)[codes]


def is_gap(value: Any) -> bool:
    """Whether a value stands for a gap."""
    return value is None or str(value).strip().lower() in GAP_WORDS


def _text(value: Any) -> str | None:
    """A level as text; whole numbers have no point, whatever column they come from."""
    whole = isinstance(value, float) and value.is_integer()
    return None if value is None else str(int(value) if whole else value)


def plain_numbers(values: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    """A column of numbers or spans of time (in seconds), with NaN for gaps; texts are read."""
    kind, unit = values.type, 1.0
    if is_text(kind):
        found, codes = distinct_values(values)
        numbers = text_numbers(found)
        if numbers is not None:
            return np.append(numbers, np.nan)[codes]
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        unit = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        values = values.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    elif not (is_numeric(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
        raise InvalidInputError(f"Column {name!r} must hold numbers, as when prepared, not {kind}.")
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) / unit
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        raise InvalidInputError(f"Column {name!r} must be free of infinity. Drop row {row}.")
    return np.asarray(numbers, np.float64)


def text_numbers(texts: Sequence[str | None]) -> NDArray[np.float64] | None:
    """Numbers from texts such as 75.85, with NaN for gaps such as ?; None where one is neither."""
    found = np.full(len(texts), np.nan)
    for place, text in enumerate(texts):
        if text is not None and NUMBER.fullmatch(text.strip()):
            found[place] = float(text)
        elif not is_gap(text):
            return None
    return found


def day_numbers(values: pa.ChunkedArray, name: str = "dates") -> NDArray[np.float64]:
    """Days since 1970, with NaN for gaps; texts and numbers such as 20201231 are read as dates."""
    found = as_days(values)
    if found is None:
        raise InvalidInputError(
            f"Column {name!r} must hold dates, as when prepared, not {values.type}."
        )
    return found


def as_days(values: pa.ChunkedArray) -> NDArray[np.float64] | None:
    """Days since 1970, from dates, times, texts or numbers; None where a value is none of these.

    Texts are 2020-12-31, 2020/12/31 or 31.12.2020, which mean one day each; 01/02/2020 does not.

    >>> as_days(pa.chunked_array([["1970-01-02", "-"]])), as_days(pa.chunked_array([[19700103]]))
    (array([ 1., nan]), array([2.]))
    """
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _calendar_days(plain_numbers(values, "dates"))
    if is_text(kind):
        found, codes = distinct_values(values)
        times = _text_times(pa.array([None if is_gap(text) else text for text in found], kind))
        return None if times is None else np.append(_days(times), np.nan)[codes]
    if pa.types.is_date(kind) or pa.types.is_null(kind):
        values = values.cast(pa.timestamp("s"))
    return _days(values) if pa.types.is_timestamp(values.type) else None


def _days(times: Any) -> NDArray[np.float64]:
    # What is finer than a microsecond is cut off: days do not tell it apart.
    seconds = times.cast(pa.timestamp("us", tz=times.type.tz), safe=False).cast(pa.int64())
    return plain_numbers(seconds, "dates") / 1e6 / DAY


def _text_times(texts: pa.Array) -> pa.Array | None:
    try:
        for written, iso in _DATES:
            if pc.all(pc.match_substring_regex(texts, written)).as_py():
                texts = pc.replace_substring_regex(texts, written, iso)
        zoned = pc.any(pc.match_substring_regex(texts, "(Z|[+-][0-9]{2}:?[0-9]{2})$")).as_py()
        dated = pc.all(pc.match_substring_regex(texts, "^[0-9]{4}-[0-9]{2}-[0-9]{2}")).as_py()
        return texts.cast(pa.timestamp("us", tz="UTC" if zoned else None)) if dated else None
    except pa.ArrowInvalid:
        return None


def _calendar_days(numbers: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Days of numbers that are all dates, such as 20201231."""
    gaps = np.isnan(numbers)
    known = numbers[~gaps]
    first, last = _FIRST_YEAR * 10_000 + 101, _LAST_YEAR * 10_000 + 1231
    if not (len(known) and first <= known.min() and known.max() <= last):
        return None
    whole = known.astype(np.int64)
    month, day = whole // 100 % 100, whole % 100
    if (whole != known).any() or ((month < 1) | (month > 12) | (day < 1) | (day > 31)).any():
        return None
    months = (whole // 10_000 - 1970) * 12 + month - 1
    found = np.full(len(numbers), np.nan)
    found[~gaps] = months.astype("M8[M]").astype("M8[D]").astype(np.int64) + day - 1
    return found
