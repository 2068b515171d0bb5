"""Texts made to stall whoever reads them: every one is read in time, or given up with a reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from uniproto.lm.judging.answers import extract_answer, helpers, program_answer, same_answer
from uniproto.lm.judging.answers.comparison import repeats_the_question
from uniproto.lm.judging.answers.helpers import (
    HelperProcess,
    UnreadableAnswerError,
    read_in_time,
)
from uniproto.lm.judging.answers.programs import extract_program
from uniproto.lm.judging.benchmark_files import Question
from uniproto.lm.judging.session import Session

SIZES = (1_000, 60_000)  # what was quadratic took from 30 s to hours
SHAPES = [  # (beginning, what is repeated, end)
    ("x", "\n", "y"),
    ("x", " ", "y"),
    ("try:\n", " a=1\n", ""),
    ("", "try:\n a\n", ""),
    ("```", " ", ""),
    ("```", "a", ""),
    ("", "```\ntry:\n a\n", ""),
    ("", "@a\n", ""),
    ("", "x=(\n", ""),
    ("", "x = '''\n", "x"),
    ("", "if a:\n", ""),
    ("x = ", "(", ""),
    ("x = ", "-", "1"),
    ("x = ", "lambda: ", "1"),
    ("\nQuestion", " ", "x"),
    ("\nQuestion", "1", "x"),
    ("", "\nQuestion", ""),
    ("", "\n#", ""),
    ("is", " ", "x"),
    ("is ", "-1,", "x"),
    ("is ", " -1 and", "x"),
    ("is 1,", "111,", "x"),
    ("The answer is ", "111,", "1"),
    ("#### ", "111,", "1"),
    ("#### ", "(", ""),
    ("#### ", "a ", ""),
    ("#### ", "1 1/1 ", "x"),
    ("#### ", "\\text{", ""),
    ("", "1.", ""),
    ("", "x=1,", "x"),
    ("", "answer is ", ""),
    ("answer is not ", ":", "x"),
    ("", "wrong ", "answer"),
    ("", "**a", ""),
    ("", "\\boxed{", ""),
    ("\\boxed{", "{", ""),
    ("", "\\(", ""),
    ("", "$", ""),
    ("Step 1", " ", "x"),
    ("Step 1:", ":", "x"),
    ("", "(A) ", "or"),
    ("", "not ", ""),
    ("", "1e", ""),
    ("", "\\frac{1}{2}", "x"),
    ("0.", "1", "\\overline"),
    ("", "\u00b2", ""),
    ("[", "[1 2]\n", ""),
    ("", "]\n", ""),
]
READERS: list[Callable[[str], object]] = [
    extract_program,
    *(
        lambda text, name=name: extract_answer(text, name)
        for name in ("math", "simuleq", "numglue")
    ),
    lambda text: extract_answer(text, "numglue", "Which? (A) the apple (B) the pear."),
    *(lambda text, name=name: program_answer(text, name) for name in ("math", "simuleq")),
    lambda text: same_answer(text[:2000], "12", "numglue"),
    lambda text: repeats_the_question(text, "What is $\\sqrt{50}$?", "5"),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: repr("".join(shape))[1:31])
def test_every_text_is_read(shape: tuple[str, str, str], ends: None) -> None:
    first, repeated, last = shape
    for size in SIZES:
        text = first + repeated * (size // len(repeated)) + last
        for read in READERS:
            read(text)


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HelperProcess:
    """A reader that is ready and then takes for ever."""
    script = tmp_path / "stuck.py"
    script.write_text("import sys, time\nprint('\"ready\"', flush=True)\ntime.sleep(600)")
    helper = HelperProcess("reads answers", str(script))
    monkeypatch.setattr(helpers, "READER", helper)
    monkeypatch.setattr(helpers, "READ_SECONDS", 0.2)
    return helper


def test_a_late_reader_is_killed_and_replaced(stuck: HelperProcess) -> None:
    before = stuck.pid
    with pytest.raises(UnreadableAnswerError, match=r"more than 0\.2 seconds"):
        read_in_time(extract_answer, "The answer is 3.", "gsm8k")
    assert stuck.pid != before
    stuck.close()


def test_a_text_beyond_all_measure_is_not_read() -> None:
    with pytest.raises(UnreadableAnswerError, match="2,000,000 characters"):
        read_in_time(extract_program, "x" * 2_000_000)


class Model:
    name = "model"

    def generate(self, prompts: Sequence[str]) -> list[Any]:
        return [SimpleNamespace(text="The answer is 42", stopped="end") for _ in prompts]

    def label_scores(self, prompts: Sequence[str], words: Sequence[Sequence[str]]) -> list[Any]:
        raise NotImplementedError


def test_an_answer_that_cannot_be_read_is_wrong_and_says_why(stuck: HelperProcess) -> None:
    question = Question("gsm8k", "gsm8k-0", "6 * 7?", "42")
    [item] = Session(Model(), "{instruction}").ask([question])
    assert (item["how"], item["verdict"], item["predicted"]) == ("no answer", "wrong", None)
    assert "took more than 0.2 seconds" in item["unreadable"]
    stuck.close()
