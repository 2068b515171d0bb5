"""Treat SIGTERM, which batch systems send, as Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class Terminated(KeyboardInterrupt):
    """SIGTERM was received; a KeyboardInterrupt, so that work is saved as after Ctrl-C."""


def exit_status(error: KeyboardInterrupt) -> int:
    """The exit status of a process ended by this signal, as shells define it."""
    return 128 + (signal.SIGTERM if isinstance(error, Terminated) else signal.SIGINT)


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM, unless another handler is installed."""
    in_charge = threading.current_thread() is threading.main_thread()
    if not in_charge or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is _raise:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM to the end of a short block."""
    waiting: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(signal.getsignal(number)):
                handlers[number] = signal.signal(number, lambda number, _: waiting.append(number))
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for late in waiting[:1]:
            signal.raise_signal(late)


def _raise(number: int, frame: object) -> NoReturn:
    raise Terminated
