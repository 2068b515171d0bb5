"""What is said of a file that a parser could not make sense of."""

from __future__ import annotations

from pathlib import Path

from uniproto.errors import InputFileError


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
    """What an error says first: parsers go on for many lines."""
    return str(error).strip().split("\n")[0]
