"""The kinds of things an answer can be."""

from __future__ import annotations

from dataclasses import dataclass

from uniproto.judging.answers.parser import Formula, negative
from uniproto.judging.answers.words import Unit


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


def unwrapped(answer: Answer) -> Answer:
    """A list of one thing is that thing: [3] is 3."""
    while isinstance(answer, Listing) and len(answer.items) == 1:
        answer = answer.items[0]
    return answer


def name_of(answer: Answer) -> str | None:
    """The x of x = 5; the f(x) of f(x) = 2x."""
    if not isinstance(answer, Relation) or answer.signs != ("=",):
        return None
    left = answer.sides[0]
    if isinstance(left, Words):
        return left.text.lower()
    if not isinstance(left, Quantity) or not left.formula.symbols:
        return None
    simple = all(node.head in ("symbol", "product") for node in left.formula.walk())
    return left.text if simple else None


def value_of(answer: Answer) -> Answer:
    """The 5 of x = 5; an answer without a name is its own value."""
    return answer.sides[-1] if isinstance(answer, Relation) and name_of(answer) else answer


def as_vector(grid: Grid) -> Answer:
    """A column as the row of its entries; a wider matrix stays what it is."""
    return Row(tuple(row[0] for row in grid.rows)) if all(len(r) == 1 for r in grid.rows) else grid


def symbols_of(relation: Relation) -> frozenset[str]:
    """The variables that a relation speaks of."""
    sides = [side.formula.symbols for side in relation.sides if isinstance(side, Quantity)]
    return frozenset().union(*sides)


def as_interval(relation: Relation) -> Row | None:
    """a ≤ x < b as [a, b); None for what describes no interval of one variable."""
    sides, signs = relation.sides, relation.signs
    if any(sign in (">", ">=") for sign in signs):
        sides, signs = sides[::-1], tuple(s.replace(">", "<") for s in reversed(signs))
    if not signs or any(sign not in ("<", "<=") for sign in signs):
        return None
    variables = [
        at for at, s in enumerate(sides) if isinstance(s, Quantity) and s.formula.head == "symbol"
    ]
    if len(variables) != 1 or len(sides) > 3:
        return None
    at = variables[0]
    infinity = Formula("constant", "oo")
    low: Answer = Quantity(negative(infinity), "-oo")
    high: Answer = Quantity(infinity, "oo")
    opening, closing = "(", ")"
    if at > 0:
        low, opening = sides[at - 1], "[" if signs[at - 1] == "<=" else "("
    if at < len(sides) - 1:
        high, closing = sides[at + 1], "]" if signs[at] == "<=" else ")"
    if len(sides) == 3 and at != 1:
        return None
    return Row((low, high), opening, closing)
