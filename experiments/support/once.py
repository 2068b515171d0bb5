"""Files that several parts of an experiment need, made by the first and awaited by the others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from uniproto.runs.lock import hold

_PATIENCE = 24 * 3600.0  # seconds to wait for another process that makes the same


@contextmanager
def once(path: Path) -> Iterator[float | None]:
    """When the making of a file began that is to be made here; None where it is there already.

    While one process makes it, others wait.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "answer.txt"
    >>> for _ in range(2):
    ...     with once(path) as begin:
    ...         if begin is not None:
    ...             print(path.write_text("42"), "characters")
    2 characters
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        yield None
        return
    lock = path.with_name(f"{path.name}.lock")
    with lock.open("a+b") as file:
        hold(file, lock, "what several parts share", wait=_PATIENCE)
        yield None if path.exists() else time.perf_counter()
