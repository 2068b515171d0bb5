"""Vectors computed before, found again by what they were computed from.

A vector's key is the SHA-256 of the item's content; vectors of one model (its weights, its
preprocessing, its precision) share a folder named after the model's digest. Vectors are appended
in shards: each is written to another name and then renamed, so a run that is killed leaves whole
shards and the next run goes on from them. A shard holds

    a line that says what it is; the number of rows and of dimensions;
    one entry per row: key, checksum of the vector, flags; a digest of all that; the vectors.

A shard that is cut off or whose entries do not fit their digest is ignored, and so is a vector that
does not fit its checksum: they are computed again.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
import time
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import OutputError, invalid

VARIABLE = "UNIPROTO_CACHE"
_MAGIC = b"uniproto vectors 1\n"
_SIZES = struct.Struct("<QI")
_ENTRY = np.dtype([("prefix", "<u8"), ("rest", "V24"), ("checksum", "<u4"), ("flags", "u1")])
_DIGEST_BYTES = 32
# At most this much work is lost when a run is killed: two seconds, later two percent, then 30 s.
SHORTEST_PAUSE, SHARE_OF_TIME, LONGEST_PAUSE = 2.0, 0.02, 30.0


@dataclass(frozen=True)
class Known:
    """A vector that was computed before, and what was noted about it."""

    vector: NDArray[np.float32]
    flags: int


def cache_folder() -> Path:
    """Where vectors are kept: UNIPROTO_CACHE, or the folder this system has for such things."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "uniproto"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "uniproto"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "uniproto"


def open_cache(cache: bool | str | os.PathLike[str], identity: str) -> VectorCache:
    """The vectors of one model. False keeps none; a path keeps them there; True where customary."""
    if not isinstance(cache, bool | str | os.PathLike):
        raise invalid(
            "cache", "must be True, False or a folder", repr(cache), "Pass one of the three."
        )
    if cache is False:
        return VectorCache(None, required=False)
    try:
        root = cache_folder() if cache is True else Path(cache)
    except RuntimeError:  # there is no home folder
        return VectorCache(None, required=False)
    digest = hashlib.sha256(identity.encode()).hexdigest()[:32]
    named = cache is not True or VARIABLE in os.environ
    return VectorCache(root / "embeddings" / digest, required=named)


