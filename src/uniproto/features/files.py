"""From files to vectors: which column holds the texts or pictures, and rows that are skipped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from uniproto.data.columns import is_text
from uniproto.data.disk import LargeTable, is_saved_dataset
from uniproto.data.examples import FURTHER, as_text, example_of, usual_columns
from uniproto.data.tables import (
    content_digest,
    read_content,
    require_column,
)
from uniproto.errors import InputFileError, InvalidInputError, unknown_name
from uniproto.features.pictures import ENDINGS, pictures_in
from uniproto.runtime.settings import made_of

if TYPE_CHECKING:
    from uniproto.features.embedded import Embedded

WHOLE_FOLDER = "."  # `--images` without a value
_FILE_COLUMNS = ("file_name", "filename", "path", "file", "image", "image_path", "picture")
_ROWS_PER_BATCH = 256


@dataclass(frozen=True)
class Items:
    """The texts or pictures of one file or folder."""

    path: Path
    sha256: str  # of the file; of a folder of pictures, that of their names
    table: Any  # every row, embeddable or not
    kind: str  # "text", "images" or "language"
    column: str
    folder: Path | None = None  # where relative paths of pictures begin
    named: str | None = None  # --text or --images, in words that do not depend on where one is
    columns: tuple[str, ...] = ()  # where a text or an example is made of several

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Any]:
        columns = list(self.columns or (self.column,))
        different = list(dict.fromkeys(columns))  # --text title,title
        for batch in batches(self.table, different, _ROWS_PER_BATCH):
            rows = zip(*(batch.column(name).to_pylist() for name in columns), strict=True)
            yield from map(self._item, rows)

    def _item(self, row: tuple[Any, ...]) -> Any:
        if len(row) == 1 or (len(row) == 3 and self.columns[1] == FURTHER):
            return example_of(row)
        return row

    @property
    def texts(self) -> Texts:
        """Each row as one text: columns are joined by a blank line, messages are put together."""
        return made_of(Texts, vars(self))

    def embed(self, model: str | None, **options: Any) -> Embedded:
        """The vectors of these items."""
        from uniproto.features import embed_images, embed_text
        from uniproto.features.embedded import UnreadableRowsError

        chosen: dict[str, Any] = {} if model is None else {"model": model}
        try:
            if self.kind == "text":
                return embed_text(self.texts, **chosen, **options)
            return embed_images(self, **chosen, folder=self.folder, **options)
        except UnreadableRowsError as error:
            raise InputFileError(f"{self.path}, {self.column!r}: {error}") from error


class Texts(Items):
    """The texts of a file's rows, read again on each access."""

    def _item(self, row: tuple[Any, ...]) -> Any:
        return as_text(super()._item(row))


def text_items(table: Any, text: str | Sequence[str], path: Path, digest: str) -> Items:
    """The texts of a column, or of several."""
    if isinstance(text, str):
        columns = (text,) if text in table.column_names else tuple(text.split(","))
    else:
        columns, text = tuple(text), ",".join(text)
    for name in columns:
        require_column(table, name, "text", path)
        require_kind(table, name, "text", "texts or messages", path, _is_text_or_messages)
    return Items(path, digest, table, "text", text, named=text, columns=columns)


def read_table(path: Path, encoding: str | None = None) -> tuple[str, Any]:
    """The digest and the rows of a file; a picture and bare vectors are refused."""
    if not path.is_dir() and path.suffix.lower() in ENDINGS:
        raise InputFileError(f"{path} is a single picture. Name its folder.")
    digest, table = read_content(path, encoding=encoding)
    if isinstance(table, np.ndarray):
        raise InputFileError(f"{path} holds vectors already. Select from it directly.")
    return digest, table


def is_picture_folder(path: Path) -> bool:
    """A folder with pictures in it; Parquet files next to them may be results of uniproto."""
    if not path.is_dir() or is_saved_dataset(path):
        return False
    return has_pictures(path) or next(path.rglob("*.parquet"), None) is None


def has_pictures(folder: Path) -> bool:
    return any(file.suffix.lower() in ENDINGS for file in folder.rglob("*"))


