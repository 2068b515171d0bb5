"""Where the inputs of a saved result lie: where they were, beside it, or where a person says."""

from __future__ import annotations

import atexit
import glob
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError


class ChangedInputError(InputFileError):
    """An input file is no longer the one that a result was made from."""


def places(identities: Mapping[str, Any], output: Path) -> dict[str, Any]:
    """Where a record's inputs lie, seen from the result: one that moves along with them finds them.

    >>> places({"source": {"path": "/data/pool.npy"}, "target": None}, Path("/data/out"))
    {'source': {'relative': '../pool.npy'}, 'target': None}
    """
    return {
        role: identity and {"relative": _relative(identity["path"], output)}
        for role, identity in identities.items()
    }


def _relative(path: str, output: Path) -> str | None:
    try:
        return None if "://" in path else os.path.relpath(path, output.resolve())
    except ValueError:  # on another drive
        return None


def input_path(
    folder: Path, record: Mapping[str, Any], place: Mapping[str, Any] | None, moved: Sequence[str]
) -> Path:
    """The input that a person or a record names; it is known by its digest, never by its name.

    `place` is what `places` wrote, `moved` what a person says. Files in a store are copied here, to
    a folder that is removed when the process ends.
    """
    from uniproto.features.files import input_digest

    said = record["path"].removeprefix("file://")
    named = [_copied(text) if "://" in text else Path(text) for text in moved]
    if "://" in said and not named:
        raise InputFileError(
            f"{said}: an address in a store is read only where a person names it, not where a "
            f"record does. If it is right, name it, and it is fetched: --input {shlex.quote(said)}."
        )
    if place and place["relative"] is not None:
        named.append(Path(os.path.normpath(folder.resolve() / place["relative"])))
    there = [path for path in (Path(said), *named) if _is_there(path)]
    for path in there:
        if input_digest(path, record.get("embedding")) == record["sha256"]:
            return path
    if there:
        raise ChangedInputError(
            f"{there[0]}: the input must be the file that {folder} was made from. It has changed "
            "since. Restore it, or run the selection again."
        )
    raise InputFileError(
        f"{said}: the input must be the file that {folder} was made from. It could not be opened "
        "(there is no such file). If it has moved, name the place where it is now: --input FILE "
        "(once for each input file that has moved)."
    )


@cache
def _copied(address: str) -> Path:
    from uniproto.scale.fetch import fetched

    folder = tempfile.mkdtemp(prefix="uniproto-inputs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return fetched(address, Path(folder))


def _is_there(path: Path) -> bool:
    """Whether there is a file, a folder, or something that matches a pattern."""
    from uniproto.data.disk import is_pattern

    if is_pattern(path):
        return next(glob.iglob(str(path), recursive=True), None) is not None
    return path.exists()
