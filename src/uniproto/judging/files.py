"""Reading the files of benchmarks: plain or compressed, alone or in an archive."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

from uniproto.data.files import json_objects
from uniproto.errors import InputFileError

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst")


def is_archive(path: Path) -> bool:
    """Whether a file's name says that it holds other files.

    >>> is_archive(Path("glue.tar.zst")), is_archive(Path("test.jsonl.zst"))
    (True, False)
    """
    return path.name.lower().endswith(ARCHIVES)


def read_text(path: Path) -> str:
    """A text file, decompressed where its name ends in .zst or .gz."""
    import pyarrow as pa

    compression = {".zst": "zstd", ".gz": "gzip"}.get(path.suffix.lower())
    try:
        with pa.input_stream(str(path), compression=compression) as stream:
            return bytes(stream.read()).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def read_member(archive: Path, ending: str) -> str | None:
    """The text of the archive's file whose path ends so, None where there is none."""
    import pyarrow as pa

    compression = {".zst": "zstd", ".gz": "gzip", ".tgz": "gzip"}.get(archive.suffix.lower())
    try:
        with (
            pa.input_stream(str(archive), compression=compression) as stream,
            tarfile.open(fileobj=stream, mode="r|") as files,
        ):
            for member in files:
                if member.isfile() and f"/{member.name}".endswith(f"/{ending}"):
                    content = files.extractfile(member)
                    assert content is not None  # it is a file
                    return content.read().decode("utf-8-sig")
    except (OSError, ValueError, tarfile.TarError) as error:
        raise unreadable(archive, error) from error
    return None


def json_lines(text: str, name: str) -> list[dict[str, Any]]:
    """One object per line; lines end with \\n only, as texts may hold other separators.

    >>> json_lines('{"a": 1}\\n{"a": 2}\\n', "x.jsonl")
    [{'a': 1}, {'a': 2}]
    """
    return [row for _, row in json_objects(text.split("\n"), name)]


def field(row: dict[str, Any], key: str, name: str) -> Any:
    """A value that must be there; the error says what is."""
    if row.get(key) is None:
        raise InputFileError(
            f"{name}: every example must have {key!r}. Got one with {', '.join(row) or 'nothing'} "
            "instead. Is it the file of another benchmark, or of a test set without labels?"
        )
    return row[key]


def unreadable(path: Path, error: BaseException) -> InputFileError:
    reason = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
    reason = reason.strip().splitlines()[0] if reason.strip() else type(error).__name__
    return InputFileError(
        f"{path}: the benchmark's file must be readable. It could not be read ({reason}). Check "
        "the path, and that the file is complete."
    )
