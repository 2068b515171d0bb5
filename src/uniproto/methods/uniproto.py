"""UniPROT: greedy selection of prototypes of equal weight by partial optimal transport."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np

from uniproto.data.arrays import finite_number
from uniproto.errors import invalid, require_int, require_name, require_seconds
from uniproto.methods.contract import Picks
from uniproto.methods.roads import SEARCHES, Road, memory_of_search, memory_of_table, road_for
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress
from uniproto.runtime.settings import setting
from uniproto.transport.entropic import iterations_for

PLANS = ("extend", "resolve", "entropic")
GAINS = ("approx", "exact")
_DEFAULT_REG = 0.01  # the paper's best λ
_POLISH_SECONDS = 60.0
_DRAWING = ("multilevel", "thorough")  # searches that draw random numbers


def _lies_between(low: float, value: Any, high: float) -> bool:
    return low < finite_number(value) < high


@dataclass(frozen=True)
class Stochastic:
    """Look at a fresh random sample of (m/k)·log(1/ε) candidates before each pick, not at all.

    >>> Stochastic(epsilon=0.1).sample_size(m=1000, k=10)
    231
    """

    epsilon: float

    def __post_init__(self) -> None:
        if not _lies_between(0, self.epsilon, 1):
            raise invalid("epsilon", "must lie between 0 and 1", repr(self.epsilon), "Try 0.1.")

    def sample_size(self, m: int, k: int) -> int:
        return min(m, max(1, math.ceil(-m / k * math.log(self.epsilon))))


@dataclass(frozen=True)
class UniProto:
    """The paper's greedy algorithm, and searches for better rows where they suit the problem.

    Each pick is the candidate whose fill of one unit of unclaimed target mass is cheapest.
    `plan` says what happens to the plan between picks: `"extend"` keeps it and lets the newcomer
    claim its fill, `"resolve"` re-solves it exactly, `"entropic"` re-solves it with entropic
    strength `reg` (λ; 0.01 if not given) in at most `iterations` steps. `"auto"`, the default, is
    the paper's 100, 1000, 2000 or 4000 by the rows of the source; `notes` has the plans that did
    not converge, and the largest share of mass above capacity in any (`marginal_violation`).
    `gains="exact"` compares candidates by the exact rise of the optimal cost instead (the
    classical greedy algorithm, 1 − 1/e), which implies the exact plan.
    `candidates=Stochastic(epsilon)` looks at a random sample before each pick.
    `polish=True` then exchanges single prototypes for better ones, for a minute at most, or for
    as many seconds as given; the cost never goes up. (With groups, no group's own cost does.)

    `search` says where to look: `"greedy"` among all rows at every pick, as in the paper;
    `"thorough"` from several starts and by exact exchanges, for about a second, with a proof
    where it finds one (`Selection.certificate`), for small problems and rows on a line;
    `"multilevel"` by way of free centres on a sample, for few prototypes of many rows; and
    `"auto"` whichever suits. `seconds` is how long to look for something better once there is an
    answer: by exchanges after greedy picks, from more starts in the thorough search, by relocated
    and restarted centres in the multilevel search. Ctrl-C ends that and keeps the best rows so
    far.

    >>> import uniproto
    >>> method = UniProto(plan="resolve")
    >>> uniproto.select([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], k=2, method=method).indices
    array([0, 2])
    """

    name: ClassVar[str] = "uniproto"

    plan: str = setting("extend", f"of uniproto, between picks: {', '.join(PLANS)}")
    gains: str = setting("approx", f"of uniproto: {', '.join(GAINS)}")
    reg: float | None = setting(None, f"plan entropic: strength of the entropy ({_DEFAULT_REG})")
    candidates: str | Stochastic = "all"
    polish: bool | float = setting(False, "of uniproto: then exchange rows for so long (60)")
    iterations: int | str | None = setting(
        None, "plan entropic: steps of its solver (auto: by the rows of the source)"
    )
    search: str = setting("auto", f"of uniproto: {', '.join(SEARCHES)}")
    seconds: float | None = setting(None, "of uniproto: look for better rows for so long in all")

    @property
    def draws(self) -> bool:
        """Whether the seed can change the picks."""
        return isinstance(self.candidates, Stochastic) or self.search in _DRAWING

    def __post_init__(self) -> None:
        require_name("plan", self.plan, PLANS)
        require_name("gains", self.gains, GAINS)
        require_name("search", self.search, SEARCHES)
        if not isinstance(self.candidates, Stochastic) and str(self.candidates) != "all":
            raise invalid(
                "candidates",
                "must be 'all' or Stochastic(epsilon)",
                repr(self.candidates),
                "Pass uniproto.Stochastic(0.1) to look at random samples.",
            )
        for option in ("reg", "iterations"):
            if self.plan != "entropic" and getattr(self, option) is not None:
                raise invalid(
                    option, "is an option of plan='entropic'", f"plan={self.plan!r}", "Drop it."
                )
        if self.reg is not None and not _lies_between(0, self.reg, math.inf):
            raise invalid("reg", "must be positive and finite", repr(self.reg), "Try 0.01.")
        if self.iterations is not None and self.iterations != "auto":
            require_int("iterations", self.iterations, too_small="Try 'auto'.")
        if self.gains == "exact" and self.plan == "entropic":
            raise invalid(
                "gains",
                "must be 'approx' with plan='entropic': exact gains come from the exact plan",
                "'exact'",
                "Use plan='resolve'.",
            )
        if isinstance(self.polish, np.bool_):
            object.__setattr__(self, "polish", bool(self.polish))
        if not isinstance(self.polish, bool) and not _lies_between(0, self.polish, math.inf):
            raise invalid(
                "polish",
                "must be True, False or a positive number of seconds",
                repr(self.polish),
                "Try 60.",
            )

        self._check_search()

    def _check_search(self) -> None:
        object.__setattr__(self, "seconds", require_seconds("seconds", self.seconds))
        if self.seconds is not None and self.polish:
            raise invalid(
                "seconds",
                "is the time of all, polish included",
                f"polish={self.polish!r}",
                "Drop polish.",
            )
        if self.search in _DRAWING and not self._is_plain:
            raise invalid(
                "search",
                "must be 'greedy' with another plan, exact gains, sampled candidates or polish, "
                "which are ways of picking one row after the other",
                repr(self.search),
                f"Drop it, or give the {self.search} search some seconds instead of polish.",
            )

    @property
    def _is_plain(self) -> bool:
        """Whether nothing was asked that only picks one after the other can do."""
        usual = self.plan == "extend" and self.gains == "approx" and not self.polish
        return usual and not isinstance(self.candidates, Stochastic)

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        begin = time.perf_counter()
        road = self.check(problem)
        if self._starts_thoroughly(problem):
            found = self._thorough(problem, progress)
            polished = self._polished(problem, found, begin, progress)
            picks = replace(polished, proof=found.proof, transport=found.transport)
            if picks.notes["exchanged"]:
                picks = replace(picks, proof=None, transport=polished.transport)
        elif road.search == "thorough":
            picks = self._thorough(problem, progress)
        elif road.search == "multilevel":
            picks = self._multilevel(problem, progress)
        else:
            picks = self._polished(problem, self._greedy(problem, progress), begin, progress)
        if not self._is_plain or not problem.lists.exact:
            return picks
        return replace(picks, notes={"search": road.search, "why": road.why, **picks.notes})

    def check(self, problem: Problem) -> Road:
        """The search that suits the problem; refuses what limits or memory do not allow."""
        plain = self._is_plain and problem.lists.exact
        road = road_for(problem, self.search if plain else "greedy")
        if road.search == "greedy":
            self._require_plan(problem)
        if road.search == "thorough" or self._starts_thoroughly(problem):
            self._require_table(problem)
        if road.search == "multilevel":
            self._require_costs(problem)
        return road

    def _starts_thoroughly(self, problem: Problem) -> bool:
        """Whether polishing starts from the rows of the thorough search, so that it is no worse.

        A run that saves its picks polishes those that it has saved.
        """
        if not self.polish or not replace(self, polish=False)._is_plain:
            return False
        suits = self.search == "auto" and problem.lists.exact and problem.checkpoint is None
        return suits and road_for(problem, "auto").search == "thorough"

    def _require_table(self, problem: Problem) -> None:
        """Check the memory of the thorough search."""
        from uniproto.fills.list_memory import bytes_of_shortest_lists

        bytes_of_shortest_lists(problem, len(problem.candidates))  # refuses what none can work with
        needed = memory_of_table(problem)
        require_memory(
            needed,
            problem.memory,
            f"the thorough search holds {problem.m:,} × {problem.n:,} costs",
            f"Allow at least memory={needed}, or use search='greedy'.",
        )

    def _require_costs(self, problem: Problem) -> None:
        """Check the memory of the multilevel search."""
        needed = memory_of_search(problem)
        require_memory(
            needed,
            problem.memory,
            f"the multilevel search holds {problem.k:,} × {problem.n:,} costs",
            f"Allow at least memory={needed}, or use search='greedy'.",
        )

    def _thorough(self, problem: Problem, progress: Progress) -> Picks:
        from uniproto.methods.thorough.search import pick_thoroughly

        return pick_thoroughly(problem, self.seconds, progress)

    def _multilevel(self, problem: Problem, progress: Progress) -> Picks:
        from uniproto.methods.multilevel.search import pick_multilevel

        return pick_multilevel(problem, UniProto(search="greedy"), self.seconds, progress)

    def _polished(self, problem: Problem, picks: Picks, begin: float, progress: Progress) -> Picks:
        from uniproto.methods.polish import polish

        if self.seconds is None:
            if not self.polish:
                return picks
            return polish(
                problem, picks, _POLISH_SECONDS if self.polish is True else self.polish, progress
            )
        left = self.seconds - (time.perf_counter() - begin)
        if left <= 0:
            return picks
        if self._memory_of_plans(problem, 2) > problem.memory:
            return replace(picks, notes={**picks.notes, "polish": "memory does not hold its plans"})
        return polish(problem, picks, left, progress)

    def _memory_of_plans(self, problem: Problem, copies: int) -> int:
        return copies * problem.k * problem.n * 8

    def _require_plan(self, problem: Problem) -> None:
        """Check the memory of exact plans: all k × n costs, and for polishing a second copy."""
        copies = 2 if self.polish else int(self.plan == "resolve" or self.gains == "exact")
        needed = self._memory_of_plans(problem, copies)
        require_memory(
            needed,
            problem.memory,
            f"the exact plan is solved over {problem.k:,} × {problem.n:,} costs",
            f"Allow at least memory={needed}, or use plan='extend' without polish or exact gains, "
            "whose memory does not grow with k × n.",
        )

    def _greedy(self, problem: Problem, progress: Progress) -> Picks:
        # The compiled loops load with these, so `import uniproto` stays quick.
        from uniproto.methods.greedy import Pool
        from uniproto.methods.uniproto_plans import (
            pick_by_exact_gains,
            pick_entropic,
            pick_extend,
            pick_resolve,
        )

        sampler = self.candidates if isinstance(self.candidates, Stochastic) else None
        # Only these two ask for one row at a time, so that near-duplicates may be told late.
        lazy = sampler is None and self.gains == "approx" and self.plan != "entropic"
        pool = Pool(problem, sampler.sample_size if sampler else None, lazy=lazy)
        if self.gains == "exact":
            return pick_by_exact_gains(problem, pool, progress)
        if self.plan == "extend":
            return pick_extend(problem, pool, progress)
        if self.plan == "resolve":
            return pick_resolve(problem, pool, progress)
        reg = _DEFAULT_REG if self.reg is None else self.reg
        steps = iterations_for(problem.m) if self.iterations in (None, "auto") else self.iterations
        return pick_entropic(problem, pool, progress, reg, cast(int, steps))
