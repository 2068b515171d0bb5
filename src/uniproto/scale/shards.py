"""A data set in shards: Parquet files, or blocks of a Ray Dataset, with consecutive row numbers.

Files are local, or in a store with an address such as s3://bucket/pool.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import fs

from uniproto.data.arrays import as_matrix
from uniproto.data.columns import numeric_matrix
from uniproto.data.disk import is_pattern, joined_digest, names_inside, parquet_files
from uniproto.data.files import reading
from uniproto.data.tables import Input
from uniproto.errors import InputFileError, InvalidInputError
from uniproto.runs import records
from uniproto.runtime.memory import readable

if TYPE_CHECKING:
    from uniproto.scale.cluster import Cluster


_FOOTERS_AT_ONCE = 16


@dataclass(frozen=True)
class Shard:
    """One part of a data set. `content` is a path, or a Ray reference to an Arrow table."""

    name: str
    content: Any
    rows: int = 0
    first: int = 0  # number of its first row in the data set
    size: int = 0  # bytes of the file
    stamp: str = ""  # changes when the file does
    inside: str = ""  # the file's name inside the data set


@dataclass(frozen=True)
class Shards:
    """All parts of a data set, in the order in which their rows are numbered."""

    name: str  # as the user passed it
    parts: tuple[Shard, ...]
    schema: pa.Schema
    is_single: bool = False  # one file, not a folder or a pattern
    from_files: bool = True

    @property
    def rows(self) -> int:
        return sum(shard.rows for shard in self.parts)

    def split(self, rows: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Row numbers of the data set as row numbers within each shard.

        >>> parts = (Shard("a", "", 3, 0), Shard("b", "", 2, 3))
        >>> Shards("ab", parts, pa.schema([])).split(np.array([4, 0, 2]))
        [array([0, 2]), array([1])]
        """
        return [
            rows[(rows >= shard.first) & (rows < shard.first + shard.rows)] - shard.first
            for shard in self.parts
        ]

    def digest(self, digests: Sequence[str]) -> str:
        """The digest of the data set in a manifest, the same as on one machine."""
        if self.is_single:
            return digests[0]
        return joined_digest([shard.inside for shard in self.parts], digests)


def shards_of(values: Any, parameter: str, cluster: Cluster) -> Shards:
    """The shards of paths (files, folders, patterns, or a list of those) or of a Ray Dataset."""
    if hasattr(values, "to_arrow_refs"):
        name, from_files, is_single = "a Ray Dataset", False, True
        blocks = enumerate(values.to_arrow_refs())
        found = [Shard(f"block {place} of the Dataset", block) for place, block in blocks]
        shapes = cluster.all(_block_shape, [(shard.content,) for shard in found])
    else:
        paths = _paths(values, parameter)
        name, from_files = ", ".join(paths), True
        found = [shard for path in paths for shard in files_of(path)]
        is_single = _is_single_file(paths, found)
        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as readers:
            shapes = list(readers.map(_footer, found))
    rows = [count for count, _ in shapes]
    if not sum(rows):
        raise InvalidInputError(f"must have rows, and {name} has none.", parameter=parameter)
    parts = tuple(
        replace(shard, rows=count, first=first)
        for shard, count, first in zip(found, rows, accumulate(rows, initial=0), strict=False)
    )
    return Shards(name, parts, shapes[0][1], is_single, from_files)


def _paths(values: Any, parameter: str) -> list[str]:
    listed = values if isinstance(values, list | tuple) else [values]
    if not listed or not all(isinstance(value, str | os.PathLike) for value in listed):
        raise InvalidInputError(
            "must be a path, a pattern such as 'pool/*.parquet', a list of paths, "
            "or a Ray Dataset. For data in memory, call uniproto.select.",
            parameter=parameter,
        )
    return [os.fspath(value) for value in listed]


