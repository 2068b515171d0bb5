"""Files that are complete or not there, whatever happens while they are written."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from uniproto.errors import OutputError, UniprotoError, asking
from uniproto.runtime.interrupts import uninterrupted

try:
    import fcntl
except ImportError:  # not on this system
    fcntl = None  # type: ignore[assignment]


@contextmanager
def atomic_write(path: Path, then: Callable[[Path], None] | None = None) -> Iterator[IO[bytes]]:
    """Open a temporary file that is renamed to `path` once it is complete and on disk.

    `then` is called with the path right after the rename; no signal can come between.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rows.bin"
    >>> with atomic_write(path) as file:
    ...     print(file.write(b"abc"), path.exists())
    3 False
    >>> path.read_bytes()
    b'abc'
    """
    partial, begun = _begun(path)
    try:
        with begun as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            with uninterrupted():
                partial.replace(path)
                if then is not None:
                    then(path)
        sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def _begun(path: Path) -> tuple[Path, IO[bytes]]:
    """A temporary file in the folder of `path`, locked for as long as its writer runs."""
    while True:
        partial = path.with_name(f".uniproto-{uuid.uuid4().hex}")
        file = partial.open("xb")  # fails if the name exists, even as a link
        if fcntl is not None:
            with suppress(OSError):  # a file system without locks, where partials are not removed
                fcntl.flock(file, fcntl.LOCK_EX)
        if partial.exists():  # else `remove_partials` found it before it was locked
            return partial, file
        file.close()


def remove_partials(folder: Path) -> None:
    """Remove temporary files of killed writers from a folder."""
    for path in folder.glob(".uniproto-" + 32 * "[0-9a-f]") if fcntl is not None else ():
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if its writer still runs
            path.unlink()


def write_text(path: Path, text: str) -> None:
    """Write a text atomically. Lone surrogates, which UTF-8 cannot encode, are escaped."""
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, content: Any) -> None:
    """Write a value atomically as indented JSON."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def sync(path: Path) -> None:
    """Wait until a file's content, or the entries of a folder, are on disk."""
    if os.name == "nt" and path.is_dir():  # cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_writable(folder: Path) -> None:
    """Refuse, before the work, a folder that cannot be written to."""
    require_utf8(folder)
    try:
        place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        remove_partials(folder)
        probe = place / f".uniproto-{uuid.uuid4().hex}"
        probe.touch(exist_ok=False)
        probe.unlink()
    except (OSError, ValueError) as error:
        raise unwritable(folder, error) from error


def require_utf8(path: Path) -> None:
    """Refuse an output whose name is not UTF-8, which writers of Parquet files do not take.

    >>> require_utf8(Path("out\\udcff"))
    Traceback (most recent call last):
    uniproto.errors.OutputError: out\\xff: the name must be UTF-8. Choose another with --out.
    """
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError as error:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise OutputError(f"{shown}: the name must be UTF-8. Choose another with --out.") from error


@contextmanager
def writing(path: Path, what: str = "the results") -> Iterator[None]:
    """Turn an OSError while writing into one sentence; `what` describes the content."""
    try:
        yield
    except UniprotoError:
        raise
    except OSError as error:
        raise unwritable(path, error, what) from error


def unwritable(path: Path, error: OSError | ValueError, what: str = "the output") -> OutputError:
    """The error for a path that cannot be written; `what` describes its content."""
    reason = getattr(error, "strerror", None) or error
    flag = asking("", "output")
    return OutputError(
        f"{path}: {what} must go to a folder that can be written. Writing failed ({reason}). "
        f"Choose another one{flag and f' with {flag}'}, or free some space."
    )
