"""The paper's greedy algorithm and its variants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from uniproto.errors import InvalidInputError, require_int, require_name, require_positive
from uniproto.methods.contract import Picks
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress
from uniproto.runtime.settings import setting
from uniproto.runtime.threads import blas_on_one_core
from uniproto.transport.entropic import iterations_for

PLANS = ("extend", "resolve")
GAINS = ("approx", "exact")


@dataclass(frozen=True)
class Entropic:
    """Between picks, re-solve the plan with entropic regularisation: Algorithm 1 as printed.

    `reg` is its strength λ, in the unit of the costs. The solver takes at most `iterations` steps;
    by default the paper's 100, 1000, 2000 or 4000 by the rows of the source. The notes of a
    selection have how many plans did not converge, and the largest share of mass above capacity
    in any (`marginal_violation`); where that is large, a warning says so.
    """

    reg: float = setting(0.01, "plan entropic: its strength, λ")
    iterations: int | None = setting(None, "plan entropic: largest number of solver steps")

    def __post_init__(self) -> None:
        require_positive("reg", self.reg)
        if self.iterations is not None:
            require_int("iterations", self.iterations, too_small="Try 100.")


@dataclass(frozen=True)
class Greedy:
    """UniPROT, the paper's algorithm: each pick is the row whose fill is cheapest.

    A fill is one unit of the target mass that no earlier pick has claimed. `plan` says what
    happens to the plan between picks: `"extend"` keeps it and lets the newcomer claim its fill,
    `"resolve"` re-solves it exactly, `Entropic(reg, iterations)` re-solves it with entropic
    regularisation. `gains="exact"` compares rows by the exact rise of the optimal cost instead
    (the classical greedy algorithm, 1 − 1/e), which implies the exact plan. `sample=ε` compares,
    before each of the k picks, only a fresh random sample of (m/k)·log(1/ε) of the m rows
    (stochastic greedy).

    >>> import uniproto
    >>> method = Greedy(plan="resolve")
    >>> uniproto.select([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], k=2, method=method).indices
    array([0, 2])
    """

    name: ClassVar[str] = "greedy"

    plan: str | Entropic = "extend"
    gains: str = "approx"
    sample: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.plan, str) and self.plan == "entropic":
            raise InvalidInputError("must be 'extend', 'resolve' or Entropic().", parameter="plan")
        if not isinstance(self.plan, Entropic):
            require_name("plan", self.plan, PLANS)
        require_name("gains", self.gains, GAINS)
        if self.gains == "exact" and isinstance(self.plan, Entropic):
            raise InvalidInputError("must be 'approx' with plan=Entropic(…).", parameter="gains")
        if self.sample is not None:
            require_positive("sample", self.sample, below=1)

    @property
    def draws(self) -> bool:
        """Whether the seed can change the picks."""
        return self.sample is not None

    def check(self, problem: Problem) -> None:
        """Refuse an exact plan whose k × n costs do not fit into memory."""
        if self.plan != "resolve" and self.gains != "exact":
            return
        needed = problem.k * problem.n * 8
        require_memory(
            needed,
            problem.memory,
            f"the exact plan is solved over {problem.k:,} × {problem.n:,} costs",
            f"Allow at least memory={needed}, or use plan='extend' and gains='approx', whose "
            "memory does not grow with k × n.",
        )

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        # The compiled loops load with these, so `import uniproto` stays quick.
        from uniproto.methods.greedy_plans import (
            pick_by_exact_gains,
            pick_entropic,
            pick_extend,
            pick_resolve,
        )
        from uniproto.problem.allowed import Pool

        self.check(problem)
        # Only these two ask for one row at a time, so that near-duplicates may be found late.
        lazy = self.sample is None and self.gains == "approx" and isinstance(self.plan, str)
        size = None if self.sample is None else partial(_sample_size, self.sample)
        pool = Pool(problem, size, lazy=lazy)
        if isinstance(self.plan, Entropic):
            steps = self.plan.iterations or iterations_for(problem.m)
            return pick_entropic(problem, pool, progress, self.plan.reg, steps)
        if self.gains == "exact":
            return pick_by_exact_gains(problem, pool, progress)
        if self.plan == "resolve":
            return pick_resolve(problem, pool, progress)
        with blas_on_one_core():
            return pick_extend(problem, pool, progress)


def plan_from(plan: str, reg: float | None, iterations: int | None) -> str | Entropic:
    """A plan from its name and the settings of an entropic one, as commands have them.

    >>> plan_from("entropic", 0.1, None)
    Entropic(reg=0.1, iterations=None)
    """
    if plan == "entropic":
        return Entropic(Entropic.reg if reg is None else reg, iterations)
    for option, value in {"reg": reg, "iterations": iterations}.items():
        if value is not None:
            raise InvalidInputError(f"needs an entropic plan, not {plan}.", parameter=option)
    return plan


def _sample_size(epsilon: Any, m: int, k: int) -> int:
    """How many of m rows stochastic greedy looks at before each of k picks.

    >>> _sample_size(0.1, m=1000, k=10)
    231
    """
    return min(m, max(1, math.ceil(-m / k * math.log(epsilon))))
