"""A better selection from any other: single rows are swapped for better ones."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.methods.grouped import improve_in_groups
from uniproto.methods.multilevel.search import go_on
from uniproto.methods.search_choice import memory_of_search
from uniproto.problem.problem import Problem
from uniproto.runtime.memory import require_memory
from uniproto.runtime.progress import Progress

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection


def improved(
    selection: Selection,
    problem: Problem,
    group_rows: Mapping[Hashable, NDArray[Any]],
    seconds: float,
    progress: Progress,
) -> Selection:
    """The selection after exchanges; `notes["improved"]` says how many rows they replaced."""
    needed = memory_of_search(problem)
    require_memory(
        needed,
        problem.memory,
        f"exchanges hold {problem.k:,} × {problem.n:,} costs",
        f"Allow at least memory={needed}.",
    )
    begin = time.perf_counter()
    if problem.groups:
        picks, rows = improve_in_groups(problem, group_rows, seconds, progress)
    else:
        begun = selection.indices.astype(np.intp)
        picks, rows = go_on(problem, begun, seconds, progress), None
    replaced = len(np.setdiff1d(picks.rows, selection.indices))
    notes = {
        name: note for name, note in selection.notes.items() if name != "proof" or not replaced
    }
    spent = time.perf_counter() - begin
    return type(selection)(
        indices=picks.rows.astype(np.int64),
        gains=picks.gains,
        weights=np.full(problem.k, 1 / problem.k),
        beta=selection.beta,
        shape=selection.shape,
        metric=selection.metric,
        bandwidth=selection.bandwidth,
        method=selection.method,
        options=selection.options,
        seed=selection.seed,
        timings={**selection.timings, "improve": spent},
        notes={**notes, **picks.notes, "improved": {"seconds": seconds, "replaced": replaced}},
        problem=problem,
        picks=picks,
        group_rows=rows,
    )
