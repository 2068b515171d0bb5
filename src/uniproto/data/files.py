"""What must hold of an input file before it is read, and what is said of one that cannot be."""

from __future__ import annotations

import io
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, UniprotoError

DEEPEST = 64  # levels of JSON; a reader that calls itself takes memory with every one
_LONGEST_SHOWN = 200  # characters of a path
# A text, closed or not, or a bracket. Nothing in it can fail after it began, so it never goes back.
_TEXT_OR_BRACKET = re.compile(rb'(?s)"(?:[^"\\]|\\.?)*"?|[\[\]{}]')
_ADDRESS = re.compile(r"(?s)([A-Za-z][A-Za-z0-9+.-]+):/{1,2}([^/].*)")
_KERNEL_FOLDERS = ("/proc/", "/sys/")  # what lies there says it is a regular file and is none


def possible_path(path: str | os.PathLike[str]) -> Path:
    """The path, unless the system cannot even say whether there is something.

    >>> possible_path("pool.npy").name
    'pool.npy'
    >>> possible_path("s3://bucket/pool.parquet")
    Traceback (most recent call last):
    uniproto.errors.InputFileError: s3://bucket/pool.parquet: the input must be a file of this
    machine. Got an address in a store instead. Add --engine ray, which reads Parquet files where
    they are (in Python uniproto.scale.select), or copy it here first.
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        # Otherwise whoever opens it has the better words; it may also be a pattern.
        if address := _ADDRESS.match(os.fspath(path)):
            scheme, rest = address.groups()  # a Path has lost a slash
            raise InputFileError(
                f"{scheme}://{rest}: the input must be a file of this machine. Got an address in a "
                "store instead. Add --engine ray, which reads Parquet files where they are (in "
                "Python uniproto.scale.select), or copy it here first."
            ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(
            f"{os.fspath(path)[:_LONGEST_SHOWN]!r}: the input must be a path that can be looked "
            f"up. This one cannot ({reason}). Check the path."
        ) from error
    return Path(path)


def require_regular_file(path: Path) -> None:
    """Refuse devices, pipes and the kernel's own files: reading them can last forever.

    A path that leads nowhere passes: whoever opens it has the better words.

    >>> require_regular_file(Path("/dev/null"))
    Traceback (most recent call last):
    uniproto.errors.InputFileError: /dev/null: the input must be a regular file. Got a device
    instead. Copy what it holds into a file.
    """
    if (kind := irregular_kind(path)) is not None:
        raise InputFileError(
            f"{path}: the input must be a regular file. Got {kind} instead. Copy what it holds "
            "into a file."
        )


def irregular_kind(path: Path) -> str | None:
    """What a path leads to, if that is neither a regular file nor a folder nor nothing."""
    try:
        mode = os.stat(path).st_mode
        if not stat.S_ISDIR(mode) and is_of_kernel(path):
            return "a file of the kernel"
    except (OSError, ValueError):
        return None
    kinds = (
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
    )
    return next((name for is_kind, name in kinds if is_kind(mode)), None)


def is_of_kernel(path: Path) -> bool:
    """Whether a path leads to what the kernel only shows as files and folders.

    >>> is_of_kernel(Path("/proc/self")), is_of_kernel(Path("/home"))
    (True, False)
    """
    return f"{os.path.realpath(path)}/".startswith(_KERNEL_FOLDERS)


def unreadable(path: Path, error: BaseException) -> InputFileError:
    """The error for a file that does not hold what its ending promises.

    >>> str(unreadable(Path("pool.csv"), ValueError("odd quote\\nin line 3"))).split(". ")[1]
    'It could not be read (odd quote)'
    """
    return InputFileError(
        f"{path}: the file must hold valid {path.suffix} data. It could not be read "
        f"({first_line(error)}). Check that it is complete, and UTF-8 where it is text."
    )


def first_line(error: BaseException) -> str:
    """The first line of an error's message (parsers go on for many), or the error's name."""
    return str(error).strip().split("\n")[0] or type(error).__name__


def json_objects(
    lines: Iterable[str | bytes], name: str | Path
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file's lines with their line numbers; empty lines are passed over.

    Lines end with \\n alone, as texts may hold other separators.

    >>> list(json_objects('{"a": 1}\\n\\n{"a": 2}'.split("\\n"), "x.jsonl"))
    [(1, {'a': 1}), (3, {'a': 2})]
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        content = line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass")
        if _brackets(content) > DEEPEST and _depths(content, 0)[0] > DEEPEST:
            raise _too_deep(name, number)
        try:
            row = json.loads(line)
        except ValueError as error:
            raise InputFileError(
                f"{name}: every line must hold one JSON object. Line {number} does not ({error}). "
                "Correct it, or fetch the file again if it was cut off."
            ) from error
        if not isinstance(row, dict):
            raise InputFileError(
                f"{name}: every line must hold one JSON object. Line {number} holds "
                f"{type(row).__name__} instead. Correct it."
            )
        yield number, row


@contextmanager
def unpacked(path: Path) -> Iterator[Any]:
    """The bytes of a file, unpacked where its name ends in .zst."""
    with path.open("rb") as file:
        if path.suffix.lower() != ".zst":
            yield file
            return
        import pyarrow as pa

        with io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")) as lines:
            yield lines


def require_shallow(lines: Iterable[bytes], name: str | Path) -> None:
    """Refuse deeply nested values, on which readers spend gigabytes, or all of their stack.

    Readers join lines to one value, so depth is counted across them. A line from brace to brace
    after one that ended with a brace begins a new value: no JSON has }{ inside.

    >>> require_shallow([b"[" * 5000 + b"]" * 5000], "x.jsonl")
    Traceback (most recent call last):
    uniproto.errors.InputFileError: x.jsonl: values must lie at most 64 levels deep. Line 1 has some
    that lie deeper. Flatten it, or drop it.
    """
    depth, last = 0, b"}"
    for number, line in enumerate(lines, start=1):
        content = line.strip()
        if not content:
            continue
        begins = last == b"}" and content.startswith(b"{")
        last = content[-1:]
        if begins and last == b"}" and _brackets(content) <= DEEPEST:
            depth = 0
            continue
        deepest, depth = _depths(content, 0 if begins else depth)
        if deepest > DEEPEST:
            raise _too_deep(name, number)


def _brackets(line: bytes) -> int:
    """How many brackets open in a line: it lies no deeper than that."""
    return line.count(b"[") + line.count(b"{")


def _depths(line: bytes, before: int) -> tuple[int, int]:
    """How deep a line's values lie at most, and how deep the line ends."""
    depth = deepest = before
    for token in _TEXT_OR_BRACKET.findall(line):
        if token in (b"[", b"{"):
            depth += 1
            deepest = max(deepest, depth)
        elif token in (b"]", b"}"):
            depth = max(depth - 1, 0)
    return deepest, depth


def _too_deep(name: str | Path, number: int) -> InputFileError:
    return InputFileError(
        f"{name}: values must lie at most {DEEPEST} levels deep. Line {number} has some that lie "
        "deeper. Flatten it, or drop it."
    )


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Whatever goes wrong while reading becomes one message that names the file."""
    try:
        yield
    except (UniprotoError, MemoryError):
        raise
    except Exception as error:  # what a parser makes of a damaged file can be anything
        raise InputFileError(
            f"{path}: the file must hold {what}. It could not be read ({first_line(error)}). "
            "Download it again, and check that it is complete."
        ) from error
