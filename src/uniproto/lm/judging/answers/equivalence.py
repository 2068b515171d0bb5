"""Equality of formulas: by exact values, at a few points, and in the end by SymPy."""

from __future__ import annotations

import cmath
import math
import zlib
from collections.abc import Callable, Mapping
from fractions import Fraction

from uniproto.lm.judging.answers.helpers import ask_algebra
from uniproto.lm.judging.answers.parser import Formula, negative, total

NOISE = Fraction(1, 10**6)  # relative, of floating point and of decimals written out at length
NOISE_OF_ZERO = Fraction(1, 10**9)
SHORT = Fraction(1, 10**4)  # relative, for a prediction with fewer digits than the gold
MIN_PLACES = 2
MIN_DIGITS = 3
MAX_PLACES = 20


def same_number(given: Fraction, gold: Fraction, *, rounded: bool) -> bool:
    """Whether two numbers are equal; up to the noise of floating point if one has a decimal point.

    >>> same_number(Fraction("2.9999999999"), Fraction(3), rounded=True)
    True
    >>> same_number(Fraction("0.3333"), Fraction(1, 3), rounded=True)
    False
    """
    if given == gold or not rounded:
        return given == gold
    if gold == 0:
        return abs(given) <= NOISE_OF_ZERO
    if gold.denominator == 1:
        # A large whole number has no more slack than a small one: 1000000.4 is not 1000000.
        return abs(given - gold) <= min(NOISE * abs(gold), Fraction(1, 1000))
    return abs(given - gold) <= NOISE * abs(gold)


def agree_when_rounded(given: Fraction, gold: Fraction) -> bool:
    """Whether the longer number, rounded to the places of the shorter, is the shorter.

    >>> agree_when_rounded(Fraction(100, 7), Fraction("14.29"))
    True
    >>> agree_when_rounded(Fraction("0.14"), Fraction("0.1"))
    False
    """
    shorter, longer = (given, gold) if _places(given) <= _places(gold) else (gold, given)
    places = _places(shorter)
    digits = len(str(abs(int(shorter * 10**places))))
    if not MIN_PLACES <= places < MAX_PLACES or digits < MIN_DIGITS:
        return False
    if shorter == given and abs(given - gold) > SHORT * abs(gold):
        return False
    # Half a unit of the last place, both ends included: 0.125 may become 0.12 or 0.13.
    return abs(longer - shorter) <= Fraction(1, 2 * 10**places)


def _places(value: Fraction) -> int:
    """Digits after the decimal point; MAX_PLACES for a number that has no end."""
    for places in range(MAX_PLACES):
        if (value * 10**places).denominator == 1:
            return places
    return MAX_PLACES


MAX_BITS = 40_000  # of an exact value: 2004! has 19,000
MAX_FACTORIAL = 5000
MAX_DRAWS = 1000  # of a binomial with a variable, which is a product of that many factors

_CALLS: dict[str, Callable[[complex], complex]] = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan,
    "cot": lambda x: 1 / cmath.tan(x), "sec": lambda x: 1 / cmath.cos(x),
    "csc": lambda x: 1 / cmath.sin(x),
    "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh,
    "arcsin": cmath.asin, "arccos": cmath.acos, "arctan": cmath.atan,
    "ln": cmath.log, "exp": cmath.exp, "abs": abs,
}  # fmt: skip
_CONSTANTS = {"pi": cmath.pi, "e": cmath.e, "i": 1j, "oo": cmath.inf}


class TooLargeError(ArithmeticError):
    """A value too large for any answer."""


def exact_value(formula: Formula) -> Fraction | None:
    """The value as a fraction; None when it is irrational, infinite or holds a variable.

    >>> from uniproto.lm.judging.answers.parser import number, power
    >>> exact_value(power(number(4), number(Fraction(1, 2))))
    Fraction(2, 1)
    """
    if formula.head in ("number", "decimal"):
        assert isinstance(formula.atom, Fraction)
        return formula.atom
    parts = []
    for part in formula.parts:
        value = exact_value(part)
        if value is None:
            return None
        parts.append(value)
    if formula.head == "sum":
        return _checked(sum(parts, Fraction(0)))
    if formula.head == "product":
        result = Fraction(1)
        for value in parts:
            result = _checked(result * value)
        return result
    if formula.head == "power":
        return _exact_power(*parts)
    if formula.atom == "abs":
        return abs(parts[0])
    if formula.atom == "factorial":
        return _exact_factorial(parts[0])
    if formula.atom == "binomial":
        return _exact_binomial(*parts)
    return None


