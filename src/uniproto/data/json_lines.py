"""Lines of JSON, each an object; lines end with \\n alone, as texts may hold other separators."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError

_MOST_BRACKETS = 500  # in a line that need not be looked at closely


def json_objects(
    lines: Iterable[str | bytes], name: str | Path
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file's lines with their line numbers; empty lines are passed over.

    >>> list(json_objects('{"a": 1}\\n\\n{"a": 2}'.split("\\n"), "x.jsonl"))
    [(1, {'a': 1}), (3, {'a': 2})]
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
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


def require_shallow(lines: Iterable[bytes], name: str | Path) -> None:
    """Refuse values nested so deeply that readers which call themselves run out of stack.

    >>> require_shallow([b"[" * 5000 + b"]" * 5000], "x.jsonl")
    Traceback (most recent call last):
    uniproto.errors.InputFileError: x.jsonl: values must not lie hundreds of levels deep. Line 1 has
    some that do. Flatten it, or drop it.
    """
    for number, line in enumerate(lines, start=1):
        if line.count(b"[") + line.count(b"{") <= _MOST_BRACKETS:
            continue
        try:
            json.loads(line)
        except RecursionError:
            raise InputFileError(
                f"{name}: values must not lie hundreds of levels deep. Line {number} has some that "
                "do. Flatten it, or drop it."
            ) from None
        except ValueError:  # something else is wrong, and the reader will say what
            continue
