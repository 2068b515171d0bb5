"""Where files lie: on this file system, or in a store with an address such as s3://bucket/pool."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from uniproto.data.disk import is_pattern, names_inside, parquet_files
from uniproto.errors import InputFileError

_CHUNK = 2**22


@dataclass(frozen=True)
class StoredFile:
    """One file: where it is, its name inside its data set, and what changes when it does."""

    path: str
    name: str
    size: int
    stamp: str


def is_address(path: str) -> bool:
    """Whether a path is that of a store, not of this file system.

    >>> is_address("s3://bucket/pool/*.parquet"), is_address("pool/*.parquet")
    (True, False)
    """
    return "://" in path


def file_system(path: str) -> tuple[Any, str]:
    """Arrow's file system for a path, and the path inside it."""
    import pyarrow as pa
    from pyarrow import fs

    if not is_address(path):
        return fs.LocalFileSystem(), path
    try:
        return fs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError, ImportError) as error:
        raise InputFileError(
            f"{path}: the address must be one Arrow can open, such as s3://bucket/pool/*.parquet. "
            f"It is not ({error}). Check it."
        ) from error


def files_of(path: str) -> list[StoredFile]:
    """The Parquet files that a file, a folder or a pattern stands for, in sorted order."""
    if is_address(path):
        return _files_at(path)
    place = Path(path)
    files = parquet_files(place)
    whole = place.is_dir() or is_pattern(place)
    names = names_inside(place, files) if whole else [file.name for file in files]
    found = []
    for file, name in zip(files, names, strict=True):
        if file.suffix.lower() != ".parquet":
            raise InputFileError(
                f"{file}: on Ray every file must be a .parquet file. Got {file.suffix or 'no'!r} "
                "ending instead. Convert it, or use --engine local."
            )
        try:
            status = file.stat()
        except OSError as error:
            raise unreadable(str(file), error) from error
        stamp = f"{status.st_size} {status.st_mtime_ns}"
        # Workers may have another current folder than the driver.
        found.append(StoredFile(str(file.resolve()), name, status.st_size, stamp))
    return found


def _files_at(path: str) -> list[StoredFile]:
    """The same in a store: its listing, matched against the pattern."""
    from pyarrow import fs

    scheme, _, _ = path.partition("://")
    magic = re.search(r"[*?\[]", path)
    if magic is None:
        store, inside = file_system(path)
        infos = [store.get_file_info(inside)]
        if infos[0].type == fs.FileType.Directory:
            infos = store.get_file_info(fs.FileSelector(inside, recursive=True))
            infos = [info for info in infos if info.path.endswith(".parquet")]
        root = inside if infos and infos[0].path != inside else str(PurePosixPath(inside).parent)
    else:
        start = path[: magic.start()].rpartition("/")[0]
        store, root = file_system(start)
        pattern = str(PurePosixPath(root) / path[len(start) + 1 :])
        infos = store.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
        # As on a file system, * stays inside a folder.
        depth = pattern.count("/")
        infos = [
            info
            for info in infos
            if fnmatch.fnmatchcase(info.path, pattern)
            and ("**" in pattern or info.path.count("/") == depth)
        ]
    files = sorted((info for info in infos if info.is_file), key=lambda info: info.path)
    if not files:
        raise InputFileError(
            f"{path}: the address must be that of .parquet files. Got none there instead. Check it."
        )
    lead = "" if scheme == "file" else f"{scheme}://"
    return [
        StoredFile(
            lead + info.path,
            str(PurePosixPath(info.path).relative_to(root)),
            info.size,
            f"{info.size} {info.mtime_ns}",
        )
        for info in files
    ]


def digest_of(path: str) -> str:
    """The SHA-256 of a file's content, wherever it lies."""
    store, inside = file_system(path)
    digest = hashlib.sha256()
    with store.open_input_stream(inside) as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def unreadable(name: str, error: BaseException) -> InputFileError:
    """What to say of a shard that cannot be read: its name first."""
    reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
    return InputFileError(
        f"{name}: the shard must be a readable .parquet file. It could not be read "
        f"({reason.strip().splitlines()[0] if reason.strip() else type(error).__name__}). "
        "Check that it is complete and that every node can reach it."
    )
