"""Files that are complete or not there, whatever happens while they are written."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from uniproto.errors import OutputError

# A link that somebody has planted under a name of ours must not lead us to his file.
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that gets its name when it is complete and on the disk.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rows.bin"
    >>> with atomic_write(path) as file:
    ...     print(file.write(b"abc"), path.exists())
    3 False
    >>> path.read_bytes()
    b'abc'
    """
    partial = path.with_name(f".uniproto-{uuid.uuid4().hex}")
    try:
        with partial.open("xb") as file:  # never a file or a link that is there already
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)  # half of a file is of no use to anybody


def remove_partials(folder: Path) -> None:
    """Remove what killed writers have left in a folder; nobody may be writing to it now."""
    for path in folder.glob(".uniproto-" + 32 * "[0-9a-f]"):
        if path.is_file() and not path.is_symlink():
            path.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text atomically.

    Half of a surrogate pair, which a language model may write and no file can hold, is spelt out.
    """
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, content: Any) -> None:
    """Write a value atomically as JSON that people can read, too."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def open_own(path: Path, mode: str) -> IO[Any]:
    """Open a file of ours in place; a link under its name is refused, not followed."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags | _NOFOLLOW, 0o666))


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on the disk."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        if path.is_dir():  # a system that does not open folders keeps their names by itself
            return
        raise
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_writable(folder: Path) -> None:
    """Find out before the work, not after it, that nothing can be written to a folder."""
    try:
        place = folder
        while not place.exists() and place != place.parent:
            place = place.parent
        probe = place / f".uniproto-{uuid.uuid4().hex}"
        probe.mkdir()
        probe.rmdir()
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error


def unwritable(path: Path, error: OSError | ValueError, what: str = "output") -> OutputError:
    """The error for a file or folder that cannot be written; `what` it is to hold."""
    reason = getattr(error, "strerror", None) or error
    return OutputError(
        f"{path}: the {what} must go to a folder that can be written. Writing failed ({reason}). "
        "Choose another one with --out, or free some space."
    )
