"""Our best rows for the objective: whichever search suits the problem."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ClassVar

from uniproto.errors import WrongTypeError, require_name, require_seconds
from uniproto.methods.contract import Picks
from uniproto.methods.greedy import Greedy
from uniproto.methods.search_choice import (
    SEARCHES,
    SearchChoice,
    choose_search,
    memory_of_search,
    memory_of_table,
)
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress
from uniproto.runtime.settings import setting

_MOVED = {  # options of old, and what to write instead
    "plan": "Greedy(plan=…)",
    "gains": "Greedy(gains=…)",
    "reg": "Greedy(plan=Entropic(reg, iterations))",
    "iterations": "Greedy(plan=Entropic(reg, iterations))",
    "candidates": "Greedy(sample=…)",
    "polish": "UniProto(seconds=…), or Selection.improve(seconds)",
}


@dataclass(frozen=True)
class UniProto:
    """The rows of lowest cost that we know how to find.

    It starts from the greedy algorithm's picks (`Greedy`) and from free centres, on a sample where
    rows are many; exchanges single rows as long as that lowers the exact cost; and then moves
    prototypes elsewhere. Small problems and rows on a line are searched for a proof that no rows
    are better, too (`Selection.certificate`). All that takes a few seconds at most up to some
    20,000 rows, the same work every time. `seconds` lets the very same search go on for so long in
    all: more are never worse. Ctrl-C ends it and keeps the best rows so far. `search` is for
    comparisons: `"thorough"` and `"multilevel"` are the search for small problems and that for all
    others.

    >>> import uniproto
    >>> method = UniProto(seconds=0.1)
    >>> uniproto.select([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], k=2, method=method).indices
    array([0, 2])
    """

    name: ClassVar[str] = "uniproto"

    search: str = setting("auto", f"of uniproto: {', '.join(SEARCHES)}")
    seconds: float | None = setting(
        None, "of uniproto: go on looking for better rows, for SECONDS in all"
    )

    @property
    def draws(self) -> bool:
        """Whether the seed can change the picks."""
        return self.search != "auto"

    def __post_init__(self) -> None:
        require_name("search", self.search, SEARCHES)
        object.__setattr__(self, "seconds", require_seconds("seconds", self.seconds))

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        chosen = self.check(problem)
        if chosen.search == "thorough":
            picks = self._thorough(problem, progress)
        elif chosen.search == "multilevel":
            picks = self._multilevel(problem, progress)
        else:
            picks = self._greedy(problem, progress)
        return replace(picks, notes={"search": chosen.search, "why": chosen.why, **picks.notes})

    def check(self, problem: Problem) -> SearchChoice:
        """The search that suits the problem; refuses what limits or memory do not allow."""
        chosen = choose_search(problem, self.search)
        if chosen.search == "thorough":
            self._require_table(problem)
        if chosen.search == "multilevel":
            self._require_costs(problem)
        return chosen

    def _require_table(self, problem: Problem) -> None:
        """Check the memory of the thorough search."""
        from uniproto.fills.list_memory import bytes_of_shortest_lists

        bytes_of_shortest_lists(problem, len(problem.candidates))  # refuses what none can work with
        needed = memory_of_table(problem)
        require_memory(
            needed,
            problem.memory,
            f"the thorough search holds {problem.m:,} × {problem.n:,} costs",
            f"Allow at least memory={needed}, or use method='greedy'.",
        )

    def _require_costs(self, problem: Problem) -> None:
        """Check the memory of the multilevel search."""
        needed = memory_of_search(problem)
        require_memory(
            needed,
            problem.memory,
            f"the multilevel search holds {problem.k:,} × {problem.n:,} costs",
            f"Allow at least memory={needed}, or use method='greedy'.",
        )

    def _thorough(self, problem: Problem, progress: Progress) -> Picks:
        from uniproto.methods.thorough.search import pick_thoroughly

        return pick_thoroughly(problem, self.seconds, progress)

    def _multilevel(self, problem: Problem, progress: Progress) -> Picks:
        from uniproto.methods.multilevel.search import search

        return search(problem, Greedy(), self.seconds, progress)

    def _greedy(self, problem: Problem, progress: Progress) -> Picks:
        begin = time.perf_counter()
        picks = Greedy().pick(problem, progress)
        left = (self.seconds or 0.0) - (time.perf_counter() - begin)
        if left <= 0 or memory_of_search(problem) > problem.memory:
            return picks
        from uniproto.methods.multilevel.search import go_on

        return go_on(problem, picks.rows, left, progress)


def _refuse_moved(init: Any) -> Any:
    """Let a constructor say where options of old have gone."""

    @wraps(init)
    def checked(self: UniProto, *args: Any, **options: Any) -> None:
        for name in options:
            if name in _MOVED:
                raise WrongTypeError(f"UniProto has no option {name!r}. Use {_MOVED[name]}.")
        init(self, *args, **options)

    return checked


UniProto.__init__ = _refuse_moved(UniProto.__init__)  # type: ignore[method-assign]
