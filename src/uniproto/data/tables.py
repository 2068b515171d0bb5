"""Read `.npy`, `.npz`, `.parquet`, `.csv` and `.jsonl` files into features and named columns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uniproto.errors import InputFileError, invalid, unknown_name

_CHUNK = 2**20


@dataclass(frozen=True)
class InputData:
    """One input file: its features, the table it came from (None for arrays), and its identity."""

    path: Path
    sha256: str
    features: Any
    table: pa.Table | None

    def column(self, name: str, parameter: str) -> NDArray[Any]:
        """A named column as a NumPy array."""
        if self.table is None:
            raise invalid(
                parameter,
                "needs a table (.parquet, .csv or .jsonl) with named columns",
                f"{self.path.name}, which holds a bare array",
                "Put the column in a table, or leave the option out.",
            )
        require_column(self.table, name, parameter, self.path)
        return self.table.column(name).to_numpy(zero_copy_only=False)

    def identity(self) -> dict[str, Any]:
        """What a manifest says about this file."""
        return {
            "path": str(self.path.resolve()),
            "sha256": self.sha256,
            "shape": list(self.features.shape),
        }


def read_input(
    path: str | Path, column: str | None = None, named: Collection[str] = ()
) -> InputData:
    """Read a file. Features are `column`, or every column not `named` by another option."""
    path = Path(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputFileError(
            f"{path}: the file name must end in one of {', '.join(sorted(_READERS))}. "
            f"Got {path.suffix or 'no ending'!r} instead. Convert the file to one of those."
        )
    digest = file_digest(path)
    try:
        content = reader(path)
    except (OSError, ValueError, EOFError, pa.ArrowException) as error:
        if isinstance(error, InputFileError):
            raise
        raise InputFileError(
            f"{path}: the file must hold valid {path.suffix} data. It could not be read "
            f"({_first_line(error)}). Check that it is complete."
        ) from error
    if isinstance(content, pa.Table):
        if column is not None:
            require_column(content, column, "--column", path)
            features = numeric_matrix(content.select([column]), str(path))
        else:
            rest = [name for name in content.column_names if name not in named]
            features = numeric_matrix(content.select(rest), str(path))
        return InputData(path, digest, features, content)
    if isinstance(content, dict):
        content = _one_array(content, column, path)
    elif column is not None:
        raise invalid(
            "--column",
            "needs a table or an .npz archive",
            f"{path.name}, one bare array",
            "Drop it.",
        )
    return InputData(path, digest, content, None)


def arrow_table(values: Any) -> pa.Table:
    """An Arrow table from an Arrow, pandas or polars one."""
    if isinstance(values, pa.Table):
        return values
    if type(values).__module__.startswith("pandas"):
        return pa.Table.from_pandas(values, preserve_index=False)
    return pa.table(values)


def numeric_matrix(table: pa.Table, parameter: str) -> NDArray[Any]:
    """Rows of numbers from numeric columns side by side, or from one list column."""
    if table.num_columns == 0:
        raise invalid(parameter, "must have a column of features", "none", "Name one by --column.")
    types = [field.type for field in table.schema]
    if len(types) == 1 and _is_list(types[0]):
        return _list_matrix(table.column(0).combine_chunks(), parameter)
    wrong = [
        f"{field.name} ({field.type})"
        for field in table.schema
        if not (
            pa.types.is_integer(field.type)
            or pa.types.is_floating(field.type)
            or pa.types.is_boolean(field.type)
        )
    ]
    if wrong:
        raise invalid(
            parameter,
            "must have only numeric columns, or one list column of features",
            f"the columns {', '.join(wrong)}",
            "Name the feature column (--column), or name these by --id, --groups or --weights, "
            "or drop them.",
        )
    columns = []
    for name in table.column_names:
        values = table.column(name)
        if values.null_count:
            raise invalid(
                parameter,
                "must have no missing values",
                f"{values.null_count} in column {name!r}",
                "Drop or impute those rows.",
            )
        columns.append(values.to_numpy())
    return np.column_stack(columns)


def require_column(table: pa.Table, name: str, parameter: str, path: Path) -> None:
    """Refuse a column the table does not have, and list those it has."""
    if name not in table.column_names:
        error = unknown_name(parameter, name, table.column_names)
        raise InputFileError(f"{path}: {error}")


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's content."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise InputFileError(
            f"{path}: the input must be a readable file, but {reason}. Check the path."
        ) from error
    return digest.hexdigest()


def _is_list(kind: pa.DataType) -> bool:
    return (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _list_matrix(lists: Any, parameter: str) -> NDArray[Any]:
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else lists.combine_chunks()
    if lists.null_count:
        raise invalid(
            parameter,
            "must have no missing feature lists",
            f"{lists.null_count} missing",
            "Drop those rows.",
        )
    widths = np.unique(lists.value_lengths().to_numpy(zero_copy_only=False))
    if len(widths) != 1:
        raise invalid(
            parameter,
            "must have feature lists of one length",
            f"lengths from {widths[0]} to {widths[-1]}" if len(widths) else "no rows",
            "Give every row the same number of features.",
        )
    values = lists.flatten()
    if values.null_count:
        raise invalid(
            parameter,
            "must have no missing features",
            f"{values.null_count} missing",
            "Drop or impute those rows.",
        )
    try:
        flat = values.to_numpy(zero_copy_only=False)
    except (pa.ArrowException, ValueError) as error:
        raise invalid(
            parameter, "must hold lists of numbers", str(values.type), "Convert the column."
        ) from error
    return flat.reshape(len(lists), int(widths[0]))


def _one_array(arrays: dict[str, NDArray[Any]], name: str | None, path: Path) -> NDArray[Any]:
    if name is not None:
        if name not in arrays:
            raise InputFileError(f"{path}: {unknown_name('--column', name, arrays)}")
        return arrays[name]
    if len(arrays) != 1:
        raise InputFileError(
            f"{path}: the archive must hold one array, or --column must name one. "
            f"Got {', '.join(sorted(arrays))} instead. Add --column NAME."
        )
    return next(iter(arrays.values()))


def _read_npy(path: Path) -> NDArray[Any]:
    try:
        return np.load(path, allow_pickle=False)
    except ValueError as error:
        raise _refuse_pickle(path, error) from error


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    import zipfile

    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except ValueError as error:
        raise _refuse_pickle(path, error) from error
    except zipfile.BadZipFile as error:
        raise InputFileError(
            f"{path}: the file must be a valid .npz archive. It is damaged ({error}). "
            "Write it again."
        ) from error


def _refuse_pickle(path: Path, error: ValueError) -> InputFileError:
    if "pickle" in str(error).lower() or "object" in str(error).lower():
        return InputFileError(
            f"{path}: the array must hold plain numbers. It holds pickled Python objects, which "
            "can run code and are never loaded. Save it as a numeric array."
        )
    return InputFileError(
        f"{path}: the file must be a valid NumPy file. It could not be read "
        f"({_first_line(error)}). Check that it is complete."
    )


def _read_parquet(path: Path) -> pa.Table:
    import pyarrow.parquet as pq

    return pq.read_table(path)


def _read_csv(path: Path) -> pa.Table:
    import pyarrow.csv as csv

    return csv.read_csv(path)


def _read_jsonl(path: Path) -> pa.Table:
    import pyarrow.json as json

    # One block must hold a whole line; long documents make long lines.
    return json.read_json(path, json.ReadOptions(block_size=64 * _CHUNK))


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0]


_READERS: dict[str, Callable[[Path], Any]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
}
