"""Progress of long computations: a bar in a terminal, an occasional line elsewhere.

Both show the share done and the time left. A thread draws them, so that they are updated during
long steps, too.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Advance(Protocol):
    """Reports completed steps of a stage, with an optional note."""

    def __call__(self, steps: float, note: str = "") -> None: ...


_FIRST_BAR, _NEXT_BAR = 1.0, 0.5  # seconds; shorter work shows nothing
_LINES_APART = 30.0  # seconds between lines in a log file

silent = False  # set by --quiet


class Progress:
    """Shows the stages of long work.

    `shown` is True for bars and False for nothing; None means bars in a terminal or a notebook, and
    lines if stderr is a file or a pipe.
    """

    def __init__(self, shown: bool | None = None) -> None:
        watched = sys.stderr is not None and sys.stderr.isatty()
        self.shown = watched if shown is None else shown
        self._silent = shown is False or sys.stderr is None

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Advance]:
        """Yields `advance(steps, note)`, to be called after each part of the work.

        >>> with Progress(shown=False).stage("lists", 3) as advance:
        ...     advance(3)
        """
        if self._silent or total <= 0:
            yield unseen
            return
        stage = _Stage(name, total)
        watcher = threading.Thread(
            target=stage.draw_bar if self.shown else stage.print_lines, daemon=True
        )
        watcher.start()
        try:
            yield stage.advance
        finally:
            stage.over.set()
            watcher.join()


def unseen(steps: float, note: str = "") -> None:
    """An `advance` that shows nothing."""


class _Stage:
    """The state of a stage, for the thread that shows it."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done, self.note = name, total, 0.0, ""
        self.begin, self.over = time.monotonic(), threading.Event()

    def advance(self, steps: float, note: str = "") -> None:
        self.done += steps
        self.note = note or self.note

    def draw_bar(self) -> None:
        if self.over.wait(_FIRST_BAR):
            return
        from tqdm import tqdm

        # Draw every update, so that the clock advances; the speed is an average over the stage.
        drawn: dict[str, Any] = {"mininterval": 0, "miniters": 0, "smoothing": 0}
        with tqdm(total=self.total, desc=self.name, unit="", file=sys.stderr, **drawn) as bar:
            bar.start_t -= time.monotonic() - self.begin
            while True:
                over = self.over.wait(_NEXT_BAR)
                bar.set_postfix_str(self.note, refresh=False)
                bar.update(self._whole() - bar.n)
                if over:
                    return

    def print_lines(self) -> None:
        while not self.over.wait(_LINES_APART):
            try:
                print(self._line(), file=sys.stderr, flush=True)
            except (OSError, ValueError):  # stderr was closed; the work continues
                return

    def _line(self) -> str:
        passed = time.monotonic() - self.begin
        share = min(self.done / self.total, 1.0)
        left = f", about {duration(passed * (1 - share) / share)} left" if share > 0 else ""
        return (
            f"uniproto: {self.name}: {share:.0%} done ({self._whole():,} of {self.total:,}), "
            f"{duration(passed)} passed{left}{', ' if self.note else ''}{self.note}"
        )

    def _whole(self) -> int:
        return min(round(self.done), self.total)


def duration(seconds: float) -> str:
    """Format a duration in its two largest units.

    >>> duration(42.4), duration(90), duration(7325), duration(200_000)
    ('42 s', '1 min 30 s', '2 h 2 min', '2 d 7 h')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [(days, "d"), (hours, "h"), (minutes, "min"), (rest, "s")]
    first = next((place for place, (amount, _) in enumerate(parts) if amount), 3)
    return " ".join(
        f"{amount} {unit}" for amount, unit in parts[first : first + 2] if amount or first == 3
    )
