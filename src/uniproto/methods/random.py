"""Uniformly random rows: the yardstick every method must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from uniproto.methods.contract import Picks
from uniproto.methods.picking import pick_in_order
from uniproto.problem.problem import Problem
from uniproto.runtime.progress import Progress


@dataclass(frozen=True)
class Random:
    """k candidates drawn without replacement, from the problem's seed. Its gains are all 0.

    >>> import uniproto
    >>> sel = uniproto.select([[1.0, 0.0], [0.0, 1.0]], k=1, method="random", seed=3)
    >>> len(sel.indices)
    1
    """

    name: ClassVar[str] = "random"

    def pick(self, problem: Problem, progress: Progress) -> Picks:
        order = np.zeros(problem.m)
        drawn = np.random.default_rng(problem.seed).permutation(len(problem.candidates))
        order[problem.candidates[drawn]] = -np.arange(len(drawn))
        return pick_in_order(problem, np.zeros(problem.m), order)