def _checked(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise TooLargeError
    return value


def _exact_factorial(value: Fraction) -> Fraction | None:
    if value.denominator != 1 or value < 0:
        return None
    if value > MAX_FACTORIAL:
        raise TooLargeError
    return Fraction(math.factorial(int(value)))


def _exact_binomial(of: Fraction, draws: Fraction) -> Fraction | None:
    if of.denominator != 1 or draws.denominator != 1 or of < 0 or draws < 0:
        return None
    n, k = int(of), int(draws)
    if min(n, min(k, max(n - k, 0)) * n.bit_length()) > MAX_BITS:
        raise TooLargeError
    return Fraction(math.comb(n, k))


def _exact_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if base == 0:
        return Fraction(0) if exponent > 0 else None
    root = exponent.denominator
    if root > 1:
        above, below = _exact_root(base.numerator, root), _exact_root(base.denominator, root)
        if above is None or below is None:
            return None
        base = Fraction(above, below)
    if base in (1, -1):
        return Fraction(1) if base == 1 or exponent.numerator % 2 == 0 else Fraction(-1)
    bits = base.numerator.bit_length() + base.denominator.bit_length()
    if abs(exponent.numerator) > MAX_BITS or bits * abs(exponent.numerator) > MAX_BITS:
        raise TooLargeError
    return base**exponent.numerator


def _exact_root(value: int, degree: int) -> int | None:
    """The integer root of an integer, where there is one."""
    if value < 0 or degree > 64 or value.bit_length() > 900:
        return None
    guess = math.isqrt(value) if degree == 2 else round(value ** (1 / degree))
    return next((root for root in (guess - 1, guess, guess + 1) if root**degree == value), None)


def float_value(formula: Formula, symbols: Mapping[str, complex] | None = None) -> complex | None:
    """The value in floating point; None where it overflows, is not defined or misses a variable.

    >>> from uniproto.lm.judging.answers.parser import number, power
    >>> abs(float_value(power(number(2), number(Fraction(1, 2)))) - 2**0.5) < 1e-12
    True
    """
    symbols = symbols or {}
    if not formula.symbols <= symbols.keys():
        return None
    try:
        value = _float(formula, symbols)
    except (ArithmeticError, ValueError):
        return None
    return None if cmath.isnan(value) else value


def _float(formula: Formula, symbols: Mapping[str, complex]) -> complex:
    head, atom = formula.head, formula.atom
    if head in ("number", "decimal"):
        assert isinstance(atom, Fraction)
        return complex(atom)
    if head == "constant":
        return _CONSTANTS[str(atom)]
    if head == "symbol":
        return symbols[str(atom)]
    parts = [_float(part, symbols) for part in formula.parts]
    if head == "sum":
        return sum(parts)
    if head == "product":
        return _times(parts)
    if head == "power":
        return parts[0] ** parts[1]
    if atom == "factorial":
        if parts[0].imag:
            raise ValueError("Python has no factorial of complex numbers; SymPy has")
        return math.gamma(parts[0].real + 1)  # exact_value has the whole numbers
    if atom == "binomial":
        return _binomial(*parts)
    return _CALLS[str(atom)](parts[0])


def _binomial(of: complex, draws: complex) -> complex:
    """of (of − 1) … / draws!, for any number drawn from; SymPy knows the other ones."""
    if draws not in range(MAX_DRAWS + 1):
        raise ValueError("a number of draws that is not whole, or too large")
    return math.prod((of - at) / (at + 1) for at in range(int(draws.real)))


def _times(parts: list[complex]) -> complex:
    """A product that keeps −∞ real: complex arithmetic makes (−1)·∞ undefined."""
    if all(part.imag == 0 for part in parts):
        return complex(math.prod(part.real for part in parts))
    return math.prod(parts)


def sample_points(symbols: frozenset[str], count: int = 4) -> list[dict[str, complex]]:
    """Points at which formulas are compared: the same for every run, on no special line."""
    if not symbols:
        return [{}]
    points = []
    for turn in range(count):
        point = {}
        for name in symbols:
            noise = zlib.crc32(f"{name} {turn}".encode())
            real = 0.3 + (noise % 9973) / 6000
            imaginary = 0.0 if turn < 2 else 0.2 + (noise // 9973 % 9967) / 9000
            point[name] = complex(-real if turn % 2 else real, imaginary)
        points.append(point)
    return points


TOLERANCE = 1e-6  # relative, of floating-point values; formulas without decimals go on to SymPy


def same_formula(
    given: Formula, gold: Formula, *, seconds: float, gold_may_be_rounded: bool = False
) -> bool:
    """Whether two formulas have the same value, for every value of their variables.

    >>> from uniproto.lm.judging.answers.parser import number, power
    >>> same_formula(power(number(2), number(3)), number(8), seconds=1)
    True
    """
    if given == gold:
        return True
    rounded = given.is_rounded or gold.is_rounded
    try:
        exact = exact_value(given), exact_value(gold)
    except TooLargeError:
        return False
    if exact[0] is not None and exact[1] is not None:
        if same_number(exact[0], exact[1], rounded=rounded):
            return True
        return gold_may_be_rounded and rounded and agree_when_rounded(exact[0], exact[1])
    compared = False
    for point in sample_points(given.symbols | gold.symbols):
        values = float_value(given, point), float_value(gold, point)
        if values[0] is None or values[1] is None:
            continue
        compared = True
        if not _near(values[0], values[1]):
            return False
    if compared and (rounded or _holds_infinity(given) or _holds_infinity(gold)):
        return True
    return ask_algebra("same", given, gold, seconds)


def same_equation(
    given: tuple[Formula, Formula], gold: tuple[Formula, Formula], *, seconds: float
) -> bool:
    """Whether one equation is a multiple of the other, so that both have the same solutions.

    >>> from uniproto.lm.judging.answers.parser import Formula, number
    >>> x, y = Formula("symbol", "x"), Formula("symbol", "y")
    >>> same_equation((x, y), (y, x), seconds=10)
    True
    """
    left, right = (total(sides[0], negative(sides[1])) for sides in (given, gold))
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
