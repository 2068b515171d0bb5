"""Numbers that are written as words: "one hundred and five"."""

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
_FIRST = {**_SMALL, **_TENS}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}


def number_in_words(words: Sequence[str]) -> int | None:
    """The number that all of the words name together; None when they name none, or several.

    >>> number_in_words(["one", "hundred", "and", "five"])
    105
    >>> number_in_words(["twenty-one"]), number_in_words(["twenty", "thousand"])
    (21, 20000)
    >>> number_in_words(["two", "and", "three"])
    """
    parts = [part for word in words for part in word.lower().split("-")]
    value, end = _number_at(parts, 0)
    return value if 0 < end == len(parts) else None


def in_digits(words: list[str]) -> list[str]:
    """The words with their numbers in digits.

    >>> in_digits("three hundred and five or one thousand nine hundred and ninety five".split())
    ['305', 'or', '1995']
    >>> in_digits("ten five and two thousand and three hundred".split())
    ['10', '5', 'and', '2000', 'and', '300']
    """
    if _FIRST.keys().isdisjoint(words):
        return words
    found, at = [], 0
    while at < len(words):
        value, end = _number_at(words, at)
        found.append(str(value) if end > at else words[at])
        at = max(end, at + 1)
    return found


def _number_at(words: Sequence[str], at: int) -> tuple[int, int]:
    """The longest number that begins at a word, and where it ends: there, if none begins."""
    if words[at : at + 1] == ["zero"]:
        return 0, at + 1
    total, below = 0, 10**12
    while True:
        value, end = _below_a_thousand(words, at)
        scale = _SCALES.get(words[end], 1) if at < end < len(words) else 1
        if end == at or scale >= below:
            return total, at
        total, at, below = total + value * scale, end + (scale > 1), scale
        if scale == 1:
            return total, at
        if words[at : at + 1] == ["and"]:  # two thousand and five
            value, end = _below_a_hundred(words, at + 1)
            alone = words[end : end + 1] != ["hundred"]
            return (total + value, end) if end > at + 1 and alone else (total, at)


def _below_a_thousand(words: Sequence[str], at: int) -> tuple[int, int]:
    value, end = _below_a_hundred(words, at)
    if words[end : end + 1] != ["hundred"] or not 0 < value < 20:
        return value, end
    begin = end + 2 if words[end + 1 : end + 2] == ["and"] else end + 1
    more, after = _below_a_hundred(words, begin)
    if after == begin or words[after : after + 1] == ["hundred"]:
        return 100 * value, end + 1
    return 100 * value + more, after


def _below_a_hundred(words: Sequence[str], at: int) -> tuple[int, int]:
    value = _FIRST.get(words[at], 0) if at < len(words) else 0
    if value < 20:
        return value, at + (value > 0)
    units = _SMALL.get(words[at + 1], 0) if at + 1 < len(words) else 0
    return (value + units, at + 2) if 0 < units < 10 else (value, at + 1)
