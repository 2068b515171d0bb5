"""`select`: build a problem, let a method solve it, return a `Selection`."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from uniproto.data.arrays import as_rows, row_numbers
from uniproto.errors import InvalidInputError
from uniproto.methods import Method, as_method
from uniproto.methods.grouped import pick
from uniproto.problem.problem import (
    Problem,
    ProblemOptions,
    Unpack,
    as_problem,
    takes_problem_options,
)
from uniproto.runtime.memory import readable
from uniproto.runtime.progress import Progress
from uniproto.selection.details import details_of
from uniproto.selection.selection import Selection, as_time_limit
from uniproto.transport.prototypes import FEW, LARGEST_TARGET, memory_of_plan, transport


@takes_problem_options
def select(
    source: Any,
    k: int,
    target: Any = None,
    *,
    method: str | Method = "uniproto",
    seconds: float | None = None,
    certify: bool | float = False,
    progress: bool | None = None,
    **problem: Unpack[ProblemOptions],
) -> Selection:
    """Choose the k source rows that, all with equal weight, are closest to the target.

    Closest means: smallest optimal-transport cost between the k rows with weight 1/k each and the
    target rows with their weights.

    Args:
        source: the pool, one row per example: an array, a table, a sparse matrix, the path of a
            file; or a `Problem`, which already holds source and target.
        k: how many rows to choose. The first 15 picks of k=60 are not the picks of k=15.
        target: what the chosen rows must represent. Default: the source itself.
        method: the name of a method, or a method object with its options, such as
            `Greedy(plan="resolve")`.
        seconds: how long to look for better rows in all. Default: as long as the method takes.
        certify: also compute the certificate (as `Selection.certify` does later): a lower bound
            on the cost of any k rows. A number is its time limit in seconds.
        progress: True or False to force or forbid progress bars. Default: on a terminal, and a
            line every 30 seconds elsewhere.
        problem: as for `Problem`.

    Returns:
        A `Selection`: `indices`, `cost`, `weights`, `plan`, `summary()`, `save(folder)` and more.

    >>> import uniproto
    >>> points = [[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0]]
    >>> uniproto.select(points, k=2).indices
    array([0, 2])
    """
    begin = time.perf_counter()
    certified, limit = as_time_limit(certify)
    chosen = with_seconds(as_method(method), seconds)
    question = as_problem("select", source, target, problem).with_k(k)
    prepared = time.perf_counter() - begin
    selection = run_method(question, chosen, progress=progress)
    selection.details.timings = {"prepare": prepared, **selection.details.timings}
    if certified:
        selection.certify(seconds=limit, progress=progress)
        selection.details.asked = {**selection.details.asked, "certify": certify}
    return selection


@takes_problem_options
def cost(source: Any, rows: Any, target: Any = None, **problem: Unpack[ProblemOptions]) -> float:
    """The exact optimal-transport cost of given rows, all with equal weight.

    What `Selection.cost` is for the rows of a selection: the number to compare any other choice
    by, wherever its rows come from. Where no exact solve is possible, it raises an error that says
    what would help.

    Args:
        source: the pool, or a `Problem`, as for `select`.
        rows: row numbers of the source, or a `Selection`.
        target: what the rows must represent. Default: the source itself.
        problem: as for `Problem`.

    >>> import uniproto
    >>> points = [[0.0], [1.0], [5.0], [6.0]]
    >>> uniproto.cost(points, [0, 2], metric="euclidean")
    0.5
    """
    question = as_problem("cost", source, target, problem)
    chosen = rows.indices if isinstance(rows, Selection) else rows
    numbers = as_rows(row_numbers(chosen, question.given.source, "rows"), "rows", question.m)
    if not len(numbers):
        raise InvalidInputError("must name at least one row.", parameter="rows")
    solved = transport(question.with_k(len(numbers)), numbers)
    if not solved.is_exact:
        raise _not_exact(question, len(numbers), solved.cost)
    return solved.cost


def _not_exact(problem: Problem, k: int, cost: float) -> InvalidInputError:
    """The error for rows of which only an upper bound of the cost is known, and what helps."""
    needed = memory_of_plan(k, problem.n)
    if problem.n <= LARGEST_TARGET or (k <= FEW and needed <= problem.memory):
        return InvalidInputError(
            "must have costs and weights whose sums keep their digits: the cost is at most "
            f"{cost:.6g}. Rescale the features, or drop rows that are farther than all others.",
            parameter="source",
        )
    if k <= FEW:
        return InvalidInputError(
            f"must allow {readable(needed)} of memory for the exact cost of {k:,} rows "
            f"and {problem.n:,} targets, which is at most {cost:.6g}. Pass "
            f"compute=Compute(memory={needed}).",
            parameter="compute",
        )
    return InvalidInputError(
        f"must be at most {FEW} where there are more than {LARGEST_TARGET:,} targets: no "
        f"exact solve of {k:,} rows fits in time or memory. Their cost is at most {cost:.6g}; take "
        "fewer rows, or a sample of the target.",
        parameter="rows",
    )


def with_seconds(method: Method, seconds: float | None) -> Method:
    """The same method, which looks for better rows for so long."""
    if seconds is None:
        return method
    if not hasattr(method, "seconds"):
        raise InvalidInputError(
            f"is for methods that search, not for {method.name}. Leave it out, and call "
            "selection.improve(seconds) afterwards.",
            parameter="seconds",
        )
    return replace(method, seconds=seconds)  # type: ignore[type-var]


def run_method(problem: Problem, method: Method, *, progress: bool | None = None) -> Selection:
    """Let a method solve a checked problem."""
    begin = time.perf_counter()
    picks, group_rows = pick(problem, method, Progress(progress))
    return Selection(
        indices=picks.rows.astype(np.int64),
        weights=np.full(problem.k, 1 / problem.k) if picks.weights is None else picks.weights,
        details=details_of(problem, method, picks, {"pick": time.perf_counter() - begin}),
        problem=problem,
        picks=picks,
        group_rows=group_rows,
    )
