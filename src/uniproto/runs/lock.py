"""One run at a time: a file that is being written is kept from other runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from uniproto.errors import OutputError


def hold(file: IO[bytes], path: Path, what: str) -> None:
    """Keep other runs away from the file until it is closed, which even a kill does.

    `what` the file holds, in words, for the message to the run that comes second.
    """
    try:
        import fcntl
    except ImportError:  # not on this system; then nobody checks
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(
            f"{path}: {what} must be written by one run at a time. Another one is writing. Wait "
            "for it, or choose another folder with --out."
        ) from None


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a run, and keep other runs out of it until this one has ended."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("wb")
    except OSError as error:
        raise OutputError(
            f"{folder}: the results must go to a folder that can be written. It cannot be used "
            f"({error.strerror or error}). Choose another one with --out."
        ) from error
    with lock:
        hold(lock, folder, "a run")
        yield
