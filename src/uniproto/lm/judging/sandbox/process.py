"""Starting one program, contained or trusted, and watching it to its end."""

from __future__ import annotations

import os
import platform
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from uniproto.errors import UniprotoError
from uniproto.lm.judging.sandbox.environment import (
    DETAIL,
    ERRORS,
    OUTPUT,
    SCRATCH,
    SCRATCH_BYTES,
    SCRATCH_FILES,
    layout,
    rlimits,
)
from uniproto.lm.judging.sandbox.inside import Job
from uniproto.lm.judging.sandbox.inside.seccomp import ARCHITECTURES

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
    """Programs cannot be contained on this system, or setting the sandbox up failed."""


_LAUNCHER = "import sys; sys.path.append({folder!r}); from inside.launch import main; main()"

# Runs in the program's interpreter. The function takes its own name away, so that the program
# finds __main__ as empty as any program does. Python itself sets LC_CTYPE where there is no
# environment; `exit` and `quit` would come from the site module, which is off (it is slow, and
# executes what it finds in .pth files).
_START = """\
def start(path, search):
    import os, site, sys
    del globals()["start"]
    os.environ.clear()
    site.setquit()
    sys.path += search
    sys.argv[:] = [path]
    globals()["__file__"] = path
    with open(path, "rb") as file:
        code = compile(file.read(), path, "exec")
    exec(code, globals())
start({path!r}, {search!r})
"""
_FRESH = ("-I", "-S", "-X", "utf8")  # no environment, no site module, UTF-8 everywhere
# No .pyc files; and no buffer, which would die with a program that is killed, unread.
_PROGRAM = (*_FRESH, "-B", "-u")
_START_SECONDS = 60.0  # to set up the sandbox, on a machine however busy
_END_SECONDS = 10.0  # for the kernel to end a program that was killed
_LONGEST_WAIT = 60.0  # in one call; the kernel takes no more than some weeks
_CHUNK = 1 << 16


def run_contained(code: str, timeout: float, method: str) -> ProgramResult:
    """Run in a sandbox set up by `method`: `root` or `user`."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise ContainmentError(f"The system calls of {machine} are not known; nothing was run.")
    return _run(code, timeout, method, program="/program.py", scratch=SCRATCH)


def run_trusted(code: str, timeout: float) -> ProgramResult:
    """Run with limits on time and memory, but with every right that this process has."""
    with tempfile.TemporaryDirectory(prefix="uniproto-program-") as folder:
        scratch = Path(folder, "work")
        scratch.mkdir()
        program = str(Path(folder, "program.py"))
        return _run(code, timeout, "trust", program=program, scratch=str(scratch))


def _run(code: str, timeout: float, method: str, program: str, scratch: str) -> ProgramResult:
    shown = layout()
    start = _START.format(path=program, search=shown.search)
    with _one_cpu() as cpu:
        job = Job(
            method=method,
            code=code.encode("utf-8", "surrogatepass"),  # not text: Python will say so
            command=[shown.executable, *_PROGRAM, "-c", start],
            program=program,
            scratch=scratch,
            scratch_bytes=SCRATCH_BYTES,
            scratch_files=SCRATCH_FILES,
            links=shown.links,
            binds=shown.binds,
            masks=shown.masks,
            rlimits=rlimits(timeout, contained=method != "trust"),
            cpu=cpu,
            parent=os.getpid(),
        )
        outcome = _launch(shown.executable, job, timeout)
    if outcome.failure or not outcome.started:
        why = outcome.failure or _text(outcome.stderr).strip() or "the launcher died"
        raise ContainmentError(f"The sandbox could not be set up; nothing was run. {why}")
    return verdict(outcome, timeout)


def _launch(executable: str, job: Job, timeout: float) -> Outcome:
    """Start the launcher and watch it.

    It is a new, small Python, because this process may be large and have threads (torch): forking
    it and doing more than `exec` would be slow, and could hang.
    """
    text = _LAUNCHER.format(folder=str(Path(__file__).parent))
    status, reports = os.pipe()
    try:
        launcher = subprocess.Popen(
            [executable, *_FRESH, "-c", text, str(reports)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            pass_fds=(reports,),
            start_new_session=True,
        )
    except BaseException:
        os.close(status)
        raise
    finally:
        os.close(reports)
    with launcher:
        try:
            assert launcher.stdin is not None
            # The launcher reads everything before it writes anything, so this cannot hang.
            with suppress(BrokenPipeError):  # it is dead, as `watch` finds out
                launcher.stdin.write(job.packed())
            with suppress(BrokenPipeError):
                launcher.stdin.close()
            return watch(launcher, status, timeout)
        except BaseException:
            if launcher.returncode is None:
                os.killpg(launcher.pid, signal.SIGKILL)
            raise
        finally:
            os.close(status)


def verdict(outcome: Outcome, timeout: float) -> ProgramResult:
    """The result, by what the kernel said of the end and never by what the program said."""
    output, errors = _text(outcome.stdout), _text(outcome.stderr)[-DETAIL:].strip()
    if outcome.flooded:
        most = OUTPUT if outcome.flooded == "standard output" else ERRORS
        return ProgramResult("killed", output, f"wrote more than {most} bytes to {outcome.flooded}")
    if outcome.timed_out:
        return ProgramResult("timeout", output, f"still running after {timeout:g} seconds")
    if outcome.wait_status is None:
        return ProgramResult("killed", output, "ended from outside, perhaps for want of memory")
    if os.WIFSIGNALED(outcome.wait_status):
        number = os.WTERMSIG(outcome.wait_status)
        name = signal.strsignal(number) or f"signal {number}"
        return ProgramResult("killed", output, f"ended by a signal: {name}\n{errors}".strip())
    if os.WEXITSTATUS(outcome.wait_status):
        return ProgramResult("error", output, errors or "ended with a status other than 0")
    return ProgramResult("ok", output)


def _text(data: bytearray) -> str:
    return data.decode("utf-8", "replace")


_in_use: Counter[int] = Counter()
_in_use_lock = threading.Lock()


@contextmanager
def _one_cpu() -> Iterator[int | None]:
    """The processor that the fewest running programs have.

    With one, a program's threads take no more than its share, and numerical libraries start no
    threads: on large machines those alone would break the limits.
    """
    if sys.platform != "linux":
        yield None
        return
    with _in_use_lock:
        cpu = min(os.sched_getaffinity(0), key=lambda number: _in_use[number])
        _in_use[cpu] += 1
    try:
        yield cpu
    finally:
        with _in_use_lock:
            _in_use[cpu] -= 1


# --- watching ------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What was seen of one program."""

    started: bool = False
    wait_status: int | None = None  # as waitpid gives it; None: nobody was left to report it
    failure: str = ""  # why the sandbox could not be set up
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
        self._unread_status = b""
        self._error_bytes = 0
        self._readers = {
            launcher.stdout.fileno(): self._read_output,
            launcher.stderr.fileno(): self._read_errors,
            status: self._read_status,
        }

    def until_the_end(self) -> None:
        """Until the status pipe closes: only then is nobody left in the sandbox."""
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
        *lines, self._unread_status = (self._unread_status + chunk).split(b"\n")
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
        """End the program; False where that was tried before and failed."""
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
