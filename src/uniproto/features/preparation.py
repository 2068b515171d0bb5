"""A table's columns made comparable: what became of each, as numbers that JSON can hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.data.arrays import is_table
from uniproto.data.columns import arrow_table
from uniproto.errors import InvalidInputError, printable, warn_of_data
from uniproto.features.column_values import (
    DAY,
    day_numbers,
    levels_of,
    plain_column,
    plain_numbers,
)

KINDS = {  # of columns that are compared, and several of each
    "number": "numbers",
    "date": "dates",
    "category": "categories",
    "ordered": "ordered categories",
}
_FORMAT = 2

_LONGEST_NAME = 48  # of a column, in what people read


@dataclass(frozen=True)
class PreparedColumn:
    """How one column becomes features: (value − centre) / scale, or one 0/1 feature per level.

    What lies further from the centre than `bend` scales counts by the logarithm of the rest, so
    that a few far values do not decide alone. Gaps of numbers and dates become `fill`; with `flag`
    another feature says where they were. Levels that are rare, or were never seen, share the last
    feature where `joined` of them do. Levels of an ordered category count as 0, 1, 2, ….
    """

    name: str
    kind: str  # of KINDS
    centre: float = 0.0
    scale: float = 1.0
    bend: float = 0.0
    fill: float = 0.0
    flag: bool = False
    levels: tuple[str, ...] = ()
    joined: int = 0
    doubt: str = ""  # why it may be something else, and what to do then

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
        if self.kind == "date" and self.scale != 1:
            taken = f"days ÷ {_figure(self.scale)}"
        if self.kind == "ordered":
            taken = f"0 to {len(self.levels) - 1} {taken}"
        gaps = f"; gaps become {self._shown(self.fill)}, and are flagged" if self.flag else ""
        return taken + gaps + (f"; {self.doubt}" if self.doubt else "")

    def features(self, values: pa.ChunkedArray) -> NDArray[np.float64]:
        """The features of a column's values."""
        if self.kind == "category":
            levels, codes = levels_of(values, self.name)
            known = {level: number for number, level in enumerate(self.levels)}
            rest = len(self.levels) if self.joined else -1
            places = np.array([known.get(level, rest) for level in levels], np.intp)[codes]
            found = np.zeros((len(codes), self.width))
            seen = np.flatnonzero(places >= 0)
            found[seen, places[seen]] = 1.0
            return found
        numbers = self.numbers(values)
        gaps = np.isnan(numbers)
        scaled = (np.where(gaps, self.fill, numbers) - self.centre) / self.scale
        if self.bend:
            far = np.flatnonzero(np.abs(scaled) > self.bend)
            beyond = np.log1p(np.abs(scaled[far]) - self.bend)
            scaled[far] = np.copysign(self.bend + beyond, scaled[far])
        return np.column_stack([scaled, gaps]) if self.flag else scaled[:, None]

    def numbers(self, values: pa.ChunkedArray) -> NDArray[np.float64]:
        """The numbers that are scaled, with NaN for gaps."""
        if self.kind == "date":
            return day_numbers(values, self.name)
        if self.kind != "ordered":
            return plain_numbers(values, self.name)
        levels, codes = levels_of(values, self.name)
        rank = {level: float(number) for number, level in enumerate(self.levels)}
        return np.array([rank.get(level, np.nan) for level in levels])[codes]

    def _shown(self, value: float) -> str:
        if self.kind == "ordered":
            return self.levels[round(value)]
        if self.kind == "date":
            return str(np.datetime64(0, "s") + np.timedelta64(round(value * DAY), "s"))[:10]
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
            raise InvalidInputError(f"{parameter!r} must be a table, like the one prepared.")
        table = arrow_table(rows, parameter)
        missing = [column.name for column in self.columns if column.name not in table.column_names]
        if missing:
            raise InvalidInputError(
                f"{parameter!r} must have the columns {', '.join(missing)}, too, as when prepared."
            )
        found = np.empty((table.num_rows, sum(column.width for column in self.columns)))
        end = 0
        for column in self.columns:
            begin, end = end, end + column.width
            found[:, begin:end] = column.features(plain_column(table.column(column.name)))
        return found

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

        def cut(name: str) -> str:
            return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"

        lines = [(cut(printable(name)), kind, printable(why)) for name, kind, why in self.rows]
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
        """The preparation that a record describes. Nothing in it is ever run."""
        if record["format"] != _FORMAT:
            raise ValueError("its preparation has another format")
        columns = tuple(
            PreparedColumn(**{**each, "levels": tuple(each["levels"])})
            for each in record["columns"]
        )
        aside = {str(name): str(why) for name, why in record["aside"].items()}
        return cls(columns, aside, str(record["scaling"]))


