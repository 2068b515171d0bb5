"""Checks of input files before they are read, and their errors."""

from __future__ import annotations

import io
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from uniproto.errors import InputFileError, UniprotoError

_LONGEST_SHOWN = 200  # characters of a path
_ADDRESS = re.compile(r"(?s)([A-Za-z][A-Za-z0-9+.-]+):/{1,2}([^/].*)")


def possible_path(path: str | os.PathLike[str]) -> Path:
    """The path; raises where the system cannot tell whether it exists.

    >>> possible_path("pool.npy").name
    'pool.npy'
    >>> possible_path("s3://bucket/pool.parquet")
    Traceback (most recent call last):
    uniproto.errors.InputFileError: s3://bucket/pool.parquet is not a file of this machine. Add
    --engine ray (in Python uniproto.scale.select), which reads Parquet files where they are, or
    copy it here.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        # Missing paths are reported by the reader; it may also be a pattern.
        if address := _ADDRESS.match(os.fspath(path)):
            scheme, rest = address.groups()  # a Path has lost a slash
            raise InputFileError(
                f"{scheme}://{rest} is not a file of this machine. Add --engine ray (in Python "
                "uniproto.scale.select), which reads Parquet files where they are, or copy it here."
            ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(
            f"{os.fspath(path)[:_LONGEST_SHOWN]!r} is no path ({reason}). Check it."
        ) from error
    return Path(path)


def require_regular_file(path: Path) -> None:
    """Refuse devices and pipes: reading them can last forever.

    Missing paths are reported by the reader.

    >>> require_regular_file(Path("/dev/null"))
    Traceback (most recent call last):
    uniproto.errors.InputFileError: /dev/null: the input must be a regular file, not a pipe or a
    device. Copy what it holds into a file.
    """
    if is_endless(path):
        raise InputFileError(
            f"{path}: the input must be a regular file, not a pipe or a device. Copy what it holds "
            "into a file."
        )


def mapped(path: Path) -> Any:
    """The bytes of a file as an Arrow buffer, which are read when they are looked at."""
    import pyarrow as pa

    require_regular_file(path)
    if not path.stat().st_size:
        return pa.py_buffer(b"")
    with pa.memory_map(str(path)) as file:
        return file.read_buffer()


def is_endless(path: Path) -> bool:
    """Whether a path is a device, a pipe or a socket."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def unreadable(path: Path, error: BaseException) -> InputFileError:
    """The error for a file whose content does not match its extension.

    >>> print(unreadable(Path("pool.csv"), ValueError("odd quote\\nin line 3")))
    pool.csv could not be read as .csv (odd quote). Is it complete, and UTF-8?
    """
    ragged = re.search(r"Expected (\d+) columns, got (\d+): (.*)", first_line(error))
    if ragged is not None:
        expected, found, line = ragged.groups()
        return InputFileError(
            f"{path} has a line of {found} columns, and others of {expected}: {line[:80]}. Close "
            "its quotes, or add what is missing."
        )
    is_text = path.suffix.lower() in (".csv", ".tsv", ".json", ".jsonl", ".zst")
    return InputFileError(
        f"{path} could not be read as {path.suffix} ({first_line(error)}). Is it complete"
        f"{', and UTF-8' if is_text else ''}?"
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message (parsers go on for many), or the error's name."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def json_objects(
    lines: Iterable[str | bytes], name: str | Path
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file's lines with their line numbers; empty lines are skipped.

    Lines end with \\n alone, as texts may hold other separators.

    >>> list(json_objects('{"a": 1}\\n\\n{"a": 2}'.split("\\n"), "x.jsonl"))
    [(1, {'a': 1}), (3, {'a': 2})]
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            reason = f"it holds {type(row).__name__}"
        except (ValueError, RecursionError) as error:
            row, reason = None, str(error)
        if not isinstance(row, dict):
            raise InputFileError(
                f"{name}: every line must hold one JSON object. Line {number} does not ({reason})."
            )
        yield number, row


@contextmanager
def unpacked(path: Path) -> Iterator[Any]:
    """The bytes of a file, unpacked where its name ends in .zst."""
    with path.open("rb") as file, unpacked_stream(file, path) as content:
        yield content


def unpacked_stream(file: IO[bytes], path: Path) -> Any:
    """The bytes of an open file, unpacked where its name ends in .zst."""
    if path.suffix.lower() != ".zst":
        return file
    import pyarrow as pa

    return io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"))


@contextmanager
def reading(path: str | Path, what: str, remedy: str = "") -> Iterator[None]:
    """Turn any error of reading into one message that names the file."""
    try:
        yield
    except (UniprotoError, MemoryError):
        raise
    except Exception as error:  # parsers may raise any error of a damaged file
        is_missing = isinstance(error, FileNotFoundError)
        reason = "there is no such file" if is_missing else first_line(error)
        raise InputFileError(
            f"{path}: the file must hold {what}. It could not be read ({reason}). {remedy}".rstrip()
        ) from error
