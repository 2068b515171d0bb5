"""The values of a column as numbers, days or levels, in whatever form people keep them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uniproto.data.columns import GAP_WORDS, is_numeric, is_text
from uniproto.data.written import DAY, Written, written_dates, written_numbers
from uniproto.errors import InvalidInputError

MISSING = "(missing)"  # the level of a category's gaps
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


def without(values: pa.ChunkedArray, missing: Sequence[str | float]) -> pa.ChunkedArray:
    """The values with gaps in place of those that stand for missing ones.

    >>> without(pa.chunked_array([[1.0, -999.0]]), (-999,)).to_pylist()
    [1.0, None]
    """
    if not missing:
        return values
    found, codes = distinct_values(values)
    stand_ins = set(map(_text, missing))
    gaps = np.array([*(_text(value) in stand_ins for value in found), True])[codes]
    return pc.if_else(pa.array(gaps), pa.scalar(None, values.type), values)


def is_gap(value: Any) -> bool:
    """Whether a value stands for a gap."""
    return value is None or str(value).strip().lower() in GAP_WORDS


def _text(value: Any) -> str | None:
    """A level as text; whole numbers have no point, whatever column they come from."""
    whole = isinstance(value, float) and value.is_integer()
    return None if value is None else str(int(value) if whole else value)


def plain_numbers(
    values: pa.ChunkedArray, name: str, form: str = "", *, lenient: bool = False
) -> NDArray[np.float64]:
    """A column of numbers or spans of time (in seconds), with NaN for gaps; texts are read.

    `form` is that of the texts (`Written.form`); `lenient` makes gaps of texts that are no numbers.
    """
    kind, unit = values.type, 1.0
    if is_text(kind):
        found = _read(values, written_numbers, form, lenient)
        if found is not None:
            return found
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        unit = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        values = values.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    elif not (is_numeric(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
        raise InvalidInputError(f"Column {name!r} must hold numbers, as when prepared, not {kind}.")
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) / unit
    if np.isinf(numbers).any():
        row = int(np.argmax(np.isinf(numbers)))
        raise InvalidInputError(
            f"Column {name!r} must be free of infinity. Drop rows such as {row}, or leave it empty "
            "there."
        )
    return np.asarray(numbers, np.float64)


def _read(
    values: pa.ChunkedArray,
    read: Callable[[Sequence[str | None], str], Written | None],
    form: str,
    lenient: bool,
) -> NDArray[np.float64] | None:
    """What texts mean; None where one has another meaning, unless `lenient` makes a gap of it."""
    found, codes = distinct_values(values)
    written = read(found, form)
    if written is None:
        only_gaps = all(map(is_gap, found))
        return np.full(len(codes), np.nan) if lenient or only_gaps else None
    if written.odd.any() and not lenient:
        return None
    return np.append(written.values, np.nan)[codes]


def day_numbers(
    values: pa.ChunkedArray, name: str = "dates", form: str = "", *, lenient: bool = False
) -> NDArray[np.float64]:
    """Days since 1970, with NaN for gaps; texts and numbers such as 20201231 are read as dates."""
    found = as_days(values, form, lenient=lenient)
    if found is None:
        raise InvalidInputError(
            f"Column {name!r} must hold dates, as when prepared, not {values.type}."
        )
    return found


def as_days(
    values: pa.ChunkedArray, form: str = "", *, lenient: bool = False
) -> NDArray[np.float64] | None:
    """Days since 1970, from dates, times, texts or numbers; None where a value is none of these.

    >>> as_days(pa.chunked_array([["1970-01-02", "-"]])), as_days(pa.chunked_array([[19700103]]))
    (array([ 1., nan]), array([2.]))
    """
    kind = values.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _calendar_days(plain_numbers(values, "dates"))
    if is_text(kind):
        return _read(values, written_dates, form, lenient)
    if pa.types.is_date(kind) or pa.types.is_null(kind):
        values = values.cast(pa.timestamp("s"))
    if not pa.types.is_timestamp(values.type):
        return None
    # What is finer than a microsecond is cut off: days do not tell it apart.
    zone = values.type.tz
    seconds = values.cast(pa.timestamp("us", tz=zone), safe=False).cast(pa.int64())
    return plain_numbers(seconds, "dates") / 1e6 / DAY


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
