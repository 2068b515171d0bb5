"""The kinds of things an answer can be."""

from __future__ import annotations

from dataclasses import dataclass

from uniproto.judging.answers.formula import Formula
from uniproto.judging.answers.units import Unit


@dataclass(frozen=True)
class Quantity:
    """A number or formula, perhaps with a unit or a percent sign."""

    formula: Formula
    text: str
    unit: Unit | None = None
    percent: bool = False


@dataclass(frozen=True)
class Words:
    """Anything that only its letters say: a name, an option, a time of day, a ratio 3:1."""

    text: str


@dataclass(frozen=True)
class Digits:
    """A number written in a base other than ten: 2112_6."""

    digits: str
    base: int


@dataclass(frozen=True)
class Row:
    """Things in an order: a point, an interval, a vector. ``opening`` is "" without brackets."""

    items: tuple[Answer, ...]
    opening: str = ""
    closing: str = ""


@dataclass(frozen=True)
class Listing:
    """Things in any order: solutions, a set. The order they were written in is kept."""

    items: tuple[Answer, ...]
    braces: bool = False


@dataclass(frozen=True)
class Union:
    """Sets joined by ∪."""

    parts: tuple[Answer, ...]


@dataclass(frozen=True)
class Grid:
    """A matrix, row by row."""

    rows: tuple[tuple[Answer, ...], ...]


@dataclass(frozen=True)
class Relation:
    """Sides joined by =, <, ≤, …: ``signs[i]`` stands between sides i and i + 1."""

    sides: tuple[Answer, ...]
    signs: tuple[str, ...]


Answer = Quantity | Words | Digits | Row | Listing | Union | Grid | Relation
