"""How much memory may be used, and a clear error before too much is allocated."""

from __future__ import annotations

import os
import re
from pathlib import Path

from uniproto.errors import InfeasibleError, invalid

_SHARE = 4  # use at most a quarter of what is free
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def free_bytes() -> int:
    """Memory a program can take now without swapping."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def memory_budget(memory: int | float | str | None) -> int:
    """Bytes of working memory allowed: a number, a text like "4GB", or a quarter of what is free.

    >>> memory_budget("1.5GB") == 1.5 * 2**30
    True
    """
    if memory is None:
        return free_bytes() // _SHARE
    remedy = "Pass bytes, or a text such as '4GB'."
    text = str(memory).strip().upper()
    match = re.fullmatch(r"(\d+(?:\.\d*)?(?:E\+?\d+)?)\s*([KMGT]?)I?B?", text)
    if isinstance(memory, bool) or match is None:
        raise invalid("memory", "must be an amount of memory", repr(memory), remedy)
    amount = float(match[1]) * _UNITS[match[2]]
    if not 1 <= amount < float("inf"):
        raise invalid("memory", "must be positive and finite", repr(memory), remedy)
    return int(amount)


def require_memory(needed: int, allowed: int, purpose: str, remedy: str) -> None:
    """Raise before work starts that would not fit into memory."""
    if needed > allowed:
        raise InfeasibleError(
            f"Not enough memory: {purpose} and needs {readable(needed)}, more than the "
            f"{readable(allowed)} allowed. {remedy}"
        )


def readable(amount: int) -> str:
    """Format bytes for people.

    >>> readable(3 * 2**29)
    '1.5 GiB'
    """
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024  # type: ignore[assignment]
    return f"{amount:.4g} GiB"
