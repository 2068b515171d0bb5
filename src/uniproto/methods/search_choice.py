"""Which search suits a problem.

Rows on a line and problems so small that a proof may be found are solved as well as they can be,
without compiled code. All others are searched from greedy picks and free centres by exchanges,
unless the plans of k prototypes, k · n costs, are too much work or memory: then greedy picks stay.
"""

from __future__ import annotations

from dataclasses import dataclass

from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.methods.thorough.line import can_solve_on_line
from uniproto.methods.thorough.proof import MOST_SETS, count_of_sets
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import readable
from uniproto.transport.prototypes import FEW, SMALL

SEARCHES = ("auto", "multilevel", "thorough")
_FEW_SETS = 1_000_000  # pairs up to which few sets of rows are compared, and memory is no matter
_BYTES_OF_TABLE = 64  # for each of them: with so few, as little as to load the libraries
_TARGETS_EACH = 200  # from which on prototypes are few of many, and start on a sample
_MOST_PAIRS = 15_000_000  # of prototypes and targets elsewhere: about a second for a plan
_PAYS_FROM_DISK = 10**8  # pairs from which the search reads a small part of the rows
_BYTES = 24  # for each pair of a prototype and a target: its cost, in two precisions and copied


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
    if m * n <= _FEW_SETS and count_of_sets(problem) <= MOST_SETS:
        return SearchChoice("thorough", f"{count_of_sets(problem):,} sets of rows are few")
    if (
        m * n < _PAYS_FROM_DISK
        and isinstance(problem.costs, FeatureCosts)
        and problem.costs.on_disk
    ):
        return SearchChoice("greedy", "rows on disk are read in parts")
    is_few_of_many = k <= FEW and n >= _TARGETS_EACH * k and problem.limits is None
    if not is_few_of_many and k * n > _MOST_PAIRS:
        return SearchChoice("greedy", f"plans of {k:,} × {n:,} costs take long")
    if memory_of_search(problem) > problem.memory:
        return SearchChoice(
            "greedy", f"{k:,} × {n:,} costs need {readable(memory_of_search(problem))}"
        )
    return SearchChoice("multilevel", "greedy picks and free centres, improved by exchanges")


def memory_of_table(problem: Problem) -> int:
    """The memory that the thorough search takes of what is allowed, in bytes.

    None for small problems, whose answer must not hang on it, and for rows on a line.
    """
    if problem.m * problem.n <= _FEW_SETS or can_solve_on_line(problem):
        return 0
    return _BYTES_OF_TABLE * problem.m * problem.n


def memory_of_search(problem: Problem) -> int:
    """The memory that the multilevel search takes of what is allowed, in bytes."""
    if problem.m * problem.n <= _FEW_SETS:
        return 0
    return _BYTES * problem.k * problem.n
