"""The least memory that any selection needs, however small the problem."""

from __future__ import annotations

from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory


def bytes_of_shortest_lists(problem: Problem, rows: int) -> int:
    """The bytes of lists with one target per row; half of the memory must hold them."""
    taken = rows * (problem.costs.dtype.itemsize + 4)
    require_memory(
        2 * taken,
        problem.memory,
        f"even lists of one target for each of {rows:,} candidate rows take memory",
        f"Allow at least memory={2 * taken}, or select from a sample of the source.",
    )
    return taken
