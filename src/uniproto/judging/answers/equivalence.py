"""Whether two formulas are the same: exactly, at a few points, and at last by SymPy."""

from __future__ import annotations

import cmath

from uniproto.judging.answers.algebra import ask_algebra
from uniproto.judging.answers.formula import Formula, negative, total
from uniproto.judging.answers.rounding import agree_when_rounded, same_number
from uniproto.judging.answers.values import (
    TooLargeError,
    exact_value,
    float_value,
    sample_points,
)

TOLERANCE = 1e-6  # relative, of floating-point values; formulas without decimals go on to SymPy


def same_formula(
    said: Formula, gold: Formula, *, seconds: float, gold_may_be_rounded: bool = False
) -> bool:
    """Whether two formulas have the same value, for every value of their variables.

    >>> from uniproto.judging.answers.formula import number, power
    >>> same_formula(power(number(2), number(3)), number(8), seconds=1)
    True
    """
    if said == gold:
        return True
    rounded = said.is_rounded or gold.is_rounded
    try:
        exact = exact_value(said), exact_value(gold)
    except TooLargeError:
        return False
    if exact[0] is not None and exact[1] is not None:
        if same_number(exact[0], exact[1], rounded=rounded):
            return True
        return gold_may_be_rounded and rounded and agree_when_rounded(exact[0], exact[1])
    compared = False
    for point in sample_points(said.symbols | gold.symbols):
        values = float_value(said, point), float_value(gold, point)
        if values[0] is None or values[1] is None:
            continue
        compared = True
        if not _near(values[0], values[1]):
            return False
    if compared and (rounded or _holds_infinity(said) or _holds_infinity(gold)):
        return True
    return ask_algebra("same", said, gold, seconds)


def same_equation(
    said: tuple[Formula, Formula], gold: tuple[Formula, Formula], *, seconds: float
) -> bool:
    """Whether one equation is a multiple of the other, so that both have the same solutions.

    >>> from uniproto.judging.answers.formula import Formula, number
    >>> x, y = Formula("symbol", "x"), Formula("symbol", "y")
    >>> same_equation((x, y), (y, x), seconds=10)
    True
    """
    left, right = (total(sides[0], negative(sides[1])) for sides in (said, gold))
    ratios = []
    for point in sample_points(left.symbols | right.symbols):
        values = float_value(left, point), float_value(right, point)
        if values[0] and values[1]:
            ratios.append(values[0] / values[1])
    if any(not _near(ratio, ratios[0]) for ratio in ratios):
        return False
    return ask_algebra("proportional", left, right, seconds)


def _near(one: complex, other: complex) -> bool:
    if cmath.isinf(one) or cmath.isinf(other):
        return one == other
    return abs(one - other) <= TOLERANCE * max(abs(one), abs(other)) + 1e-12


def _holds_infinity(formula: Formula) -> bool:
    return any(node.atom == "oo" for node in formula.walk())
