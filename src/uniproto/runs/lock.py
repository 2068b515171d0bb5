"""One writer at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from uniproto.errors import OutputError
from uniproto.runs.atomic import writing

# Our hidden folder inside an output folder: locks, checkpoints, unfinished files.
PRIVATE = ".uniproto"
_TRIES = 20  # to make a folder while other writers remove it
_PAUSE = 0.05


def hold(file: IO[bytes], path: Path, what: str, wait: float = 0.0) -> None:
    """Lock an open file until it is closed, at the latest when the process ends.

    Raises after `wait` seconds without the lock; `what` describes the content of the file.
    """
    try:
        import fcntl
    except ImportError:  # no locks on this system
        return
    give_up = time.monotonic() + wait
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() < give_up:
                time.sleep(_PAUSE)
                continue
            raise OutputError(
                f"{path}: {what} must be written by one run at a time, and another run is writing. "
                "Wait for it, or choose another folder with --out."
            ) from None


def private_folder(folder: Path) -> Path:
    """Make our hidden folder inside an output folder."""
    private = folder / PRIVATE
    for tries_left in reversed(range(_TRIES)):
        try:
            private.mkdir(parents=True, exist_ok=True)
            break
        except (FileExistsError, FileNotFoundError):
            if not tries_left:
                raise
    if private.is_symlink():
        raise NotADirectoryError(20, f"{PRIVATE} in it is a link")
    return private


@contextmanager
def locked(folder: Path, what: str = "a run", wait: float = 0.0) -> Iterator[None]:
    """Make a folder and lock it against other writers of `what`.

    A run and a result have separate locks, because a run publishes results into its own folder.
    Folders that were made here and stayed empty are removed.
    """
    name = f"{what.split()[-1]}.lock"
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    with writing(folder, "the output"):
        lock = _open_lock(folder, name, what, wait)
    with lock:
        try:
            yield
        finally:
            with suppress(OSError):  # not empty
                (folder / PRIVATE / name).unlink()
                for path in (folder / PRIVATE, *missing):
                    path.rmdir()


def _open_lock(folder: Path, name: str, what: str, wait: float) -> IO[bytes]:
    """Open and lock the lock file, again if its last holder has just removed it."""
    while True:
        path = private_folder(folder) / name
        with suppress(FileNotFoundError):
            lock = path.open("a+b")
            try:
                hold(lock, folder, what, wait)
                if os.path.samestat(os.fstat(lock.fileno()), path.stat()):
                    return lock
            except BaseException:
                lock.close()
                raise
            lock.close()
