"""A table's columns made comparable: what became of each, as numbers that JSON can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uniproto.data.arrays import is_table
from uniproto.data.columns import is_numeric, is_text
from uniproto.data.frames import arrow_table
from uniproto.errors import invalid, printable

MISSING = "(missing)"  # the level of a category's gaps
_DAY = 86_400.0
_FORMAT = 1
_DATES = (
    (r"^([0-9]{4})/([0-9]{2})/([0-9]{2})", r"\1-\2-\3"),
    (r"^([0-9]{2})\.([0-9]{2})\.([0-9]{4})", r"\3-\2-\1"),
)


@dataclass(frozen=True)
class PreparedColumn:
    """How one column becomes features: (value − centre) / scale, or one 0/1 feature per level.

    Gaps of numbers and dates become `fill`; with `flag` another feature says where they were.
    Levels that are rare, or were never seen, share the last feature where `joined` of them do.
    """

    name: str
    kind: str  # "number", "date" or "category"
    centre: float = 0.0
    scale: float = 1.0
    fill: float = 0.0
    flag: bool = False
    levels: tuple[str, ...] = ()
    joined: int = 0

    @property
    def width(self) -> int:
        """How many features it becomes."""
        if self.kind == "category":
            return len(self.levels) + (self.joined > 0)
        return 1 + self.flag

    @property
    def words(self) -> str:
        """What became of it, for people."""
        if self.kind == "category":
            joined = "1 rare one" if self.joined == 1 else f"{self.joined:,} rare ones joined"
            rare = f", {joined}" if self.joined else ""
            count = len(self.levels)
            return f"one feature for each of {count:,} level{'s' if count > 1 else ''}{rare}"
        taken = "as it is" if self.scale == 1 else f"÷ {_figure(self.scale)}"
        if self.scale != 1 and self.kind == "date":
            taken = f"days ÷ {_figure(self.scale)}"
        gaps = f"; gaps become {self._shown(self.fill)}, and are flagged" if self.flag else ""
        return taken + gaps

    def features(self, values: pa.ChunkedArray) -> NDArray[np.float64]:
        """The features of a column's values."""
        if self.kind == "category":
            texts = category_texts(values, self.name)
            place = {level: number for number, level in enumerate(self.levels)}
            rest = len(self.levels) if self.joined else -1
            codes = np.array([place.get(text, rest) for text in texts], np.intp)
            found = np.zeros((len(codes), self.width))
            known = np.flatnonzero(codes >= 0)
            found[known, codes[known]] = 1.0
            return found
        numbers = day_numbers(values) if self.kind == "date" else plain_numbers(values, self.name)
        gaps = np.isnan(numbers)
        scaled = (np.where(gaps, self.fill, numbers) - self.centre) / self.scale
        return np.column_stack([scaled, gaps]) if self.flag else scaled[:, None]

    def _shown(self, value: float) -> str:
        if self.kind == "date":
            return str(np.datetime64(0, "s") + np.timedelta64(round(value * _DAY), "s"))[:10]
        return _figure(value)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True)
