"""Reading from a running program: never blocked, never more than the limits, never too long."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from uniproto.errors import UniprotoError
from uniproto.judging.sandbox.environment import DETAIL, ERRORS, OUTPUT

Status = Literal["ok", "error", "timeout", "killed"]


@dataclass(frozen=True)
class ProgramResult:
    """How a program ended, and what it printed.

    Attributes:
        status: `ok`: it came to its end by itself, with exit status 0. `error`: it ended by itself
            with another one (an exception, `sys.exit(1)`). `timeout`: its time was over.
            `killed`: a signal ended it (a crash, a limit) or it printed too much.
        output: what it wrote to standard output until its end, whatever ended it; at most 64 KiB.
        detail: why it was not ok: the end of standard error, or what ended it.

    >>> ProgramResult("ok", "42\\n").output
    '42\\n'
    """

    status: Status
    output: str
    detail: str = ""


class ContainmentError(UniprotoError, RuntimeError):
    """This system offers no way to lock a program in, or the walls could not be put up."""


_START_SECONDS = 60.0  # for the walls to stand, on a machine however busy
_END_SECONDS = 10.0  # for the kernel to end what was told to end
_LONGEST_WAIT = 60.0  # in one call; the kernel takes no more than some weeks
_CHUNK = 1 << 16


@dataclass
class Outcome:
    """What was seen of one program."""

    started: bool = False
    wait_status: int | None = None  # as waitpid gives it; None: nobody was left to tell
    failure: str = ""  # why the walls do not stand
    timed_out: bool = False
    flooded: str = ""  # the stream of which there was too much
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)  # its end


def watch(launcher: subprocess.Popen[bytes], status: int, timeout: float) -> Outcome:
    """Read until the end, which comes after `timeout` seconds of the program at the latest.

    When this returns, the launcher has been waited for and all that it started is gone.
    """
    watched = _Watched(launcher, status, timeout)
    try:
        watched.until_the_end()
    finally:
        # The launcher is ours and not yet waited for, so the group's number is still its own.
        with suppress(PermissionError):  # what macOS says of a group whose members are all dead
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait()
    return watched.outcome


class _Watched:
    def __init__(self, launcher: subprocess.Popen[bytes], status: int, timeout: float) -> None:
        assert launcher.stdout is not None
        assert launcher.stderr is not None
        self.outcome = Outcome()
        self._launcher = launcher
        self._status = status
        self._timeout = timeout
        self._deadline = time.monotonic() + _START_SECONDS
        self._ending = False
        self._told = b""
        self._error_bytes = 0
        self._readers = {
            launcher.stdout.fileno(): self._read_output,
            launcher.stderr.fileno(): self._read_errors,
            status: self._read_status,
        }

    def until_the_end(self) -> None:
        """Until the status pipe closes: only then is nobody left behind the walls."""
        with selectors.DefaultSelector() as selector:
            for descriptor in self._readers:
                os.set_blocking(descriptor, False)
                selector.register(descriptor, selectors.EVENT_READ)
            while self._status in selector.get_map():
                left = self._deadline - time.monotonic()
                if left <= 0 and not self._time_is_over():
                    return
                for key, _ in selector.select(min(max(left, 0), _LONGEST_WAIT)):
                    if self._read(key.fd) == 0:
                        selector.unregister(key.fd)
            for key in selector.get_map().values():
                while self._read(key.fd) and not self._ending:
                    pass  # what was still in the pipe

    def _read(self, descriptor: int) -> int | None:
        """Take one chunk and return its length: 0 at the end, None where there is nothing yet."""
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return None
        self._readers[descriptor](chunk)
        return len(chunk)

    def _read_output(self, chunk: bytes) -> None:
        room = OUTPUT - len(self.outcome.stdout)
        self.outcome.stdout += chunk[:room]
        if len(chunk) > room:
            self._flooded("standard output")

    def _read_errors(self, chunk: bytes) -> None:
        self._error_bytes += len(chunk)
        self.outcome.stderr += chunk
        del self.outcome.stderr[: -4 * DETAIL]  # a letter has at most four bytes
        if self._error_bytes > ERRORS:
            self._flooded("standard error")

    def _read_status(self, chunk: bytes) -> None:
        *lines, self._told = (self._told + chunk).split(b"\n")
        for line in lines:
            word, _, rest = line.decode().partition(" ")
            if word == "started":
                self.outcome.started = True
                self._deadline = time.monotonic() + self._timeout
            elif word == "ended":
                self.outcome.wait_status = int(rest)
            else:
                self.outcome.failure = rest

    def _flooded(self, stream: str) -> None:
        self.outcome.flooded = self.outcome.flooded or stream
        self._end()

    def _time_is_over(self) -> bool:
        """End it; False where it was told to end before and did not."""
        if self._ending:
            return False
        if self.outcome.started:
            self.outcome.timed_out = True
        else:
            self.outcome.failure = f"it did not start within {_START_SECONDS:.0f} seconds"
        self._end()
        return True

    def _end(self) -> None:
        if not self._ending:
            self._ending = True
            self._deadline = time.monotonic() + _END_SECONDS
            # Not send_signal, which may wait for the launcher and so give its number away.
            os.kill(self._launcher.pid, signal.SIGTERM)
