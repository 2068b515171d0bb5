"""Which files the record of a saved result may name.

A record may come from a stranger. What it names is followed only where that is bounded: regular
files of the size on record, in folders with few enough entries to look at. What a person names
instead is taken at his word.
"""

from __future__ import annotations

import atexit
import fnmatch
import glob
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError

_MOST_ENTRIES = 20_000  # files and folders to look at: a moment's work


class ChangedInputError(InputFileError):
    """An input file is no longer the one that a result was made from."""


def places(identities: Mapping[str, Any], output: Path) -> dict[str, Any]:
    """What a record says of where its inputs lie, seen from the result, and of their size.

    A result that is moved or sent along with its inputs finds them again.
    """
    return {role: identity and _place(identity, output) for role, identity in identities.items()}


def _place(identity: Mapping[str, Any], output: Path) -> dict[str, Any]:
    from uniproto.features.files import input_bytes

    if "://" in identity["path"]:
        from uniproto.scale.shards import files_of

        size = sum(file.size for file in files_of(identity["path"]))
        return {"relative": None, "bytes": size}
    path = Path(identity["path"])
    try:
        relative = os.path.relpath(path, output.resolve())
    except ValueError:  # on another drive
        relative = None
    return {"relative": relative, "bytes": input_bytes(path, identity.get("embedding"))}


def recorded_path(
    folder: Path,
    record: Mapping[str, Any],
    place: Mapping[str, Any] | None,
    confirmed: str | None = None,
) -> Path:
    """The input that a record names, or the one that a person names instead of it.

    `place` is what `places` wrote; earlier versions wrote nothing. The digest is still to be
    checked. Files in a store are copied here, to a folder that is removed when the process ends.
    """
    from uniproto.data.files import require_regular_file
    from uniproto.features.files import input_bytes

    place = {"relative": None, "bytes": None} if place is None else place
    given = (confirmed or record["path"]).removeprefix("file://")
    if "://" in given:
        if confirmed is None:
            raise InputFileError(
                f"{given}: an address in a store is read only where a person names it, not where "
                f"a record does. If it is right, name it, and it is fetched: "
                f"--input {shlex.quote(given)}."
            )
        return _copied(given, int(place["bytes"] or 0))
    if confirmed is not None:
        return Path(given)
    candidates = [Path(given)]
    if place["relative"] is not None:
        candidates.append(Path(os.path.normpath(folder.resolve() / place["relative"])))
    path = next(filter(_is_there, candidates), candidates[0])
    require_regular_file(path)
    if not _is_there(path):
        raise InputFileError(
            f"{path}: the input must be the file that {folder} was made from. It could not be "
            "opened (there is no such file). If it has moved, name the place where it is now: "
            "--input FILE (once for each input file that has moved)."
        )
    found = input_bytes(path, record.get("embedding"))
    if place["bytes"] is not None and found != place["bytes"]:
        raise ChangedInputError(
            f"{path}: the input must be the file that {folder} was made from. It has changed "
            f"since: it takes {found} bytes, and took {place['bytes']}. Restore it, or run the "
            "selection again."
        )
    return path


def _copied(address: str, size: int) -> Path:
    from uniproto.scale.fetch import fetched

    folder = tempfile.mkdtemp(prefix="uniproto-inputs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return fetched(address, Path(folder), size)


def _is_there(path: Path) -> bool:
    """Whether there is a file, a folder, or something that matches a pattern."""
    from uniproto.data.disk import is_pattern

    if not is_pattern(path):
        if path.is_dir():
            require_few_entries(path)
        return path.exists()
    require_few_entries(path)
    return next(glob.iglob(str(path), recursive=True), None) is not None


def require_few_entries(path: Path, most: int | None = None) -> None:
    """Refuse a folder or pattern that would take long to look through, such as all of the disk."""
    from uniproto.data.files import is_of_kernel

    most = _MOST_ENTRIES if most is None else most
    parts = path.parts
    first = next((at for at, part in enumerate(parts) if set(part) & set("*?[")), len(parts))
    # The last part matches what is in a folder, and leads further only where it is **.
    inner = parts[first : None if parts[-1] == "**" else -1] if first < len(parts) else ("**",)
    root = Path(*parts[:first])
    waiting = [(str(root), inner)]
    seen = most + 1 if is_of_kernel(root) else 0
    while waiting and seen <= most:
        place, patterns = waiting.pop()
        with suppress(OSError), os.scandir(place) as entries:
            for entry in islice(entries, most + 1 - seen):
                seen += 1
                if not (patterns and entry.is_dir()):
                    continue
                if patterns[0] == "**":  # at any depth
                    waiting.append((entry.path, patterns))
                elif fnmatch.fnmatch(entry.name, patterns[0]):
                    waiting.append((entry.path, patterns[1:]))
    if seen > most:
        raise InputFileError(
            f"{path}: a record may name a folder or a pattern with at most {most:,} entries to "
            "look at. This one has more. If these are the files, say so: "
            f"--input {shlex.quote(str(path))}."
        )