def _is_single_file(paths: Sequence[str], found: Sequence[Shard]) -> bool:
    if len(paths) > 1 or len(found) > 1:
        return False
    if is_address(paths[0]):
        return paths[0].removeprefix("file://") == found[0].content
    return not (Path(paths[0]).is_dir() or is_pattern(Path(paths[0])))


def _footer(shard: Shard) -> tuple[int, pa.Schema]:
    """The number of rows and the schema of a Parquet file, from its footer."""
    with _naming(shard.name):
        store, inside = file_system(shard.content)
        with pq.ParquetFile(inside, filesystem=store) as content:
            return content.metadata.num_rows, content.schema_arrow


def _block_shape(block: pa.Table) -> tuple[int, pa.Schema]:
    return block.num_rows, block.schema


# --- files, local or in a store -------------------------------------------------------------------


def is_address(path: str) -> bool:
    """Whether a path is the address of an object store.

    >>> is_address("s3://bucket/pool/*.parquet"), is_address("pool/*.parquet")
    (True, False)
    """
    return "://" in path


def file_system(path: str) -> tuple[Any, str]:
    """Arrow's file system for a path, and the path inside it."""
    if not is_address(path):
        return fs.LocalFileSystem(), path
    try:
        return fs.FileSystem.from_uri(path)
    except (pa.ArrowException, OSError, ImportError) as error:
        raise InputFileError(
            f"{path} is no address that Arrow can open, such as s3://bucket/pool/*.parquet "
            f"({error})."
        ) from error


def files_of(path: str) -> list[Shard]:
    """The Parquet files of a path, a folder or a pattern, in sorted order."""
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
                f"{file}: on Ray every file must be a .parquet file. Convert it, or use --engine "
                "local."
            )
        with _naming(str(file)):
            status = file.stat()
        # Workers may have another working directory than the driver.
        full, stamp = str(file.resolve()), f"{status.st_size} {status.st_mtime_ns}"
        found.append(Shard(full, full, size=status.st_size, stamp=stamp, inside=name))
    return found


def _files_at(path: str) -> list[Shard]:
    """The Parquet files in a store that match the pattern."""
    scheme, _, _ = path.partition("://")
    magic = re.search(r"[*?\[]", path)
    start = path if magic is None else path[: magic.start()].rpartition("/")[0]
    store, root = file_system(start)
    infos = [store.get_file_info(root)]
    if infos[0].is_file:
        root = str(PurePosixPath(root).parent)
    else:
        infos = store.get_file_info(fs.FileSelector(root, recursive=True, allow_not_found=True))
        # As on a file system, * does not match a slash.
        pattern = str(PurePosixPath(root) / (path[len(start) + 1 :] or "**.parquet"))
        infos = [
            info
            for info in infos
            if fnmatch.fnmatchcase(info.path, pattern)
            and ("**" in pattern or info.path.count("/") == pattern.count("/"))
        ]
    # Sorted like paths of a file system, so that files of a folder are adjacent.
    found = (info for info in infos if info.is_file)
    files = sorted(found, key=lambda info: PurePosixPath(info.path))
    if not files:
        raise InputFileError(f"{path}: there are no .parquet files. Check the address.")
    lead = "" if scheme == "file" else f"{scheme}://"
    return [
        Shard(
            lead + info.path,
            lead + info.path,
            size=info.size,
            stamp=f"{info.size} {info.mtime_ns}",
            inside=str(PurePosixPath(info.path).relative_to(root)),
        )
        for info in files
    ]


def digest_of(path: str) -> str:
    """The SHA-256 of a file, local or in a store."""
    store, inside = file_system(path)
    with store.open_input_stream(inside) as stream:
        return records.digest_of(stream)


def _naming(name: str) -> AbstractContextManager[None]:
    """Turn any error while reading a shard into one message that names it."""
    remedy = "Check that it is complete and that every node can reach it."
    return reading(name, "a shard in Parquet", remedy)


# --- in the cluster: what follows runs where a shard is -------------------------------------------