class VectorCache:
    """The vectors of one model: those on disk, and those of this run, written as it goes on.

    A folder somebody asked for must be writable; without one that was `required`, a run goes on
    and forgets (`trouble` says why).
    """

    def __init__(self, folder: Path | None, *, required: bool) -> None:
        self.folder = folder
        self.trouble = ""
        self.damaged_shards = 0
        self._required = required
        self._shards: list[_Shard] = []
        self._fresh: dict[bytes, tuple[NDArray[np.float32], int]] = {}  # not yet on disk
        self._written: dict[bytes, tuple[_Shard, int]] = {}  # by this run
        self._begin = self._last = time.monotonic()
        if folder is None:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            paths = sorted(folder.glob("*.shard"))
        except OSError as error:
            self._unusable(error)
            return
        for path in paths:
            shard = _read_shard(path)
            if shard is None:
                self.damaged_shards += 1
            else:
                self._shards.append(shard)

    def find(self, key: bytes) -> Known | None:
        """The vector of this content, if it is there and whole."""
        if key in self._fresh:
            return Known(*self._fresh[key])
        if key in self._written:
            shard, row = self._written[key]
            if (known := shard.vector(row)) is not None:
                return known
        prefixes, places = self._index
        prefix = np.frombuffer(key, "<u8", 1)
        first = int(np.searchsorted(prefixes, prefix)[0])
        while first < len(prefixes) and prefixes[first] == prefix[0]:
            shard, row = self._shards[places[first, 0]], int(places[first, 1])
            if shard.entries[row]["rest"].tobytes() == key[8:]:
                known = shard.vector(row)
                if known is not None:
                    return known
            first += 1
        return None

    def add(
        self, keys: Sequence[bytes], vectors: NDArray[np.float32], flags: Sequence[int]
    ) -> None:
        """Keep these vectors; they reach the disk now and then, and on `flush`."""
        if self.folder is None:
            return
        for key, vector, flag in zip(keys, vectors, flags, strict=True):
            self._fresh[key] = (vector, flag)
        now = time.monotonic()
        pause = min(max(SHORTEST_PAUSE, SHARE_OF_TIME * (now - self._begin)), LONGEST_PAUSE)
        if now - self._last >= pause:
            self.flush()

    def flush(self) -> None:
        """Write what is not yet on disk."""
        if self.folder is None or not self._fresh:
            return
        path = self.folder / f"{time.time_ns():020d}-{uuid.uuid4().hex[:12]}.shard"
        try:
            shard = _write_shard(path, self._fresh)
        except OSError as error:
            self._unusable(error)
            return
        self._written.update((key, (shard, row)) for row, key in enumerate(self._fresh))
        self._fresh = {}
        self._last = time.monotonic()

    @cached_property
    def _index(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The first eight bytes of every key on disk, sorted, and where its vector lies."""
        sizes = [len(shard.entries) for shard in self._shards]
        if not sizes:
            return np.empty(0, np.uint64), np.empty((0, 2), np.int64)
        prefixes = np.concatenate([shard.entries["prefix"] for shard in self._shards])
        places = np.column_stack(
            [np.repeat(np.arange(len(sizes)), sizes), np.concatenate([np.arange(n) for n in sizes])]
        )
        order = np.argsort(prefixes, kind="stable")
        return prefixes[order], places[order]

    def _unusable(self, error: OSError) -> None:
        if self._required:
            raise OutputError(
                f"{self.folder}: the cache must be a folder that can be written. Writing failed "
                f"({error.strerror or error}). Choose another folder by --cache (in Python "
                f"cache=) or {VARIABLE}, free some space, or do without: --no-cache, cache=False."
            ) from error
        self.trouble = f"{self.folder} cannot be written ({error.strerror or error})"
        self.folder = None


class _Shard:
    def __init__(self, path: Path, entries: NDArray[Any], width: int, offset: int) -> None:
        self.path, self.entries, self.width, self.offset = path, entries, width, offset

    def vector(self, row: int) -> Known | None:
        """A vector, or None where it is not what was written."""
        try:
            vector = np.array(self._vectors[row])
        except (OSError, ValueError):  # the file has gone, or has been cut off
            return None
        if zlib.crc32(vector.tobytes()) != self.entries[row]["checksum"]:
            return None
        if not (np.isfinite(vector).all() and vector.any()):  # no model's vector is kept so
            return None
        return Known(vector, int(self.entries[row]["flags"]))

    @cached_property
    def _vectors(self) -> NDArray[np.float32]:
        shape = (len(self.entries), self.width)
        return np.memmap(self.path, np.dtype("<f4"), "r", self.offset, shape)


def _write_shard(path: Path, vectors: dict[bytes, tuple[NDArray[np.float32], int]]) -> _Shard:
    entries = np.zeros(len(vectors), _ENTRY)
    block = np.array([vector for vector, _ in vectors.values()], np.dtype("<f4"))
    for row, (key, (_, flags)) in enumerate(vectors.items()):
        checksum = zlib.crc32(block[row].tobytes())
        entries[row] = (int.from_bytes(key[:8], "little"), key[8:], checksum, flags)
    head = _MAGIC + _SIZES.pack(*block.shape) + entries.tobytes()
    head += hashlib.sha256(head).digest()
    partial = path.with_suffix(".partial")
    try:
        with partial.open("wb") as file:
            file.write(head)
            file.write(block.data)
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    return _Shard(path, entries, block.shape[1], len(head))


def _read_shard(path: Path) -> _Shard | None:
    """The entries of a shard, or None where it is damaged."""
    start = len(_MAGIC) + _SIZES.size
    try:
        with path.open("rb") as file:
            head = file.read(start)
            if len(head) < start or not head.startswith(_MAGIC):
                return None
            rows, width = _SIZES.unpack(head[len(_MAGIC) :])
            offset = start + rows * _ENTRY.itemsize + _DIGEST_BYTES
            if path.stat().st_size != offset + 4 * rows * width or rows * width == 0:
                return None
            table = file.read(rows * _ENTRY.itemsize)
            if hashlib.sha256(head + table).digest() != file.read(_DIGEST_BYTES):
                return None
    except OSError:
        return None
    return _Shard(path, np.frombuffer(table, _ENTRY), width, offset)
