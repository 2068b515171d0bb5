"""SymPy's word on whether two formulas are the same, within a time limit.

SymPy can take hours and gigabytes over a short formula, so it works in a process of its own that
is killed when late and replaced when it is next needed.
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
from pathlib import Path
from typing import Literal

from uniproto.errors import MissingExtraError, SolverError
from uniproto.judging.answers.formula import Formula

START_SECONDS = 120.0
_SCRIPT = Path(__file__).with_name("algebra_worker.py")

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
    with _lock:
        shown = _worker().ask(question, left, right, seconds)
        _worker()  # in place of one that was killed: it loads while the judge goes on
        return shown


class _Worker:
    """One process; after ``ask`` was too late, or the process died, it is no longer ``alive``."""

    def __init__(self) -> None:
        if importlib.util.find_spec("sympy") is None:
            raise MissingExtraError("Comparing answers that are formulas", "judge")
        self.owner = os.getpid()
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            close_fds=True,
        )
        self.ready = False

    @property
    def alive(self) -> bool:
        # A forked child has the parent's pipes: it needs a worker of its own.
        return self.owner == os.getpid() and self.process.poll() is None

    def ask(self, question: Question, left: Formula, right: Formula, seconds: float) -> bool:
        request = {
            "question": question,
            "left": left.as_json(),
            "right": right.as_json(),
            "seconds": seconds,
        }
        if not self.ready:  # SymPy takes a second to load, more on a busy machine
            self.ready = self._read_line(START_SECONDS) == "ready"
            if not self.ready:
                raise SolverError(
                    f"The process that compares formulas did not start within {START_SECONDS:.0f} "
                    f"seconds. Look at what this prints: {sys.executable} -I {_SCRIPT}"
                )
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # it died since it was last asked
            return False
        return self._read_line(seconds) is True

    def _read_line(self, seconds: float) -> object:
        assert self.process.stdout is not None
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line:  # killed, by the timer or by the system
            self.close()
            return None
        return json.loads(line)

    def close(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait()


_lock = threading.Lock()
_current: _Worker | None = None


def _worker() -> _Worker:
    global _current
    if _current is None or not _current.alive:
        if _current is not None and _current.owner == os.getpid():
            _current.close()
        _current = _Worker()
    return _current


@atexit.register
def _close_worker() -> None:
    if _current is not None and _current.owner == os.getpid():
        _current.close()
