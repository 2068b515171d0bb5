"""Limits on every case: a deadline that also ends loops in C, and a ceiling on memory."""

from __future__ import annotations

import faulthandler
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEADLINE = float(os.environ.get("FUZZ_DEADLINE", "120"))  # seconds; machines in CI can be slow
MEMORY = 2 * 2**30  # bytes that the cases may take beyond what is loaded at their beginning
HANG_FILE = Path(
    os.environ.get("FUZZ_HANG_FILE", f"{tempfile.gettempdir()}/uniproto-fuzz-hang-{os.getpid()}")
)


@contextmanager
def deadline(case: object) -> Iterator[None]:
    """End the process where a case takes too long; the file then says which, and where it was."""
    with HANG_FILE.open("w") as file:
        file.write(f"The process ended (deadline: {DEADLINE:g} s) in:\n{case!r}\n"[:20_000])
        file.flush()
        faulthandler.dump_traceback_later(DEADLINE, exit=True, file=file)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
    HANG_FILE.unlink(missing_ok=True)


@contextmanager
def memory_limit() -> Iterator[None]:
    """Refuse memory beyond the limit to everything inside, so that too large a request fails."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    taken = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (taken + MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
