"""Progress bars: on a terminal, after a second, with the time left; silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Advance(Protocol):
    """Says that a stage has moved on, and a word about where it stands."""

    def __call__(self, steps: int, note: str = "") -> None: ...


def no_bar(steps: int, note: str = "") -> None:
    """Nobody is watching."""


class Progress:
    """Shows the stages of long work. `shown=None` means: only where a person is watching."""

    def __init__(self, shown: bool | None = None) -> None:
        self.shown = sys.stderr.isatty() if shown is None else shown

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Advance]:
        """Yields `advance(steps, note)`, to be called as the stage moves on.

        >>> with Progress(shown=False).stage("lists", 3) as advance:
        ...     advance(3)
        """
        if not self.shown:
            yield no_bar
            return
        from tqdm import tqdm

        with tqdm(total=total, desc=name, unit="", file=sys.stderr, delay=1.0) as bar:

            def advance(steps: int, note: str = "") -> None:
                if note:
                    bar.set_postfix_str(note, refresh=False)
                bar.update(steps)

            yield advance
