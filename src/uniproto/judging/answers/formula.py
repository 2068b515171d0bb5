"""Formulas as trees, the form in which answers are compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any


@dataclass(frozen=True)
class Formula:
    """A node: ``head`` is number, decimal, symbol, constant, sum, product, power or call.

    A decimal is a number written with a point: it may be rounded, a number never is.
    """

    head: str
    atom: Fraction | str | None = None
    parts: tuple[Formula, ...] = ()

    def walk(self) -> Iterator[Formula]:
        """Every node, this one first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.parts)

    @property
    def symbols(self) -> frozenset[str]:
        """The names of its variables; ``i`` and ``e`` are constants."""
        return frozenset(str(node.atom) for node in self.walk() if node.head == "symbol")

    @property
    def is_rounded(self) -> bool:
        """Whether it holds a number with a decimal point."""
        return any(node.head == "decimal" for node in self.walk())

    def as_json(self) -> list[Any]:
        """Nested lists, for the process that does algebra."""
        atom = None if self.atom is None else str(self.atom)
        return [self.head, atom, [part.as_json() for part in self.parts]]


def number(value: Fraction | int) -> Formula:
    """A number known exactly."""
    return Formula("number", Fraction(value))


def total(*parts: Formula) -> Formula:
    """A sum."""
    return parts[0] if len(parts) == 1 else Formula("sum", None, parts)


def product(*parts: Formula) -> Formula:
    """A product."""
    return parts[0] if len(parts) == 1 else Formula("product", None, parts)


def power(base: Formula, exponent: Formula) -> Formula:
    """A power; roots and quotients are powers too."""
    return Formula("power", None, (base, exponent))


def negative(part: Formula) -> Formula:
    """−part."""
    if part.head in ("number", "decimal"):
        assert isinstance(part.atom, Fraction)
        return Formula(part.head, -part.atom)
    return product(number(-1), part)


def quotient(above: Formula, below: Formula) -> Formula:
    """above / below."""
    return product(above, power(below, number(-1)))


def binomial(of: Formula, draws: Formula) -> Formula:
    """In how many ways one can draw so many of so many."""
    return Formula("call", "binomial", (of, draws))
