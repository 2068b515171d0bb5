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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
_MOST = {"standard output": OUTPUT, "standard error": ERRORS}  # bytes


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
            packages=shown.packages,
            rlimits=rlimits(timeout, contained=method != "trust"),
            cpu=cpu,
            parent=os.getpid(),
        )
        return _launch(shown.executable, job, timeout)


def _launch(executable: str, job: Job, timeout: float) -> ProgramResult:
    """Start the launcher and watch it; when this returns, all that it started is gone.

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
            with suppress(BrokenPipeError):  # it is dead, as `_watch` finds out
                launcher.stdin.write(job.packed())
            with suppress(BrokenPipeError):
                launcher.stdin.close()
            return _watch(launcher, status, timeout)
        finally:
            # The launcher is ours and not yet waited for, so the group's number is still its own.
            with suppress(PermissionError):  # what macOS says of a group whose members are all dead
                os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()
            os.close(status)


def _watch(launcher: subprocess.Popen[bytes], status: int, timeout: float) -> ProgramResult:
    """Read until the end, which comes after `timeout` seconds of the program at the latest."""
    assert launcher.stdout is not None
    assert launcher.stderr is not None
    read = {name: bytearray() for name in (*_MOST, "status")}
    descriptors = (launcher.stdout.fileno(), launcher.stderr.fileno(), status)
    names = dict(zip(descriptors, read, strict=True))
    started = late = ending = False
    deadline = time.monotonic() + _START_SECONDS
    with selectors.DefaultSelector() as selector:
        for descriptor in names:
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ)
        # Until the status pipe closes: only then is the sandbox empty.
        while status in selector.get_map():
            left = deadline - time.monotonic()
            if ending and left <= 0:
                break
            if not ending and (left <= 0 or _flooded(read)):
                late, ending = left <= 0, True
                deadline = time.monotonic() + _END_SECONDS
                # Not send_signal, which may wait for the launcher and so give its number away.
                os.kill(launcher.pid, signal.SIGTERM)
                continue
            for key, _ in selector.select(min(left, _LONGEST_WAIT)):
                if _read_more(key.fd, read[names[key.fd]]) == 0:
                    selector.unregister(key.fd)
            if not started and b"started\n" in read["status"]:
                started, deadline = True, time.monotonic() + timeout
        for key in selector.get_map().values():
            while not _flooded(read) and _read_more(key.fd, read[names[key.fd]]):
                pass  # what was still in the pipe
    return _verdict(read, timeout if late else None)


def _read_more(descriptor: int, into: bytearray) -> int | None:
    """Take one chunk and return its length: 0 at the end, None where there is nothing yet."""
    try:
        chunk = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
    if len(into) <= ERRORS:  # what is above every limit is only taken out of the pipe
        into += chunk
    return len(chunk)


def _flooded(read: Mapping[str, bytearray]) -> str | None:
    """The stream of which there was too much."""
    return next((name for name, most in _MOST.items() if len(read[name]) > most), None)


def _verdict(read: Mapping[str, bytearray], late_after: float | None) -> ProgramResult:
    """The result, by what the kernel reports of the end, never by what the program prints."""
    output = read["standard output"][:OUTPUT].decode("utf-8", "replace")
    errors = read["standard error"].decode("utf-8", "replace")[-DETAIL:].strip()
    lines = read["status"].decode("utf-8", "replace").split("\n")
    reports = dict(line.partition(" ")[::2] for line in lines)
    if "failed" in reports or "started" not in reports:
        why = reports.get("failed") or errors or "the launcher died"
        if late_after is not None and "failed" not in reports:
            why = f"it did not start within {_START_SECONDS:.0f} seconds"
        raise ContainmentError(f"The sandbox could not be set up; nothing was run. {why}")
    if flooded := _flooded(read):
        return ProgramResult(
            "killed", output, f"wrote more than {_MOST[flooded]} bytes to {flooded}"
        )
    if late_after is not None:
        return ProgramResult("timeout", output, f"still running after {late_after:g} seconds")
    if "ended" not in reports:
        return ProgramResult("killed", output, "ended from outside, perhaps for want of memory")
    ended = int(reports["ended"])  # as waitpid gives it
    if os.WIFSIGNALED(ended):
        number = os.WTERMSIG(ended)
        name = signal.strsignal(number) or f"signal {number}"
        return ProgramResult("killed", output, f"ended by a signal: {name}\n{errors}".strip())
    if os.WEXITSTATUS(ended):
        return ProgramResult("error", output, errors or "ended with a status other than 0")
    return ProgramResult("ok", output)


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
