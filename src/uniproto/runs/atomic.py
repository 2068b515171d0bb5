"""Files that are complete or not there, whatever happens while they are written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when it is complete and on the disk.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rows.bin"
    >>> with atomic_write(path) as file:
    ...     print(file.write(b"abc"), path.exists())
    3 False
    >>> path.read_bytes()
    b'abc'
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)  # half of a file is of no use to anybody


def write_text(path: Path, text: str) -> None:
    """A text as a whole file.

    Half of a surrogate pair, which a language model may write and no file can hold, is spelt out.
    """
    with atomic_write(path) as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def write_json(path: Path, content: Any) -> None:
    """A value as a whole file of JSON, for people to read, too."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
