"""Sequences of a token file, and the batches of them that the steps of a run see."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_AHEAD = 2  # batches read while a step runs


class Sequences:
    """A file of tokens as sequences of length + 1: the last token is only predicted.

    Sequence i begins where the predictions of the one before it end, so every token but the first
    is predicted once. The rest at the end, shorter than a sequence, is left out.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], length: int) -> None:
        self.length = length
        size = path.stat().st_size // dtype.itemsize
        # An empty file cannot be mapped.
        self.tokens = np.memmap(path, dtype, mode="r") if size else np.empty(0, dtype)

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.length)

    def read(self, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
        """int32[number of sequences, length + 1]."""
        places = numbers[:, None] * self.length + np.arange(self.length + 1)
        return self.tokens[places].astype(np.int32)


def batch_numbers(step: int, size: int, count: int, seed: int) -> NDArray[np.int64]:
    """The sequences of a step's batch: those of `count` in an order drawn anew for every epoch.

    A function of the step and the seed alone, so a run that goes on sees what it would have seen.

    >>> batch_numbers(0, 4, 6, seed=0), batch_numbers(1, 4, 6, seed=0)
    (array([3, 2, 5, 4]), array([0, 1, 1, 4]))
    """
    places = step * size + np.arange(size)
    return np.array([_epoch_order(int(p) // count, count, seed)[int(p) % count] for p in places])


@lru_cache(maxsize=2)  # a batch may reach from one epoch into the next
def _epoch_order(epoch: int, count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(count)


def read_ahead(
    sequences: Sequences, steps: range, size: int, seed: int
) -> Iterator[NDArray[np.int32]]:
    """The batches of these steps in order, read by a thread while earlier ones are used."""

    def read(step: int) -> NDArray[np.int32]:
        return sequences.read(batch_numbers(step, size, len(sequences), seed))

    waiting: deque[Future[NDArray[np.int32]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as reader:
        for step in steps:
            waiting.append(reader.submit(read, step))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
