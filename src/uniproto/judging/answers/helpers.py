"""A helper process that is killed when it takes too long, and started again when needed.

It reads one JSON request a line from its standard input and writes one JSON reply a line; its
first line is "ready".
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from uniproto.errors import SolverError

START_SECONDS = 120.0


class TooLateError(Exception):
    """The process was killed: it took too long, or too much memory."""


class HelperProcess:
    """The process that runs `script`, whichever one that is at the moment.

    Safe to use from several threads. A forked child of this process starts one of its own.
    """

    def __init__(self, script: Path, purpose: str) -> None:
        self.script, self.purpose = script, purpose
        self._lock = threading.Lock()
        self._running: _Running | None = None
        atexit.register(self.close)

    def ask(self, request: Any, seconds: float) -> Any:
        """The reply; the time to start the process does not count.

        Raises:
            TooLateError: there was none in time.
        """
        with self._lock:
            try:
                return self._started().ask(request, seconds)
            except TooLateError:
                self._started()  # in place of the one that was killed: it loads while we go on
                raise

    @property
    def pid(self) -> int:
        """The number of the process; one is started where there is none."""
        return self._started().process.pid

    def close(self) -> None:
        """End the process, unless it belongs to the parent of this one."""
        if self._running is not None and self._running.owner == os.getpid():
            self._running.close()

    def _started(self) -> _Running:
        if self._running is None or not self._running.alive:
            self.close()
            self._running = _Running(self.script, self.purpose)
        return self._running


class _Running:
    """One process; after a late reply, or its death, it is no longer `alive`."""

    def __init__(self, script: Path, purpose: str) -> None:
        self.owner, self.script, self.purpose = os.getpid(), script, purpose
        self.process = subprocess.Popen(
            [sys.executable, "-I", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            close_fds=True,
        )
        self.ready = False

    @property
    def alive(self) -> bool:
        # A forked child has the parent's pipes: it needs a process of its own.
        return self.owner == os.getpid() and self.process.poll() is None

    def ask(self, request: Any, seconds: float) -> Any:
        if not self.ready:
            self._wait_until_ready()
        assert self.process.stdin is not None
        # Started before the request is written: a stopped process would not read it either.
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self._read_line()
        except BrokenPipeError:  # it died since it was last asked
            line = ""
        finally:
            timer.cancel()
        if not line:
            self.close()
            raise TooLateError
        return json.loads(line)

    def _wait_until_ready(self) -> None:
        timer = threading.Timer(START_SECONDS, self.process.kill)
        timer.start()
        try:
            self.ready = self._read_line() == '"ready"\n'
        finally:
            timer.cancel()
        if not self.ready:
            self.close()
            raise SolverError(
                f"The process that {self.purpose} did not start within {START_SECONDS:.0f} "
                f"seconds. Look at what this prints: {sys.executable} -I {self.script}"
            )

    def _read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def close(self) -> None:
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait()
