"""Independent pieces of work on all cores.

Each piece runs its matrix products on one core and the pieces run side by side. Letting the
matrix library use all cores inside a piece instead would leave its idle threads spinning while
our own loops want the cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """The results of `work` on each piece, in order.

    >>> list(side_by_side(abs, [-1, 2]))
    [1, 2]
    """
    pieces = list(pieces)
    cores = available_cores()
    if len(pieces) < 2 or cores < 2:
        yield from map(work, pieces)
        return
    with _libraries().limit(limits=1, user_api="blas"), ThreadPoolExecutor(cores) as executor:
        try:
            yield from executor.map(work, pieces)
        finally:  # an error or Ctrl-C does not wait for pieces that have not begun
            executor.shutdown(cancel_futures=True)


@cache
def _libraries() -> Any:
    """The matrix libraries loaded: finding them takes milliseconds, so it is done once."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def pieces_of(count: int, step: int) -> list[slice]:
    """Slices of at most `step` that cover `range(count)`."""
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def finish(results: Iterable[object]) -> None:
    """Wait for all pieces where only their effect matters."""
    for _ in results:
        pass
