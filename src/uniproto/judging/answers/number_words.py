"""Whole numbers in English words: "twenty-one", "one hundred and five"."""

from __future__ import annotations

from collections.abc import Sequence

_SMALL = {
    "zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7,
    "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14,
    "fifteen": 15, "sixteen": 16, "seventeen": 17, "eighteen": 18, "nineteen": 19,
}  # fmt: skip
_TENS = {
    "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70,
    "eighty": 80, "ninety": 90,
}  # fmt: skip
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}


def number_in_words(words: Sequence[str]) -> int | None:
    """The number that all of the words name together; None when they name none, or several.

    >>> number_in_words(["one", "hundred", "and", "five"])
    105
    >>> number_in_words(["twenty-one"]), number_in_words(["twenty", "thousand"])
    (21, 20000)
    >>> number_in_words(["two", "and", "three"])
    """
    rest = [part for word in words for part in word.lower().split("-")]
    if rest == ["zero"]:
        return 0
    total, below = 0, 10**12
    while rest:
        value, rest = _below_a_thousand(rest)
        scale = _SCALES.get(rest[0], 1) if rest else 1
        if value == 0 or scale >= below or (scale == 1 and rest):
            return None
        total, below = total + value * scale, scale
        rest = rest[1:]
        if rest[:1] == ["and"]:  # two thousand and five; not two thousand and three hundred
            value, after = _below_a_hundred(rest[1:])
            return None if value == 0 or after else total + value
    return total or None


def _below_a_thousand(words: list[str]) -> tuple[int, list[str]]:
    """The number that the words begin with, and the words after it."""
    value, rest = _below_a_hundred(words)
    if rest[:1] != ["hundred"] or not 0 < value < 20:
        return value, rest
    joined = rest[1:2] == ["and"]
    more, after = _below_a_hundred(rest[2:] if joined else rest[1:])
    if joined and more == 0:
        return 0, rest
    return 100 * value + more, after


def _below_a_hundred(words: list[str]) -> tuple[int, list[str]]:
    if not words:
        return 0, words
    if words[0] not in _TENS:
        value = _SMALL.get(words[0], 0)
        return value, words[1:] if value else words
    units = _SMALL.get(words[1], 0) if len(words) > 1 else 0
    if 0 < units < 10:
        return _TENS[words[0]] + units, words[2:]
    return _TENS[words[0]], words[1:]
