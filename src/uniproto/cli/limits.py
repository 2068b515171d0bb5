"""Limits of sources as options say them: `--at-most source:gsm=500,aqua=100`."""

from __future__ import annotations

import argparse
from collections.abc import Hashable
from typing import TYPE_CHECKING

from uniproto.errors import invalid

if TYPE_CHECKING:
    from uniproto.data.tables import InputData
    from uniproto.problem.values import Limits

OPTIONS = ("at_most", "at_least", "budget")
_EVERY = "*"


def limits_of(options: argparse.Namespace, pool: InputData) -> Limits | None:
    """The limits of a `Problem`."""
    from uniproto.problem.values import Limits

    given = [(name, text) for name in OPTIONS for text in getattr(options, name, None) or ()]
    if not given:
        return None
    column = limited_column(options)
    assert column is not None
    if getattr(options, "groups", None):
        raise invalid(
            _flag(given[0][0]),
            "excludes --groups: it limits one selection over all sources",
            repr(given[0][1]),
            "Use --budgets for the groups, or drop --groups.",
        )
    labels = pool.column(column, _flag(given[0][0]))
    by_text = {str(label): label for label in labels.tolist()}
    found: dict[str, dict[Hashable, int]] = {"at_most": {}, "at_least": {}}
    # What is said of every source goes first, so that what is said of one wins.
    parts = [(name, *part) for name, text in given for part in _parsed(name, text)]
    for name, label, count in sorted(parts, key=lambda part: part[1] != _EVERY):
        for limit in ("at_most", "at_least") if name == "budget" else (name,):
            these = by_text.values() if label == _EVERY else [by_text.get(label, label)]
            found[limit].update(dict.fromkeys(these, count))
    return Limits(labels, **{name: counts or None for name, counts in found.items()})


def limited_column(options: argparse.Namespace) -> str | None:
    """The column of sources that the limits name, which must be one.

    >>> limited_column(argparse.Namespace(at_most=["source:gsm=500"], at_least=None))
    'source'
    """
    columns = {
        _column(name, text): name for name in OPTIONS for text in getattr(options, name, None) or ()
    }
    if len(columns) > 1:
        raise invalid(
            _flag(next(reversed(columns.values()))),
            "must name one column of sources, the same everywhere",
            ", ".join(columns),
            "Limit the labels of one column.",
        )
    return next(iter(columns), None)


def _column(name: str, text: str) -> str:
    column, colon, _ = text.partition(":")
    if not colon or not column.strip():
        raise invalid(
            _flag(name),
            "must say which column holds the sources",
            repr(text),
            "Write it as COLUMN:LABEL=N, such as source:gsm=500.",
        )
    return column.strip()


def _parsed(name: str, text: str) -> list[tuple[str, int]]:
    found = []
    for part in text.partition(":")[2].split(","):
        label, _, count = part.rpartition("=")
        try:
            found.append((label.strip(), int(count)))
        except ValueError:
            raise invalid(
                _flag(name),
                "must give each label a whole number",
                repr(part),
                "Write it as COLUMN:LABEL=N,LABEL=N; LABEL * means every one.",
            ) from None
    return found


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