def read_columns(
    shard: Shard, content: Any, columns: Sequence[str] | None, *, first: bool = False
) -> pa.Table:
    """Some columns of a shard, or all of them: whole, or only their first row."""
    with _naming(shard.name):
        if isinstance(content, str):
            store, inside = file_system(content)
            with pq.ParquetFile(inside, filesystem=store) as file:
                wanted = _columns_of(shard, file.schema_arrow.names, columns)
                if first:
                    some = next(file.iter_batches(1, columns=wanted))
                    table = pa.Table.from_batches([some])
                else:
                    table = file.read(columns=wanted)
        else:
            wanted = _columns_of(shard, content.column_names, columns)
            table = content.slice(0, 1).combine_chunks() if first else content
        if not first and table.num_rows != shard.rows:
            raise InputFileError(f"{shard.name} has changed while it was read. Run it again.")
        return table.select(wanted)


def read_features(
    shard: Shard, content: Any, columns: Sequence[str], rows: NDArray[np.int64] | None = None
) -> NDArray[Any]:
    """The checked features of a shard, or of some of its rows."""
    found = _features(shard, read_columns(shard, content, columns))
    return found if rows is None else found[rows]


def read_first_row(shard: Shard, content: Any, columns: Sequence[str]) -> NDArray[Any]:
    """The features of a shard's first row, without reading the others."""
    return _features(shard, read_columns(shard, content, columns, first=True))


def _features(shard: Shard, table: pa.Table) -> NDArray[Any]:
    with _naming(shard.name):
        return as_matrix(numeric_matrix(table, shard.name), shard.name)


def read_values(
    shard: Shard, content: Any, name: str, parameter: str, rows: NDArray[np.int64] | None = None
) -> NDArray[Any]:
    """A column of a shard, or of some of its rows, without missing values."""
    table = read_columns(shard, content, [name])
    values = Input(table, Path(shard.name)).column(name, parameter)
    return values if rows is None else values[rows]


def read_digest(shard: Shard) -> str:
    """The digest of a shard's file; a block of a Dataset has none."""
    if not isinstance(shard.content, str):
        return ""
    with _naming(shard.name):
        return digest_of(shard.content)


def take_rows(shard: Shard, content: Any, rows: NDArray[np.int64]) -> pa.Table:
    """Some rows of a shard with all their columns, in the given order."""
    return read_columns(shard, content, None).take(pa.array(rows))


def _columns_of(shard: Shard, names: list[str], columns: Sequence[str] | None) -> list[str]:
    """The columns to read."""
    if missing := sorted(set(columns or ()) - set(names)):
        raise InputFileError(
            f"{shard.name} must have the columns of the first file, also {', '.join(missing)}."
        )
    return names if columns is None else list(columns)


def fetched(address: str, folder: Path) -> Path:
    """Copy the files at an address into an empty folder; returns the folder, or a single file."""
    files = files_of(address)
    size, free = sum(file.size for file in files), shutil.disk_usage(folder).free
    if size > free:
        raise InputFileError(
            f"{address} takes {readable(size)}, and the temporary folder has {readable(free)} "
            "free. Set TMPDIR to a folder with more."
        )
    for file in files:
        _copy(file, folder, address)
    is_single = len(files) == 1 and address.endswith(files[0].content)
    return folder / files[0].inside if is_single else folder


def _copy(file: Shard, folder: Path, address: str) -> None:
    place = folder / file.inside
    if not place.resolve().is_relative_to(folder.resolve()):  # names in a store can be anything
        raise InputFileError(f"{address}: the file {file.inside!r} lies outside. Rename it.")
    place.parent.mkdir(parents=True, exist_ok=True)
    store, inside = file_system(file.content)
    try:
        with store.open_input_stream(inside) as stream, place.open("xb") as copy:
            shutil.copyfileobj(stream, copy)
    except OSError as error:
        raise InputFileError(f"{file.name} cannot be read ({error}). Check your access.") from error
