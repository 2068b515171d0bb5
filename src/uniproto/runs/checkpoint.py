"""Checkpoints: the picks so far, from which a killed run resumes.

A checkpoint holds the picks in order and the mass they claimed; the rest of a greedy run's state
follows from those and the inputs. Files are written atomically, begin with their own digest and
name the inputs and options they belong to; damaged ones and those of other runs are refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.errors import InputFileError
from uniproto.runs.atomic import atomic_write, writing
from uniproto.runs.lock import PRIVATE

CHECKPOINT = "checkpoint.npz"
_SECONDS_BETWEEN_WRITES = 1.0
_SECONDS_BETWEEN_LISTS = 5.0

PICKING, SEARCHING = "picking", "searching"  # stages
State = dict[str, float]


@dataclass(frozen=True)
class SavedPicks:
    """Saved picks: source rows, the cost of each, and the mass each claimed, if final.

    `state` is the progress of the `stage` beyond what the rows imply.
    """

    rows: NDArray[np.int64]
    costs: NDArray[np.float64]
    plan: sp.csr_array | None
    stage: str = PICKING
    state: State = field(default_factory=dict)


class Checkpoint:
    """The file of a run's picks. A run resumes only from a checkpoint of the same `identity`."""

    def __init__(self, path: Path, identity: Mapping[str, Any]) -> None:
        self.path = path
        self._identity = json.dumps(identity, sort_keys=True, default=str)
        self._written = time.monotonic()

    def part(self, name: str) -> Checkpoint:
        """The checkpoint of one group of a larger run."""
        return self.sibling(name, hashlib.sha256(name.encode()).hexdigest()[:16])

    def sibling(self, name: str, ending: str | None = None) -> Checkpoint:
        """Another file of the same run, with this suffix in its name."""
        path = self.path.with_name(f"{self.path.stem}-{ending or name}{self.path.suffix}")
        return Checkpoint(path, {"whole": self._identity, "part": name})

    def read(self) -> SavedPicks | None:
        """The saved picks, or None if there is no file."""
        arrays = self.read_arrays()
        if arrays is None:
            return None
        try:
            plan = None
            if "data" in arrays:
                shares = (arrays["data"], arrays["indices"], arrays["indptr"])
                plan = sp.csr_array(shares, shape=tuple(arrays["shape"].tolist()))
                plan.check_format(full_check=True)
            state = json.loads(str(arrays["state"]))
            return SavedPicks(arrays["rows"], arrays["costs"], plan, str(arrays["stage"]), state)
        except (KeyError, ValueError) as error:
            raise self.refused(f"it is not a checkpoint of this version ({error})") from error

    def read_arrays(self) -> dict[str, NDArray[Any]] | None:
        """The arrays in the file, or None if there is none."""
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.refused(f"it cannot be read ({error.strerror})") from error
        digest, _, payload = content.partition(b"\n")
        if digest.decode("ascii", "replace") != hashlib.sha256(payload).hexdigest():
            raise self.refused("it is damaged")
        try:
            with np.load(io.BytesIO(payload), allow_pickle=False) as file:
                arrays = dict(file)
                identity = str(arrays.pop("identity"))
        except (KeyError, ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
            raise self.refused(f"it is not a checkpoint of this version ({error})") from error
        if identity != self._identity:
            raise self.refused("it belongs to other inputs or options")
        return arrays

    def write(self, picks: SavedPicks, *, now: bool = False) -> None:
        """Write these picks, at most once a second unless `now`."""
        if not now and time.monotonic() - self._written < _SECONDS_BETWEEN_WRITES:
            return
        arrays: dict[str, Any] = {
            "rows": picks.rows,
            "costs": picks.costs,
            "stage": np.array(picks.stage),
            "state": np.array(json.dumps(picks.state)),
        }
        if picks.plan is not None:
            plan = picks.plan
            arrays |= {"data": plan.data, "indices": plan.indices, "indptr": plan.indptr}
            arrays["shape"] = np.array(plan.shape)
        self.write_arrays(arrays)

    def write_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Replace the content of the file."""
        buffer = io.BytesIO()
        entries: dict[str, Any] = {"identity": np.array(self._identity), **arrays}
        np.savez(buffer, **entries)
        payload = buffer.getvalue()
        with writing(self.path, "the checkpoint"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(self.path) as file:
                file.write(hashlib.sha256(payload).hexdigest().encode() + b"\n" + payload)
        self._written = time.monotonic()

    def remove(self) -> None:
        """Remove all files of the run, after its result has been saved."""
        part = r"(-[0-9a-f]{16})?(-lists-\d+)?"
        own = re.compile(rf"{re.escape(self.path.stem)}{part}{self.path.suffix}")
        folder = self.path.parent
        for file in folder.iterdir() if folder.is_dir() else ():
            if own.fullmatch(file.name):
                file.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            if folder.name == PRIVATE:
                folder.rmdir()

    def refused(self, reason: str) -> InputFileError:
        """The error for a checkpoint that cannot be used."""
        return InputFileError(
            f"{self.path}: the checkpoint cannot be used: {reason}. Delete it to start over, or "
            "choose another output folder."
        )


class SavedLists:
    """Neighbour lists that are saved piece by piece, each named by its first row."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._written = time.monotonic()

    def is_time(self) -> bool:
        """Whether the last piece was written long enough ago."""
        return time.monotonic() - self._written >= _SECONDS_BETWEEN_LISTS

    def write(self, first: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._checkpoint.sibling(f"lists-{first}").write_arrays(arrays)
        self._written = time.monotonic()

    def read(self, like: Mapping[str, NDArray[Any]]) -> Iterator[tuple[int, Any]]:
        """The pieces in order; they must have the types and widths of `like`."""
        first = 0
        while (arrays := self._checkpoint.sibling(f"lists-{first}").read_arrays()) is not None:
            count = len(arrays["stop"]) if "stop" in arrays else 0
            fits = 0 < count <= len(like["stop"]) - first and all(
                name in arrays
                and arrays[name].dtype == known.dtype
                and arrays[name].shape == (count, *known.shape[1:])
                for name, known in like.items()
            )
            if not fits:
                raise self._checkpoint.refused("its lists are those of another problem")
            yield first, arrays
            first += count
