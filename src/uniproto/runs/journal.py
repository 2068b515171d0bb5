"""Append-only files of JSON lines, with one writer at a time, that survive a kill."""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError
from uniproto.runs.atomic import sync, write_text, writing
from uniproto.runs.lock import hold
from uniproto.runs.records import without_infinity


class Journal:
    """An append-only file of JSON values, one per line.

    The file is locked until it is closed, by `with` or by garbage collection. An incomplete last
    line, left by a kill, is ignored, and removed by the next `append`; opening a file never
    changes it, as it may belong to another program. `what` describes the content in messages,
    e.g. "the answers".

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "answers.jsonl"
    >>> Journal(path, "the answers").append({"id": 1}, {"id": 2})
    >>> Journal(path, "the answers").entries
    [{'id': 1}, {'id': 2}]
    """

    def __init__(self, path: Path, what: str, *, fresh: bool = False) -> None:
        self.path, self.what = path, what
        self._size = 0  # bytes of complete lines
        self.incomplete = b""  # the last line, if it is incomplete
        with writing(path, what):
            if path.is_symlink():
                raise OSError("it is a link, and links are not followed")
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b")
            self.close = weakref.finalize(self, self._file.close)  # which releases the lock, too
            hold(self._file, path, what)
            if fresh:
                self._file.truncate(0)
            self.entries: list[Any] = self._read()
            sync(path.parent)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def append(self, *values: Any) -> None:
        """Append values and wait until they are on disk; if writing fails, none are added."""
        lines = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
        # Lone surrogates, which a model may write, become JSON escapes.
        content = lines.encode("utf-8", "backslashreplace")
        descriptor = self._file.fileno()
        with writing(self.path, self.what):
            os.ftruncate(descriptor, self._size)
            try:
                rest = memoryview(content)
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(descriptor, self._size)
                raise
        self._size += len(content)
        self.entries += values

    def damaged(self, reason: object) -> InputFileError:
        """The error for a file that does not hold what it should."""
        return InputFileError(
            f"{self.path}: the file must hold {self.what}, one JSON value per line. It is damaged "
            f"or something else ({reason}). Move it away, or choose another folder with --out."
        )

    def _read(self) -> list[Any]:
        """The values of all complete lines."""
        self._file.seek(0)
        content = self._file.read()
        self._size = content.rfind(b"\n") + 1
        self.incomplete = content[self._size :]
        try:
            return [json.loads(line) for line in content[: self._size].split(b"\n")[:-1]]
        except (ValueError, RecursionError) as error:
            raise self.damaged(error) from error


METRICS = "metrics.jsonl"


class MetricsFile:
    """Appends rows to FOLDER/metrics.jsonl.

    A resumed run repeats the steps after its checkpoint: rows after step `kept_to` are dropped.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> metrics = MetricsFile(folder, kept_to=None)
    >>> for step in (1, 2, 3):
    ...     metrics.add({"step": step, "train_loss": 1 / step})
    >>> [row["step"] for row in MetricsFile(folder, kept_to=2).rows]
    [1, 2]
    """

    def __init__(self, folder: Path, kept_to: int | None) -> None:
        self.path = folder / METRICS
        until = -1 if kept_to is None else kept_to
        kept = [row for row in read_metrics(folder) if row["step"] <= until]
        with writing(self.path, "the metrics"):
            write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))
        self._journal = Journal(self.path, "the metrics")
        self.rows = self._journal.entries

    def add(self, row: Mapping[str, Any]) -> None:
        """Append a row, and wait until it is on disk."""
        self._journal.append(without_infinity(row))


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run, by step; incomplete lines are skipped."""
    try:
        lines = (folder / METRICS).read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return []
    rows: dict[int, dict[str, Any]] = {}
    for line in lines:
        try:
            row = json.loads(line)
            rows[row["step"]] = row
        except (ValueError, KeyError, TypeError):
            continue
    return [rows[step] for step in sorted(rows)]
