"""`select`: build a problem, let a method solve it, return a `Selection`."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from uniproto.data.arrays import as_rows
from uniproto.errors import invalid, known_keywords, require_seconds
from uniproto.methods import Method, as_method
from uniproto.methods.grouped import pick
from uniproto.problem.limits import Counts
from uniproto.problem.problem import Problem, as_problem
from uniproto.runtime.progress import Progress
from uniproto.selection.selection import Selection
from uniproto.transport.prototypes import transport


@known_keywords
def select(
    source: Any,
    k: int,
    target: Any = None,
    *,
    method: str | Method = "uniproto",
    metric: str | None = None,
    bandwidth: float | str | None = None,
    target_weights: Any = None,
    target_labels: Any = None,
    groups: Any = None,
    target_groups: Any = None,
    budgets: str | Mapping[Hashable, int] = "proportional",
    sources: Any = None,
    at_most: Counts | None = None,
    at_least: Counts | None = None,
    initial: Any = None,
    exclude: Any = None,
    distinct: bool | float = False,
    prepare: Any = None,
    features: Sequence[str] | None = None,
    ignore: Sequence[str] | None = None,
    scale: str = "robust",
    seed: int = 0,
    certify: bool | float = False,
    memory: int | float | str | None = None,
    device: str = "auto",
    lists: str = "exact",
    progress: bool | None = None,
) -> Selection:
    """Choose the k source rows that, all with equal weight, are closest to the target.

    Closest means: smallest optimal-transport cost between the k rows with weight 1/k each and the
    target rows with their weights.

    Args:
        source: the pool, one row per example: an array, a table, a sparse matrix, the path of a
            file; or a `Problem`, which holds everything below except k, method and certify. A
            table of mixed columns is made comparable first, see `prepare` of `Problem`.
        k: how many rows to choose. The first 15 picks of k=60 are not the picks of k=15.
        target: what the chosen rows must represent. Default: the source itself.
        method: the name of a method, or a method object with its options, such as
            `UniProto(plan="resolve")`.
        metric, bandwidth, target_weights, target_labels, groups, target_groups, budgets, sources,
            at_most, at_least, initial, exclude, distinct, prepare, features, ignore, scale, seed,
            memory, device, lists: as for `Problem`, which explains each.
        certify: also compute the certificate (as `Selection.certify` does later): a lower bound
            on the cost of any k rows. A number limits the search to so many seconds.
        progress: True or False to force or forbid progress bars. Default: on a terminal, and a
            line every 30 seconds elsewhere.

    Returns:
        A `Selection`: `indices`, `gains`, `cost`, `plan`, `summary()`, `save(folder)` and more.

    >>> import uniproto
    >>> points = [[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0]]
    >>> uniproto.select(points, k=2).indices
    array([0, 2])
    """
    begin = time.perf_counter()
    certified, limit = as_time_limit(certify)
    chosen = as_method(method)
    problem = as_problem(
        source,
        target,
        metric=metric,
        bandwidth=bandwidth,
        target_weights=target_weights,
        target_labels=target_labels,
        groups=groups,
        target_groups=target_groups,
        budgets=budgets,
        sources=sources,
        at_most=at_most,
        at_least=at_least,
        initial=initial,
        exclude=exclude,
        distinct=distinct,
        prepare=prepare,
        features=features,
        ignore=ignore,
        scale=scale,
        seed=seed,
        memory=memory,
        device=device,
        lists=lists,
    ).with_k(k)
    checked = time.perf_counter() - begin
    selection = run_method(problem, chosen, progress=progress)
    selection.timings = {"check": checked, **selection.timings}
    if certified:
        selection.certify(time_limit=limit, progress=progress)
    return selection


@known_keywords
def cost(
    source: Any,
    indices: Any,
    target: Any = None,
    *,
    metric: str | None = None,
    bandwidth: float | str | None = None,
    target_weights: Any = None,
    target_labels: Any = None,
) -> float:
    """The exact optimal-transport cost of given rows, all with equal weight.

    What `Selection.cost` is for the rows of a selection: the number to compare any other choice
    by, wherever its rows come from.

    >>> import uniproto
    >>> points = [[0.0], [1.0], [5.0], [6.0]]
    >>> uniproto.cost(points, [0, 2], metric="euclidean")
    0.5
    """
    problem = as_problem(
        source,
        target,
        metric=metric,
        bandwidth=bandwidth,
        target_weights=target_weights,
        target_labels=target_labels,
    )
    rows = as_rows(indices, "indices", problem.m)
    if not len(rows):
        raise invalid("indices", "must name at least one row", "none", "Pass row numbers.")
    return transport(problem.with_k(len(rows)), rows).cost


def as_time_limit(certify: Any) -> tuple[bool, float | None]:
    """Whether `certify` asks for a certificate, and for how many seconds at most.

    >>> as_time_limit(False), as_time_limit(True), as_time_limit(30)
    ((False, None), (True, None), (True, 30.0))
    """
    if isinstance(certify, bool | np.bool_):
        return bool(certify), None
    return True, require_seconds("certify", certify, or_none=False)


def run_method(problem: Problem, method: Method, *, progress: bool | None = None) -> Selection:
    """Let a method solve a checked problem."""
    begin = time.perf_counter()
    picks, group_rows = pick(problem, method, Progress(progress))
    known = {
        "target_weights": problem.weights_origin,
        "bandwidth_from": problem.bandwidth_origin,
        **({} if picks.proof is None else {"proof": picks.proof.why, "least": picks.proof.least}),
    }
    return Selection(
        indices=picks.rows.astype(np.int64),
        gains=picks.gains,
        weights=np.full(problem.k, 1 / problem.k) if picks.weights is None else picks.weights,
        beta=problem.costs.ceiling,
        shape=problem.costs.shape,
        metric=problem.costs.metric,
        bandwidth=problem.costs.bandwidth,
        method=method.name,
        options=_options(method),
        seed=problem.seed,
        timings={"pick": time.perf_counter() - begin},
        notes={**picks.notes, **{name: of for name, of in known.items() if of is not None}},
        problem=problem,
        picks=picks,
        group_rows=group_rows,
    )


def _options(method: Method) -> dict[str, Any]:
    """The method's options as plain values, for the record."""
    if not is_dataclass(method):
        return {}
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    return {name: repr(value) if is_dataclass(value) else value for name, value in values.items()}
