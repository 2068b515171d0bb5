"""Parquet data sets of many files, also larger than memory: features in a temporary file."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from uniproto.data.columns import numeric_matrix
from uniproto.data.files import first_line, unreadable
from uniproto.errors import InputFileError, OutputError, UniprotoError
from uniproto.runtime.memory import free_bytes, memory_budget, require_memory

_ROWS_PER_BATCH = 65536
_SMALL = 2**26  # bytes that are always allowed


def is_pattern(path: Path) -> bool:
    """Whether a path means many files, as pool/*.parquet does.

    A file that has such a name is that file.

    >>> is_pattern(Path("pool/*.parquet")), is_pattern(Path("pool/all.parquet"))
    (True, False)
    """
    return re.search(r"[*?\[]", str(path)) is not None and not path.exists()


def parquet_files(path: Path) -> list[Path]:
    """The files of a data set, in sorted order: rows are numbered across them in that order.

    A data set is a file, a folder with all .parquet files below it, or a pattern.
    """
    if is_pattern(path):
        files = sorted(Path(name) for name in glob.glob(str(path), recursive=True))
    else:
        files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files:
        if path.is_dir():
            raise InputFileError(
                f"{path} is a folder without .parquet files. Name a file, or add --images for "
                "pictures."
            )
        raise InputFileError(f"{path}: no file matches. Check the path, and quote a pattern.")
    return files


def names_inside(path: Path, files: Iterable[Path]) -> list[str]:
    """The files' names inside their data set, which do not change when it is moved.

    >>> names_inside(Path("data/*/x.parquet"), [Path("data/a/x.parquet")])
    ['a/x.parquet']
    """
    root = path
    while is_pattern(root):
        root = root.parent
    return [str(file.relative_to(root)) for file in files]


def joined_digest(names: Iterable[str], digests: Iterable[str]) -> str:
    """The SHA-256 of a data set, from its files' names and their digests, in order."""
    lines = [f"{name} {digest}" for name, digest in zip(names, digests, strict=True)]
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


class LargeTable:
    """A Parquet data set on disk, with the parts of a table's interface that we use."""

    def __init__(self, files: list[Path]) -> None:
        import pyarrow.dataset as ds  # imports pandas if installed

        self._files = files
        self._dataset = ds.dataset([str(file) for file in files], format="parquet")
        self.schema = self._dataset.schema
        self.column_names: list[str] = self.schema.names
        self.name = str(files[0] if len(files) == 1 else files[0].parent)

    @property
    def num_rows(self) -> int:
        with self._naming_the_damaged():
            return int(self._dataset.count_rows())

    def column(self, name: str) -> pa.ChunkedArray:
        """One column, in memory."""
        with self._naming_the_damaged():
            return self._dataset.to_table(columns=[name]).column(0)

    def take(self, rows: NDArray[np.int64]) -> pa.Table:
        """Some rows with all columns, in this order."""
        with self._naming_the_damaged():
            return self._dataset.take(pa.array(rows))

    def batches(self, columns: list[str] | None, size: int) -> Iterator[pa.RecordBatch]:
        """All rows, so many at a time."""
        with self._naming_the_damaged():
            yield from self._dataset.to_batches(columns=columns, batch_size=size)

    @contextmanager
    def _naming_the_damaged(self) -> Iterator[None]:
        """Turn an error of reading all files at once into one that names the file."""
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, UniprotoError):
                raise
            for file in self._files:
                try:
                    for _ in pq.ParquetFile(file).iter_batches(_ROWS_PER_BATCH):
                        pass
                except (pa.ArrowException, OSError) as own:
                    raise unreadable(file, own) from error
            raise  # every file can be read now: the error is not about their content

    def features(self, names: list[str], parameter: str) -> np.memmap[Any, Any]:
        """The features of all rows, in a temporary file that is deleted with them."""
        shape, dtype = (0, 0), np.dtype(np.float32)
        # The memory map keeps the file open until it is released.
        with tempfile.TemporaryFile(prefix="uniproto-features-") as file:
            for batch in self.batches(names, _ROWS_PER_BATCH):
                if batch.num_rows == 0:
                    continue
                part = numeric_matrix(pa.Table.from_batches([batch]), parameter)
                if shape[0] == 0:
                    dtype = part.dtype
                elif part.shape[1] != shape[1]:
                    raise InputFileError(
                        f"{parameter}: feature lists must be of one length, not {shape[1]} and "
                        f"{part.shape[1]}."
                    )
                try:
                    file.write(np.ascontiguousarray(part, dtype).data)
                    file.flush()
                except OSError as error:
                    raise OutputError(
                        f"{tempfile.gettempdir()}: there is no room for the features "
                        f"({error.strerror or error}). Set TMPDIR to a folder with more space."
                    ) from error
                shape = (shape[0] + len(part), part.shape[1])
            if shape[0] == 0:
                raise InputFileError(f"{parameter}: the data set has no rows. Check the path.")
            return np.memmap(file, dtype=dtype, mode="r", shape=shape)


