"""Neighbour lists saved while they are built, which can be most of a long run.

They lie beside the checkpoint of the run, piece by piece, and belong to the same inputs and
options. Each piece is a file that is written whole and begins with its own digest.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
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

    def read(self, like: Mapping[str, NDArray[Any]], columns: int) -> Iterator[tuple[int, Any]]:
        """The pieces in order, checked: arrays of these types and widths, and columns that exist.

        Compiled code follows these numbers, so that a file that holds others is refused.
        """
        first = 0
        while (arrays := self._checkpoint.beside(f"lists-{first}").read_arrays()) is not None:
            count = len(arrays["stop"]) if "stop" in arrays else 0
            fits = 0 < count <= len(like["stop"]) - first and all(
                name in arrays
                and arrays[name].dtype == known.dtype
                and arrays[name].shape == (count, *known.shape[1:])
                for name, known in like.items()
            )
            if not fits or not _are_lists(arrays, columns):
                raise self._checkpoint.refused("its lists are those of another problem")
            yield first, arrays
            first += count


def _are_lists(arrays: Mapping[str, NDArray[Any]], columns: int) -> bool:
    prefix, rest, stop, where = (arrays[name] for name in ("prefix", "rest", "stop", "columns"))
    ordered = (prefix >= 0) & (prefix <= rest) & (rest <= stop) & (stop <= where.shape[1])
    listed = np.arange(where.shape[1]) < stop[:, None]
    exist = (where >= 0) & (where < columns) | ~listed
    return bool(ordered.all() and exist.all() and not np.isnan(arrays["tail"]).any())
