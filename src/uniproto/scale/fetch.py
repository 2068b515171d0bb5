"""Copies of files in a store, for the commands that read files of this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from uniproto.errors import InputFileError
from uniproto.runtime.memory import readable
from uniproto.scale.shards import StoredFile, file_system, files_of

_CHUNK = 2**22


def fetched(address: str, folder: Path) -> Path:
    """Copy what an address names into an empty folder.

    Returns the folder, or the file where it is a single one: what a local path would name.
    """
    files = files_of(address)
    size, free = sum(file.size for file in files), shutil.disk_usage(folder).free
    if size > free:
        raise InputFileError(
            f"{address}: the files must fit into the temporary folder to be read here. They take "
            f"{readable(size)}, and {readable(free)} are free. Set TMPDIR to a folder with more."
        )
    for file in files:
        _copy(file, folder, address)
    is_single = len(files) == 1 and address.endswith(files[0].path)
    return folder / files[0].name if is_single else folder


def _copy(file: StoredFile, folder: Path, address: str) -> None:
    place = folder / file.name
    if not place.resolve().is_relative_to(folder.resolve()):  # names in a store can be anything
        raise InputFileError(
            f"{address}: names of files must lie below it. Got {file.name!r} instead. Rename it."
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    store, inside = file_system(file.path)
    try:
        with store.open_input_stream(inside) as stream, place.open("xb") as copy:
            while chunk := stream.read(_CHUNK):
                copy.write(chunk)
    except OSError as error:
        raise InputFileError(
            f"{file.path}: the file must be readable. It is not ({error}). Check your access to "
            "the store."
        ) from error
