"""Read `.npy`, `.npz`, `.parquet`, `.csv`, `.jsonl` and `.xlsx` files into named columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from uniproto.data.columns import (
    checked_table,
    ignored_columns,
    is_numeric,
    is_text,
    numeric_matrix,
    only_features,
    require_columns,
)
from uniproto.data.disk import (
    LargeTable,
    arrow_files,
    is_pattern,
    is_saved_dataset,
    joined_digest,
    names_inside,
    parquet_files,
    read_saved_dataset,
    require_room,
)
from uniproto.data.files import (
    require_regular_file,
    unreadable,
)
from uniproto.data.text_tables import read_csv, read_excel, read_json
from uniproto.errors import InputFileError, InvalidInputError, UniprotoError, unknown_name
from uniproto.runs.records import sha256_of
from uniproto.runtime.memory import memory_budget

Memory = int | float | str | None
_ROWS_AT_ONCE = 2**14


@dataclass(frozen=True)
class Input:
    """A source or a target as it was given: what it holds, and the file that it is from, if any.

    Where a model computes its vectors, `items` are what the model looks at, and `embedded` is what
    it made of them.
    """

    content: Any
    path: Path | None = None
    sha256: str | None = None
    parameter: str = "source"
    items: Any = None
    embedded: Any = None

    @property
    def name(self) -> Path:
        """Its name in messages."""
        return Path(self.parameter) if self.path is None else self.path


@dataclass(frozen=True)
class InputData:
    """One input file: its features, where they came from, and its identity.

    `table` is None and `feature_columns` is empty where the file holds a bare array. Where features
    were computed, `items` are what a model has looked at, and `embedded` is what it made of them.
    """

    path: Path
    sha256: str
    features: Any
    table: pa.Table | LargeTable | None = None
    feature_columns: tuple[str, ...] = ()
    items: Any = None
    embedded: Any = None
    seed: int | None = None  # of a sample of the file's rows

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers that the rows of the features have in the file: a model may skip some."""
        return np.arange(len(self.features)) if self.embedded is None else self.embedded.rows

    @property
    def count(self) -> int:
        """How many rows the file has."""
        return len(self.features if self.items is None else self.items)

    @property
    def names(self) -> list[str]:
        """The columns of a table; an array has none."""
        return [] if self.table is None else self.table.column_names

    def column(self, name: str, parameter: str) -> NDArray[Any]:
        """A named column of text or numbers, without gaps; dates become text."""
        if self.table is None:
            raise _no_table(parameter, self.path)
        require_column(self.table, name, parameter, self.path)
        return column_values(self.table.column(name), name, parameter, self.path.name)

    def identity(self) -> dict[str, Any]:
        """What a manifest says about this file."""
        return {
            "path": str(self.path.resolve()),
            "sha256": self.sha256,
            "shape": list(self.features.shape),
            "columns": list(self.feature_columns),
            **({} if self.embedded is None else {"embedding": self._embedding()}),
            **({} if self.seed is None else {"sample": {"rows": self.count, "seed": self.seed}}),
        }

    def _embedding(self) -> dict[str, Any]:
        items, found = self.items, self.embedded
        local = Path(found.model).expanduser()
        return {
            "kind": items.kind,
            "named": items.named,
            "column": items.column,
            "model": str(local.resolve()) if local.is_dir() else found.model,
            "model_digest": found.model_digest,
            "content_sha256": found.content_sha256,
            "rows": len(items),
            "left_out": [[row, reason] for row, reason in found.left_out],
        }


def column_values(values: pa.ChunkedArray, name: str, parameter: str, owner: str) -> NDArray[Any]:
    """A column of text or numbers without gaps, as an array; dates become text."""
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        values = values.cast(pa.string())
    elif not (is_numeric(kind) or is_text(kind)):
        raise InvalidInputError(
            f"must name a column of text or numbers; {name!r} of {owner} holds {kind}.",
            parameter=parameter,
        )
    if values.null_count:
        raise InvalidInputError(
            f"must name a column with a value in every row; {name!r} of "
            f"{owner} has {values.null_count} missing. Fill or drop those rows.",
            parameter=parameter,
        )
    return values.to_numpy(zero_copy_only=False)


