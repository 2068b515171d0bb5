"""The question, checked: which rows may be chosen, to stand for what, and how many."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from uniproto.data.arrays import (
    align_tables,
    as_labels,
    as_matrix,
    as_rows,
    distinct_labels,
    finite_number,
    float_type,
)
from uniproto.errors import InfeasibleError, invalid, require_name, whole_number
from uniproto.geometry.costs import MATRIX_METRICS, METRICS, Costs, make_costs
from uniproto.geometry.lists import ListBuilder, make_builder
from uniproto.problem.groups import quotas
from uniproto.problem.masses import Masses, whole_masses
from uniproto.problem.weights import weights_from
from uniproto.runs.checkpoint import Checkpoint
from uniproto.runtime.memory import memory_budget

_NEAR_DUPLICATE = 0.01  # of the median distance: what distinct=True calls the same example
_SAMPLED_ROWS = 16


@dataclass(frozen=True)
class Group:
    """One group's part of a problem: its label, rows, share of the target, and own question."""

    label: Hashable
    source_rows: NDArray[np.intp]
    target_rows: NDArray[np.intp]
    mass: float
    problem: Problem


@dataclass(frozen=True)
class Problem:
    """Choose k rows of the source to stand for the target, each with weight 1/k."""

    costs: Costs
    k: int
    target_weights: NDArray[np.float64] | None  # sums to 1; None: uniform
    initial: NDArray[np.intp]
    candidates: NDArray[np.intp]  # ascending, without the initial rows
    twin_distance: float | None  # rows at most this far apart count as the same example
    seed: int
    memory: int  # bytes of working memory allowed
    lists: ListBuilder
    groups: tuple[Group, ...] = ()
    checkpoint: Checkpoint | None = None  # where a run keeps its picks, if it must survive
    weights_origin: str | None = None  # what weights asked for by name are called in a record

    @property
    def m(self) -> int:
        return self.costs.shape[0]

    @property
    def n(self) -> int:
        return self.costs.shape[1]

    @cached_property
    def masses(self) -> Masses:
        return whole_masses(self.k, self.n, self.target_weights)

    def with_checkpoint(self, checkpoint: Checkpoint) -> Problem:
        """The same problem, whose picks are kept as they are made."""
        groups = tuple(
            replace(
                group,
                problem=replace(group.problem, checkpoint=checkpoint.part(str(group.label))),
            )
            for group in self.groups
        )
        return replace(self, groups=groups, checkpoint=checkpoint)

    def twins(self, row: int) -> NDArray[np.intp]:
        """Positions among the candidates of rows too close to `row` to be chosen beside it."""
        if self.twin_distance is None:
            return np.empty(0, np.intp)
        close = self.costs.twin_distances(row) <= self.twin_distance
        return np.flatnonzero(close[self.candidates])

    def too_few_distinct(self, found: int) -> InfeasibleError:
        return InfeasibleError(
            f"'distinct' must leave at least k={self.k} examples to choose. Got only {found} that "
            f"are more than {self.twin_distance:g} apart instead. Lower the threshold or k."
        )


def make_problem(
    source: Any,
    k: Any,
    target: Any = None,
    *,
    metric: str = "cosine",
    target_weights: Any = None,
    target_labels: Any = None,
    groups: Any = None,
    target_groups: Any = None,
    budgets: str | Mapping[Hashable, int] = "proportional",
    initial: Any = None,
    exclude: Any = None,
    distinct: bool | float = False,
    seed: int = 0,
    memory: int | float | str | None = None,
    device: str = "auto",
    lists: str = "exact",
) -> Problem:
    """Check every argument of `select` and build the problem it describes."""
    costs = _checked_costs(source, target, metric)
    m, n = costs.shape
    k = _checked_count(k, m)
    given, candidates = _rows_to_choose(initial, exclude, k, m)
    allowed = memory_budget(memory)
    builder = make_builder(device, lists, costs)
    weights, origin = weights_from(
        target_weights, target_labels, costs, device=device, memory=allowed
    )
    problem = Problem(
        costs=costs,
        k=k,
        target_weights=_checked_weights(weights, n),
        initial=given,
        candidates=candidates,
        twin_distance=_twin_distance(distinct, costs),
        seed=_checked_seed(seed),
        memory=allowed,
        lists=builder,
        weights_origin=origin,
    )
    if groups is None:
        _refuse_options_of_groups(target_groups, budgets)
        return problem
    labels = as_labels(groups, "groups", m)
    one_set = m == n if metric in MATRIX_METRICS else target is None
    if target_groups is None and not one_set:
        raise invalid(
            "target_groups",
            "must be given when the target is not the source",
            "None",
            "Pass one group label per target row.",
        )
    groups_of_target = (
        labels if target_groups is None else as_labels(target_groups, "target_groups", n)
    )
    return replace(problem, groups=_split(problem, labels, groups_of_target, budgets))


