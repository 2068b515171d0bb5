"""Which search suits a problem: thorough, greedy over all rows, or multilevel.

Small problems, and rows on a line, are solved as well as they can be. Elsewhere every pick of the
greedy algorithm rests on m · n costs, the multilevel search on k · n. Measured, the multilevel
search finds the lower cost from about two hundred targets to each prototype on; below, greedy
picks and exchanges are better.
"""

from __future__ import annotations

from dataclasses import dataclass

from uniproto.errors import invalid
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.thorough.line import can_solve_on_line
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import readable
from uniproto.transport.prototypes import FEW

SEARCHES = ("auto", "multilevel", "thorough")
_FEW_COSTS = 1_000_000  # pairs of rows and targets up to which a second is enough for all
_BYTES_OF_TABLE = 64  # for each of them: with so few, as little as to load the libraries
_TARGETS_EACH = 200
_PAYS_FROM_DISK = 10**8  # pairs from which the multilevel search reads a small part of the rows
_BYTES = 12  # for each pair of a prototype and a target: its cost, in two precisions


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
    if search == "multilevel" and problem.limits is not None:
        raise invalid(
            "search",
            "must be 'auto' beside 'at_most' and 'at_least', which the multilevel search does not "
            "know",
            "'multilevel'",
            "Drop it.",
        )
    if search != "auto":
        return SearchChoice(search, "as asked")
    if not problem.lists.exact:
        return SearchChoice("greedy", "approximate lists")
    if can_solve_on_line(problem):
        return SearchChoice("thorough", "the rows lie on a line")
    if m * n <= _FEW_COSTS:
        return SearchChoice("thorough", f"{m:,} × {n:,} costs are few")
    if problem.limits is not None:
        return SearchChoice("greedy", "limits of sources")
    if (
        m * n < _PAYS_FROM_DISK
        and isinstance(problem.costs, FeatureCosts)
        and problem.costs.on_disk
    ):
        return SearchChoice("greedy", "rows on disk are read in parts")
    if n < _TARGETS_EACH * k:
        return SearchChoice("greedy", f"only {n / k:,.0f} targets to each prototype")
    if k > FEW:
        return SearchChoice("greedy", f"more than {FEW} prototypes")
    if memory_of_search(problem) > problem.memory:
        return SearchChoice(
            "greedy", f"{k:,} × {n:,} costs need {readable(memory_of_search(problem))}"
        )
    return SearchChoice("multilevel", f"{n / k:,.0f} targets to each prototype")


def memory_of_table(problem: Problem) -> int:
    """The memory that the thorough search takes of what is allowed, in bytes.

    None for small problems, whose answer must not hang on it, and for rows on a line.
    """
    if problem.m * problem.n <= _FEW_COSTS or can_solve_on_line(problem):
        return 0
    return _BYTES_OF_TABLE * problem.m * problem.n


def memory_of_search(problem: Problem) -> int:
    """The memory that the multilevel search takes, in bytes."""
    return _BYTES * problem.k * problem.n
