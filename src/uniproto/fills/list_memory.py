"""The least memory that any selection asks for, however small the problem."""

from __future__ import annotations

from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory


def bytes_of_shortest_lists(problem: Problem, rows: int) -> int:
    """What lists of one target for each of so many rows take; half of the memory must hold them."""
    taken = rows * (problem.costs.dtype.itemsize + 4)
    require_memory(
        2 * taken,
        problem.memory,
        f"even lists of one target for each of {rows:,} candidate rows take memory",
        f"Allow at least memory={2 * taken}, or select from a sample of the source.",
    )
    return taken
