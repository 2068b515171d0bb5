"""Starting one program, with walls or without."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from uniproto.judging.sandbox.environment import (
    DETAIL,
    ERRORS,
    OUTPUT,
    SCRATCH,
    SCRATCH_BYTES,
    SCRATCH_FILES,
    layout,
    rlimits,
)
from uniproto.judging.sandbox.inside import Job
from uniproto.judging.sandbox.inside.seccomp import ARCHITECTURES
from uniproto.judging.sandbox.watch import ContainmentError, Outcome, ProgramResult, watch

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


def run_contained(code: str, timeout: float, method: str) -> ProgramResult:
    """Run behind walls put up by `method`: `root` or `user`."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise ContainmentError(f"The system calls of {machine} are not known; nothing was run.")
    return _run(code, timeout, method, program="/program.py", scratch=SCRATCH)


def run_trusted(code: str, timeout: float) -> ProgramResult:
    """Run with limits and a time limit, but with every right that this process has."""
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
    status, told = os.pipe()
    try:
        launcher = subprocess.Popen(
            [executable, *_FRESH, "-c", text, str(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            pass_fds=(told,),
            start_new_session=True,
            bufsize=0,
        )
    except BaseException:
        os.close(status)
        raise
    finally:
        os.close(told)
    with launcher:
        try:
            assert launcher.stdin is not None
            with suppress(BrokenPipeError):  # the launcher is dead: watch will tell
                _write(launcher.stdin.fileno(), job.packed())
            launcher.stdin.close()
            return watch(launcher, status, timeout)
        except BaseException:
            if launcher.returncode is None:
                os.killpg(launcher.pid, signal.SIGKILL)
            raise
        finally:
            os.close(status)


def _write(descriptor: int, data: bytes) -> None:
    """All of it; the launcher reads everything before it writes anything, so this cannot hang."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def verdict(outcome: Outcome, timeout: float) -> ProgramResult:
    """The result, by what the kernel said of the end and never by what the program said."""
    output, told = _text(outcome.stdout), _text(outcome.stderr)[-DETAIL:].strip()
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
        return ProgramResult("killed", output, f"ended by a signal: {name}\n{told}".strip())
    if os.WEXITSTATUS(outcome.wait_status):
        return ProgramResult("error", output, told or "ended with a status other than 0")
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
