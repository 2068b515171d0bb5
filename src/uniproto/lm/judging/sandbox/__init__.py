"""A sandbox for programs that a model wrote, which may be hostile.

Each runs in a new Python of its own with namespaces, a system-call filter and limits; see
docs/sandbox.md. Where the system cannot contain programs, none is run unless the caller says that
they are trusted.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from uniproto.errors import require_seconds
from uniproto.lm.judging.sandbox.process import (
    ContainmentError,
    ProgramResult,
    Status,
    run_contained,
    run_trusted,
)
from uniproto.runtime.threads import available_cores

__all__ = [
    "ContainmentError",
    "ProgramResult",
    "Status",
    "containment",
    "run_program",
    "run_programs",
]

_METHODS = {
    "root": "namespaces set up as root, each program as a user of its own, system-call filter",
    "user": "user namespaces, system-call filter",
}


def run_program(code: str, timeout: float = 5.0, *, trust: bool = False) -> ProgramResult:
    """Run a Python program and say how it ended and what it printed.

    It has no network, no environment, no input, no view of the home folder or other processes, and
    may write to an empty temporary folder only. Nothing it starts survives it.

    Args:
        code: the program.
        timeout: seconds on the clock, from the start of its interpreter.
        trust: where the system offers no containment, run it nevertheless, with limits on time,
            memory and files but with all rights of the caller. Where containment is offered, this
            changes nothing: the program is contained.

    Raises:
        ContainmentError: the system offers no containment, and `trust` is not given.

    >>> run_program("print(6 * 7)").output  # doctest: +SKIP
    '42\\n'
    """
    require_seconds("timeout", timeout)
    method, reasons = _offered()
    if method is not None:
        return run_contained(code, timeout, method)
    if trust:
        return run_trusted(code, timeout)
    raise ContainmentError(_refusal(reasons))


def run_programs(
    codes: Sequence[str], timeout: float = 5.0, workers: int | None = None, *, trust: bool = False
) -> list[ProgramResult]:
    """Run many programs, `workers` at a time (by default one per processor), in their order.

    >>> run_programs([])
    []
    """
    pool = ThreadPoolExecutor(workers or available_cores())  # threads: the work is done elsewhere
    try:
        futures = [pool.submit(run_program, code, timeout, trust=trust) for code in codes]
        return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


def containment() -> str | None:
    """How programs are contained on this system, None where they cannot be; tried once, for real.

    >>> containment() is None or "namespaces" in containment()
    True
    """
    method, _ = _offered()
    return None if method is None else _METHODS[method]


@functools.cache
def _offered() -> tuple[str | None, tuple[str, ...]]:
    """The first method that ran a program rightly, and why those before it did not."""
    if sys.platform != "linux":
        return None, (f"{sys.platform} has no namespaces",)
    reasons: list[str] = []
    for method in ("root", "user") if os.geteuid() == 0 else ("user",):
        try:
            result = run_contained("print(6 * 7)", 30.0, method)
        except ContainmentError as error:
            reasons.append(f"{_METHODS[method]}: {error}")
            continue
        if (result.status, result.output) == ("ok", "42\n"):
            return method, tuple(reasons)
        reasons.append(f"{_METHODS[method]}: a trial program ended with {result}")
    return None, tuple(reasons)


def _refusal(reasons: tuple[str, ...]) -> str:
    tried = "".join(f"\n  tried {reason}" for reason in reasons)
    return (
        "Programs written by a model are run only where they can be contained, and this system "
        f"offers no containment.{tried}\n"
        "Enable user namespaces (sysctl user.max_user_namespaces=10000; on Ubuntu also sysctl "
        "kernel.apparmor_restrict_unprivileged_userns=0; in Docker, --security-opt "
        "seccomp=unconfined --security-opt apparmor=unconfined --cap-add SYS_ADMIN), or run as "
        "root. If you trust the programs, --trust-generated-code (trust=True) runs them with a "
        "time limit, memory and file limits, and nothing else to stop them."
    )
