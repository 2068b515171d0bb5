"""Read `.npy`, `.npz`, `.parquet`, `.csv`, `.jsonl` and `.xlsx` files into named columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from uniproto.data.arrays import dense, is_table, take_rows
from uniproto.data.columns import (
    arrow_table,
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

    `feature_columns` are the columns of a table that are compared, and empty for an array. Where a
    model computes vectors, `items` are what it looks at, and `embedded` is what it made of them.
    `drawn` are the rows of a random sample, which then is the target, and `seed` what it was drawn
    with.
    """

    content: Any
    path: Path | None = None
    sha256: str | None = None
    parameter: str = "source"
    feature_columns: tuple[str, ...] = ()
    items: Any = None
    embedded: Any = None
    drawn: NDArray[np.int64] | None = None
    seed: int | None = None

    @property
    def name(self) -> Path:
        """Its name in messages."""
        return Path(self.parameter) if self.path is None else self.path

    @property
    def rows(self) -> Any:
        """The rows that count: all, or those of the sample."""
        if self.drawn is None:
            return self.content
        is_table = hasattr(self.content, "column_names")
        return self.content.take(self.drawn) if is_table else self.content[self.drawn]

    @property
    def table(self) -> Any:
        """The rows as an Arrow table, or one that stays on disk; None for an array."""
        return self.rows if hasattr(self.content, "column_names") else None

    @property
    def names(self) -> list[str]:
        """The columns of a table; an array has none."""
        if hasattr(self.content, "column_names"):
            return list(self.content.column_names)
        return list(map(str, getattr(self.content, "columns", ())))

    @property
    def features(self) -> Any:
        """The numbers of the columns that are compared, or the array."""
        if not hasattr(self.content, "column_names"):
            return self.rows
        names = list(self.feature_columns)
        if isinstance(self.content, LargeTable):
            found = self.content.features(names, str(self.name))
            return found if self.drawn is None else found[self.drawn]
        return numeric_matrix(self.rows.select(names), str(self.name))

    def with_features(
        self,
        use: Sequence[str] | None = None,
        ignore: Sequence[str] = (),
        aside: Collection[str] = (),
        *,
        like: Input | None = None,
        other: Input | None = None,
    ) -> Input:
        """The same table with the columns that are compared: those to `use`, or all but some.

        `aside` are named by other options, and `ignore` are left out; `other` is the other table
        of a question. With `like`, they are those of that table, in its order.
        """
        others = () if other is None else other.names
        source = None if like is None else like.feature_columns
        try:
            names = compared_columns(
                self.content.schema, self.name, use, ignore, aside, others=others, like=source
            )
        except InputFileError as error:
            if self.path is None and error.__cause__ is not None:  # about no file
                raise error.__cause__ from None
            raise
        return replace(self, feature_columns=tuple(names))

    def column(self, name: str, parameter: str) -> NDArray[Any]:
        """A named column of text or numbers, without gaps; dates become text."""
        if not self.names:
            raise no_table(parameter, self)
        table = arrow_table(self.rows, self.parameter) if self.table is None else self.table
        if name not in table.column_names:
            raise self.naming(unknown_name(parameter, name, table.column_names))
        owner = f"the {self.parameter}" if self.path is None else self.path.name
        return column_values(table.column(name), name, parameter, owner)

    def naming(self, error: UniprotoError) -> UniprotoError:
        """The error, with the name of the file that it is about."""
        return error if self.path is None else InputFileError.of(self.path, error)

    def identity(self, width: int) -> dict[str, Any] | None:
        """What a record says about this file, whose rows became `width` features; else None."""
        if self.path is None:
            return None
        found, count = self.embedded, len(self)
        return {
            "path": str(self.path.resolve()),
            "sha256": self.sha256,
            "shape": [count if found is None else len(found.rows), width],
            "columns": list(self.feature_columns),
            **({} if found is None else {"embedding": self._embedding()}),
            **({} if self.seed is None else {"sample": {"rows": count, "seed": self.seed}}),
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

    def __len__(self) -> int:
        if self.drawn is not None:
            return len(self.drawn)
        if isinstance(self.content, LargeTable):
            return self.content.num_rows
        shape = getattr(self.content, "shape", None)
        return int(shape[0]) if shape else len(self.content)


def rows_as_table(values: Any, rows: NDArray[Any], most: int | None = None) -> pa.Table:
    """Some rows as a table; those of an array have the columns x0, x1, … (`most` of them)."""
    some = take_rows(values, rows)
    if is_table(some):
        return arrow_table(some, "source")
    if hasattr(some, "detach"):
        some = some.detach().cpu().float()
    values = dense(some).reshape(len(rows), -1)[:, :most]  # of texts, there is one for each row
    return pa.table({f"x{place}": column for place, column in enumerate(values.T)})


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


def no_table(parameter: str, given: Input) -> UniprotoError:
    """The error for an option about columns, where there are none."""
    if given.path is None:
        return InvalidInputError(
            f"can name a column only where the {given.parameter} is a table (got a "
            f"{type(given.content).__name__}). Pass one value per row.",
            parameter=parameter,
        )
    return InvalidInputError(
        f"needs a table (.parquet, .csv or .jsonl), and {given.path.name} holds a "
        "bare array. Leave the option out.",
        parameter=parameter,
    )


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
    if reader is not read_csv or not path.exists():
        digest = content_digest(path)
    if path.is_file() and not path.stat().st_size:
        raise InputFileError(f"{path} is empty. Check how it was written or filtered.")
    try:
        if reader is read_csv:  # which looks at the file once
            return read_csv(path, memory, encoding)
        return digest, reader(path, column, memory)
    except UniprotoError:
        raise
    except Exception as error:  # parsers may raise any error of a damaged file
        raise unreadable(path, error) from error


def compared_columns(
    schema: pa.Schema,
    path: str | Path,
    use: Sequence[str] | None,
    ignore: Sequence[str],
    aside: Collection[str],
    *,
    others: Collection[str],
    like: Sequence[str] | None = None,
) -> list[str]:
    """The columns of a file that are compared, as for `Input.with_features`.

    `others` are the names that the other file has, and `like` those that are compared of a source.
    """
    if use is not None and like is not None:
        require_columns(like, schema.names, "features", path)
        return list(like)
    if use is not None:
        return only_features(use, schema.names, aside, path)
    ignored = ignored_columns(ignore, schema, path, others=others)
    names = feature_columns(schema, [*aside, *ignored], path)
    if like is None or min(len(names), len(like)) <= 1:  # one list column may have any name
        return names
    if odd := sorted(set(names) ^ set(like)):
        error = InvalidInputError(
            f"must be columns of source and target; {', '.join(odd)} is in only one of the two. "
            "Give both the same columns.",
            parameter="features",
        )
        raise InputFileError.of(path, error)
    return list(like)


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
        if isinstance(error, FileNotFoundError):
            raise InputFileError(f"{path}: there is no such file. Check the path.") from error
        raise InputFileError(f"{path} cannot be opened ({error.strerror}). Check it.") from error


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


READERS: dict[str, Callable[..., Any]] = {
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
