"""Hostile programs among honest ones, through the real sandbox: no verdict is harmed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from uniproto.lm.judging.benchmark_files import Question
from uniproto.lm.judging.evaluation import page_items
from uniproto.lm.judging.sandbox import containment
from uniproto.lm.judging.session import PROGRAM_REQUEST, Session

if containment() is None:
    pytest.skip("this system offers no containment for programs", allow_module_level=True)

HONEST = "print(6 * 7)"
HOSTILE = [
    "import os\nwhile True:\n    os.fork()",
    "x = []\nwhile True:\n    x.append(bytearray(10**7))",
    "while True:\n    print('42' * 1000)",
    "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\nraise SystemExit(1)",
    "while True: pass",
    "open('{escape}', 'w').write('out')",
    "import sys\nprint(42)\nsys.exit(3)",
    "import sys\nsys.setrecursionlimit(10**9)\nf = lambda: f()\nf()",
]


class Mixed:
    """Writes a hostile program for every other question, and says 41 in words."""

    name = "mixed"

    def __init__(self, escape: Path) -> None:
        self.escape = escape

    def generate(self, prompts: Sequence[str]) -> list[Any]:
        texts = []
        for prompt in prompts:
            number = int(prompt.split()[1])
            if PROGRAM_REQUEST not in prompt:
                texts.append("So it is 41. The answer is 41")
            elif number % 2:
                texts.append(HOSTILE[number // 2].replace("{escape}", str(self.escape)))
            else:
                texts.append(HONEST)
        return [SimpleNamespace(text=text, stopped="end") for text in texts]


@pytest.mark.slow
def test_verdicts_are_unharmed(tmp_path: Path) -> None:
    escape = tmp_path / "escaped"
    questions = [
        Question("gsm8k", f"gsm8k-{n}", f"Question {n} ?", "42") for n in range(2 * len(HOSTILE))
    ]
    items = Session(Mixed(escape), "{instruction}", program_seconds=5.0).ask(questions)
    for number, item in enumerate(items):
        if number % 2:
            assert item["program_status"] in ("error", "timeout", "killed"), item["program"]
            assert (item["how"], item["predicted"]) == ("reasoning", "41")
            assert item["verdict"] == "wrong"
        else:
            assert (item["how"], item["verdict"]) == ("program", "right")
    assert not escape.exists()


class Hanging:
    """Prints the right answer and hangs; has nothing to say in words."""

    name = "hanging"

    def generate(self, prompts: Sequence[str]) -> list[Any]:
        program = "print(42)\nwhile True: pass"
        return [
            SimpleNamespace(text=program if PROGRAM_REQUEST in prompt else "Hm.", stopped="end")
            for prompt in prompts
        ]


def test_what_a_late_program_printed_is_shown_and_is_no_answer() -> None:
    question = Question("gsm8k", "gsm8k-0", "Question?", "42")
    [item] = Session(Hanging(), "{instruction}", program_seconds=1.0).ask([question])
    assert (item["program_status"], item["printed"]) == ("timeout", "42\n")
    assert (item["how"], item["predicted"], item["verdict"]) == ("no answer", None, "wrong")
    [shown] = page_items([item])
    assert (shown["program_status"], shown["printed"]) == ("timeout", "42\n")
