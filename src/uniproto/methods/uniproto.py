"""Our best rows for the objective: the search, at every size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from uniproto.errors import require_seconds
from uniproto.methods.contract import Picks
from uniproto.methods.greedy import Greedy
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


@dataclass(frozen=True)
class UniProto:
    """The rows of lowest cost that we know how to find.

    It starts from the greedy algorithm's picks (`Greedy`) and from free centres, on a sample where
    rows are many; exchanges single rows as long as that lowers the exact cost; and then moves
    prototypes elsewhere, until that gains next to nothing. Small problems and rows on a line are
    searched for a proof that no rows are better, too (`Selection.certificate`). The same seed leads
    to the same rows, however much memory there is. `seconds` lets the very same search go on until
    then, and ends it then; more than it takes without are never worse. Ctrl-C ends it and keeps
    the best rows so far.

    >>> import uniproto
    >>> method = UniProto(seconds=0.1)
    >>> uniproto.select([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], k=2, method=method).indices
    array([0, 2])
    """

    name: ClassVar[str] = "uniproto"
    draws: ClassVar[bool] = False  # the seed hardly changes the cost

    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None:
            seconds = require_seconds("seconds", self.seconds, "None or ")
            object.__setattr__(self, "seconds", seconds)

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        from uniproto.methods.search.search import search

        return search(problem, Greedy(), self.seconds, progress)