def _no_table(parameter: str, path: Path) -> InvalidInputError:
    return InvalidInputError(
        f"needs a table (.parquet, .csv or .jsonl), and {path.name} holds a "
        "bare array. Leave the option out.",
        parameter=parameter,
    )


def read_input(
    path: str | Path,
    column: str | None = None,
    named: Collection[str] = (),
    like: InputData | None = None,
    *,
    required: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    ignore: Sequence[str] = (),
    has_target: bool = False,
    raw: bool = False,
    memory: Memory = None,
    encoding: str | None = None,
) -> InputData:
    """Read a file. Features are `column`, or every column not `named` by another option.

    `features` names those to take, `ignore` those to leave aside, both as the command line gives
    them. `required` are columns that must be there, each with the option that names it. With
    `like`, numeric columns must be those of that file, and are put in its order. With
    `has_target`, `ignore` may also name columns of a target, which is read later. With `raw`, the
    features of a table in memory are the columns themselves, whatever they hold. What would take
    more than `memory` stays on disk where the format allows that, and is refused where not.
    `encoding` is that of a .csv file.
    """
    path = Path(path)
    digest, content = read_content(path, column, memory, encoding)
    if isinstance(content, np.ndarray):
        if features or ignore:
            raise _no_table("features" if features else "ignore", path)
        return InputData(path, digest, content)
    for name, option in (required or {}).items():  # before the features, which may be wrong too
        require_column(content, name, option, path)
    if column is not None:
        require_column(content, column, "column", path)
        names = [column]
    elif features and like is not None:
        names = list(like.feature_columns)
        require_columns(names, content.column_names, "features", path)
    elif features:
        names = only_features(features, content.column_names, named, path)
    else:
        others = () if like is None else like.names
        ignored = ignored_columns(ignore, content.schema, path, others=others, in_target=has_target)
        names = feature_columns(content.schema, [*named, *ignored], path)
        raw = raw and isinstance(content, pa.Table) and content.num_rows > 0 and bool(names)
        if like is not None and not raw:
            names = aligned_columns(names, path, like.feature_columns, like.path)
    if raw and column is None and isinstance(content, pa.Table):
        return InputData(path, digest, content.select(names), content, tuple(names))
    if isinstance(content, LargeTable):
        matrix: NDArray[Any] = content.features(names, str(path))
    else:
        matrix = numeric_matrix(content.select(names), str(path))
    return InputData(path, digest, matrix, content, tuple(names))


def read_content(
    path: Path, column: str | None = None, memory: Memory = None, encoding: str | None = None
) -> tuple[str, Any]:
    """The digest of a file, and its table or array; `column` names an array of an archive."""
    name = path.name.lower()
    suitable = (reader for ending, reader in READERS.items() if name.endswith(ending))
    reader = read_folder if path.is_dir() else next(suitable, None)
    if reader is None:
        raise InputFileError(
            f"{path}: the file name must end in one of {', '.join(sorted(READERS))}."
        )
    digest = content_digest(path)
    try:
        if reader is read_csv:
            return digest, read_csv(path, column, memory, encoding)
        return digest, reader(path, column, memory)
    except UniprotoError:
        raise
    except Exception as error:  # parsers may raise any error of a damaged file
        raise unreadable(path, error) from error


def in_order_of(
    others: Sequence[str], names: Sequence[str], parameter: str, owner: str
) -> list[str]:
    """The same names in the order of the owner's, so that features match by name."""
    if min(len(names), len(others)) <= 1:  # one list column may have any name
        return list(names)
    if odd := sorted(set(names) ^ set(others)):
        raise InvalidInputError(
            f"must be those of {owner}; {', '.join(odd)} is in only one of the "
            "two. Give both the same columns.",
            parameter=parameter,
        )
    return list(others)


def require_column(table: pa.Table | LargeTable, name: str, parameter: str, path: Path) -> None:
    """Refuse a column the table does not have, and list those it has."""
    if name not in table.column_names:
        error = unknown_name(parameter, name, table.column_names)
        raise InputFileError.of(path, error)


def file_digest(path: Path) -> str:
    """The SHA-256 of a regular file's content."""
    require_regular_file(path)
    try:
        return sha256_of(path)
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise InputFileError(f"{path} cannot be opened ({reason}). Check it.") from error


