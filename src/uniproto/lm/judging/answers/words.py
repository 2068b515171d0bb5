"""Words of answers: units (5 cm is not 5 m) and options ("(B) apple").

Units are never converted: a question asks for an amount in one unit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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


_ALONE = re.compile(r"\s*(?:([A-E])|\(([A-Ea-e])\))\s*[.:]?\s*")
_LABELLED = re.compile(r"\s*(?:option|choice|answer)?\s*(?:\(([A-E])\)|([A-E])[).:])(?:\s|$)", re.I)
_NAMED = re.compile(r"\s*(?:option|choice)\s+([A-E])\b", re.I)
_STARTING = re.compile(r"\s*([A-E])\s+\w")
_HEDGED = re.compile(  # "(A) or (B)" picks neither
    r"\s*(?:option|choice|answer)?\s*\(?([A-E])\)?\s*(?:,|/|or|and)\s*(?:option\s+)?\(?(?!\1)[A-E]\b",
    re.IGNORECASE,
)
_DENIED = re.compile(  # "(B) is wrong" picks nothing
    r"\s*(?:not|neither)\b|\s*(?:option|choice|answer)?\s*\(?[A-E]\)?\s+(?:is|was)"
    r"(?:n't|\s+not|\s+wrong|\s+incorrect|\s+false)\b",
    re.IGNORECASE,
)
_NEGATION = re.compile(r"\b(?:not|neither|nor|never|wrong|incorrect)\b|n't\b", re.IGNORECASE)
_MARKUP = re.compile(r"\\(?:textbf|text|mathrm|mathbf|mbox)\s*|[{}$*]")
_SPACING = re.compile(r"\\[ ,;:]|\\q?quad")
_OPTION = re.compile(r"(?<!\w)\(([A-E])\)\s*([^()]*)")
_NOT_LETTERS = re.compile(r"[^a-z0-9]+")


def option_letter(text: str, *, loose: bool = False) -> str | None:
    r"""The letter A to E that a text stands for, if it stands for one.

    ``loose`` also takes the bare letter before words as in "B apple".

    >>> option_letter(r"\text{(C)}"), option_letter("(B) apple"), option_letter("Bob")
    ('C', 'B', None)
    >>> option_letter("(A) or (B)")
    """
    plain = _MARKUP.sub("", _SPACING.sub(" ", text))
    if _HEDGED.match(plain) or _DENIED.match(plain):
        return None
    match = _ALONE.fullmatch(plain) or _LABELLED.match(plain) or _NAMED.match(plain)
    if match is None and loose:
        match = _STARTING.match(plain)
    if match is None:
        return None
    return next(group for group in match.groups() if group).upper()


def options_of(question: str | None) -> dict[str, str]:
    """The options a question offers, by letter; empty when it offers none.

    >>> options_of("Which is larger? Answer Choices: (A) the apple (B) the pear.")
    {'A': 'the apple', 'B': 'the pear.'}
    """
    found = dict(_OPTION.findall(question or ""))
    options = {letter: text.strip() for letter, text in found.items()}
    in_order = list(options) == list("ABCDE")[: len(options)]
    return options if len(options) > 1 and in_order and all(options.values()) else {}


def option_said(text: str, options: Mapping[str, str]) -> str | None:
    """The one option whose words a text repeats; None when it denies, repeats several or none.

    >>> option_said("It is the pear", {"A": "the apple", "B": "the pear."})
    'B'
    >>> option_said("It isn't the pear", {"A": "the apple", "B": "the pear."})
    """
    if denies(text):
        return None
    plain = f" {_plain(text)} "
    found = [letter for letter, words in options.items() if f" {_plain(words)} " in plain]
    return found[0] if len(found) == 1 else None


def denies(text: str) -> bool:
    """Whether a text is a negation.

    >>> denies("It isn’t the pear"), denies("It is the pear")
    (True, False)
    """
    return _NEGATION.search(text.replace("’", "'")) is not None


def _plain(text: str) -> str:
    return _NOT_LETTERS.sub(" ", text.lower()).strip()