def _rows_to_choose(
    initial: Any, exclude: Any, k: int, m: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows that are given, and those that may join them."""
    given = as_rows(initial, "initial", m)
    barred = as_rows(exclude, "exclude", m)
    both = np.intersect1d(given, barred)
    if both.size:
        raise invalid(
            "exclude",
            "must not name rows of 'initial'",
            f"row {both[0]} in both",
            "Drop it from one.",
        )
    if len(given) > k:
        raise invalid(
            "initial", f"must not hold more than k={k} rows", f"{len(given)} rows", "Raise k."
        )
    free = np.ones(m, bool)
    free[given] = free[barred] = False
    candidates = np.flatnonzero(free)
    if len(given) + len(candidates) < k:
        raise invalid(
            "k",
            f"must not exceed the {len(given) + len(candidates)} rows that may be chosen",
            k,
            "Lower k or exclude fewer rows.",
        )
    return given, candidates


def _refuse_options_of_groups(target_groups: Any, budgets: Any) -> None:
    if target_groups is not None:
        raise invalid("target_groups", "needs 'groups' as well", "only target_groups", "Pass both.")
    if str(budgets) != "proportional":
        raise invalid(
            "budgets",
            "needs 'groups' as well",
            f"only budgets={budgets!r}",
            "Pass one group label per source row.",
        )


def _split(
    problem: Problem,
    labels: NDArray[Any],
    target_labels: NDArray[Any],
    budgets: str | Mapping[Hashable, int],
) -> tuple[Group, ...]:
    """One problem per group: its candidates against its own target rows."""
    names, target_group = distinct_labels(target_labels, "target_groups")
    present = set(labels.tolist())
    missing = [name for name in names.tolist() if name not in present]
    if missing:
        raise InfeasibleError(
            "'groups' must have source rows for every group of the target. Got none for "
            f"{missing} instead. Drop those target rows or add source rows for them."
        )
    position = {name: index for index, name in enumerate(names.tolist())}
    source_group = np.array([position.get(name, -1) for name in labels.tolist()])
    weights = problem.target_weights
    weights = np.full(problem.n, 1 / problem.n) if weights is None else weights
    count = len(names)
    given = np.bincount(
        source_group[problem.initial][source_group[problem.initial] >= 0], minlength=count
    )
    if given.sum() < len(problem.initial):
        raise InfeasibleError(
            "'initial' must only hold rows of groups the target has. Got a row of another group "
            "instead. Drop it or add target rows of its group."
        )
    available = source_group[problem.candidates]
    available = given + np.bincount(available[available >= 0], minlength=count)
    quota = quotas(
        problem.k,
        budgets,
        names,
        np.bincount(target_group, weights, minlength=count),
        given,
        available,
    )
    parts = []
    for index, name in enumerate(names.tolist()):
        if quota[index] == 0:
            continue
        source_rows = np.flatnonzero(source_group == index)
        target_rows = np.flatnonzero(target_group == index)
        mass = float(weights[target_rows].sum())
        if mass == 0:
            raise InfeasibleError(
                f"'target_weights' must give group {name!r} some weight, because its budget is "
                f"{quota[index]}. Got a total of 0 instead. Give it no budget and no 'initial' row."
            )
        share = None if problem.target_weights is None else weights[target_rows] / mass
        part = _among(problem, source_rows, target_rows, int(quota[index]), share)
        parts.append(Group(name, source_rows, target_rows, mass, part))
    return tuple(parts)


def _among(
    problem: Problem,
    source_rows: NDArray[np.intp],
    target_rows: NDArray[np.intp],
    k: int,
    target_weights: NDArray[np.float64] | None,
) -> Problem:
    """The problem among some of its rows, which are numbered anew."""
    place = np.full(problem.m, -1)
    place[source_rows] = np.arange(len(source_rows))
    initial, candidates = place[problem.initial], place[problem.candidates]
    return Problem(
        costs=problem.costs.restrict(source_rows, target_rows),
        k=k,
        target_weights=target_weights,
        initial=initial[initial >= 0],
        candidates=candidates[candidates >= 0],
        twin_distance=problem.twin_distance,
        seed=problem.seed,
        memory=problem.memory,
        lists=problem.lists,
    )


def _checked_costs(source: Any, target: Any, metric: str) -> Costs:
    require_name("metric", metric, METRICS)
    if metric in MATRIX_METRICS and target is not None:
        raise invalid(
            "target",
            f"must be left out when metric={metric!r}, whose columns are the target",
            "a target",
            "Pass the matrix alone.",
        )
    source, target = align_tables(source, target)
    checked = as_matrix(source, "source")
    if metric in MATRIX_METRICS:
        if sp.issparse(checked):
            raise invalid(
                "source",
                f"must be a dense matrix when metric={metric!r}",
                "a sparse matrix, whose missing entries have no cost",
                "Pass matrix.toarray().",
            )
        return make_costs(checked, None, metric)
    aim = checked if target is None else as_matrix(target, "target")
    if checked.shape[1] != aim.shape[1]:
        raise invalid(
            "target",
            f"must have as many columns as the source, {checked.shape[1]}",
            f"{aim.shape[1]} columns",
            "Use the same features for both.",
        )
    if sp.issparse(checked) != sp.issparse(aim):  # one representation for both
        checked, aim = _as_sparse(checked), _as_sparse(aim)
    return make_costs(checked, aim, metric)


def _as_sparse(matrix: Any) -> Any:
    """Rows on disk may be of a type that sparse matrices do not know."""
    return sp.csr_matrix(matrix, dtype=float_type(matrix.dtype))


def _checked_count(k: Any, m: int) -> int:
    count = whole_number("k", k, too_small="Ask for one prototype or more.")
    if count > m:
        raise invalid(
            "k", f"must not exceed the {m} rows of the source", count, "Lower k or add rows."
        )
    return count


def _checked_seed(seed: Any) -> int:
    try:
        number = operator.index(seed)
    except TypeError:
        raise invalid("seed", "must be a whole number", repr(seed), "Pass an integer.") from None
    if number < 0:
        raise invalid("seed", "must not be negative", number, "Pass 0 or more.")
    return number


def _checked_weights(values: Any, n: int) -> NDArray[np.float64] | None:
    if values is None:
        return None
    try:
        weights = np.asarray(values, dtype=np.float64)
    except Exception as error:  # what foreign objects raise when converted can be anything
        raise invalid("target_weights", "must hold numbers", str(error), "Pass floats.") from error
    remedy = "Pass one non-negative number per target row."
    if weights.shape != (n,):
        raise invalid(
            "target_weights",
            f"must hold one weight per target row, {n} in all",
            f"shape {weights.shape}",
            remedy,
        )
    if not np.isfinite(weights).all():
        raise invalid("target_weights", "must be finite", "NaN or infinity", remedy)
    if weights.min() < 0:
        raise invalid("target_weights", "must not be negative", weights.min(), remedy)
    if weights.max() == 0:
        raise invalid("target_weights", "must not all be zero", "only zeros", remedy)
    weights = weights / weights.max()  # tiny or huge weights neither vanish nor overflow
    return weights / weights.sum()


def _twin_distance(distinct: bool | float, costs: Costs) -> float | None:
    if not isinstance(distinct, bool | np.bool_):
        if not finite_number(distinct) >= 0:
            raise invalid(
                "distinct",
                "must be True, False or a distance of at least 0",
                repr(distinct),
                "Pass the largest distance at which two examples count as the same.",
            )
        return float(distinct)
    if not distinct:
        return None
    rows = np.unique(np.linspace(0, costs.shape[0] - 1, _SAMPLED_ROWS).astype(np.intp))
    typical = np.median([np.median(costs.twin_distances(int(row))) for row in rows])
    return _NEAR_DUPLICATE * float(typical)
