"""The answered questions of an evaluation, in OUT: they survive a kill and are never mixed.

OUT/evaluation.json says what was asked of whom, and OUT/items.jsonl holds one line per answered
question. The same evaluation goes on where it stopped; another one is refused.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, OutputError, UniprotoError
from uniproto.runs.atomic import write_json
from uniproto.runs.folder import require_same
from uniproto.runs.lock import hold

SETTINGS, ITEMS = "evaluation.json", "items.jsonl"
RIGHT, WRONG = "right", "wrong"  # verdicts
BY_PROGRAM, BY_REASONING = "program", "reasoning"  # how a question was answered
BY_LIKELIHOOD, NOT_ANSWERED = "likelihood", "no answer"
Item = dict[str, Any]


class Items:
    """The answered questions in a folder, and a place for more.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> Items(folder, {"limit": 2}).add([{"dataset": "cb", "id": "cb-0", "verdict": "right"}])
    >>> again = Items(folder, {"limit": 2})
    >>> "cb-0" in again, "cb-1" in again
    (True, False)
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], fresh: bool = False) -> None:
        self.folder, self.path = folder, folder / ITEMS
        self._items: dict[str, Item] = {}
        wanted = json.loads(json.dumps(settings))
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
            weakref.finalize(self, self._file.close)  # which lets go of the file, too
            hold(self._file, self.path, "the answers")
            if fresh:
                self._file.truncate(0)
            self._read()
            self._check(wanted)
            write_json(folder / SETTINGS, wanted)
        except OSError as error:
            raise (
                error if isinstance(error, UniprotoError) else unwritable(folder, error)
            ) from error

    def __contains__(self, id: str) -> bool:
        return id in self._items

    def __len__(self) -> int:
        return len(self._items)

    def add(self, items: Iterable[Item]) -> None:
        """Keep answered questions; when this returns, they are on the disk."""
        new = list(items)
        lines = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in new)
        try:
            # A model may write half of a surrogate pair, which no file can hold as it is.
            self._file.write(lines.encode("utf-8", "backslashreplace"))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise unwritable(self.folder, error) from error
        self._items |= {item["id"]: item for item in new}

    def in_order_of(self, ids: Iterable[str]) -> list[Item]:
        return [self._items[id] for id in ids]

    def _read(self) -> None:
        """Take over what is there; a line that a kill left half-written is cut off."""
        self._file.seek(0)
        lines = self._file.read().split(b"\n")
        torn = len(lines.pop())
        if torn:
            self._file.truncate(self._file.tell() - torn)
        try:
            read = [json.loads(line) for line in lines]
            self._items = {item["id"]: item for item in read}
        except (ValueError, KeyError, TypeError) as error:
            raise InputFileError(
                f"{self.path}: every line must hold one answered question. It is damaged or "
                f"something else ({error}). Start over with --fresh, or choose another folder with "
                "--out."
            ) from error

    def _check(self, wanted: Mapping[str, Any]) -> None:
        if not self._items:
            return
        try:
            there = json.loads((self.folder / SETTINGS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputFileError(
                f"{self.folder / SETTINGS}: the file must say what was asked in {ITEMS}. It cannot "
                f"be read ({error}). Start over with --fresh, or choose another folder with --out."
            ) from error
        require_same(there, wanted, self.folder, "answers of the same evaluation")


def unwritable(folder: Path, error: OSError) -> OutputError:
    """What to say where results cannot be written."""
    return OutputError(
        f"{folder}: the results must go to a folder that can be written. Writing failed "
        f"({error.strerror or error}). Choose another one with --out, or free some space."
    )