def words_of(rows: Sequence[tuple[str, str, str]]) -> str:
    """How many columns became how many things, in a line.

    >>> words_of([("a", "number", ""), ("b", "number", ""), ("c", "set aside", "")])
    '2 numbers; 1 set aside'
    """
    counts = {kind: sum(row[1] == kind for row in rows) for kind in (*KINDS, "set aside")}
    parts = [
        f"{count} {kind if count == 1 else KINDS.get(kind, kind)}"
        for kind, count in counts.items()
        if count
    ]
    return "; ".join(parts)


_SAMPLED = 2000  # rows whose distances are looked at
_FEWEST = 30  # rows whose distances tell something
_OTHER_UNIT = 10.0  # times: medians that far apart may be of two units


def warn_of_columns(columns: Sequence[PreparedColumn]) -> None:
    """Say which numbers may be something else."""
    doubts = [f"{column.name} ({column.doubt})" for column in columns if column.doubt]
    if doubts:
        warn_of_data(f"some numbers may be something else: {'; '.join(doubts)}.")


def warn_of_other_columns(missing: Sequence[str], extra: Sequence[str]) -> None:
    """Say which columns only one of source and target has: they may have been renamed."""
    parts = [
        f"the {side} has no column {_listed(names)}"
        for side, names in (("target", missing), ("source", extra))
        if names
    ]
    if parts:
        warn_of_data(f"{', and '.join(parts)}: not compared. Rename what is the same in both.")


def warn_of_units(medians: Mapping[str, tuple[float, float]]) -> None:
    """Say where source and target may measure in different units."""
    apart = [
        f"{name} ({source:.4g} in the source, {target:.4g} in the target)"
        for name, (source, target) in medians.items()
        if source * target > 0 and max(source / target, target / source) >= _OTHER_UNIT
    ]
    if apart:
        warn_of_data(f"medians differ ten times or more: {'; '.join(apart)}. Is that one unit?")


def warn_of_share(table: pa.Table, preparation: Preparation) -> None:
    """Say where one column makes most of the mean distance between rows."""
    count = len(preparation.columns)
    if count < 2 or table.num_rows < _FEWEST:
        return
    rows = np.random.default_rng(0).permutation(table.num_rows)[:_SAMPLED]
    features = preparation.matrix(table.take(rows))
    squares = (features - np.roll(features, 1, axis=0)) ** 2
    distances = np.sqrt(squares.sum(axis=1))
    apart = distances > 0
    if not apart.any():
        return
    of_features = (squares[apart] / distances[apart, None]).sum(axis=0) / distances.sum()
    begins = np.cumsum([0, *(column.width for column in preparation.columns[:-1])])
    shares = np.add.reduceat(of_features, begins)
    most = int(np.argmax(shares))
    if shares[most] > (1 + 1 / count) / 2:  # of two columns one always makes more than half
        name = preparation.columns[most].name
        warn_of_data(
            f"{name!r} makes {shares[most]:.0%} of the mean distance between rows. If it should "
            f"not, leave it out with columns=Columns(ignore=[{name!r}]) (--ignore), or choose "
            "another scale."
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
