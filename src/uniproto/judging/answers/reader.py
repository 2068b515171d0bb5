"""Reading what a model wrote within a time limit, whatever it wrote.

The patterns that look for answers are linear in the length of a text, as far as we know; a text
that finds the one that is not must cost seconds, not the evaluation. So texts are read in a process
of their own, which is killed when late.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from uniproto.judging.answers.helpers import HelperProcess, TooLateError

READ_SECONDS = 10.0  # honest answers take a hundredth of one
MAX_CHARACTERS = 1_000_000  # of one text; a model writes thousands
WORKER = HelperProcess(Path(__file__).with_name("reader_worker.py"), "reads answers")


class UnreadableAnswerError(Exception):
    """An answer that is too long, or takes too long to read; the message says which."""


def read_in_time(reader: Callable[..., str | None], text: str, *rest: Any, **named: Any) -> Any:
    """What one of the readers in `reader_worker` finds in a text.

    Raises:
        UnreadableAnswerError: the text is too long, or reading it took more than READ_SECONDS.

    >>> from uniproto.judging.answers import extract_answer
    >>> read_in_time(extract_answer, "So the answer is 18.", "gsm8k")
    '18'
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableAnswerError(
            f"unreadable: {len(text):,} characters, and at most {MAX_CHARACTERS:,} are read"
        )
    try:
        return WORKER.ask([reader.__name__, [text, *rest], named], READ_SECONDS)
    except TooLateError:
        raise UnreadableAnswerError(
            f"unreadable: finding an answer in it took more than {READ_SECONDS:g} seconds"
        ) from None
