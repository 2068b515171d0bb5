"""Data sets of the Hugging Face hub, and those that `datasets` has saved, as ordinary files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from uniproto.data.files import first_line
from uniproto.errors import InputFileError

_STATE, _SPLITS = "state.json", "dataset_dict.json"
_ENDINGS = (".jsonl", ".json", ".zst", ".parquet", ".csv")  # of files: no data set's name
_NAME = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+){0,2}")  # owner/name, :split, :configuration


def is_saved_dataset(path: Path) -> bool:
    """Whether a folder is what `Dataset.save_to_disk` writes."""
    return (path / _STATE).is_file() or (path / _SPLITS).is_file()


def arrow_files(folder: Path) -> list[Path]:
    """The files of a data set that `datasets` has saved, in order."""
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
                "its rows are a choice of others; save it with flatten_indices() first"
            )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(
            f"{folder}: the data set cannot be read ({first_line(error)}). Save it again."
        ) from error
    return files


def read_saved_dataset(folder: Path) -> pa.Table:
    """The table of a data set that `datasets` has saved."""
    tables = []
    for file in arrow_files(folder):
        with pa.memory_map(str(file)) as source:
            tables.append(pa.ipc.open_stream(source).read_all())
    return pa.concat_tables(tables)


def local_data(text: str, folder: Path) -> str:
    """A path as it is; the name of a data set of the hub as the path of a file it is saved in.

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
    except Exception as error:  # what the library makes of a network or a name can be anything
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
