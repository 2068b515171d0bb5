"""Our best rows for the objective: whichever search suits the problem."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ClassVar

from uniproto.errors import WrongTypeError, require_name, require_seconds
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.contract import Picks
from uniproto.methods.greedy import Greedy
from uniproto.methods.thorough.line import can_solve_on_line
from uniproto.methods.thorough.proof import MOST_SETS, count_of_sets
from uniproto.methods.thorough.table import FEW_PAIRS, memory_of_table
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import readable, require_memory
from uniproto.runtime.progress import Progress
from uniproto.runtime.settings import setting
from uniproto.transport.prototypes import FEW, SMALL

SEARCHES = ("auto", "multilevel", "thorough")
_TARGETS_EACH = 200  # from which on prototypes are few of many, and start on a sample
_MOST_PAIRS = 15_000_000  # of prototypes and targets elsewhere: about a second for a plan
_PAYS_FROM_DISK = 10**8  # pairs from which the search reads a small part of the rows
_BYTES = 24  # for each pair of a prototype and a target: its cost, in two precisions and copied

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

    It starts from the greedy algorithm's picks (`Greedy`), from free centres and from random rows,
    on a sample where rows are many; exchanges single rows as long as that lowers the exact cost;
    and then moves prototypes elsewhere. Small problems and rows on a line are searched for a proof
    that no rows are better, too (`Selection.certificate`). All that takes a few seconds at most up
    to some 20,000 rows, the same work every time. `seconds` lets the very same search go on for so
    long in all: more are never worse. Ctrl-C ends it and keeps the best rows so far. `search` is
    for comparisons: `"thorough"` and `"multilevel"` are the search for small problems and that for
    all others.

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
        """Whether to compare it by several seeds; they hardly change the cost of the default."""
        return self.search != "auto"

    def __post_init__(self) -> None:
        require_name("search", self.search, SEARCHES)
        if self.seconds is not None:
            object.__setattr__(
                self, "seconds", require_seconds("seconds", self.seconds, "None or ")
            )

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        chosen = self.check(problem)
        if chosen.search == "thorough":
            from uniproto.methods.thorough.search import pick_thoroughly

            picks = pick_thoroughly(problem, self.seconds, progress)
        elif chosen.search == "multilevel":
            from uniproto.methods.multilevel.search import search

            picks = search(problem, Greedy(), self.seconds, progress)
        else:
            picks = self._greedy(problem, progress)
        return replace(picks, notes={"search": chosen.search, "why": chosen.why, **picks.notes})

    def check(self, problem: Problem) -> SearchChoice:
        """The search that suits the problem; refuses what limits or memory do not allow."""
        chosen = choose_search(problem, self.search)
        rows, needed = problem.k, 0
        if chosen.search == "thorough":
            from uniproto.fills.list_memory import bytes_of_shortest_lists

            # Refuses what none can work with.
            bytes_of_shortest_lists(problem, len(problem.candidates))
            rows, needed = problem.m, memory_of_table(problem)
        elif chosen.search == "multilevel":
            needed = memory_of_search(problem)
        require_memory(
            needed,
            problem.memory,
            f"the {chosen.search} search holds {rows:,} × {problem.n:,} costs",
            f"Allow at least memory={needed}, or use method='greedy'.",
        )
        return chosen

    def _greedy(self, problem: Problem, progress: Progress) -> Picks:
        begin = time.perf_counter()
        picks = Greedy().pick(problem, progress)
        left = (self.seconds or 0.0) - (time.perf_counter() - begin)
        if left <= 0 or memory_of_search(problem) > problem.memory:
            return picks
        from uniproto.methods.multilevel.search import go_on

        return go_on(problem, picks.rows, left, progress)


# --- which search suits a problem -----------------------------------------------------------------
# Rows on a line and problems so small that a proof may be found are solved as well as they can be,
# without compiled code. All others are searched from greedy picks and free centres by exchanges,
# unless the plans of k prototypes, k · n costs, take too much work or memory: greedy picks stay.


@dataclass(frozen=True)
class SearchChoice:
    """The search to use, and why in a few words."""

    search: str
    why: str


def choose_search(problem: Problem, search: str) -> SearchChoice:
    """The search as told, or the one that suits the problem.

    >>> import numpy as np
    >>> choose_search(Problem(np.eye(3)).with_k(2), "auto")
    SearchChoice(search='thorough', why='3 × 3 costs are few')
    """
    m, n, k = problem.m, problem.n, problem.k
    if search != "auto":
        return SearchChoice(search, "as asked")
    if not problem.lists.exact:
        return SearchChoice("greedy", "approximate lists")
    if can_solve_on_line(problem):
        return SearchChoice("thorough", "the rows lie on a line")
    if m * n <= SMALL:
        return SearchChoice("thorough", f"{m:,} × {n:,} costs are few")
    if m * n <= FEW_PAIRS and count_of_sets(problem) <= MOST_SETS:
        return SearchChoice("thorough", f"{count_of_sets(problem):,} sets of rows are few")
    if (
        m * n < _PAYS_FROM_DISK
        and isinstance(problem.costs, FeatureCosts)
        and problem.costs.on_disk
    ):
        return SearchChoice("greedy", "rows on disk are read in parts")
    if k > FEW and k >= n:  # exchanges gain a tenth of a per cent then, and take long
        return SearchChoice("greedy", f"{k:,} prototypes are no fewer than {n:,} targets")
    is_few_of_many = k <= FEW and n >= _TARGETS_EACH * k and problem.limits is None
    if not is_few_of_many and k * n > _MOST_PAIRS:
        return SearchChoice("greedy", f"plans of {k:,} × {n:,} costs take long")
    if memory_of_search(problem) > problem.memory:
        return SearchChoice(
            "greedy", f"{k:,} × {n:,} costs need {readable(memory_of_search(problem))}"
        )
    return SearchChoice("multilevel", "greedy picks and free centres, improved by exchanges")


def memory_of_search(problem: Problem) -> int:
    """The memory that the multilevel search takes of what is allowed, in bytes."""
    if problem.m * problem.n <= FEW_PAIRS:
        return 0
    return _BYTES * problem.k * problem.n


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
