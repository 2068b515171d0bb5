"""What the columns of a table are, and how each becomes comparable with the others.

Numbers and dates are scaled by scikit-learn's scalers, gaps take the median and get a flag,
categories become one feature per level with rare ones joined by its `OneHotEncoder`. Ids, constant
columns and free text are set aside: they would drown what makes rows alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uniproto.data.columns import is_list, is_numeric, is_text, numeric_matrix
from uniproto.errors import invalid, require_name, unknown_name
from uniproto.features.preparation import (
    MISSING,
    Preparation,
    PreparedColumn,
    as_times,
    category_texts,
    day_numbers,
    plain_column,
    plain_numbers,
)

SCALES = ("robust", "standard", "minmax", "none")
_RARE = 0.01  # of the rows: levels below that are joined
_MOST_LEVELS = 30
_FEWEST_IDS = 10  # rows from which a running number is one
_ID_NAME = re.compile(
    r"(?i:(^|[_\W])(id|uuid|guid|key|index|idx|row|nr|no)$|^id([_\W]|$))|[a-z]I[dD]$"
)
_TIME_NAME = re.compile(r"year|month|week|day|hour|minute|second|age|time|date", re.IGNORECASE)
_SENTENCE = 4  # words, on average: then a text is read, not counted
_MOSTLY = 0.9  # of the rows
_OF_ONE_FORM = 0.8  # of the texts: some numbers have no decimals
_OTHER_FORMS = {  # of dates and of numbers, as texts that could mean several
    "dates; to compare them, write them as 2020-12-31": re.compile(
        r"(\d{4}[./-]\d{1,2}[./-]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-](\d{4}|\d{2}))(?=[\sT]|$)"
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
    scale: str = "robust",
) -> Preparation:
    """Find out what the columns of a table are, and how each becomes features.

    `features` are those to take, whatever they look like; `ignore` are set aside. Where there is a
    `target`, the rows of both are looked at; a target with the very rows of the table adds nothing.
    """
    require_name("scale", scale, SCALES)
    rows = table.num_rows
    if target is not None:
        table = _joined(table, target)
    names = table.column_names
    if len(set(names)) < len(names):
        raise invalid(
            "source", "must have a name for every column", "one name twice", "Rename the columns."
        )
    for parameter, given in (("features", features or ()), ("ignore", ignore)):
        for name in given:
            if name not in names:
                raise unknown_name(parameter, name, names)
    chosen = [name for name in (names if features is None else features) if name not in ignore]
    if any(is_list(table.schema.field(name).type) for name in chosen):
        numeric_matrix(table.select(chosen), "source")  # which says what to do about them
    aside: dict[str, str] = {}
    columns: list[PreparedColumn] = []
    for name in names if features is None else features:
        if name in ignore:
            aside[name] = "ignored"
            continue
        values = plain_column(table.column(name))
        found = _prepared(name, values, rows, scale, features is not None)
        if isinstance(found, str):
            aside[name] = found
        else:
            columns.append(found)
    if features is not None:
        aside |= {name: "not among the features" for name in names if name not in features}
    if not columns:
        said = "; ".join(f"{name}: {why}" for name, why in aside.items())
        raise invalid(
            "source",
            "must have a column that tells rows apart",
            f"none ({said})" if said else "none",
            "Name other columns with columns=Columns(use=[…]) (--features), or compare numbers as "
            "they are with columns=False (--no-prepare).",
        )
    return Preparation(tuple(columns), aside, scale)


def _joined(source: pa.Table, target: pa.Table) -> pa.Table:
    """The rows of both, in the columns that both have."""
    names = [name for name in source.column_names if name in target.column_names]
    if not names:
        raise invalid(
            "target",
            "must have columns of the source",
            f"{', '.join(target.column_names)} beside {', '.join(source.column_names)}",
            "Rename its columns.",
        )
    source, target = source.select(names), target.select(names)
    if _are_the_same(source, target):
        return source
    try:
        return pa.concat_tables([source, target], promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise invalid(
            "target",
            "must have columns of the same kinds as the source",
            str(error).split("\n")[0],
            "Convert them.",
        ) from error


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


def _prepared(
    name: str, values: pa.ChunkedArray, rows: int, scale: str, wanted: bool
) -> PreparedColumn | str:
    """How a column becomes features, or why it does not; one that is `wanted` does if it can.

    The first `rows` of its values are those of the source, the others of a target.
    """
    kind = values.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"holds {kind}, which has no distance"
    if values.null_count == len(values):
        return "empty"
    if pa.types.is_boolean(kind):
        return _category(name, values, rows, wanted)
    if is_numeric(kind) or pa.types.is_decimal(kind) or _is_span(kind):
        if not wanted and _are_ids(name, values, rows):
            return "looks like an id: another number in every row"
        return _number(name, "number", plain_numbers(values, name), scale)
    if as_times(values) is not None:
        return _number(name, "date", day_numbers(values), scale)
    if is_text(kind):
        return _category(name, values, rows, wanted)
    return f"holds {kind}, which has no distance"


def _is_span(kind: pa.DataType) -> bool:
    return bool(pa.types.is_time(kind) or pa.types.is_duration(kind))


def _are_ids(name: str, values: pa.ChunkedArray, rows: int) -> bool:
    """Whether whole numbers only tell rows apart: by their name, or because they count them."""
    if pa.types.is_floating(values.type) and _ID_NAME.search(name):
        # Whole numbers with a gap among them are decimals in many data frames.
        values = pc.if_else(pc.is_nan(values), None, values)
        if pc.all(pc.equal(pc.floor(values), values)).as_py():
            values = values.cast(pa.int64(), safe=False)
    if not pa.types.is_integer(values.type) or not _differ(values, rows):
        return False
    if _ID_NAME.search(name):
        return True
    counted = values[:rows]
    if counted.null_count or rows < _FEWEST_IDS or _TIME_NAME.search(name):
        return False
    return bool((np.diff(counted.to_numpy()) == 1).all())


def _differ(values: pa.ChunkedArray, rows: int) -> bool:
    """Whether every row of the source has another value, and so every one of the target."""
    parts = (values[:rows].drop_null(), values[rows:].drop_null())
    return len(parts[0]) > 0 and all(pc.count_distinct(part).as_py() == len(part) for part in parts)


def _number(name: str, kind: str, numbers: NDArray[np.float64], scale: str) -> PreparedColumn | str:
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

    known = numbers[~np.isnan(numbers)]
    gaps = len(known) < len(numbers)
    if not len(known):
        return "empty"
    if known.min() == known.max() and not gaps:
        return "constant"
    column = numbers[:, None]
    fill = float(SimpleImputer(strategy="median").fit(column).statistics_[0])
    centre, spread = 0.0, 1.0
    if scale == "robust":
        fitted = RobustScaler(unit_variance=True).fit(column)
        centre, spread = float(fitted.center_[0]), float(fitted.scale_[0])
    if scale == "standard" or (scale == "robust" and _middle_is_constant(known)):
        standard = StandardScaler().fit(column)
        centre, spread = float(standard.mean_[0]), float(standard.scale_[0])
    elif scale == "minmax":
        centre = float(known.min())
        spread = float(1 / MinMaxScaler().fit(column).scale_[0])
    return PreparedColumn(name, kind, centre=centre, scale=spread, fill=fill, flag=gaps)


def _middle_is_constant(known: NDArray[np.float64]) -> bool:
    """Where most rows have one value there are no quartiles to scale by."""
    low, high = np.percentile(known, (25, 75))
    return bool(low == high)


def _category(name: str, values: pa.ChunkedArray, rows: int, wanted: bool) -> PreparedColumn | str:
    from sklearn.preprocessing import OneHotEncoder

    texts = category_texts(values, name)
    distinct = len(set(texts))
    if distinct == 1:
        return "constant"
    encoder = OneHotEncoder(
        min_frequency=max(2, int(np.ceil(_RARE * len(texts)))),
        max_categories=_MOST_LEVELS,
        handle_unknown="infrequent_if_exist",
    )
    if not wanted and distinct > 2 * _MOST_LEVELS and _are_read(texts):
        return f"free text; to compare it, embed it (--text {name})"
    if not wanted and rows >= _FEWEST_IDS and _differ(values, rows) and not values.null_count:
        return "looks like an id or a name: another text in every row"
    if not wanted and distinct > _MOST_LEVELS and (form := _other_form(texts)):
        return form
    encoder.fit(np.array(texts, object)[:, None])
    rare = encoder.infrequent_categories_[0]
    joined = 0 if rare is None else len(rare)
    hidden = set() if rare is None else set(rare.tolist())
    levels = tuple(level for level in encoder.categories_[0].tolist() if level not in hidden)
    if not levels:
        if wanted or distinct <= 2 * _MOST_LEVELS:  # few rows: none of their levels is common
            return PreparedColumn(name, "category", levels=tuple(sorted(set(texts))))
        return f"{distinct:,} different texts, none of them common"
    if not wanted and np.mean([text in hidden for text in texts]) > _MOSTLY:
        return f"{distinct:,} different texts, hardly any of them common"
    return PreparedColumn(name, "category", levels=levels, joined=joined)


def _other_form(texts: Sequence[str]) -> str | None:
    """What to do about dates and numbers that are written in a form of their own."""
    known = [text.strip() for text in texts if text != MISSING]
    for advice, form in _OTHER_FORMS.items():
        if sum(form.match(text) is not None for text in known) > _OF_ONE_FORM * len(known):
            return f"looks like {advice}"
    return None


def _are_read(texts: Sequence[str]) -> bool:
    """Whether these are sentences, by the words of a few."""
    some = texts[:: max(1, len(texts) // 200)]
    return float(np.mean([len(text.split()) for text in some])) >= _SENTENCE
