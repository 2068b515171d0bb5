"""A cache of vectors, keyed by the content they were computed from.

A vector's key is the SHA-256 of the item's content; vectors of one model (its weights, its
preprocessing, its precision) share an SQLite database in a folder named after the model's digest.
SQLite makes writing atomic and lets several processes read and write at once. A vector that does
not match its checksum is computed again.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from uniproto.data.disk import local_data
from uniproto.data.tables import file_digest
from uniproto.errors import InputFileError, OutputError
from uniproto.runs.atomic import write_json
from uniproto.runs.publish import note_saved

VARIABLE = "UNIPROTO_CACHE"
DATABASE = "vectors.sqlite"
_DIGESTS, _MOST_DIGESTS = "file_digests.json", 4096
_SECONDS_TO_WAIT = 60.0  # for another process that is writing
_TABLE = """CREATE TABLE IF NOT EXISTS vectors
    (key BLOB PRIMARY KEY, flags INTEGER NOT NULL, checksum INTEGER NOT NULL, vector BLOB NOT NULL)
"""


@dataclass(frozen=True)
class CachedVector:
    """A cached vector and its flag."""

    vector: NDArray[np.float32]
    flags: int


def cache_folder() -> Path:
    """The folder of all caches: UNIPROTO_CACHE, or the system's default."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "uniproto"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "uniproto"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "uniproto"


def local_path(name: str | os.PathLike[str], cache: object = None) -> Path:
    """A path as it is; for a data set of the hub, that of its file in the `cache`."""
    folder = cache if isinstance(cache, str | os.PathLike) else cache_folder()
    return Path(local_data(os.fspath(name), Path(folder, "datasets")))


def remembered_digests(files: Iterable[Path]) -> dict[Path, str]:
    """The SHA-256 of each file, recomputed only if its path, size or time has changed."""
    cache = cache_folder() / _DIGESTS
    try:
        known = dict(json.loads(cache.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # missing or damaged: it is written again
        known = {}
    found = {}
    for file in files:
        status = file.stat()
        key = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"
        if not isinstance(known.get(key), str):
            known[key] = file_digest(file)
        found[file] = known[key]
    with contextlib.suppress(OSError):  # only saves time; without it, files are read again
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_json(cache, dict(list(known.items())[-_MOST_DIGESTS:]))
    return found


def open_cache(cache: bool | str | os.PathLike[str], model_digest: str) -> VectorCache:
    """The cache of one model: in the folder `cache`, in the default one (True), or none."""
    if cache is False:
        return VectorCache(None, required=False)
    try:
        root = cache_folder() if cache is True else Path(cache)
    except RuntimeError:  # no home folder
        return VectorCache(None, required=False)
    named = cache is not True or VARIABLE in os.environ
    return VectorCache(root / "embeddings" / model_digest[:32], required=named)


class VectorCache:
    """The vectors of one model on disk, as a context manager.

    A folder that the user named is `required` to be writable; without the default one a run goes
    on and saves nothing. `note` says so.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, VectorCache(Path(folder), required=True) as c:
    ...     c.add({b"key": CachedVector(np.ones(3, np.float32), 0)})
    ...     c.find(b"key"), c.find(b"other")
    (CachedVector(vector=array([1., 1., 1.], dtype=float32), flags=0), None)
    """

    def __init__(self, folder: Path | None, *, required: bool) -> None:
        self.folder = folder
        self.note = ""
        self._required = required
        self._lock = threading.Lock()  # several threads look up pictures
        self._database: sqlite3.Connection | None = None
        if folder is not None:
            with self._reporting(folder):
                folder.mkdir(parents=True, exist_ok=True)
                self._database = _opened(folder / DATABASE)

    def __enter__(self) -> VectorCache:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def find(self, key: bytes) -> CachedVector | None:
        """The vector of this content, if it is cached and undamaged."""
        select = "SELECT flags, checksum, vector FROM vectors WHERE key = ?"
        row = None
        with self._lock, self._reporting(self.folder):
            if self._database is not None:
                row = self._database.execute(select, (key,)).fetchone()
        flags, checksum, content = row or (None, None, None)
        if not (isinstance(flags, int) and isinstance(content, bytes)):  # missing or damaged
            return None
        vector = np.frombuffer(content, "<f4").astype(np.float32)
        is_own = checksum == _checksum(key, flags, content)
        is_usable = is_own and np.isfinite(vector).all() and vector.any()
        return CachedVector(vector, flags) if is_usable else None

    def add(self, vectors: Mapping[bytes, CachedVector]) -> None:
        """Save these vectors."""
        rows = []
        for key, one in vectors.items():
            content = one.vector.astype("<f4").tobytes()
            rows.append((key, one.flags, _checksum(key, one.flags, content), content))
        with self._lock, self._reporting(self.folder):
            if rows and self._database is not None:
                with self._database:
                    insert = "INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)"
                    self._database.executemany(insert, rows)
                note_saved("the vectors that are in the cache")

    @contextlib.contextmanager
    def _reporting(self, folder: Path | None) -> Iterator[None]:
        """Report a broken database, which is an error only if the user named it."""
        try:
            yield
        except (OSError, sqlite3.OperationalError) as error:  # from a disk, or from another process
            self._close()
            reason = getattr(error, "strerror", None) or error
            if self._required:
                raise OutputError(
                    f"{folder}: the cache cannot be written ({reason}). Choose another by --cache "
                    f"(in Python cache=) or {VARIABLE}, or do without: --no-cache, cache=False."
                ) from error
            self.note = f"nothing was saved: {folder} cannot be written ({reason})"
        except (sqlite3.Error, UnicodeDecodeError) as error:
            self._close()
            raise InputFileError(
                f"{folder}: the cache is damaged ({error}). Delete this folder; its vectors are "
                "then computed again."
            ) from error

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def _opened(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=_SECONDS_TO_WAIT, check_same_thread=False)
    database.text_factory = bytes  # damage can turn any value into undecodable text
    # Another process may be changing the mode; some file systems have no such mode.
    with contextlib.suppress(sqlite3.OperationalError):
        database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    database.execute(_TABLE)
    return database


def _checksum(key: bytes, flags: int, content: bytes) -> int:
    return zlib.crc32(b"%b %d %b" % (key, flags, content))
