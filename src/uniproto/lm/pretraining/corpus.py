"""A corpus: the documents of text, JSONL and Parquet files, as a stream.

Files are never loaded whole; the longest document must fit into memory.
"""

from __future__ import annotations

import codecs
import glob
import hashlib
import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from uniproto.data.files import json_objects, reading, unpacked_stream
from uniproto.errors import InputFileError, InvalidInputError

ENDINGS = (".txt", ".txt.zst", ".jsonl", ".jsonl.zst", ".parquet")
_CHUNK = 2**20
_PIECE = 4096  # the least characters of a document of a text file, which ends at a blank line
_FEWEST_PIECES = 64  # of a small file, for the validation split
_SMALLEST_PIECE = 256
_AS_LONG_AT_MOST = 4  # pieces, if there is no blank line
_ROWS = 256  # of a Parquet file, read at a time


def corpus_files(place: str | Path) -> list[Path]:
    """The files of a corpus: one file, all of a folder (and its folders), or those of a pattern.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> for name in ("b.txt", "a.jsonl", "notes.md"):
    ...     _ = (folder / name).write_text("")
    >>> [file.name for file in corpus_files(folder)]
    ['a.jsonl', 'b.txt']
    >>> [file.name for file in corpus_files(f"{folder}/*.txt")]
    ['b.txt']
    """
    path = Path(place)
    if path.is_file():
        found = [path] if _known(path) else []
    elif path.is_dir():
        found = [file for file in path.rglob("*") if file.is_file() and _known(file)]
    else:
        found = [Path(name) for name in glob.glob(str(place), recursive=True)]
        found = [file for file in found if file.is_file() and _known(file)]
    if not found:
        what = "no texts here" if path.exists() else "no such file"
        raise InputFileError(
            f"{place}: {what}. Name a file, a folder or a pattern of files that end in one of "
            f"{', '.join(ENDINGS)}."
        )
    return sorted(found)


def corpus_identity(files: Sequence[Path]) -> str:
    """A digest that identifies a corpus: of every file its name, its size, and both ends.

    As a corpus may be too large to be read twice, only the first and the last mebibyte of each file
    are hashed.
    """
    digest = hashlib.sha256()
    for path in files:
        with reading(path, "a part of the corpus"), path.open("rb") as file:
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode("utf-8", "surrogateescape"))
            digest.update(file.read(_CHUNK))
            if size > _CHUNK:
                file.seek(-_CHUNK, 2)
                digest.update(file.read(_CHUNK))
    return digest.hexdigest()


def read_documents(
    files: Sequence[Path],
    column: str = "text",
    advance: Callable[[int], None] = lambda count: None,
) -> Iterator[str]:
    """The documents of a corpus in order; empty ones are skipped.

    A line of a JSONL file and a row of a Parquet file is a document: its `column`. A text file has
    no such marks, so it is cut at blank lines into documents of some 4,000 characters and more.
    `advance` is called with the bytes of the files as they are read.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "corpus.jsonl"
    >>> _ = path.write_text('{"text": "one"}\\n{"text": ""}\\n{"text": "two"}\\n')
    >>> list(read_documents([path]))
    ['one', 'two']
    """
    for path in files:
        name = path.name.lower()
        if name.endswith(".parquet"):
            documents = _parquet(path, column, advance)
        elif name.removesuffix(".zst").endswith(".jsonl"):
            documents = _json_lines(path, column, advance)
        else:
            documents = _text(path, advance)
        yield from (document for document in documents if document.strip())


def _known(path: Path) -> bool:
    return path.name.lower().endswith(ENDINGS)


def _pieces(path: Path, advance: Callable[[int], None], by_line: bool) -> Iterator[bytes]:
    """The content of a file, decompressed where it is compressed: its lines, or chunks of it."""
    with reading(path, "text, whole and as it was written"), path.open("rb") as raw:
        stream = unpacked_stream(raw, path)
        before = 0
        for piece in stream if by_line else iter(lambda: stream.read(_CHUNK), b""):
            yield piece
            advance(raw.tell() - before)
            before = raw.tell()


def _json_lines(path: Path, column: str, advance: Callable[[int], None]) -> Iterator[str]:
    for number, row in json_objects(_pieces(path, advance, by_line=True), path):
        if column not in row:
            raise _no_column(path, column, f"line {number} holds {', '.join(row)}")
        if not isinstance(row[column], str):
            raise _no_text(path, column, f"Line {number}", type(row[column]).__name__)
        yield row[column]


def _parquet(path: Path, column: str, advance: Callable[[int], None]) -> Iterator[str]:
    import pyarrow.parquet as pq

    # Opened here, as Arrow assumes that paths are UTF-8.
    with reading(path, "a Parquet table"), path.open("rb") as raw, pq.ParquetFile(raw) as file:
        names = file.schema_arrow.names
        if column not in names:
            raise _no_column(path, column, f"its columns are {', '.join(names)}")
        size, reported = path.stat().st_size, 0
        row = 0
        for batch in file.iter_batches(_ROWS, columns=[column]):
            for value in batch.column(0).to_pylist():
                if not isinstance(value, str):
                    raise _no_text(path, column, f"Row {row}", type(value).__name__)
                row += 1
                yield value
            share = size * row // max(1, file.metadata.num_rows)
            advance(share - reported)
            reported = share


def _text(path: Path, advance: Callable[[int], None]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    lines = io.IncrementalNewlineDecoder(decoder, translate=True)
    rest = ""
    piece = min(_PIECE, max(_SMALLEST_PIECE, path.stat().st_size // _FEWEST_PIECES))
    longest = _AS_LONG_AT_MOST * piece
    for chunk in itertools.chain(_pieces(path, advance, by_line=False), [b""]):
        try:
            rest += lines.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raise InputFileError(
                f"{path}: the file is not UTF-8 ({error.reason} near "
                f"{error.object[error.start : error.end]!r}). Convert it."
            ) from error
        begin = 0
        while True:
            cut = rest.find("\n\n", begin + piece, begin + longest) + 2
            if cut < 2 and len(rest) - begin > longest:
                cut = rest.rfind("\n", begin + piece, begin + longest) + 1 or begin + longest
            if cut < 2:
                break
            yield rest[begin:cut]
            begin = cut
        rest = rest[begin:]
    yield rest


def _no_column(path: Path, column: str, found: str) -> Exception:
    return InvalidInputError(
        f"must name a column of texts, not {column!r} of {path.name}: {found}.",
        parameter="column",
    )


def _no_text(path: Path, column: str, where: str, kind: str) -> InputFileError:
    return InputFileError(
        f"{path}: {where} has {kind} in column {column!r}, not a text. Correct or drop it."
    )
