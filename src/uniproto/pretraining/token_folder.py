"""A folder of tokens while it is made: by one run at a time, and of a refused one nothing stays."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from uniproto.errors import UniprotoError
from uniproto.runs.cleanup import missing_folders, take_away


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Several runs may ask for the same folder at once: one prepares it, the others wait.

    The folder is made where it is not there; of a run that is refused, nothing is left.
    """
    path = folder / ".lock"
    while True:
        new_folders, is_new = missing_folders(folder), not path.exists()
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as lock:
            _wait_for(lock)
            if not (path.exists() and os.path.samestat(path.stat(), os.fstat(lock.fileno()))):
                continue  # the run we waited for was refused, and has taken the folder away
            there = set(folder.iterdir()) - ({path} if is_new else set())
            try:
                yield
            except UniprotoError:
                take_away(set(folder.iterdir()) - there, new_folders)
                raise
            return


def _wait_for(lock: IO[bytes]) -> None:
    try:
        import fcntl
    except ImportError:  # not on this system; then nobody checks
        return
    fcntl.flock(lock, fcntl.LOCK_EX)
