"""Answers that only repeat the question: equal to the gold in value, and no answer to it."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\\[dt](?=frac|binom)")
_FRACTION = re.compile(r"\\frac\{(-?\w+)\}\{(-?\w+)\}")
_DRAWN = re.compile(
    r"\\binom(?:\{(\w+)\}|(\d))(?:\{(\w+)\}|(\d))|\{?(\w{1,40})\\choose(\w{1,40})\}?"
)
_PERIOD = re.compile(r"\\(?:bar|dot)\{?(\d+)\}?|(?<=\d\.)\((\d+)\)")
_SPACING = re.compile(r"\\[,;!: ]|\\left|\\right|[\s$]+")
_BETWEEN = re.compile(r"[\s$,;]+")
_OPERATION = re.compile(r".[-+*/^(]|\\[a-zA-Z]")  # a sign in front is none


def repeats_the_question(predicted: str, question: str, gold: str) -> bool:
    r"""Whether an answer is an expression that stands in the question, still to be worked out.

    "What is $\sqrt{50}$?" is not answered by $\sqrt{50}$, though any algebra finds it equal to
    $5\sqrt{2}$. Where the gold itself stands in the question, choosing it is an answer.

    >>> repeats_the_question(r"\sqrt{50}", r"Simplify $\sqrt{50}$.", r"5\sqrt{2}")
    True
    >>> repeats_the_question("3/4", "Which is larger, 3/4 or 2/3?", r"\frac{3}{4}")
    False
    >>> repeats_the_question("-7", "Is it 3 or -7?", "-7.0")
    False
    >>> repeats_the_question(r"\binom{8}{6}", r"Compute $\dbinom{8}{6}$.", "28")
    True
    """
    said, asked, right = map(_plain, (predicted, question, gold))
    choices = {_plain(word).rstrip("?") for word in _BETWEEN.split(question)}
    is_open = said != right and right not in choices
    return is_open and bool(_OPERATION.search(said)) and said in asked


def _plain(text: str) -> str:
    """The text without spaces and sizes, its fractions, draws and periods in one notation each."""
    text = _SIZE.sub(r"\\", _SPACING.sub("", text))
    text = _DRAWN.sub(lambda m: "C({},{})".format(*filter(None, m.groups())), text)
    text = _PERIOD.sub(lambda m: f"\\overline{{{m[1] or m[2]}}}", text)
    return _FRACTION.sub(r"\1/\2", text).rstrip(".")