def require_room(path: Path, memory: int | float | str | None) -> None:
    """Refuse a file that must be read whole but exceeds the allowed memory."""
    allowed = free_bytes() if memory is None else memory_budget(memory)
    require_memory(
        path.stat().st_size,
        max(allowed, _SMALL),
        f"{path} is read whole",
        "Convert it to .parquet or .npy, which are read in parts, or allow more: --memory.",
    )


# --- data sets of the Hugging Face hub, and those that `datasets` has saved, as ordinary files ----


_STATE, _SPLITS = "state.json", "dataset_dict.json"
_ENDINGS = (
    ".jsonl",
    ".json",
    ".zst",
    ".parquet",
    ".csv",
)  # file endings, so not the name of a data set
_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+){0,2}")  # owner/name, :split, :configuration


def is_saved_dataset(path: Path) -> bool:
    """Whether a folder was written by `Dataset.save_to_disk`."""
    return (path / _STATE).is_file() or (path / _SPLITS).is_file()


def arrow_files(folder: Path) -> list[Path]:
    """The files of a data set saved by `datasets`, in order."""
    if (folder / _SPLITS).is_file():
        names = sorted(each.name for each in folder.iterdir() if each.is_dir())
        raise InputFileError(
            f"{folder} holds several splits: {', '.join(names)}. Name the folder of one."
        )
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        files = [folder / str(each["filename"]) for each in state["_data_files"]]
        if state.get("_indices_files"):
            raise ValueError(
                "its rows are a selection of others; save it with flatten_indices() first"
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(
            f"{folder}: the data set cannot be read ({first_line(error)}). Save it again."
        ) from error
    return files


def read_saved_dataset(folder: Path) -> pa.Table:
    """The table of a data set saved by `datasets`."""
    tables = []
    for file in arrow_files(folder):
        with pa.memory_map(str(file)) as source:
            tables.append(pa.ipc.open_stream(source).read_all())
    return pa.concat_tables(tables)


def local_data(text: str, folder: Path) -> str:
    """A path unchanged; the name of a data set on the hub as the path of a file with it.

    A name is `owner/name`, `owner/name:split` or `owner/name:split:configuration`; `folder` is
    where the file goes. The split is `train` where none is named.

    >>> local_data("pool.jsonl", Path("."))
    'pool.jsonl'
    """
    is_path = os.path.lexists(text) or Path(text).parent.is_dir()
    if is_path or not _NAME.fullmatch(text) or Path(text).suffix.lower() in _ENDINGS:
        return text
    try:
        import datasets
    except ImportError as error:
        raise InputFileError(
            f"{text} is no file here. To load it from the Hugging Face hub: pip install datasets"
        ) from error
    name, _, rest = text.partition(":")
    split, _, configuration = rest.partition(":")
    try:
        found: Any = datasets.load_dataset(name, configuration or None, split=split or "train")
    except Exception as error:  # the library may raise anything for a network or a name
        raise InputFileError(
            f"{text} is no file here, and cannot be loaded from the Hugging Face hub "
            f"({first_line(error)[:200]}). Check the name, the split and the network."
        ) from error
    path = folder / f"{re.sub(r'[^a-zA-Z0-9.-]', '_', text)}-{found._fingerprint}.parquet"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        found.to_parquet(str(partial))
        partial.replace(path)
    return str(path)
