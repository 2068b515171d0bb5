"""The metrics of a training run: a line of JSON per logged step, continued after a kill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uniproto.runs.atomic import unwritable, write_text
from uniproto.runs.journal import Journal
from uniproto.runs.records import without_infinity

METRICS = "metrics.jsonl"


class MetricsFile:
    """Appends rows to FOLDER/metrics.jsonl.

    A run that goes on from a step makes the rows after it again, so `kept_to` drops them, and with
    them a line that a kill cut short.

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
        rows = [] if kept_to is None else read_metrics(folder)
        self.rows = [row for row in rows if row["step"] <= (kept_to or 0)]
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        try:
            write_text(self.path, text)
        except OSError as error:
            raise unwritable(self.path, error, "metrics") from error
        self._journal = Journal(self.path, "the metrics")

    def add(self, row: Mapping[str, Any]) -> None:
        """Write a row, and wait until it is on the disk."""
        plain = without_infinity(row)
        self._journal.append(plain)
        self.rows.append(plain)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run, by step; a line that a kill cut short is not one."""
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
