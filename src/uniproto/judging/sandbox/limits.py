"""How much of the machine one program may have."""

from __future__ import annotations

import math
import resource

MEMORY = 1 << 30
"""Bytes of address space. A program is one process, so this is all its memory but its files."""

SCRATCH_BYTES = 64 << 20
"""Bytes of its temporary folder, which lies in memory."""

SCRATCH_FILES = 1024
"""Files and folders in its temporary folder."""

FILE_BYTES = 32 << 20
"""Bytes of one file."""

THREADS = 32
"""Threads, of one process."""

OPEN_FILES = 64
"""Files open at once."""

STACK = 8 << 20
"""Bytes of the stack of each thread."""

OUTPUT = 64 << 10
"""Bytes of standard output; a program that prints more is killed."""

ERRORS = 1 << 20
"""Bytes of standard error; a program that writes more is killed."""

DETAIL = 2000
"""Letters of standard error that are kept, the last ones."""


def rlimits(timeout: float, contained: bool) -> list[tuple[int, int]]:
    """The limits the kernel keeps by itself, as (resource, value).

    The processor time lies above the time limit: it is there for a program whose parent stalls.
    """
    values = {
        "RLIMIT_CPU": math.ceil(timeout) + 1,
        "RLIMIT_AS": MEMORY,
        "RLIMIT_STACK": STACK,
        "RLIMIT_FSIZE": FILE_BYTES,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_SIGPENDING": 256,
        "RLIMIT_RTPRIO": 0,
        # Not 0: a core handler that is a pipe is started in spite of 0, but never for 1.
        "RLIMIT_CORE": 1,
    }
    if contained:  # elsewhere it would count everything the user runs
        values["RLIMIT_NPROC"] = THREADS + 1  # and init
    return [
        (getattr(resource, name), value)
        for name, value in values.items()
        if hasattr(resource, name)  # some are Linux's alone
    ]
