"""Lines of JSON, each an object; lines end with \\n alone, as texts may hold other separators."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError


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