def content_digest(path: Path) -> str:
    """The SHA-256 of a file, or of the digests of all files of a data set."""
    if not (path.is_dir() or is_pattern(path)):
        return file_digest(path)
    files = data_files(path)
    return joined_digest(names_inside(path, files), map(file_digest, files))


def data_files(path: Path) -> list[Path]:
    """The files that a path stands for: itself, those of a folder, or of a pattern."""
    return arrow_files(path) if is_saved_dataset(path) else parquet_files(path)


def feature_columns(schema: pa.Schema, named: Collection[str], path: str | Path) -> list[str]:
    """Every column that is neither named by another option nor the index pandas stored."""
    pandas_index = (schema.pandas_metadata or {}).get("index_columns", [])
    names = [name for name in schema.names if name not in (*named, *pandas_index)]
    if "" in names:
        raise InputFileError(f"{path}: every column of features must have a name.")
    return names


def aligned_columns(
    names: list[str], path: str | Path, others: Sequence[str], owner: str | Path
) -> list[str]:
    """The columns of a target, in the order of its source's."""
    try:
        return in_order_of(others, names, "features", str(owner))
    except InvalidInputError as error:
        raise InputFileError.of(path, error) from error


def _read_numpy(path: Path, column: str | None, memory: Memory) -> NDArray[Any]:
    try:
        if path.suffix.lower() == ".npy" and path.stat().st_size > memory_budget(memory) // 4:
            content = np.load(path, allow_pickle=False, mmap_mode="r")  # stays on disk
            if isinstance(content, np.ndarray) and column is None:
                return content
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if not isinstance(content, np.ndarray):  # an archive
                name = _array_name(content.files, column, path)
                require_room(path, memory)
                return np.asarray(content[name])
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        raise InputFileError(
            f"{path}: the file must hold a plain array of numbers. Pickled Python objects can run "
            "code, and are never loaded. Save a numeric array with np.save."
        ) from error
    if column is not None:
        raise InvalidInputError(
            "needs a table or an .npz archive, not one bare array.", parameter="column"
        )
    return content


def _array_name(names: Sequence[str], wanted: str | None, path: Path) -> str:
    if wanted is not None and wanted not in names:
        raise InputFileError.of(path, unknown_name("column", wanted, names))
    if wanted is None and len(names) != 1:
        raise InputFileError(
            f"{path}: the archive must hold one array, or --column must name one of "
            f"{', '.join(sorted(names)) or 'an empty archive'}."
        )
    return names[0] if wanted is None else wanted


def read_folder(path: Path, column: str | None, memory: Memory) -> pa.Table | LargeTable:
    """A folder of Parquet files, or one that `datasets` has saved."""
    if is_saved_dataset(path):
        return checked_table(read_saved_dataset(path), path)
    return read_parquet(path, column, memory)


def read_parquet(path: Path, column: str | None, memory: Memory) -> pa.Table | LargeTable:
    """The table of Parquet files, or one that stays on disk where it takes too much memory.

    A value that is repeated a million times is stored once: what a file takes is known for sure
    only while it is read.
    """
    files = parquet_files(path)
    tables: list[pa.Table] = []
    left = memory_budget(memory)
    if sum(map(_stored_bytes, files)) > left:
        return LargeTable(files)
    for file in files:
        try:
            with pq.ParquetFile(file) as content:
                batches = []
                for batch in content.iter_batches(_ROWS_AT_ONCE):
                    batches.append(batch)
                    left -= batch.nbytes
                    if left < 0:
                        return LargeTable(files)
                table = pa.Table.from_batches(batches, content.schema_arrow)
            tables.append(checked_table(table.unify_dictionaries(), file))
        except UniprotoError:
            raise
        except (pa.ArrowException, OSError) as error:
            raise unreadable(file, error) from error
        if not table.schema.equals(tables[0].schema):
            raise InputFileError(f"{file} must have the same columns as {files[0].name}.")
    return pa.concat_tables(tables)


def _stored_bytes(file: Path) -> int:
    try:
        footer = pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(file, error) from error
    return sum(footer.row_group(place).total_byte_size for place in range(footer.num_row_groups))


READERS: dict[str, Callable[[Path, str | None, Memory], Any]] = {
    ".npy": _read_numpy,
    ".npz": _read_numpy,
    ".parquet": read_parquet,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".json": read_json,
    ".jsonl": read_json,
    ".jsonl.zst": read_json,
    ".xlsx": read_excel,
}
