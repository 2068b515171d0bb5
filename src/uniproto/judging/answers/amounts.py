"""The amount that a statement gives, where answers are numbers.

"The answer is" may be followed by more than a number: of "540 meters, that is 60 meters 9 times"
the first number is meant, of "16 - 7, which is 9" the last one, and of "less than 10" none.
"""

from __future__ import annotations

import re

from uniproto.judging.answers.choices import option_letter
from uniproto.judging.answers.kinds import Answer, Digits, Listing, Quantity, Relation, Row, Words
from uniproto.judging.answers.reading import read_answer
from uniproto.judging.answers.units import is_unit

AMOUNT = re.compile(
    r"(?<![A-Za-z_])(?:(?<![\w.)\]}])-\s?)?(?:\\?\$\s?)?-?(?<![A-Za-z_.])"
    r"(?:\d*\s?\\[dt]?frac\s?\{[^{}\n]{1,40}\}\{[^{}\n]{1,40}\}"
    r"|\d*\.\d*\\(?:overline|bar|dot)\s?\{\d{1,40}\}"
    r"|\d{1,3}(?:,\d{3}){1,12}(?!,?\d)(?:\.\d+)?|\d{1,9}\s+\d{1,9}/\d{1,9}|\d{1,15}/\d{1,15}"
    r"|\d*\.\d+(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)?)(?:\s?\\?%"
    r"|\s(?:(?:hundred|thousand|million|billion|trillion)|halves|(?:third|fourth|fifth|sixth|seventh"
    r"|eighth|ninth|tenth)s)\b)?"
)
_RATIO_OR_CLOCK = re.compile(r"\d+(?:\s?:\s?\d+)+(?:\s?[ap]\.?\s?m\.?)?", re.IGNORECASE)
_WORKED_OUT = re.compile(r"=|\b(?:is|are|equals?|so|gives)\b", re.IGNORECASE)
# After the first amount: more is to be done with it.
_GOES_ON = re.compile(
    r"\s?[-+*/×÷:x']\s?[\d(]|\s+and\s+(?:a|one)\s+(?:half|third|quarter)\b|\s+(?:more|less|fewer)\s+(?:\w+\s+)?than\b|\s+(?:less|of|to)\s+\d"
    r"|\s+(?:times|plus|minus|divided|multiplied|is\s+(?:not|wrong|incorrect))\b",
    re.IGNORECASE,
)
# Before the last amount: it is not what the answer is said to be.
_UNSTATED = re.compile(
    r"\b(?:not|never|between|(?:more|less|fewer|greater|larger|smaller) than|half|twice|double"
    r"|triple|(?:third|fourth|fifth|quarter|sum|product|difference|square|cube|root) of)\b",
    re.IGNORECASE,
)
_TWO_MEASURES = re.compile(rf"{AMOUNT.pattern}\s?([a-z]+)[\s,]+{AMOUNT.pattern}\s?([a-z]+)")


def amount_of(statement: str, dataset: str) -> str | None:
    """The amount a statement gives: all of it if it is one, else its first or last number.

    >>> amount_of("18 dollars", "gsm8k"), amount_of("18, for 20 - 2 = 18", "gsm8k")
    ('18 dollars', '18')
    >>> amount_of("less than 10", "gsm8k")
    """
    if dataset == "deepmind" and statement.lower() in ("true", "false"):
        return statement
    if dataset == "numglue":
        letter = option_letter(statement, loose=True)
        if letter is not None:
            return letter
    if _is_amount(read_answer(statement, brackets_are_lists=True)) or _RATIO_OR_CLOCK.fullmatch(
        statement
    ):
        return statement
    amounts = list(AMOUNT.finditer(statement))
    if not amounts:
        denied = _UNSTATED.match(statement) is not None
        return statement if dataset == "numglue" and not denied else None
    first, last = amounts[0], amounts[-1]
    if _are_two_measures(statement):
        return None
    if first.start() == 0:
        if not _GOES_ON.match(statement, first.end()):
            return first[0].strip()
        worked_out = _WORKED_OUT.search(statement, first.end(), last.start())
        return last[0].strip() if worked_out else None
    unstated = _UNSTATED.search(statement, 0, last.start())
    if unstated and not _WORKED_OUT.search(statement, unstated.end(), last.start()):
        return None
    return last[0].strip()


def _is_amount(answer: Answer) -> bool:
    """Whether all of it is an amount, or a list."""
    if isinstance(answer, Listing | Row):
        first, *others = answer.items
        plain = isinstance(first, Quantity) and not first.formula.symbols
        return not any(isinstance(item, Words) for item in answer.items) and not (
            plain and any(map(_is_remark, others))
        )
    if isinstance(answer, Relation):
        return isinstance(answer.sides[-1], Quantity)
    return isinstance(answer, Quantity | Digits)


def _is_remark(item: Answer) -> bool:
    """What follows "18," without being a second amount: "so it is", "since 20 - 2 = 18"."""
    if isinstance(item, Relation):
        name = item.sides[0]
        worked_out = isinstance(name, Words) and any(map(str.isdigit, name.text))
        return worked_out and set(item.signs) == {"="}
    # Short words look like products of variables; -2, w, 5 is a list with a variable.
    return isinstance(item, Quantity) and item.text.isalpha() and len(item.formula.symbols) > 1


def _are_two_measures(statement: str) -> bool:
    """5 hours 30 minutes is neither 5 nor 30."""
    match = _TWO_MEASURES.match(statement.lower())
    return match is not None and is_unit(match[1]) and is_unit(match[2])
