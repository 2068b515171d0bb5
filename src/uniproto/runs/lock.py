"""One writer at a time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from uniproto.errors import OutputError
from uniproto.runs.atomic import open_own, unwritable

# Our hidden folder inside an output folder: locks, checkpoints, unfinished files.
PRIVATE = ".uniproto"
_TRIES = 20  # to make a folder that others, who are done, remove again and again
_PAUSE = 0.05


def hold(file: IO[bytes], path: Path, what: str, wait: float = 0.0) -> None:
    """Lock an open file until it is closed, which even a kill does.

    `what` the file holds, in words, for the message to the run that comes second and does not get
    the lock within `wait` seconds.
    """
    try:
        import fcntl
    except ImportError:  # not on this system; then nobody checks
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
    """Make a folder and keep others out who would write the same: `what`, in words.

    A run may publish results into its own folder: these are two locks. Folders that were made here
    and stayed empty are removed.
    """
    name = f"{what.split()[-1]}.lock"
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        lock = _open_lock(folder, name, what, wait)
    except OSError as error:
        if isinstance(error, OutputError):
            raise
        raise unwritable(folder, error) from error
    with lock:
        try:
            yield
        finally:
            with suppress(OSError):  # something of ours or of the user's is left in one of them
                (folder / PRIVATE / name).unlink()
                for path in (folder / PRIVATE, *missing):
                    path.rmdir()


def _open_lock(folder: Path, name: str, what: str, wait: float) -> IO[bytes]:
    """Open and lock the lock file; one that its last holder has just removed is made again."""
    while True:
        path = private_folder(folder) / name
        with suppress(FileNotFoundError):
            lock = open_own(path, "a+b")
            try:
                hold(lock, folder, what, wait)
                if os.path.samestat(os.fstat(lock.fileno()), os.lstat(path)):
                    return lock
            except BaseException:
                lock.close()
                raise
            lock.close()
