"""How much memory may be used, and a clear refusal before too much is asked for."""

from __future__ import annotations

import os
from pathlib import Path

from uniproto.errors import InfeasibleError

_SHARE = 4  # use at most a quarter of what is free


def free_bytes() -> int:
    """Memory a program can take now without swapping."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def budget_bytes() -> int:
    """The memory a selection allows itself."""
    return free_bytes() // _SHARE


def require_memory(needed: int, purpose: str, remedy: str) -> None:
    """Refuse work that would not fit, before it starts."""
    allowed = budget_bytes()
    if needed > allowed:
        raise InfeasibleError(
            f"Not enough memory: {purpose} and needs {needed / 2**30:.1f} GiB, more than the "
            f"{allowed / 2**30:.1f} GiB allowed (a quarter of what is free). {remedy}"
        )
