"""SymPy's word on whether two formulas are the same, within a time limit.

SymPy can take hours and gigabytes over a short formula, so it works in a process of its own that
is killed when late and replaced when it is next needed.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Literal

from uniproto.errors import MissingExtraError
from uniproto.judging.answers.parser import Formula
from uniproto.judging.answers.helpers import HelperProcess, TooLateError

WORKER = HelperProcess(Path(__file__).with_name("helper_main.py"), "compares formulas")

Question = Literal["same", "proportional"]


def ask_algebra(question: Question, left: Formula, right: Formula, seconds: float) -> bool:
    """Whether SymPy can show, in so many seconds, that the formulas are the same.

    >>> from uniproto.judging.answers.parser import parse_formula
    >>> from uniproto.judging.answers.tokens import tokens_of
    >>> left, right = (parse_formula(tokens_of(text)) for text in ("(x+1)^2", "x^2+2x+1"))
    >>> ask_algebra("same", left, right, seconds=10)
    True
    """
    if seconds <= 0:
        return False
    if importlib.util.find_spec("sympy") is None:
        raise MissingExtraError("Comparing answers that are formulas", "judge")
    request = {
        "question": question,
        "left": left.as_json(),
        "right": right.as_json(),
        "seconds": seconds,
    }
    try:
        return WORKER.ask(request, seconds) is True
    except TooLateError:
        return False
