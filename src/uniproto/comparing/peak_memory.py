"""How much memory a piece of work takes, while it runs in this process."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
from pathlib import Path
from typing import Any

_EVERY = 0.005  # seconds between looks
_STATM = Path("/proc/self/statm")
_STATUS = Path("/proc/self/status")


class PeakMemory:
    """Measures by how much the memory this process holds rises above where it stood.

    A thread looks at the resident set every few milliseconds. Where the work takes the process to
    a new height, the operating system's own high-water mark is used as well, which misses
    nothing. Memory that earlier work has freed is handed back to the system first, where the C
    library can; what it still holds can be used again without a rise, so a figure of a few
    megabytes may be low. Memory of a GPU is not counted.
    `bytes` is None where the system tells neither.

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
    """Give memory that is free, but still held, back to the system."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


def _resident() -> int | None:
    """Bytes of memory this process holds now."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return None


def _high_water() -> int | None:
    """The most bytes this process has held so far."""
    try:
        for line in _STATUS.read_text().splitlines() if _STATUS.exists() else ():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    except (ImportError, OSError, ValueError):
        return None
