"""One run at a time: a file that is being written is kept from other runs."""

from __future__ import annotations

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
