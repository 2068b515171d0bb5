"""Helper processes: work on what a model wrote, killed when it takes too long.

SymPy can take hours and gigabytes over a short formula, and a text may find the one pattern that is
not linear in its length. Both must cost seconds, not the evaluation, so `helper_main.py` does this
work in a process of its own, which is replaced after it was killed.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from uniproto.errors import MissingExtraError, SolverError
from uniproto.lm.judging.answers.parser import Formula

START_SECONDS = 120.0
READ_SECONDS = 10.0  # honest answers take a hundredth of one
MAX_CHARACTERS = 1_000_000  # of one text; a model writes thousands
_SCRIPT = Path(__file__).with_name("helper_main.py")


class TooLateError(Exception):
    """The process was killed: it took too long, or too much memory."""


class UnreadableAnswerError(Exception):
    """An answer that is too long, or takes too long to read; the message says which."""


class HelperProcess:
    """A process that answers JSON requests, one per line; its first line is "ready".

    It is started when needed. Safe to use from several threads; a forked child starts its own.
    """

    def __init__(self, purpose: str, *command: str) -> None:
        self.purpose, self.command = purpose, [sys.executable, "-I", *command]
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = os.getpid()
        self._ready = False
        atexit.register(self.close)

    def ask(self, request: Any, seconds: float) -> Any:
        """The reply; the time to start the process does not count.

        Raises:
            TooLateError: there was no reply in time.
        """
        with self._lock:
            process = self._started()
            self._wait_until_ready(process)
            line = self._next_line(process, seconds, json.dumps(request) + "\n")
            if line:
                return json.loads(line)
            self.close()
            self._started()  # it loads while we go on
            raise TooLateError

    @property
    def pid(self) -> int:
        """The number of the process; one is started where there is none."""
        return self._started().pid

    def close(self) -> None:
        """End the process, unless it belongs to the parent of this one."""
        if self._process is None or self._owner != os.getpid():
            return
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait()

    def _started(self) -> subprocess.Popen[str]:
        is_ours = self._owner == os.getpid()  # a forked child only has its parent's pipes
        if self._process is None or not is_ours or self._process.poll() is not None:
            self.close()
            self._owner, self._ready = os.getpid(), False
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        return self._process

    def _wait_until_ready(self, process: subprocess.Popen[str]) -> None:
        self._ready = self._ready or self._next_line(process, START_SECONDS) == '"ready"\n'
        if not self._ready:
            self.close()
            raise SolverError(
                f"The process that {self.purpose} did not start within {START_SECONDS:.0f} "
                f"seconds. Look at what this prints: {' '.join(self.command)}"
            )

    @staticmethod
    def _next_line(process: subprocess.Popen[str], seconds: float, request: str = "") -> str:
        """What the process writes next, perhaps to a request; nothing where it is late or dead."""
        assert process.stdin is not None
        assert process.stdout is not None
        # Started before the request is written: a stopped process would not read it either.
        timer = threading.Timer(seconds, process.kill)
        timer.start()
        try:
            process.stdin.write(request)
            process.stdin.flush()
            return process.stdout.readline()
        except BrokenPipeError:  # it died since its last reply
            return ""
        finally:
            timer.cancel()


ALGEBRA = HelperProcess("compares formulas", str(_SCRIPT), "algebra")
READER = HelperProcess("reads answers", str(_SCRIPT), "reader")


def ask_algebra(
    question: Literal["same", "proportional"], left: Formula, right: Formula, seconds: float
) -> bool:
    """Whether SymPy can show within `seconds` that the formulas are the same.

    >>> from uniproto.lm.judging.answers.parser import parse_formula
    >>> from uniproto.lm.judging.answers.tokens import tokens_of
    >>> left, right = (parse_formula(tokens_of(text)) for text in ("(x+1)^2", "x^2+2x+1"))
    >>> ask_algebra("same", left, right, seconds=10)
    True
    """
    if seconds <= 0:
        return False
    if importlib.util.find_spec("sympy") is None:
        raise MissingExtraError("Comparing answers that are formulas", "judge")
    try:
        return ALGEBRA.ask([question, left.as_json(), right.as_json(), seconds], seconds) is True
    except TooLateError:
        return False


def read_in_time(reader: Callable[..., str | None], text: str, *rest: Any, **named: Any) -> Any:
    """Run `extract_program`, `extract_answer` or `program_answer` on a text, with a time limit.

    Raises:
        UnreadableAnswerError: the text is too long, or reading it took more than READ_SECONDS.

    >>> from uniproto.lm.judging.answers import extract_answer
    >>> read_in_time(extract_answer, "So the answer is 18.", "gsm8k")
    '18'
    """
    if len(text) > MAX_CHARACTERS:
        raise UnreadableAnswerError(
            f"unreadable: {len(text):,} characters, and at most {MAX_CHARACTERS:,} are read"
        )
    try:
        return READER.ask([reader.__name__, [text, *rest], named], READ_SECONDS)
    except TooLateError:
        raise UnreadableAnswerError(
            f"unreadable: finding an answer in it took more than {READ_SECONDS:g} seconds"
        ) from None
