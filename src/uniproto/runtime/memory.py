"""How much memory may be used, and a clear error before too much is allocated."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

from uniproto.errors import InfeasibleError, invalid

_SHARE = 4  # by default, at most a quarter of the free memory is used
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def free_bytes() -> int:
    """Memory that can be allocated without swapping."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def memory_budget(memory: int | float | str | None) -> int:
    """The allowed working memory in bytes: a number, a string such as "4GB", or None for a quarter
    of the free memory.

    >>> memory_budget("1.5GB") == 1.5 * 2**30
    True
    """
    if memory is None:
        return free_bytes() // _SHARE
    remedy = "Pass bytes, or a string such as '4GB'."
    text = str(memory).strip().upper()
    match = re.fullmatch(r"(\d+(?:\.\d*)?(?:E\+?\d+)?)\s*([KMGT]?)I?B?", text)
    if isinstance(memory, bool) or match is None:
        raise invalid("memory", "must be an amount of memory", repr(memory), remedy)
    amount = float(match[1]) * _UNITS[match[2]]
    if not 1 <= amount < float("inf"):
        raise invalid("memory", "must be positive and finite", repr(memory), remedy)
    return int(amount)


def require_memory(needed: int, allowed: int, purpose: str, remedy: str) -> None:
    """Raise before starting work that would not fit into memory."""
    if needed > allowed:
        raise InfeasibleError(
            f"Not enough memory: {purpose} and needs {readable(needed)}, more than the "
            f"{readable(allowed)} allowed. {remedy}"
        )


def readable(amount: int) -> str:
    """Format a number of bytes.

    >>> readable(3 * 2**29)
    '1.5 GiB'
    """
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024  # type: ignore[assignment]
    return f"{amount:.4g} GiB"


_EVERY = 0.005  # seconds between samples
_STATM = Path("/proc/self/statm")
_STATUS = Path("/proc/self/status")


class PeakMemory:
    """Measures the peak growth of this process's resident memory.

    A thread samples the resident set every few milliseconds; where the process reaches a new
    maximum, the operating system's high-water mark, which misses no peak, is used as well. Freed
    memory is returned to the system first, if the C library supports it; memory that it keeps can
    be reused without growth, so the result may be a few megabytes too low. GPU memory is not
    counted. `bytes` is None if the system reports neither figure.

    >>> with PeakMemory() as peak:
    ...     block = bytearray(50_000_000)
    >>> peak.bytes is None or peak.bytes > 40_000_000
    True
    """

    bytes: int | None = None

    def __enter__(self) -> PeakMemory:
        _hand_back()
        self._before, self._mark = _resident(), _high_water()
        self._highest = self._before or 0
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        if self._before is not None:
            self._watcher.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        if self._before is None:
            mark = _high_water()
            if mark is not None and self._mark is not None:
                self.bytes = mark - self._mark
            return
        self._watcher.join()
        self._look()
        mark = _high_water()
        if mark is not None and self._mark is not None and mark > self._mark:
            self._highest = max(self._highest, mark)
        self.bytes = max(0, self._highest - self._before)

    def _watch(self) -> None:
        while not self._done.wait(_EVERY):
            self._look()

    def _look(self) -> None:
        self._highest = max(self._highest, _resident() or 0)


def _hand_back() -> None:
    """Return freed memory to the system."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int | None:
    """The current resident memory of this process in bytes."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _high_water() -> int | None:
    """The peak resident memory of this process in bytes."""
    try:
        for line in _STATUS.read_text().splitlines() if _STATUS.exists() else ():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    except (ImportError, OSError, ValueError):
        return None