def input_digest(path: Path, embedding: Mapping[str, Any] | None = None) -> str:
    """The digest a record has of a file or folder; `embedding` is what the record says of that."""
    if embedding is not None and is_picture_folder(path):
        return folder_items(path, embedding["named"]).sha256
    return content_digest(path)


def folder_items(path: Path, images: str | None) -> Items:
    """The pictures of a folder, or of a sub-folder of it."""
    inner = path
    if images not in (None, WHOLE_FOLDER) and Path(str(images)).resolve() != path.resolve():
        inner = path / str(images)
        if not inner.is_dir():
            raise InvalidInputError(
                f"must be a sub-folder of {path}, or stand alone after the folder, not {images!r}.",
                parameter="images",
            )
    names = pictures_in(inner)
    if inner != path:
        names = [(inner.relative_to(path) / name).as_posix() for name in names]
    table = pa.table({"path": names})
    digest = hashlib.sha256("\n".join(names).encode("utf-8", "surrogateescape")).hexdigest()
    return Items(path, digest, table, "images", "path", path, images or WHOLE_FOLDER)


def picture_items(table: Any, images: str, path: Path, digest: str) -> Items:
    """A column of pictures, or a folder that the table's file names are relative to."""
    if images in table.column_names:
        require_kind(table, images, "images", "pictures or their paths", path, _is_picture)
        folder = path if path.is_dir() else path.parent
        return Items(path, digest, table, "images", images, folder, images)
    folder = Path(images).expanduser()
    if not folder.is_dir():
        error = unknown_name("images", images, table.column_names)
        raise InputFileError.of(path, error, "Or name the folder that its file names begin at.")
    texts = [field.name for field in table.schema if _is_text(field.type)]
    known = [name for name in _FILE_COLUMNS if name in texts]
    column = (known or texts)[0] if known or len(texts) == 1 else None
    if column is None:
        raise InputFileError(
            f"{path}: one column must hold the names of files in {images}, not "
            f"{', '.join(texts) or 'none'}. Call it file_name, or name it by --images."
        )
    return Items(path, digest, table, "images", column, folder, str(folder.resolve()))


def usual_column(table: Any, path: Path) -> tuple[str | None, str | None]:
    """The column of texts, or of pictures, where none is named: of examples, or the only one."""
    texts = [field.name for field in table.schema if _is_text(field.type)]
    pictures = [
        field.name for field in table.schema if _is_picture(field.type) and not _is_text(field.type)
    ]
    if "text" in texts:
        return "text", None
    if len(pictures) == 1:
        return None, pictures[0]
    if not pictures and (names := usual_columns(table.column_names)):
        return ",".join(names), None
    if len(texts) == 1 and not pictures:
        return texts[0], None
    raise InputFileError(
        f"{path}: name the column to embed, of {', '.join(table.column_names)}: --text COLUMN or "
        "--images COLUMN."
    )


def require_kind(table: Any, name: str, parameter: str, what: str, path: Path, suits: Any) -> None:
    """Refuse a column that holds something else."""
    kind = table.schema.field(name).type
    if not (suits(kind) or pa.types.is_null(kind)):
        raise InvalidInputError(
            f"must name a column of {what}; {name!r} of {path.name} holds {kind}.",
            parameter=parameter,
        )


def _is_text(kind: pa.DataType) -> bool:
    return is_text(kind.value_type if pa.types.is_dictionary(kind) else kind)


def _is_text_or_messages(kind: pa.DataType) -> bool:
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return _is_text(kind) or (is_list and pa.types.is_struct(kind.value_type))


def _is_picture(kind: pa.DataType) -> bool:
    """Paths, encoded pictures, or both, as the library `datasets` keeps them."""
    if pa.types.is_struct(kind):
        return bool(
            {"bytes", "path"} & {kind.field(place).name for place in range(kind.num_fields)}
        )
    binary = ("binary", "large_binary", "binary_view")
    return _is_text(kind) or str(kind) in binary or pa.types.is_fixed_size_binary(kind)


def batches(table: Any, columns: list[str] | None, size: int) -> Iterator[Any]:
    """A table piece by piece; one that is larger than memory is read again."""
    if isinstance(table, LargeTable):
        yield from table.batches(columns, size)
        return
    chosen = table if columns is None else table.select(columns)
    yield from chosen.to_batches(max_chunksize=size)
