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
from uniproto.errors import InvalidInputError, asking, printable, warn_of_data
from uniproto.features.column_values import (
    DAY,
    day_numbers,
    levels_of,
    plain_column,
    plain_numbers,
    without,
)

KINDS = {  # of columns that are compared, and several of each
    "number": "numbers",
    "date": "dates",
    "category": "categories",
    "ordered": "ordered categories",
    "cyclic": "cyclic numbers",
    "place": "places",
}
_DOUBTS = {  # in a table, and in a warning: what to do if it is so
    "codes": ("may be codes", "small whole numbers may be codes", "categories"),
    "names": ("may be an id", "long whole numbers may be ids", "ignore"),
}
_FORMAT = 3

_LONGEST_NAME = 48  # of a column, in what people read
_EARTH = 6371.0  # kilometres
_HUGE = 1e15  # numbers that are not written out
_FARTHEST = 1e300  # from the centre, so that weights may multiply it


@dataclass(frozen=True)
class PreparedColumn:
    """How one column becomes features, all of which are multiplied by its `weight`.

    Numbers, dates and ordered levels (0, 1, 2, …) become (value − centre) / scale, a category one
    0/1 feature per level. Cyclic numbers are points on a circle, and latitude with longitude, the
    column of the name `pair`, points on a sphere: (point − middle) / scale. What lies further from
    the centre than `bend` scales counts by the logarithm of the rest, so that a few far values do
    not decide alone. Gaps, which values of `missing` are, too, become `fill`, or the middle; with
    `flag` another feature says where they were. Levels that are rare, or were never seen, share the
    last feature where `joined` of them do.
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
    form: str = ""  # of its texts, where they are read as numbers or dates
    missing: tuple[str | float, ...] = ()
    weight: float = 1.0
    period: float = 0.0  # of a cyclic column
    pair: str = ""
    middle: tuple[float, ...] = ()
    far: int = 0  # values beyond the bend, when it was fitted
    odd: int = 0  # texts that were neither numbers nor gaps
    doubt: str = ""  # what else it may be: of _DOUBTS

    @property
    def names(self) -> tuple[str, ...]:
        """The columns it is made of."""
        return (self.name, self.pair) if self.pair else (self.name,)

    @property
    def width(self) -> int:
        """How many features it becomes."""
        if self.kind == "category":
            return len(self.levels) + (self.joined > 0)
        return (len(self.middle) or 1) + self.flag

    @property
    def words(self) -> str:
        """What became of it, for people."""
        parts = [self._taken()]
        if self.far:
            some = "1 value" if self.far == 1 else f"{self.far:,} values"
            parts.append(f"{some} beyond {self.bend:g} spreads drawn in by a logarithm")
        if self.odd:
            parts.append(f"{self.odd:,} that could not be read taken as gaps")
        if self.flag:
            filled = "the middle" if self.middle else self._shown(self.fill)
            parts.append(f"gaps filled with {filled} and flagged")
        if self.weight != 1:
            parts.append(f"weight {self.weight:g}")
        return "; ".join([*parts, *([_DOUBTS[self.doubt][0]] if self.doubt else [])])

    def _taken(self) -> str:
        if self.kind == "category":
            rare = "1 rare level" if self.joined == 1 else f"{self.joined:,} rare levels"
            more = f", and one for {rare}" if self.joined else ""
            return f"one feature per level ({len(self.levels):,}){more}"
        if self.kind == "place":
            return f"on the globe with {self.pair}, in units of {_figure(self.scale * _EARTH)} km"
        if self.kind == "cyclic":
            return f"on a circle of {self.period:g}"
        days = " days" if self.kind == "date" else ""
        of = " (its spread)" if self.bend else ""
        taken = "as it is" if self.scale == 1 else f"in units of {_figure(self.scale)}{days}{of}"
        return f"0 to {len(self.levels) - 1} {taken}" if self.kind == "ordered" else taken

    def features(self, *columns: pa.ChunkedArray) -> NDArray[np.float64]:
        """The features of the values of its columns."""
        columns = tuple(without(values, self.missing) for values in columns)
        if self.kind == "category":
            levels, codes = levels_of(columns[0], self.name)
            known = {level: number for number, level in enumerate(self.levels)}
            rest = len(self.levels) if self.joined else -1
            places = np.array([known.get(level, rest) for level in levels], np.intp)[codes]
            found = np.zeros((len(codes), self.width))
            seen = np.flatnonzero(places >= 0)
            found[seen, places[seen]] = self.weight
            return found
        if self.middle:
            points = self.points(*columns)
            gaps = np.isnan(points[:, 0])
            scaled = np.where(gaps[:, None], 0.0, (points - self.middle) / self.scale)
        else:
            numbers = self.numbers(columns[0])
            gaps = np.isnan(numbers)
            with np.errstate(over="ignore"):  # a target may be as far away as numbers go
                scaled = ((np.where(gaps, self.fill, numbers) - self.centre) / self.scale)[:, None]
            scaled = np.clip(scaled, -_FARTHEST, _FARTHEST, out=scaled)
        if self.bend:
            away = np.sqrt((scaled**2).sum(axis=1)) if self.middle else np.abs(scaled[:, 0])
            far = np.flatnonzero(away > self.bend)
            drawn_in = (self.bend + np.log1p(away[far] - self.bend)) / away[far]
            scaled[far] *= drawn_in[:, None]
        found = np.column_stack([scaled, gaps]) if self.flag else scaled
        return found if self.weight == 1 else found * self.weight

    def numbers(self, values: pa.ChunkedArray) -> NDArray[np.float64]:
        """The numbers that are scaled, with NaN for gaps."""
        lenient = self.flag or self.odd > 0
        if self.kind == "date":
            return day_numbers(values, self.name, self.form, lenient=lenient)
        if self.kind != "ordered":
            return plain_numbers(values, self.name, self.form, lenient=lenient)
        levels, codes = levels_of(values, self.name)
        rank = {level: float(number) for number, level in enumerate(self.levels)}
        return np.array([rank.get(level, np.nan) for level in levels])[codes]

    def points(self, *columns: pa.ChunkedArray) -> NDArray[np.float64]:
        """The points of cyclic numbers on a circle, and of places on a sphere, both of radius 1."""
        values = [self.numbers(each) for each in columns]
        if not self.pair:
            turn = values[0] * (2 * np.pi / self.period)
            return np.column_stack([np.cos(turn), np.sin(turn)])
        latitude, longitude = np.radians(values[0]), np.radians(values[1])
        across = np.cos(latitude)
        points = [across * np.cos(longitude), across * np.sin(longitude), np.sin(latitude)]
        found = np.column_stack(points)
        found[np.isnan(found).any(axis=1)] = np.nan
        return found

    def _shown(self, value: float) -> str:
        if self.kind == "ordered":
            return self.levels[round(value)]
        if self.kind == "date":
            return str(np.datetime64(0, "s") + np.timedelta64(round(value * DAY), "s"))[:10]
        return _figure(value)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _figure(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < _HUGE else f"{value:.4g}"


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
            raise InvalidInputError("must be a table, like the one prepared.", parameter=parameter)
        table = arrow_table(rows, parameter)
        missing = [name for name in self.names if name not in table.column_names]
        if missing:
            raise InvalidInputError(
                f"must have the columns {', '.join(missing)}, too, as when prepared.",
                parameter=parameter,
            )
        found = np.empty((table.num_rows, sum(column.width for column in self.columns)))
        end = 0
        for column in self.columns:
            begin, end = end, end + column.width
            values = [plain_column(table.column(name)) for name in column.names]
            found[:, begin:end] = column.features(*values)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are compared."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def feature_names(self) -> list[str]:
        """A name for every feature."""
        found: list[str] = []
        for column in self.columns:
            if column.kind == "category":
                found += [f"{column.name}={level}" for level in column.levels]
                found += [f"{column.name}=other"] * (column.joined > 0)
                continue
            axes = [f"{column.name} ({axis})" for axis in ("x", "y", "z")[: len(column.middle)]]
            found += (axes or [column.name]) + [f"{column.name} is missing"] * column.flag
        return found

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """A line for every column: its name, what it was taken for, what became of it.

        What is set aside comes first.
        """
        found = [(name, "set aside", why) for name, why in self.aside.items()]
        for column in self.columns:
            found.append((column.name, column.kind, column.words))
            if column.pair:
                found.append((column.pair, column.kind, f"on the globe with {column.name}"))
        return found

    def table(self, shares: Mapping[str, float] | None = None) -> str:
        """A short table of what became of each column, and its share of the cost if that is known.

        The columns that are compared stand in the order of their shares.
        """

        def cut(name: str) -> str:
            return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"

        given = shares or {}
        rows = sorted(self.rows, key=lambda row: -given.get(row[0], 2.0 * (row[1] == "set aside")))
        made = {name: f"{share:.0%}" for name, share in given.items()}
        lines = [
            (cut(printable(name)), kind, made.get(name, ""), printable(why))
            for name, kind, why in rows
        ]
        widths = [max(len(line[place]) for line in lines) for place in range(3)]
        return "\n".join(
            "  ".join([name.ljust(widths[0]), kind.ljust(widths[1]), *share, became])
            for name, kind, percent, became in lines
            for share in [[percent.rjust(widths[2])] if given else []]
        )

    def record(self) -> dict[str, Any]:
        """Everything as plain values, for a manifest."""
        return {
            "format": _FORMAT,
            "scaling": self.scaling,
            "columns": [
                {
                    name: list(value) if isinstance(value, tuple) else value
                    for name, value in asdict(column).items()
                }
                for column in self.columns
            ],
            "aside": dict(self.aside),
        }

    @classmethod
    def from_record(cls, record: Any) -> Preparation:
        """The preparation that a record describes. Nothing in it is ever run."""
        if record["format"] != _FORMAT:
            raise ValueError("its preparation has another format")
        columns = tuple(
            PreparedColumn(**{name: _plain(value) for name, value in each.items()})
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
_MOST_NAMED = 8  # columns in a warning
_OTHER_UNIT = 10.0  # times: medians that far apart may be of two units


def warn_of_columns(columns: Sequence[PreparedColumn]) -> None:
    """Say which numbers may be something else, and which texts could not be read."""
    for doubt, (_, may_be, option) in _DOUBTS.items():
        if names := [column.name for column in columns if column.doubt == doubt]:
            first = names[:_MOST_NAMED]
            more = f" and {len(names) - len(first)} more" if len(names) > len(first) else ""
            listed = ", ".join(map(repr, first)) + (", …" if more else "")
            remedy = asking(f"features=Columns({option}=[{listed}])", option, ",".join(first))
            warn_of_data(f"{may_be}: {', '.join(first)}{more}. If so, pass {remedy}.")
    odd = [f"{column.odd:,} of {column.name}" for column in columns if column.odd]
    if odd:
        warn_of_data(
            f"some texts are neither numbers nor dates and count as gaps: {', '.join(odd)}."
        )


def warn_of_stand_ins(name: str, values: Mapping[float, int], rows: int) -> None:
    """Say where a number may stand for a missing one."""
    found = " and ".join(f"{value:g} in {count:,}" for value, count in values.items())
    wanted = ", ".join(f"{value:g}" for value in values)
    wanted = f"[{wanted}]" if len(values) > 1 else wanted
    remedy = asking(
        f"features=Columns(missing={{{name!r}: {wanted}}})",
        "missing",
        ",".join(f"{name}={value:g}" for value in values),
    )
    warn_of_data(
        f"{name!r} is {found} of {rows:,} rows, far from its other values. If that means missing, "
        f"pass {remedy}."
    )


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
    name, weight = preparation.columns[most].name, preparation.columns[most].weight
    # Of two columns one always makes more than half; who weighs one knows.
    if shares[most] > (1 + 1 / count) / 2 and weight == 1:
        ignored = asking(f"features=Columns(ignore=[{name!r}])", "ignore", name)
        weighted = asking(f"features=Columns(weights={{{name!r}: 0.5}})", "weights", f"{name}=0.5")
        warn_of_data(
            f"{name!r} makes {shares[most]:.0%} of the mean distance between rows. If it should "
            f"not, leave it out with {ignored}, or weigh it with {weighted}."
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))
