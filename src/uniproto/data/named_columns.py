"""Columns that options name: which are the features, and which are left aside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import pyarrow as pa

from uniproto.data.matrices import is_numeric
from uniproto.errors import InputFileError, invalid, unknown_name


def split_names(given: Sequence[str], known: Collection[str]) -> list[str]:
    """Names as an option gives them, once or often: one whole name, or names with commas between.

    Where a column is called so, commas belong to its name.

    >>> split_names(["a,b", "net, EUR"], ["a", "b", "net, EUR"])
    ['a', 'b', 'net, EUR']
    """
    names = []
    for text in given:
        parts = [text] if text in known else text.split(",")
        names += [part if part in known else part.strip() for part in parts]
    return [name for name in names if name]


def only_features(
    given: Sequence[str], known: Collection[str], aside: Collection[str], path: str | Path
) -> list[str]:
    """The columns that --features names, in its order.

    >>> only_features(["b,a"], ["a", "b", "c"], ["c"], "pool.csv")
    ['b', 'a']
    """
    names = split_names(given, known)
    if not names:
        raise invalid("--features", "must name columns", repr(",".join(given)), "Try a,b,c.")
    require_columns(names, known, "--features", path)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise invalid("--features", "must name a column once", ", ".join(twice), "Drop the rest.")
    if both := [name for name in names if name in aside]:
        raise invalid(
            "--features",
            "must name columns that no other option sets aside",
            ", ".join(both),
            "Leave them out of one of the two.",
        )
    return names


def ignored_columns(
    given: Sequence[str],
    schema: pa.Schema,
    path: str | Path,
    *,
    others: Collection[str] = (),
    in_target: bool = False,
) -> list[str]:
    """The columns that --ignore names. Those of `others`, another file's, need not be in this one.

    With `in_target`, names this file does not have may be of the target, which is read later.
    """
    known = [*schema.names, *(name for name in others if name not in schema.names)]
    names = split_names(given, known)
    if given and not names:
        raise invalid("--ignore", "must name columns", repr(",".join(given)), "Try a,b,c.")
    # A misspelt name leaves a column in. Where that is one of text, it is known at once.
    left = [field for field in schema if field.name not in names]
    if not (in_target and all(is_numeric(field.type) for field in left)):
        require_columns(names, known, "--ignore", path)
    return names


def require_columns(
    names: Sequence[str], known: Collection[str], parameter: str, path: str | Path
) -> None:
    """Refuse names of no column, and offer the nearest."""
    for name in names:
        if name not in known:
            raise InputFileError(f"{path}: {unknown_name(parameter, name, known)}")
