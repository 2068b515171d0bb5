"""When two numbers are the same although their digits are not."""

from __future__ import annotations

from fractions import Fraction

NOISE = Fraction(1, 10**6)  # relative, of floating point and of decimals written out at length
NOISE_OF_ZERO = Fraction(1, 10**9)
SHORT = Fraction(1, 10**4)  # relative, for a prediction with fewer digits than the gold
MIN_PLACES = 2
MIN_DIGITS = 3
MAX_PLACES = 20


def same_number(said: Fraction, gold: Fraction, *, rounded: bool) -> bool:
    """Whether two numbers are equal; up to the noise of floating point if one has a decimal point.

    >>> same_number(Fraction("2.9999999999"), Fraction(3), rounded=True)
    True
    >>> same_number(Fraction("0.3333"), Fraction(1, 3), rounded=True)
    False
    """
    if said == gold or not rounded:
        return said == gold
    if gold == 0:
        return abs(said) <= NOISE_OF_ZERO
    if gold.denominator == 1:
        # A large whole number has no more slack than a small one: 1000000.4 is not 1000000.
        return abs(said - gold) <= min(NOISE * abs(gold), Fraction(1, 1000))
    return abs(said - gold) <= NOISE * abs(gold)


def agree_when_rounded(said: Fraction, gold: Fraction) -> bool:
    """Whether the longer number, rounded to the places of the shorter, is the shorter.

    >>> agree_when_rounded(Fraction(100, 7), Fraction("14.29"))
    True
    >>> agree_when_rounded(Fraction("0.14"), Fraction("0.1"))
    False
    """
    shorter, longer = (said, gold) if _places(said) <= _places(gold) else (gold, said)
    places = _places(shorter)
    digits = len(str(abs(int(shorter * 10**places))))
    if not MIN_PLACES <= places < MAX_PLACES or digits < MIN_DIGITS:
        return False
    if shorter == said and abs(said - gold) > SHORT * abs(gold):
        return False
    # Half a unit of the last place, both ends included: 0.125 may become 0.12 or 0.13.
    return abs(longer - shorter) <= Fraction(1, 2 * 10**places)


def _places(value: Fraction) -> int:
    """Digits after the decimal point; MAX_PLACES for a number that has no end."""
    for places in range(MAX_PLACES):
        if (value * 10**places).denominator == 1:
            return places
    return MAX_PLACES
