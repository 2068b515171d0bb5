"""What the columns of a table are, and how each becomes comparable with the others.

Numbers and dates are scaled by their quartiles (values far out are drawn in), gaps take the median
and get a flag, categories become one feature per level with rare ones joined. Ids, constant
columns and free text are set aside: they would drown what makes rows alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uniproto.data.columns import is_list, is_numeric, is_text
from uniproto.errors import InvalidInputError, require_name
from uniproto.features.column_values import (
    MISSING,
    NUMBER,
    as_days,
    distinct_values,
    is_gap,
    levels_of,
    ordered_levels,
    plain_column,
    plain_numbers,
    text_numbers,
)
from uniproto.features.preparation import (
    Preparation,
    PreparedColumn,
    warn_of_columns,
    warn_of_other_columns,
    warn_of_share,
    warn_of_units,
)

SCALES = ("robust", "standard", "minmax", "none")
_QUARTILES = 1.3489795003921634  # how far apart they are in a normal distribution of spread 1
_BEND = 3.0  # spreads: what lies further out counts by its logarithm
_RARE = 0.01  # of the rows: levels below that are joined
_MOST_LEVELS = 30
_FEWEST_IDS = 10  # rows from which a running number is one
_ID_NAME = re.compile(
    r"(?i:(^|[_\W])(id|uuid|guid|key|index|idx|row|nr|no)$|^id([_\W]|$))|[a-z]I[dD]$"
)
_TIME_NAME = re.compile(r"year|month|week|day|hour|minute|second|age|time|date", re.IGNORECASE)
_CODE_NAME = re.compile(  # whole numbers that are called so name something
    r"(?i)(^|[_\W])(zip|plz|post_?code|postal_?code|zip_?code|phone|telephone|mobile|fax|account|iban"
    r"|code|sku|ean|isbn|gender|sex|region|product|category|class|type|kind|status|segment|cluster"
    r"|species)([_\W]?(no|nr|number|num|code))?$"
)
_COUNT_NAME = re.compile(
    r"(?i)^(n|num|no|number|count|total)[_\W]|[^su]s$|count|rank|rating|score|stars|grade|level"
)
_MOSTLY = 0.9  # of the rows
_NAMES = 0.8  # different texts per row, from which they name rows
_SENTENCE = 4  # words, on average: then a text is read, not counted
_OF_ONE_FORM = 0.8  # of the texts: some numbers have no decimals
_OTHER_FORMS = {  # of dates and of numbers, as texts that could mean several
    "dates; to compare them, write them as 2020-12-31": re.compile(
        r"(\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2})"
        r"|[A-Za-z]{3,9}\.? \d{1,2},? \d{4}|\d{1,2}\.? [A-Za-z]{3,9}\.? \d{4})(?=[\sT]|$)"
    ),
    "numbers; to compare them, write them as 1234.5": re.compile(
        r"[+-]?(\d{1,3}([.,' ]\d{3})+|\d+)(([.,]\d+)%?|%)$"
    ),
}
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
) -> Preparation:
    """Find out what the columns of a table are, and how each becomes features.

    `features` are those to take, whatever they look like; `ignore` are set aside; `categories` are
    codes, though they are numbers. Where there is a `target`, the rows of both are looked at; a
    target with the very rows of the table adds nothing.
    """
    require_name("scale", scale, SCALES)
    if target is not None and _are_the_same(table, target):
        target = None
    names = table.column_names
    if target is not None:
        names = [name for name in names if name in target.column_names]
        if not names:
            raise InvalidInputError(
                f"'target' must have columns of the source ({', '.join(table.column_names)}), not "
                f"{', '.join(target.column_names)}. Rename its columns."
            )
    chosen = [name for name in (names if features is None else features) if name not in ignore]
    lists = [name for name in chosen if is_list(table.schema.field(name).type)]
    if lists:
        raise InvalidInputError(
            f"'source' has a column of lists beside others, {lists[0]!r}. Compare rows by it alone "
            f"with columns=Columns(use=[{lists[0]!r}]) (--column), or leave it out with "
            f"columns=Columns(ignore=[{lists[0]!r}]) (--ignore)."
        )
    aside = dict.fromkeys(ignore, "ignored")
    columns: list[PreparedColumn] = []
    medians: dict[str, tuple[float, float]] = {}
    for name in chosen:
        column = _Column(name, table, target, features is not None, name in categories)
        found = column.prepared(scale)
        if isinstance(found, str):
            aside[name] = found
        else:
            columns.append(found)
            medians |= {} if column.medians is None else {name: column.medians}
    if features is not None:
        aside |= {name: "not among the features" for name in names if name not in features}
    elif target is not None:
        aside |= {name: "not in the target" for name in table.column_names if name not in names}
        warn_of_other_columns(_only_in(table, target, ignore), _only_in(target, table, ignore))
    if not columns:
        said = "; ".join(f"{name}: {why}" for name, why in aside.items())
        raise InvalidInputError(
            f"'source' must have a column that tells rows apart ({said or 'it has none'}). Name "
            "others with columns=Columns(use=[…]) (--features), or compare numbers as they are "
            "with columns=False (--no-prepare)."
        )
    preparation = Preparation(tuple(columns), aside, scale)
    warn_of_columns(columns)
    warn_of_units(medians)
    warn_of_share(table, preparation)
    return preparation


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
    if any(values.null_count for values in table.columns):
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


class _Column:
    """A column that is looked at: its values in the source, and then those of a target."""

    def __init__(
        self, name: str, table: pa.Table, target: pa.Table | None, wanted: bool, coded: bool
    ) -> None:
        self.name, self.wanted, self.coded = name, wanted, coded
        self.order = ordered_levels(table.column(name))
        self.values = self.source = plain_column(table.column(name))
        if target is not None:
            self.values = _together(name, self.source, plain_column(target.column(name)))
        self.kind = self.values.type
        self.medians: tuple[float, float] | None = None  # of source and target, where far apart

    def prepared(self, scale: str) -> PreparedColumn | str:
        """How it becomes features, or why it does not; one that is `wanted` does if it can."""
        kind, values = self.kind, self.values
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return f"holds {kind}, which has no distance"
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
        if as_days(values) is not None:
            return self._scaled(PreparedColumn(self.name, "date"), scale)
        if is_text(kind):
            return self._text(scale)
        return f"holds {kind}, which has no distance"

    def _number(self, scale: str) -> PreparedColumn | str:
        column = PreparedColumn(self.name, "number")
        whole = _whole_numbers(self.source)
        if whole is None or not len(whole):
            return self._scaled(column, scale)
        different = np.unique(whole)
        unique = len(different) == len(whole)
        if unique and not self.wanted and self._are_ids(whole, different):
            return "looks like an id: another number in every row"
        if len(different) > 1 and as_days(self.values) is not None:
            return self._scaled(replace(column, kind="date"), scale)
        if _CODE_NAME.search(self.name) or _are_codes(different, len(whole)):
            return self._category()
        return self._scaled(replace(column, doubt=self._doubt(whole, different)), scale)

    def _are_ids(self, whole: NDArray[np.int64], different: NDArray[np.int64]) -> bool:
        """Whether whole numbers only tell rows apart: by their name, or because they count them."""
        if _ID_NAME.search(self.name):
            return True
        if len(whole) < max(_FEWEST_IDS, len(self.source)) or _TIME_NAME.search(self.name):
            return False
        steps = np.diff(different)
        in_order = np.array_equal(whole, different) or np.array_equal(whole[::-1], different)
        return bool(
            (steps == steps[0]).all() and ((in_order and steps[0] == 1) or different[0] > 999)
        )

    def _doubt(self, whole: NDArray[np.int64], different: NDArray[np.int64]) -> str:
        """Why whole numbers may be something else than amounts."""
        if _TIME_NAME.search(self.name) or _COUNT_NAME.search(self.name):
            return ""
        count, least, most = len(different), int(different[0]), int(different[-1])
        if 3 <= count <= 9 and least in (0, 1) and most - least == count - 1 and len(whole) >= 30:
            return (
                f"{least} to {most}, where these are codes say "
                f"columns=Columns(categories=[{self.name!r}]) (--categories)"
            )
        if least >= 10**6 and len(str(least)) == len(str(most)) and count > _MOSTLY * len(whole):
            return (
                "long, where they name something say "
                f"columns=Columns(ignore=[{self.name!r}]) (--ignore)"
            )
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
            # Where most rows have one value there are no quartiles to scale by.
            centre, spread = known.mean(), known.std()
        elif scale == "minmax":
            centre, spread = known.min(), np.ptp(known)
        parts = [part[~np.isnan(part)] for part in np.split(numbers, [len(self.source)])]
        if column.kind == "number" and all(map(len, parts)):
            first, second = (float(np.median(part)) for part in parts)
            self.medians = (
                (first, second) if abs(first - second) * _QUARTILES > high - low else None
            )
        return replace(
            column,
            centre=float(centre),
            scale=float(spread) or 1.0,
            bend=bend,
            fill=float(middle),
            flag=gaps,
        )

    def _text(self, scale: str) -> PreparedColumn | str:
        found, _ = distinct_values(self.values)
        dated = _TIME_NAME.search(self.name) is not None
        if text_numbers(found) is not None and (dated or not _are_written_codes(found)):
            return self._scaled(PreparedColumn(self.name, "number"), scale)
        return self._category()

    def _category(self) -> PreparedColumn | str:
        texts, codes = levels_of(self.values, self.name)
        counts = np.bincount(codes, minlength=len(texts))
        if len(texts) == 1:
            return "constant"
        if not self.wanted and (why := self._names_rows(texts, counts)):
            return why
        by_count = sorted(range(len(texts)), key=lambda place: -counts[place])
        common = [place for place in by_count if counts[place] >= max(2, _RARE * len(codes))]
        if len(common) < len(texts) or len(texts) > _MOST_LEVELS:
            common = common[: _MOST_LEVELS - 1]
        levels = tuple(sorted(texts[place] for place in common))
        if not levels:
            if self.wanted or len(texts) <= 2 * _MOST_LEVELS:  # few rows: no level is common
                return PreparedColumn(self.name, "category", levels=tuple(texts))
            return f"{len(texts):,} different texts, none of them common"
        if not self.wanted and counts[common].sum() < (1 - _MOSTLY) * len(codes):
            return f"{len(texts):,} different texts, hardly any of them common"
        joined = len(texts) - len(levels)
        return PreparedColumn(self.name, "category", levels=levels, joined=joined)

    def _names_rows(self, texts: Sequence[str], counts: NDArray[np.intp]) -> str | None:
        """Why texts are no levels, but names, sentences, or dates and numbers in another form."""
        if len(texts) > 2 * _MOST_LEVELS and _are_read(texts):
            return f"free text; to compare it, embed it (--text {self.name})"
        if len(texts) > _MOST_LEVELS and (form := _other_form(texts, counts)):
            return form
        known = self.source.drop_null()
        different = pc.count_distinct(known).as_py()
        if len(known) >= _FEWEST_IDS and different >= _NAMES * len(known):
            every = "another one in every row"
            some = f"{different:,} different ones in {len(known):,} rows"
            return f"looks like an id or a name: {every if different == len(known) else some}"
        return None


def _together(name: str, source: pa.ChunkedArray, target: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column in the source and then in the target, in one type."""
    kinds = [source.type, target.type]
    try:
        if any(map(is_text, kinds)) and any(map(is_numeric, kinds)):
            # As happens where one of two files has a word for gaps among its numbers.
            numbers = [plain_numbers(values, name) for values in (source, target)]
            return pa.chunked_array([np.concatenate(numbers)])
        tables = [pa.table({name: values}) for values in (source, target)]
        return pa.concat_tables(tables, promote_options="permissive").column(name)
    except (ValueError, pa.ArrowException) as error:
        raise InvalidInputError(
            f"'target' must have columns of the same kinds as the source, and {name!r} is "
            f"{target.type} where the source has {source.type}. Convert it, or leave it out."
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


def _other_form(texts: Sequence[str], counts: NDArray[np.intp]) -> str | None:
    """What to do about numbers with other words among them, and dates in a form of their own."""
    known = [(text.strip(), count) for text, count in zip(texts, counts, strict=True)]
    known = [(text, count) for text, count in known if text != MISSING]
    rows = sum(count for _, count in known)
    strange = [(count, text) for text, count in known if not NUMBER.fullmatch(text)]
    others = sum(count for count, _ in strange)
    if 0 < others < (1 - _OF_ONE_FORM) * rows:
        return (
            f"looks like numbers, but {others:,} of {rows:,} are not, such as "
            f"{max(strange)[1]!r}; leave those empty"
        )
    for advice, form in _OTHER_FORMS.items():
        if sum(count for text, count in known if form.match(text)) > _OF_ONE_FORM * rows:
            return f"looks like {advice}"
    return None


def _are_read(texts: Sequence[str]) -> bool:
    """Whether these are sentences, by the words of a few."""
    some = texts[:: max(1, len(texts) // 200)]
    return float(np.mean([len(text.split()) for text in some])) >= _SENTENCE
