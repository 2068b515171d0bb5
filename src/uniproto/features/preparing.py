"""What the columns of a table are, and how each becomes comparable with the others.

Numbers and dates are scaled by their quartiles (values far out are drawn in), gaps take the median
and get a flag, categories become one feature per level with rare ones joined. Ids, constant
columns and free text are set aside: they would drown what makes rows alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uniproto.data.columns import ROW_NUMBERS, is_list, is_numeric, is_text
from uniproto.data.written import CURRENCY, written_dates, written_numbers
from uniproto.errors import (
    InvalidInputError,
    asking,
    require_name,
)
from uniproto.features.column_values import (
    as_days,
    distinct_values,
    is_gap,
    levels_of,
    ordered_levels,
    plain_column,
    plain_numbers,
    without,
)
from uniproto.features.preparation import (
    Preparation,
    PreparedColumn,
    warn_of_columns,
    warn_of_other_columns,
    warn_of_share,
    warn_of_stand_ins,
    warn_of_units,
)

SCALES = ("robust", "standard", "minmax", "none")
_QUARTILES = 1.3489795003921634  # how far apart they are in a normal distribution of spread 1
_BEND = 3.0  # spreads: values further out are drawn in by a logarithm
_RARE = 0.01  # of the rows: levels below that are joined
_MOST_LEVELS = 30
_LOOKED_AT = 1000  # rows, before all are
_FEWEST_IDS = 10  # rows from which a running number is one
_FEWEST_OTHERS = 5  # different numbers that a stand-in for gaps must be far from, or at least two
_VERY_FAR = 10  # times their range, where they are fewer
_ID_NAME = re.compile(
    r"(?i)(^|[_\W])([hpu]?id|identifier|uuid|guid|key|index|idx|row|nr|no)$|^id([_\W]|$)|\w#$"
    r"|(^|[_\W])(case|doc|obs|row|seq|serial|family|firm|house|order|patient|person|school|store"
    r"|subject|town|user)(id|no|nr|num)$"
)
_REPEATED_ID = re.compile(r"(?i)(id|identifier|nr|[a-z]no|[a-z]num)$|^id")  # not a running number
_TIME_NAME = re.compile(r"year|month|week|day|hour|minute|second|age|time|date", re.IGNORECASE)
_CODE_NAME = re.compile(  # whole numbers that are called so name something
    r"(?i)(^|[_\W])(zip|plz|post_?code|postal_?code|zip_?code|phone|telephone|mobile|fax|account|iban"
    r"|code|sku|ean|isbn|gender|sex|region|product|category|class|type|kind|status|segment|cluster"
    r"|species|country|state|province|county|district|commune|municipality|ward|fips"
    r"|location|site|station|hospital|inst|institution|department|dept|sector|industry"
    r"|firm|company|brand|manufacturer|airline|carrier|race|ethnicity|religion|nationality|language"
    r"|occupation|profession|treatment|subject|patient|person|user|customer|household|family|litter"
    r"|stratum|strata|colou?r)([_\W]?(no|nr|number|num|code))?$"
    r"|^(city|town|center|centre)([_\W]?(no|nr|number|num|code))?$"  # not of MPG.city
)
_COUNT_NAME = re.compile(
    r"(?i)^(n|num|no|number|count|total)[_\W]|[^su]s$|count|rank|rating|score|stars|grade|level"
)
_MOSTLY = 0.9  # of the rows
_NAMES = 0.8  # different texts per row, from which they name rows
_SENTENCE = 4  # words, on average: then a text is read, not counted
_ODD = 0.05  # of the rows: as many texts among numbers are gaps
_MOSTLY_ODD = 0.2  # from here on they are no numbers
_FEW = 12  # different numbers: with other texts among them, they are levels
_LATITUDE = re.compile(r"(?i)latitude|(?<![a-z])lat(?![a-z])")
_LONGITUDE = re.compile(r"(?i)longitude|(?<![a-z])(lon|lng|long)(?![a-z])")
_STAND_IN = re.compile(r"-1|-9|-?(9+[789](\.9+)?|8{2,}|7{2,})")  # for a missing number
_NUMBERED = re.compile(r"(.*?)(\d+)")
_ONE_SCALE = 3.0  # how far spreads of columns that are one vector may be apart


def fit_preparation(
    table: pa.Table,
    target: pa.Table | None = None,
    *,
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    categories: Sequence[str] = (),
    scale: str = "robust",
    missing: Any = (),
    cyclic: Mapping[str, float] | None = None,
    weights: Mapping[str, float] | None = None,
) -> Preparation:
    """Find out what the columns of a table are, and how each becomes features.

    `features` are those to take, whatever they look like; `ignore` are set aside; `categories` are
    codes, though they are numbers; `missing` are values that stand for gaps, of all columns or by
    column; `cyclic` are the periods of columns that come round, and `weights` how much columns
    count. Where there is a `target`, the rows of both are looked at; a target with the very rows of
    the table adds nothing.
    """
    require_name("scale", scale, SCALES)
    if target is not None and _are_the_same(table, target):
        target = None
    names = table.column_names
    if target is not None:
        names = [name for name in names if name in target.column_names]
        if not names:
            raise InvalidInputError(
                f"must have columns of the source ({', '.join(table.column_names)}), not "
                f"{', '.join(target.column_names)}. Rename its columns.",
                parameter="target",
            )
    chosen = [name for name in (names if features is None else features) if name not in ignore]
    kinds = {name: table.schema.field(name).type for name in chosen}
    lists = [n for n, kind in kinds.items() if is_list(kind) and is_numeric(kind.value_type)]
    if lists:
        alone, out = (f"features=Columns({name}=[{lists[0]!r}])" for name in ("use", "ignore"))
        raise InvalidInputError(
            f"has a column of lists next to others, {lists[0]!r}. Compare rows by it alone "
            f"with {asking(alone, 'column', lists[0])}, or leave it out with "
            f"{asking(out, 'ignore', lists[0])}.",
            parameter="source",
        )
    aside = dict.fromkeys(ignore, "ignored")
    if (table.schema.metadata or {}).items() >= ROW_NUMBERS.items():
        aside["(no name)"] = "numbers the rows"
    columns: list[PreparedColumn] = []
    medians: dict[str, tuple[float, float]] = {}
    turns, counts = dict(cyclic or {}), weights or {}
    looked_at = {
        name: _Column(
            name, table, target, features is not None, name in categories, _stand_ins(missing, name)
        )
        for name in chosen
    }
    pairs = place_pairs([name for name in chosen if name not in turns])
    pairs = {
        first: second
        for first, second in pairs.items()
        if looked_at[first].is_within(-90, 90) and looked_at[second].is_within(-180, 360)
    }
    turns |= {
        name: 360.0
        for name in chosen
        if _LONGITUDE.search(name)
        and name not in (*turns, *pairs.values())
        and looked_at[name].is_within(-180, 360)
    }
    for name, column in looked_at.items():
        if name in pairs.values():
            continue
        if name in pairs:
            place = PreparedColumn(name, "place", pair=pairs[name], middle=(0.0, 0.0, 0.0))
            found = column.on_a_sphere(place, scale, looked_at[place.pair])
        elif name in turns:
            turn = PreparedColumn(name, "cyclic", period=turns[name], middle=(0.0, 0.0))
            found = column.on_a_sphere(turn, scale)
        else:
            found = column.prepared(scale)
        if isinstance(found, str):
            aside |= dict.fromkeys((name, *([pairs[name]] if name in pairs else [])), found)
        else:
            weight = max(counts.get(each, 0.0) for each in found.names) or 1.0
            columns.append(replace(found, weight=weight, missing=column.missing))
            medians |= {} if column.medians is None else {name: column.medians}
    if features is not None:
        aside |= {name: "not among the features" for name in names if name not in features}
    elif target is not None:
        aside |= {name: "not in the target" for name in table.column_names if name not in names}
        warn_of_other_columns(_only_in(table, target, ignore), _only_in(target, table, ignore))
    if not columns:
        reasons = "; ".join(f"{name}: {why}" for name, why in aside.items())
        raise InvalidInputError(
            f"must have a column that tells rows apart ({reasons or 'it has none'}). Name "
            f"others with {asking('features=Columns(use=[…])', 'columns', 'A,B')}, or compare "
            "numbers as they are with features=False (--no-prepare).",
            parameter="source",
        )
    preparation = Preparation(tuple(columns), aside, scale)
    warn_of_columns(columns)
    for column in looked_at.values():
        if column.stand_ins:
            warn_of_stand_ins(column.name, column.stand_ins, len(column.values))
    warn_of_units(medians)
    warn_of_share(table, preparation)
    return preparation


def refitted(preparation: Preparation, table: pa.Table, other: pa.Table) -> Preparation:
    """The same columns, with centres, scales and levels of the rows of both tables together."""
    columns: list[PreparedColumn] = []
    for column in preparation.columns:
        coded = column.kind == "category"
        looked_at = [
            _Column(name, table, other, True, coded, column.missing) for name in column.names
        ]
        found = looked_at[0].fitted(column, preparation.scaling, *looked_at[1:])
        if not isinstance(found, str):
            columns.append(replace(found, weight=column.weight))
    return replace(preparation, columns=tuple(columns))


def _only_in(table: pa.Table, other: pa.Table, ignore: Sequence[str]) -> list[str]:
    """The columns that only this table has, and that would be compared."""
    names = [name for name in table.column_names if name not in (*other.column_names, *ignore)]
    found = {name: _Column(name, table, None, False, False).prepared("none") for name in names}
    return [name for name in names if not isinstance(found[name], str)]


def _are_the_same(source: pa.Table, target: pa.Table) -> bool:
    """Whether two tables hold the same rows; a NaN equals another."""
    if source.schema != target.schema or source.num_rows != target.num_rows:
        return False
    for one, other in zip(source.columns, target.columns, strict=True):
        if pa.types.is_floating(one.type):
            if not np.array_equal(one.to_numpy(), other.to_numpy(), equal_nan=True):
                return False
        elif not one.equals(other):
            return False
    return True


def is_one_vector(table: pa.Table) -> bool:
    """Whether the columns are the coordinates of one space already, as those of an array are.

    That is one column of lists; columns with one name and running numbers, such as e0 … e383; or
    decimals around 0 on one scale, such as features that were standardised. One number alone is
    no direction.

    >>> is_one_vector(pa.table({"e0": [1.0, 2.0], "e1": [3.0, 1.0], "e2": [0.0, 5.0]}))
    True
    >>> is_one_vector(pa.table({"age": [20.0, 90.0], "income": [30000.0, 1000.0]}))
    False
    """
    if table.num_columns == 1 and is_list(table.schema.field(0).type):
        return True
    kinds = [field.type for field in table.schema]
    if table.num_columns < 2 or not all(map(is_numeric, kinds)):
        return False
    if any(values.null_count for values in table.columns) or place_pairs(table.column_names):
        return False
    matches = [_NUMBERED.fullmatch(name) for name in table.column_names]
    stems = {match[1] if match else None for match in matches}
    if len(stems) == 1 and None not in stems:
        return True
    if not all(map(pa.types.is_floating, kinds)) or table.num_rows < 2:
        return False
    values = np.column_stack([column.to_numpy() for column in table.columns])
    with np.errstate(all="ignore"):
        spreads = values.std(axis=0)
        centred = np.abs(np.median(values, axis=0)) <= spreads
    return bool(centred.all() and 0 < spreads.max() <= _ONE_SCALE * spreads.min())


def place_pairs(names: Sequence[str]) -> dict[str, str]:
    """The columns of latitudes, each with its column of longitudes.

    >>> place_pairs(["pickup_lat", "lng", "pickup_lng", "lat", "plate"])
    {'pickup_lat': 'pickup_lng', 'lat': 'lng'}
    """
    east = {_LONGITUDE.sub("", name): name for name in names if _LONGITUDE.search(name)}
    north = {name: _LATITUDE.sub("", name) for name in names if _LATITUDE.search(name)}
    return {name: east[rest] for name, rest in north.items() if rest in east}


def _stand_ins(missing: Any, name: str) -> tuple[str | float, ...]:
    """The values that stand for a gap of a column."""
    given = missing.get(name, ()) if isinstance(missing, Mapping) else missing
    given = (given,) if isinstance(given, str) or not isinstance(given, Sequence) else given
    return tuple(value if isinstance(value, str) else float(value) for value in given)


class _Column:
    """A column under inspection: its values in the source, then those of a target."""

    def __init__(
        self,
        name: str,
        table: pa.Table,
        target: pa.Table | None,
        wanted: bool,
        coded: bool,
        missing: tuple[str | float, ...] = (),
    ) -> None:
        self.name, self.wanted, self.coded, self.missing = name, wanted, coded, missing
        self.called = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)  # StateCode: State_Code
        self.order = ordered_levels(table.column(name))
        self.values = self.source = without(plain_column(table.column(name)), missing)
        if target is not None:
            other = without(plain_column(target.column(name)), missing)
            self.values = _together(name, self.source, other, coded)
        self.kind = self.values.type
        self.medians: tuple[float, float] | None = None  # of source and target, where far apart
        self.stand_ins: dict[float, int] = {}  # what may mean missing, and how often

    def is_within(self, least: float, most: float) -> bool:
        """Whether it holds numbers of a range."""
        if not is_numeric(self.kind) or self.values.null_count == len(self.values):
            return False
        found = pc.min_max(self.values)
        return bool(least <= found["min"].as_py() and found["max"].as_py() <= most)

    def on_a_sphere(self, column: PreparedColumn, scale: str, *others: _Column) -> Any:
        """A cyclic column or a place: points that are scaled as one."""
        points = column.points(self.values, *(other.values for other in others))
        known = points[~np.isnan(points[:, 0])]
        if not len(known):
            return "empty"
        low, middle, high = np.percentile(known, (25, 50, 75), axis=0)
        spreads = (high - low) / _QUARTILES if scale == "robust" else known.std(axis=0)
        spreads = known.std(axis=0) if not spreads.any() else spreads
        # As much as one number counts, or two.
        spread = float(np.sqrt((spreads**2).sum() / len(column.names)))
        if not spread > 0:
            return "constant"
        found = replace(
            column,
            middle=tuple(middle.tolist()),
            scale=1.0 if scale == "none" else spread,
            bend=_BEND if scale == "robust" else 0.0,
            flag=len(known) < len(points),
        )
        away = np.sqrt((((known - middle) / found.scale) ** 2).sum(axis=1))
        return replace(found, far=int((away > found.bend).sum()) if found.bend else 0)

    def fitted(self, column: PreparedColumn, scale: str, *others: _Column) -> Any:
        """The same as a column that was prepared before, fitted to these values."""
        if column.kind == "category":
            return self._category()
        if column.middle:
            return self.on_a_sphere(column, scale, *others)
        return self._scaled(column, scale)

    def prepared(self, scale: str) -> PreparedColumn | str:
        """How it becomes features, or why it does not; one that is `wanted` does if it can."""
        kind, values = self.kind, self.values
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return f"holds {kind}, which cannot be compared"
        if values.null_count == len(values):
            return "empty"
        if self.order:
            ranked = PreparedColumn(self.name, "ordered", levels=self.order)
            return self._scaled(ranked, scale)
        if self.coded or pa.types.is_boolean(kind):
            return self._category()
        if is_numeric(kind):
            return self._number(scale)
        if pa.types.is_decimal(kind) or pa.types.is_time(kind) or pa.types.is_duration(kind):
            return self._scaled(PreparedColumn(self.name, "number"), scale)
        if is_text(kind):
            return self._text(scale)
        if as_days(values) is not None:
            return self._scaled(PreparedColumn(self.name, "date"), scale)
        return f"holds {kind}, which cannot be compared"

    def _number(self, scale: str) -> PreparedColumn | str:
        column = PreparedColumn(self.name, "number")
        if scale != "none" and _are_two(self.values):  # as texts they would be two levels
            return self._category()
        whole = _whole_numbers(self.source)
        if whole is None or not len(whole):
            return self._scaled(column, scale)
        different = np.unique(whole)
        if not self.wanted and self._are_ids(whole, different):
            return f"looks like an id: {_how_different(len(different), len(whole))}"
        if len(np.unique(different.astype(np.float64))) < len(different):
            return "holds whole numbers beyond 2**53 that are the same in double precision"
        if len(different) > 1 and as_days(self.values) is not None:
            return self._scaled(replace(column, kind="date"), scale)
        names = _CODE_NAME.search(self.called) or (self._is_id_again() and not self.wanted)
        if names or _are_codes(different, len(whole)):
            return self._category()
        return self._scaled(replace(column, doubt=self._doubt(whole, different)), scale)

    def _are_ids(self, whole: NDArray[np.int64], different: NDArray[np.int64]) -> bool:
        """Whether whole numbers only tell rows apart: by their name, or because they count them."""
        is_unique = len(different) == len(whole)
        if _ID_NAME.search(self.called):
            starts_again = (np.diff(whole) == 1) | (whole[1:] == different[0])
            is_id = self._is_id_again() or starts_again.all()
            return bool(is_unique or (is_id and len(different) > _MOST_LEVELS))
        few = len(whole) < max(_FEWEST_IDS, len(self.source))
        if few or not is_unique or _TIME_NAME.search(self.called):
            return False
        steps = np.diff(different)
        in_order = np.array_equal(whole, different) or np.array_equal(whole[::-1], different)
        return bool(
            (steps == steps[0]).all() and ((in_order and steps[0] == 1) or different[0] > 999)
        )

    def _is_id_again(self) -> bool:
        """Whether it is called an id that may be in several rows: of a customer, say."""
        return bool(_ID_NAME.search(self.called) and _REPEATED_ID.search(self.called))

    def _doubt(self, whole: NDArray[np.int64], different: NDArray[np.int64]) -> str:
        """Why whole numbers may be something else than amounts."""
        if _TIME_NAME.search(self.called) or _COUNT_NAME.search(self.called):
            return ""
        count, least, most = len(different), int(different[0]), int(different[-1])
        if 3 <= count <= 9 and least in (0, 1) and most - least == count - 1 and len(whole) >= 30:
            return "codes"
        if least >= 10**6 and len(str(least)) == len(str(most)) and count > _MOSTLY * len(whole):
            return "names"
        return ""

    def _scaled(self, column: PreparedColumn, scale: str) -> PreparedColumn | str:
        numbers = column.numbers(self.values)
        known = numbers[~np.isnan(numbers)]
        gaps = len(known) < len(numbers)
        if not len(known):
            return "empty"
        if known.min() == known.max() and not gaps:
            return "constant"
        low, middle, high = np.percentile(known, (25, 50, 75))
        centre, spread, bend = 0.0, 1.0, 0.0
        if scale == "robust":
            centre, spread, bend = middle, (high - low) / _QUARTILES, _BEND
        if scale == "standard" or (scale == "robust" and low == high):
            # Where most rows have the same value, the quartiles are equal.
            centre, spread = known.mean(), known.std()
        elif scale == "minmax":
            centre, spread = known.min(), np.ptp(known)
        spread = float(spread) or 1.0
        parts = [part[~np.isnan(part)] for part in np.split(numbers, [len(self.source)])]
        if column.kind == "number" and all(map(len, parts)):
            first, second = (float(np.median(part)) for part in parts)
            self.medians = (
                (first, second) if abs(first - second) * _QUARTILES > high - low else None
            )
        if column.kind == "number":
            self.stand_ins = _suspects(known)
        return replace(
            column,
            centre=float(centre),
            scale=spread,
            bend=bend,
            far=int((np.abs(known - centre) > bend * spread).sum()) if bend else 0,
            fill=float(middle),
            flag=gaps,
        )

    def _text(self, scale: str) -> PreparedColumn | str:
        """Numbers, amounts or dates that are written as texts; other texts are levels."""
        found, codes = distinct_values(self.values)
        known = np.array([not is_gap(text) for text in found], bool)
        counts = np.bincount(codes[codes >= 0], minlength=len(found))
        rows, looks = int(counts[known].sum()), ""
        dated = _TIME_NAME.search(self.called) is not None
        named = _CODE_NAME.search(self.called) is not None
        readers = {"date": written_dates, "number": written_numbers}
        if scale != "none" and known.sum() == 2:
            readers = {}
        elif named or (not dated and _are_written_codes(found)):
            del readers["number"]
        for kind, read in readers.items():
            if (written := read(found)) is None:
                continue
            odd = int(counts[written.odd].sum())
            many = (known & ~written.odd).sum() > _FEW
            if not odd or (odd <= _ODD * rows and many):
                column = PreparedColumn(self.name, kind, form=written.form, odd=odd)
                return self._scaled(column, scale)
            if odd == rows and not written.form:  # they could mean several
                form = "2020-12-31" if kind == "date" else "1234.5"
                looks = looks or f"{kind}s; to compare them, write them as {form}"
            elif odd < _MOSTLY_ODD * rows:
                money = any(CURRENCY.search(text) for text in found if text)
                strange = max((counts[at], found[at]) for at in np.flatnonzero(written.odd))[1]
                looks = (
                    f"{'dates' if kind == 'date' else 'amounts of money' if money else 'numbers'}, "
                    f"but {odd:,} of {rows:,} are not, such as {strange!r}; leave those empty"
                )
        return self._category(looks)

    def _category(self, looks: str = "") -> PreparedColumn | str:
        """Levels; or, of texts that are not levels, what they look like."""
        texts, codes = levels_of(self.values, self.name)
        counts = np.bincount(codes, minlength=len(texts))
        if len(texts) == 1:
            return "constant"
        if not self.wanted and (why := self._names_rows(texts, looks)):
            return why
        by_count = sorted(range(len(texts)), key=lambda place: -counts[place])
        common = [place for place in by_count if counts[place] >= max(2, _RARE * len(codes))]
        if len(common) < len(texts) or len(texts) > _MOST_LEVELS:
            common = common[: _MOST_LEVELS - 1]
        levels = tuple(sorted(texts[place] for place in common))
        if not levels:
            if self.wanted or len(texts) <= 2 * _MOST_LEVELS:  # few rows: no level is common
                return PreparedColumn(self.name, "category", levels=tuple(texts))
            return f"{len(texts):,} different values, none of them common"
        if not self.wanted and counts[common].sum() < (1 - _MOSTLY) * len(codes):
            return f"{len(texts):,} different values, hardly any of them common"
        joined = len(texts) - len(levels)
        return PreparedColumn(self.name, "category", levels=levels, joined=joined)

    def _names_rows(self, texts: Sequence[str], looks: str) -> str | None:
        """Why texts are no levels, but names, sentences, or dates and numbers in another form."""
        if len(texts) > _MOST_LEVELS and looks:
            return f"looks like {looks}"
        if len(texts) > 2 * _MOST_LEVELS and _are_read(texts):
            return f"free text; to compare it, embed it (--text {self.name})"
        known = self.source.drop_null()
        different = pc.count_distinct(known).as_py()
        if len(known) >= _FEWEST_IDS and different >= _NAMES * len(known):
            return f"looks like an id or a name: {_how_different(different, len(known))}"
        if len(texts) > _MOST_LEVELS and self._is_id_again():
            return f"looks like an id: {_how_different(different, len(known))}"
        return None


def _together(
    name: str, source: pa.ChunkedArray, target: pa.ChunkedArray, coded: bool
) -> pa.ChunkedArray:
    """The values of a column in the source and then in the target, in one type."""
    kinds = [source.type, target.type]
    try:
        if coded and source.type != target.type:
            source, target = (values.cast(pa.large_string()) for values in (source, target))
            kinds = [source.type, target.type]
        elif all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in kinds):
            dates = (pa.types.is_date(kind) for kind in kinds)
            source, target = (
                values.cast(pa.timestamp("us")) if is_date else values
                for values, is_date in zip((source, target), dates, strict=True)
            )
        if any(map(is_text, kinds)) and any(map(is_numeric, kinds)):
            # As happens where one of two files has a word for gaps among its numbers.
            numbers = [plain_numbers(values, name) for values in (source, target)]
            return pa.chunked_array([np.concatenate(numbers)])
        tables = [pa.table({name: values}) for values in (source, target)]
        return pa.concat_tables(tables, promote_options="permissive").column(name)
    except (ValueError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"must have columns of the same kinds as the source, and {name!r} is "
            f"{target.type} where the source has {source.type}. Convert it, or leave it out.",
            parameter="target",
        ) from error


def _whole_numbers(values: pa.ChunkedArray) -> NDArray[np.int64] | None:
    """The known values, where all are whole; those with a gap among them are often decimals."""
    values = values.drop_null()
    if pa.types.is_floating(values.type):
        values = values.filter(pc.is_finite(values))
        if not pc.all(pc.equal(pc.floor(values), values)).as_py():
            return None
    return values.cast(pa.int64(), safe=False).to_numpy()


def _are_codes(different: NDArray[np.int64], rows: int) -> bool:
    """Whether a few numbers of five digits return again and again, and are not rounded: 10115."""
    few = len(different) <= min(_MOST_LEVELS, rows / 3)
    return bool(
        few
        and len(different) > 1
        and different[0] >= 10_000
        and different[-1] <= 99_999
        and np.gcd.reduce(different) < 5
    )


def _are_written_codes(texts: Sequence[str | None]) -> bool:
    """Whether digits are kept as texts on purpose: with zeros in front, or without any gap."""
    known = [text.strip() for text in texts if text is not None and not is_gap(text)]
    if any(re.match(r"[+-]?0\d", text) for text in known):
        return True
    return all(map(str.isdigit, known)) and not any(text and is_gap(text) for text in texts)


def _are_two(values: pa.ChunkedArray) -> bool:
    """Whether a column of numbers has two different ones."""

    def different(some: pa.ChunkedArray) -> int:
        return int(pc.count_distinct(some.filter(pc.invert(pc.is_nan(some)))).as_py())

    return different(values.slice(0, _LOOKED_AT)) <= 2 and different(values) == 2


def _how_different(different: int, rows: int) -> str:
    same = different == rows
    return "different in every row" if same else f"{different:,} different ones in {rows:,} rows"


def _suspects(numbers: NDArray[np.float64]) -> dict[float, int]:
    """Numbers such as −999, or 98 and 99, that are repeated far from all others: how often each is.

    >>> _suspects(np.array([1.0, 2, 3, 4, 5, 99, 98, 98, 99, 99]))
    {99.0: 3, 98.0: 2}
    """

    def is_odd(value: float) -> bool:
        return _STAND_IN.fullmatch(f"{value:.10g}") is not None

    if not (is_odd(numbers.min()) or is_odd(numbers.max())):
        return {}
    values, counts = np.unique(numbers, return_counts=True)
    for way in (1, -1):  # from the least upwards, from the greatest downwards
        ends, often = values[::way].tolist(), counts[::way].tolist()
        are_odd = [is_odd(value) for value in ends[:3]]
        for count in range(([*are_odd, False]).index(False), 0, -1):
            others = ends[count:]
            if len(others) < 2 or max(often[:count]) < 2:
                continue
            gap, width = abs(others[0] - ends[count - 1]), abs(others[-1] - others[0])
            if len(others) < _FEWEST_OTHERS:
                apart = gap > _VERY_FAR * width
            elif ends[:count] == [-1]:  # which a number may well be
                apart = others[0] >= 0 and often[0] > max(often[1:])
            else:
                apart = ends[count - 1] < 0 <= others[0] or gap > width
            if apart:
                return dict(zip(ends[:count], often[:count], strict=True))
    return {}


def _are_read(texts: Sequence[str]) -> bool:
    """Whether these are sentences, by the words of a few."""
    some = texts[:: max(1, len(texts) // 200)]
    return float(np.mean([len(text.split()) for text in some])) >= _SENTENCE
