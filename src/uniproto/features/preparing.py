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
from numpy.typing import NDArray

from uniproto.data.columns import is_list, is_numeric, is_text, numeric_matrix
from uniproto.errors import invalid, require_name, unknown_name
from uniproto.features.preparation import (
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
_NUMBERED = re.compile(r"(.*?)(\d+)")
_ONE_SCALE = 3.0  # how far spreads of columns that are one vector may be apart


def fit_preparation(
    table: pa.Table,
    *,
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    scale: str = "robust",
) -> Preparation:
    """Find out what the columns of a table are, and how each becomes features.

    `features` are those to take, whatever they look like; `ignore` are set aside.
    """
    require_name("scale", scale, SCALES)
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
        found = _prepared(name, plain_column(table.column(name)), scale, features is not None)
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
            "Name the columns to compare with features=[…] (--features on the command line).",
        )
    return Preparation(tuple(columns), aside, scale)


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


def _prepared(name: str, values: pa.ChunkedArray, scale: str, wanted: bool) -> PreparedColumn | str:
    """How a column becomes features, or why it does not; one that is `wanted` does if it can."""
    kind = values.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return f"holds {kind}, which has no distance"
    if values.null_count == len(values):
        return "empty"
    if pa.types.is_boolean(kind):
        return _category(name, values, wanted)
    if is_numeric(kind) or pa.types.is_decimal(kind) or _is_span(kind):
        numbers = plain_numbers(values, name)
        if not wanted and pa.types.is_integer(kind) and _are_ids(name, numbers):
            return "looks like an id: another number in every row"
        return _number(name, "number", numbers, scale)
    if as_times(values) is not None:
        return _number(name, "date", day_numbers(values), scale)
    if is_text(kind):
        return _category(name, values, wanted)
    return f"holds {kind}, which has no distance"


def _is_span(kind: pa.DataType) -> bool:
    return bool(pa.types.is_time(kind) or pa.types.is_duration(kind))


def _are_ids(name: str, numbers: NDArray[np.float64]) -> bool:
    """Whether whole numbers only tell rows apart: by their name, or because they count them."""
    if np.isnan(numbers).any() or len(np.unique(numbers)) < len(numbers):
        return False
    if _ID_NAME.search(name):
        return True
    counts_rows = len(numbers) >= _FEWEST_IDS and bool((np.diff(numbers) == 1).all())
    return counts_rows and not _TIME_NAME.search(name)


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


def _category(name: str, values: pa.ChunkedArray, wanted: bool) -> PreparedColumn | str:
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
    if not wanted and distinct == len(texts) and distinct >= _FEWEST_IDS:
        return "looks like an id or a name: another text in every row"
    encoder.fit(np.array(texts, object)[:, None])
    rare = encoder.infrequent_categories_[0]
    joined = 0 if rare is None else len(rare)
    hidden = set() if rare is None else set(rare.tolist())
    levels = tuple(level for level in encoder.categories_[0].tolist() if level not in hidden)
    if not levels:
        if wanted or distinct <= 2 * _MOST_LEVELS:  # few rows: none of their levels is common
            return PreparedColumn(name, "category", levels=tuple(sorted(set(texts))))
        return f"{distinct:,} different texts, none of them common"
    return PreparedColumn(name, "category", levels=levels, joined=joined)


def _are_read(texts: Sequence[str]) -> bool:
    """Whether these are sentences, by the words of a few."""
    some = texts[:: max(1, len(texts) // 200)]
    return float(np.mean([len(text.split()) for text in some])) >= _SENTENCE
