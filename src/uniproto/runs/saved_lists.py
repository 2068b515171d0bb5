"""Neighbour lists saved while they are built, which can be most of a long run.

They lie beside the checkpoint of the run, piece by piece, and belong to the same inputs and
options. Each piece is a file that is written whole and begins with its own digest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from numpy.typing import NDArray

from uniproto.runs.checkpoint import Checkpoint

_SECONDS_BETWEEN_WRITES = 5.0


class SavedLists:
    """Pieces of lists, by the first row of each."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._written = time.monotonic()

    def is_time(self) -> bool:
        """Whether so much has been computed that saving it pays."""
        return time.monotonic() - self._written >= _SECONDS_BETWEEN_WRITES

    def write(self, first: int, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._checkpoint.beside(f"lists-{first}").write_arrays(arrays)
        self._written = time.monotonic()

    def read(self) -> Iterator[tuple[int, dict[str, NDArray[Any]]]]:
        """The pieces in order, each with its first row."""
        first = 0
        while (arrays := self._checkpoint.beside(f"lists-{first}").read_arrays()) is not None:
            yield first, arrays
            first += len(arrays["stop"])
