"""Independent pieces of work on all cores.

Pieces run in parallel, each with its matrix products on one core. If BLAS used all cores inside a
piece, its idle threads would spin while our own loops need the cores.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from functools import cache
from typing import Any, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")

_thread = threading.local()


def available_cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_map(work: Callable[[Piece], Result], pieces: Iterable[Piece]) -> Iterator[Result]:
    """The results of `work` on each piece, in order; pieces run on all cores.

    >>> list(parallel_map(abs, [-1, 2]))
    [1, 2]
    """
    pieces = list(pieces)
    cores = available_cores()
    if len(pieces) < 2 or cores < 2 or getattr(_thread, "is_worker", False):
        yield from map(work, pieces)
        return
    with blas_on_one_core():
        workers = _workers(cores, os.getpid())
        # Each runs in a copy of the caller's context, which holds NumPy's error state.
        futures = deque(workers.submit(copy_context().run, work, piece) for piece in pieces)
        try:
            while futures:  # a result is not kept once it has been yielded
                yield futures.popleft().result()
        finally:  # after an error or Ctrl-C, wait only for pieces that have started
            for future in futures:
                future.cancel()
            wait(futures)


def parallel_for(work: Callable[[Piece], object], pieces: Iterable[Piece]) -> None:
    """Run `work` on each piece, for its side effects."""
    for _ in parallel_map(work, pieces):
        pass


@contextmanager
def blas_on_one_core() -> Iterator[None]:
    """Limit BLAS to one core, for products so small that synchronising threads costs more.

    >>> with blas_on_one_core():
    ...     pass
    """
    if getattr(_thread, "is_limited", False):  # asking for it takes a millisecond
        yield
        return
    with _libraries().limit(limits=1, user_api="blas"):
        _thread.is_limited = True
        try:
            yield
        finally:
            _thread.is_limited = False


@contextmanager
def one_thread() -> Iterator[None]:
    """Run a block on one core: our own loops, BLAS and Arrow."""
    import pyarrow as pa
    from threadpoolctl import threadpool_limits

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    before = getattr(_thread, "is_worker", False)
    _mark_worker()
    try:
        with threadpool_limits(1):
            yield
    finally:
        _thread.is_worker = before


@cache
def _workers(cores: int, process: int) -> ThreadPoolExecutor:
    """Threads that are reused between calls; a forked process starts its own."""
    return ThreadPoolExecutor(cores, "uniproto", initializer=_mark_worker)


def _mark_worker() -> None:
    """Run nested parallel work on its own thread, since waiting for others could deadlock."""
    _thread.is_worker = True


@cache
def _libraries() -> Any:
    """The BLAS libraries in use, looked up once, as that takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def pieces_of(count: int, step: int) -> list[slice]:
    """Slices of at most `step` that cover `range(count)`."""
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]
