"""Units that answers carry: enough of them to tell 5 cm from 5 m, and am from pm.

Units are never converted: a question asks for an amount in one unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_NAMES = {
    "millimetre": "mm millimeter millimeters millimetre millimetres",
    "centimetre": "cm cms centimeter centimeters centimetre centimetres",
    "metre": "m meter meters metre metres",
    "kilometre": "km kms kilometer kilometers kilometre kilometres",
    "inch": "in inch inches",
    "foot": "ft foot feet",
    "yard": "yd yds yard yards",
    "mile": "mi mile miles",
    "gram": "g gram grams",
    "kilogram": "kg kgs kilogram kilograms",
    "pound": "lb lbs pound pounds",
    "ounce": "oz ounce ounces",
    "litre": "l liter liters litre litres",
    "millilitre": "ml milliliter milliliters",
    "gallon": "gal gallon gallons",
    "second": "s sec secs second seconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "yr yrs year years",
    "dollar": "dollar dollars usd",
    "euro": "euro euros eur",
    "cent": "cent cents",
    "morning": "am a.m.",
    "afternoon": "pm p.m.",
    "mph": "mph",
    "kph": "kph kmph",
    "degree": "deg",
    "radian": "rad radian radians",
}
_SPEEDS = {("mile", "hour"): "mph", ("kilometre", "hour"): "kph"}
_UNIT_OF = {name: unit for unit, names in _NAMES.items() for name in names.split()}
_POWERS = {"square": 2, "sq": 2, "squared": 2, "cubic": 3, "cu": 3, "cubed": 3}
LETTER_UNITS = frozenset(name for name in _UNIT_OF if len(name) == 1)


class Unit(NamedTuple):
    """A known unit and its power: ``Unit("inch", 2)`` for square inches."""

    name: str
    power: int


def is_unit(word: str) -> bool:
    """Whether a word names a unit.

    >>> is_unit("cm"), is_unit("eggs")
    (True, False)
    """
    return word.lower() in _UNIT_OF or word.lower() in _POWERS


def unit_of(words: Sequence[str], power: int = 1) -> Unit | None:
    """The unit that words after a number name; None when they name none that is known.

    >>> unit_of(["square", "inches"])
    Unit(name='inch', power=2)
    >>> unit_of(["miles", "per", "hour"])
    Unit(name='mph', power=1)
    >>> unit_of(["eggs"]) is None
    True
    """
    found = None
    words = [word.lower() for word in words]
    for at, word in enumerate(words):
        if word in _POWERS:
            power = _POWERS[word]
        elif word in ("per", "/", "of", "an"):
            # dollars per hour, pounds of sugar: the first unit is the one asked for
            below = _UNIT_OF.get(words[at + 1]) if at + 1 < len(words) else None
            found = _SPEEDS.get((str(found), str(below)), found)
            break
        elif word in _UNIT_OF and found is None:
            found = _UNIT_OF[word]
    return None if found is None else Unit(found, power)