class Preparation:
    """What became of every column of a table. Saved with a result, and applied to new rows.

    >>> import pyarrow as pa
    >>> from uniproto.features.preparing import fit_preparation
    >>> table = pa.table({"age": [20, 30, 40, 90], "country": ["DE", "DE", "FR", "FR"]})
    >>> preparation = fit_preparation(table)
    >>> preparation.matrix(table).shape
    (4, 3)
    >>> Preparation.from_record(preparation.record()) == preparation
    True
    """

    columns: tuple[PreparedColumn, ...]
    aside: Mapping[str, str] = field(default_factory=dict)  # why each of them is no feature
    scaling: str = "robust"

    def matrix(self, rows: Any, parameter: str = "source") -> NDArray[np.float64]:
        """The features of a table's rows; its other columns are ignored."""
        if not is_table(rows):
            constraint = "must be a table, like the one that was prepared"
            raise invalid(parameter, constraint, f"a {type(rows).__name__}", "Pass a data frame.")
        table = arrow_table(rows, parameter)
        missing = [column.name for column in self.columns if column.name not in table.column_names]
        if missing:
            raise invalid(
                parameter,
                f"must have the columns {', '.join(column.name for column in self.columns)}",
                f"a table without {', '.join(missing)}",
                "Add them, or select again without them.",
            )
        return np.hstack(
            [column.features(plain_column(table.column(column.name))) for column in self.columns]
        )

    @property
    def feature_names(self) -> list[str]:
        """A name for every feature."""
        found: list[str] = []
        for column in self.columns:
            if column.kind == "category":
                found += [f"{column.name}={level}" for level in column.levels]
                found += [f"{column.name}=other"] * (column.joined > 0)
            else:
                found += [column.name] + [f"{column.name} is missing"] * column.flag
        return found

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """A line for every column: its name, what it was taken for, what became of it."""
        found = [(column.name, column.kind, column.words) for column in self.columns]
        return found + [(name, "set aside", why) for name, why in self.aside.items()]

    def table(self) -> str:
        """A short table of what became of each column."""
        lines = [tuple(map(printable, row)) for row in self.rows]
        widths = [max(len(line[place]) for line in lines) for place in (0, 1)]
        return "\n".join(
            f"{name:{widths[0]}}  {kind:{widths[1]}}  {became}" for name, kind, became in lines
        )

    def record(self) -> dict[str, Any]:
        """Everything as plain values, for a manifest."""
        return {
            "format": _FORMAT,
            "scaling": self.scaling,
            "columns": [
                {**asdict(column), "levels": list(column.levels)} for column in self.columns
            ],
            "aside": dict(self.aside),
        }

    @classmethod
    def from_record(cls, record: Any) -> Preparation:
        """The preparation that a record describes. Nothing in it is ever run.

        Raises ValueError where the record is damaged.
        """
        try:
            if record["format"] != _FORMAT:
                raise ValueError("its preparation has another format")
            columns = tuple(_column_from(each) for each in record["columns"])
            aside = {str(name): str(why) for name, why in record["aside"].items()}
            return cls(columns, aside, str(record["scaling"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"its preparation is damaged ({error!r})") from error


def _column_from(record: Mapping[str, Any]) -> PreparedColumn:
    kinds = {"number", "date", "category"}
    column = PreparedColumn(
        **{
            each.name: record[each.name] for each in fields(PreparedColumn) if each.name != "levels"
        },
        levels=tuple(record["levels"]),
    )
    numbers = (column.centre, column.scale, column.fill)
    sane = (
        isinstance(column.name, str)
        and column.kind in kinds
        and all(isinstance(x, int | float) and math.isfinite(x) for x in numbers)
        and column.scale > 0
        and isinstance(column.flag, bool)
        and type(column.joined) is int
        and all(isinstance(level, str) for level in column.levels)
    )
    if not sane:
        raise ValueError(f"its preparation of {str(column.name)[:60]!r} is damaged")
    return column


def plain_column(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column without dictionary encoding, its texts in a type that can be computed with.

    Where the levels of a dictionary are numbers they are texts, too: names, not amounts.
    """
    if pa.types.is_dictionary(values.type):
        kind = values.type.value_type
        named = is_numeric(kind)
        decoded = [_decoded(chunk, named) for chunk in values.chunks]
        values = pa.chunked_array(decoded, pa.large_string() if named else kind)
    return values.cast(pa.large_string()) if str(values.type) == "string_view" else values


def _decoded(values: pa.DictionaryArray, as_texts: bool) -> pa.Array:
    levels = values.dictionary
    if as_texts:
        shown = [None if level is None else str(level) for level in levels.to_pylist()]
        levels = pa.array(shown, pa.large_string())
    return levels.take(values.indices)


def plain_numbers(values: pa.ChunkedArray, name: str) -> NDArray[np.float64]:
    """A column of numbers or spans of time (in seconds), with NaN for gaps."""
    kind, unit = values.type, 1.0
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        unit = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        values = values.cast(pa.int32() if pa.types.is_time32(kind) else pa.int64())
    elif not (is_numeric(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind)):
        constraint = "must hold numbers, as it did when the table was prepared"
        raise invalid(name, constraint, str(kind), "Convert the column.")
    found = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) / unit
    if np.isinf(found).any():
        row = int(np.argmax(np.isinf(found)))
        raise invalid(name, "must be free of infinity", f"one in row {row}", "Drop that row.")
    return np.asarray(found, np.float64)


def day_numbers(values: pa.ChunkedArray) -> NDArray[np.float64]:
    """Days since 1970, with NaN for gaps; texts are read as dates."""
    found = as_times(values)
    if found is None:
        raise invalid("dates", "must be dates, as when prepared", values.type, "Convert them.")
    # What is finer than a microsecond is cut off: days do not tell it apart.
    seconds = found.cast(pa.timestamp("us", tz=found.type.tz), safe=False).cast(pa.int64())
    return plain_numbers(seconds, "dates") / 1e6 / _DAY


def as_times(values: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Points in time, from dates, times or texts; None where a value is none of these.

    Texts are 2020-12-31, 2020/12/31 or 31.12.2020, which mean one day each; 01/02/2020 does not.
    """
    kind = values.type
    if pa.types.is_timestamp(kind):
        return values
    try:
        if pa.types.is_date(kind) or pa.types.is_null(kind):
            return values.cast(pa.timestamp("s"))
        if is_text(kind):
            values = pc.if_else(pc.equal(values, ""), None, values)
            for written, iso in _DATES:
                if pc.all(pc.match_substring_regex(values, written)).as_py():
                    values = pc.replace_substring_regex(values, written, iso)
            zoned = pc.any(pc.match_substring_regex(values, "(Z|[+-][0-9]{2}:?[0-9]{2})$")).as_py()
            dated = pc.all(pc.match_substring_regex(values, "^[0-9]{4}-[0-9]{2}-[0-9]{2}")).as_py()
            return values.cast(pa.timestamp("us", tz="UTC" if zoned else None)) if dated else None
    except pa.ArrowInvalid:
        return None
    return None


def category_texts(values: pa.ChunkedArray, name: str) -> list[str]:
    """The level of every row, as text."""
    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
        raise invalid(name, "must hold texts or numbers", values.type, "Convert it.")
    return [MISSING if value in (None, "") else str(value) for value in values.to_pylist()]


def words_of(rows: Sequence[tuple[str, str, str]]) -> str:
    """How many columns became how many things, in a line.

    >>> words_of([("a", "number", ""), ("b", "number", ""), ("c", "set aside", "")])
    '2 numbers; 1 set aside'
    """
    plural = {"number": "numbers", "date": "dates", "category": "categories"}
    counts = {kind: sum(row[1] == kind for row in rows) for kind in (*plural, "set aside")}
    parts = [
        f"{count} {kind if count == 1 else plural.get(kind, kind)}"
        for kind, count in counts.items()
        if count
    ]
    return "; ".join(parts)
