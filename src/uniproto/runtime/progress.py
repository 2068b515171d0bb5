"""Progress bars: on a terminal, after a second, with the time left; silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

silent = False  # set by commands that are asked to say nothing


class Progress:
    """Shows the stages of long work. `shown=None` means: only where a person is watching."""

    def __init__(self, shown: bool | None = None) -> None:
        self.shown = sys.stderr.isatty() if shown is None else shown

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        """Yields `advance(steps)`, to be called as the stage moves on.

        >>> with Progress(shown=False).stage("lists", 3) as advance:
        ...     advance(3)
        """
        if not self.shown:
            yield lambda steps: None
            return
        from tqdm import tqdm

        with tqdm(total=total, desc=name, unit="", file=sys.stderr, delay=1.0) as bar:

            def advance(steps: int) -> None:
                bar.update(steps)

            yield advance
