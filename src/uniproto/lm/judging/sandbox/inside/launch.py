"""Set up the sandbox, start the program in it, and report how it ended.

    parent ── launcher ── init (process 1 of its own process namespace) ── program

The status pipe is held by the launcher and init, never by the program: it can print what it likes,
but the kernel reports what ended it to init, and init to the parent.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` adds 10 ms of enum to it
import os
import resource
import sys

from . import Job, system, unpacked
from .seccomp import filter_for

TYPE_CHECKING = False
if TYPE_CHECKING:  # without `typing`, which is slow to load too
    from collections.abc import Callable

_AWAITED = (signal.SIGCHLD, signal.SIGTERM)
_NOBODY = 65534
_FIRST_USER = 0x70000000  # far above any real user; plus the process number, one per program


def main() -> None:
    """Read a job from standard input, run it, write what happened to the pipe in argv[1]."""
    status = int(sys.argv[1])
    os.set_inheritable(status, False)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        job = unpacked(sys.stdin.buffer.read())
        if job.method == "trust":
            _launch_trusted(job, status)
        else:
            _launch(job, status)
    except BaseException as error:
        _report(status, f"failed {type(error).__name__}: {error}")
        os._exit(1)


def _launch(job: Job, status: int) -> None:
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # should the machine run out of memory, this goes first
    user, group = _enter_namespaces(job)
    _stay_with(job.parent)
    system.set_host_name("sandbox")  # hide the name of the machine
    system.build_root(job, user, group)
    waiting, go = os.pipe()
    init = os.fork()
    if init == 0:
        os.close(go)
        _guarded(status, lambda: _be_init(job, user, group, waiting, status))
    os.write(go, b"!")
    _reap(init)
    os._exit(0)


def _enter_namespaces(job: Job) -> tuple[int, int]:
    """New namespaces; the user and group, as seen there, that the program shall run as."""
    if job.method == "root":
        system.unshare(system.NAMESPACES)
        own = _free_user()
        return own, own
    if os.geteuid() == 0:  # root without the right to mount: still not as root in there
        own = _free_user()
        _become(own, own)
        system.set_dumpable(True)  # else /proc/self/uid_map would still be root's
    user, group = os.geteuid(), os.getegid()
    system.unshare(system.CLONE_NEWUSER | system.NAMESPACES)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{_NOBODY} {user} 1"),
        ("gid_map", f"{_NOBODY} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    return _NOBODY, _NOBODY


def _free_user() -> int:
    """A user number of its own for every program, so that the limit on processes is its own too.

    Where root itself lives in a user namespace with few numbers, all programs share `nobody`.
    """
    wanted = _FIRST_USER + os.getpid()
    with open("/proc/self/uid_map") as file:
        for line in file:
            first, _, count = map(int, line.split())
            if first <= wanted < first + count:
                return wanted
    return _NOBODY


def _become(user: int, group: int) -> None:
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def _stay_with(parent: int) -> None:
    system.die_with_parent(signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


def _reap(child: int) -> int:
    """Wait for the end; SIGTERM from the parent ends the child, and only then us.

    Both signals are blocked and taken one by one, so that none can come too early or too late.
    Of init, the kernel says that it ended only when all of its namespace is dead.
    """
    while True:
        if signal.sigwait(_AWAITED) == signal.SIGTERM:
            os.kill(child, signal.SIGKILL)
        ended, code = os.waitpid(child, os.WNOHANG)
        if ended:
            return code


def _be_init(job: Job, user: int, group: int, waiting: int, status: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what process 1 does not handle cannot end it
    system.empty_bounding_set()
    if job.method == "root":
        _become(user, group)
    system.drop_capabilities()
    system.set_dumpable(False)
    system.die_with_parent(signal.SIGKILL)
    if not os.read(waiting, 1):  # the launcher died before the line above
        os._exit(1)
    os.close(waiting)
    program = os.fork()
    if program == 0:
        _guarded(status, lambda: _be_program(job, status))
    ended, code = os.wait()
    while ended != program:
        ended, code = os.wait()
    _report(status, f"ended {code}")
    os._exit(0)


def _be_program(job: Job, status: int) -> None:
    """Become the program; from here on it has what the job allows and no more."""
    contained = job.method != "trust"
    system_calls = filter_for(os.uname().machine) if contained else b""
    if contained:
        os.setsid()  # else a signal to its own process group would also reach the launcher
    elif sys.platform == "linux":
        system.die_with_parent(signal.SIGKILL)
    _prepare(job)
    if contained:
        system.forbid_new_privileges()
        system.filter_system_calls(system_calls)
    _report(status, "started")
    os.execve(job.command[0], job.command, {})


def _prepare(job: Job) -> None:
    """What holds with and without containment: folder, empty input, processor, limits."""
    os.chdir(job.scratch)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    if job.cpu is not None:
        os.sched_setaffinity(0, [job.cpu])
    for kind, value in job.rlimits:
        hard = resource.getrlimit(kind)[1]
        most = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (most, most))


def _launch_trusted(job: Job, status: int) -> None:
    """The same without containment: limits, and an end in time for all that stays in our group."""
    if sys.platform == "linux":
        _stay_with(job.parent)
    with open(job.program, "xb") as file:
        file.write(job.code)
    program = os.fork()
    if program == 0:
        _guarded(status, lambda: _be_program(job, status))
    _report(status, f"ended {_reap(program)}")
    os._exit(0)


def _guarded(status: int, work: Callable[[], None]) -> None:
    """Run a child's part; whatever happens, never fall back into the parent's code."""
    try:
        work()
    except BaseException as error:
        _report(status, f"failed {type(error).__name__}: {error}")
    os._exit(1)


def _report(status: int, line: str) -> None:
    os.write(status, " ".join(line.split()).encode(errors="replace")[:1000] + b"\n")
