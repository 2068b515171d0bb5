"""The checked question: which rows may be chosen, and what they must represent."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels, distinct_labels
from uniproto.errors import InfeasibleError, invalid, known_keywords, require_int
from uniproto.geometry.bandwidth import as_bandwidth, origin_of
from uniproto.geometry.costs import MATRIX_METRICS, Costs, metric_name
from uniproto.geometry.cpu_lists import CpuLists
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.lists import ListBuilder, make_builder
from uniproto.geometry.metrics import metric_label
from uniproto.problem.checks import (
    checked_costs,
    checked_count,
    checked_weights,
    require_rows,
    rows_to_choose,
    twin_distance,
)
from uniproto.problem.groups import quotas
from uniproto.problem.limits import Counts, Limits, checked_limits
from uniproto.problem.masses import Masses, integer_masses
from uniproto.problem.weights import weights_from
from uniproto.runs.checkpoint import Checkpoint
from uniproto.runtime.effort import effort
from uniproto.runtime.memory import memory_budget

if TYPE_CHECKING:
    from uniproto.features.compared_rows import Given


@dataclass(frozen=True)
class Group:
    """One group: its label, its rows, its share of the target mass, and its own problem."""

    label: Hashable
    source_rows: NDArray[np.intp]
    target_rows: NDArray[np.intp]
    mass: float
    problem: Problem


class Problem:
    """A checked question: which source rows may be chosen, and what they must represent.

    Build it once and ask it often: `uniproto.select(problem, k)`, `uniproto.compare(problem, k)`,
    `uniproto.path(problem)`. `uniproto.select(source, k, …)` is the short form.

    A target with the very rows of the source counts as the source, everywhere; `same_set` says
    so. The rows and columns of a matrix of costs are always two sets.

    Args:
        source: the pool, one row per example: a NumPy array or memory map; the `Path` of a file or
            of a folder of Parquet files (kept on disk where it does not fit); a pandas, polars or
            Arrow table; a torch tensor; a SciPy sparse matrix; with a matrix metric the m × n
            matrix itself.
        target: what the chosen rows must represent. Default: the source itself.
        k: how many rows to choose; needed by methods, and given by `with_k`.
        metric: `cosine`, `euclidean`, `sqeuclidean`, `l1`, `dot` (max − inner product), `rbf`
            (1 − exp(−d²/2σ²) of the Euclidean distance d), `laplacian` (1 − exp(−d/σ) of the L1
            distance), `precomputed` (source is an m × n cost matrix) or `similarity` (source is an
            m × n similarity matrix, cost = max − similarity). Default: `cosine`, or `euclidean`
            where a table was prepared.
        bandwidth: the σ of `rbf` and `laplacian`: a number in the units of the features; a share
            of the median distance between source and target rows, such as `"0.25 median"`; or
            `"auto"`, the default. `costs.bandwidth` is the number used.
        target_weights: one non-negative weight per target row; `"balanced"`, the same total for
            every class of `target_labels`; `"density"`, more where targets lie apart; or
            `DensityWeights(q=…, alpha=…)`. Default: all equal.
        target_labels: one class label per target row, for `target_weights="balanced"`. Where the
            target is the source, one per source row.
        groups: one label per source row: a separate selection inside each group.
        target_groups: one label per target row, when the target is another set.
        budgets: how k is shared among groups: `proportional` to target mass, `balanced`, or a
            mapping from label to count.
        initial: rows already chosen. They come first and count towards k.
        sources: one label per source row, for `at_most` and `at_least`; the target needs none.
        at_most: how many rows of a source may be chosen: a number for every source, or a mapping
            from label to count.
        at_least: how many rows of a source must be chosen, likewise.
        exclude: rows never to choose. They remain targets where source and target are one set.
        distinct: True, or a distance: never choose two rows that close to each other.
        prepare: whether a table's columns are made comparable first: numbers scaled, gaps filled
            and flagged, categories turned into features, ids set aside; `given.preparation` says
            what became of each. Default: unless they are one vector already, such as columns
            e0 … e383. False takes numbers as they are. Or a `Preparation` of before, or a fitted
            transformer, such as a `ColumnTransformer`.
        features, ignore: names of the columns to take, or not to take, of a table.
        scale: how numbers of a prepared table are scaled: `robust` (by their quartiles),
            `standard`, `minmax` or `none`.
        seed: for methods that draw random numbers.
        memory: how much working memory to use beyond the inputs: bytes, or a text such as "4GB".
            Default: a quarter of what is free. A file that would take more than that stays on disk,
            or is refused where its format does not allow it.
        device: where neighbour lists are built: `cpu`, `cuda`, or `auto`, which takes a GPU where
            torch sees one.
        lists: `exact`, or `faiss` for approximate lists whose measured recall is in `notes`.

    >>> import uniproto
    >>> problem = uniproto.Problem([[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0]])
    >>> problem
    Problem(4 source rows, the target is the source, cosine)
    >>> uniproto.select(problem, 2).indices
    array([0, 2])
    """

    costs: Costs
    target_weights: NDArray[np.float64] | None  # sums to 1; None: uniform
    initial: NDArray[np.intp]
    candidates: NDArray[np.intp]  # ascending, without the initial rows
    twin_distance: float | None  # rows at most this far apart count as the same example
    seed: int
    memory: int  # bytes of working memory allowed
    lists: ListBuilder
    weights_origin: str | None  # how the record names weights given by name
    bandwidth_origin: str | None  # how it names a bandwidth that was computed
    groups: tuple[Group, ...]  # once k is known
    given: Given | None  # source and target as the user has them, where they are known
    limits: Limits | None  # how many rows each source of the pool may and must give
    checkpoint: Checkpoint | None  # where a run saves its picks, if it must survive a kill
    effort: float  # the work that a method may spend on this problem; 1 is the usual amount
    _k: int | None
    _group_labels: tuple[NDArray[Any], NDArray[Any]] | None  # of source and target rows
    _budgets: str | Mapping[Hashable, int]

    @known_keywords
    def __init__(
        self,
        source: Any,
        target: Any = None,
        *,
        k: int | None = None,
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
        memory: int | float | str | None = None,
        device: str = "auto",
        lists: str = "exact",
    ) -> None:
        from uniproto.features.compared_rows import compared_rows

        metric = None if metric is None else metric_name(metric)
        if prepare is None and metric in MATRIX_METRICS:
            prepare = False
        rows = compared_rows(
            source,
            target,
            prepare=prepare,
            features=features,
            ignore=ignore,
            scale=scale,
            memory=memory,
        )
        metric = rows.metric if metric is None else metric
        plain = rows.given.preparation is None
        costs = checked_costs(rows.source, rows.target, metric, bandwidth, memory, warn=plain)
        self._begin(costs, seed=require_int("seed", seed, least=0), memory=memory_budget(memory))
        self.given = rows.given
        if costs.bandwidth is not None:
            self.bandwidth_origin = origin_of(as_bandwidth(bandwidth), self.m, self.n)
        self.initial, self.candidates = rows_to_choose(initial, exclude, self.m)
        self.lists = make_builder(device, lists, costs)
        weights, self.weights_origin = weights_from(
            target_weights, target_labels, costs, device=device, memory=self.memory
        )
        self.target_weights = checked_weights(weights, self.n)
        self.twin_distance = twin_distance(distinct, costs)
        self._group_labels = self._checked_groups(groups, target_groups, budgets)
        self._budgets = budgets
        self.limits = checked_limits(sources, at_most, at_least, self.m)
        if self.limits is not None and self._group_labels is not None:
            raise invalid(
                "groups",
                "must be left out beside 'at_most' and 'at_least', which limit one selection over "
                "all sources",
                "both",
                "Use 'budgets' for the groups, or drop 'groups'.",
            )
        if k is not None:
            self.__dict__ |= self.with_k(k).__dict__

    def _begin(self, costs: Costs, *, seed: int, memory: int) -> None:
        """Set every field to its default."""
        self.costs, self.seed, self.memory = costs, seed, memory
        self._k = None
        self.target_weights = None
        self.initial, self.candidates = np.empty(0, np.intp), np.arange(self.m)
        self.twin_distance = None
        self.lists = CpuLists()
        self.weights_origin = self.bandwidth_origin = None
        self.groups, self.limits, self.checkpoint = (), None, None
        self.effort = effort()
        self.given = None
        self._group_labels = None
        self._budgets = "proportional"

    @classmethod
    def from_costs(cls, costs: Costs, k: int, *, seed: int, memory: int, **fields: Any) -> Problem:
        """A problem of costs that have been checked already, such as those of a shard."""
        problem = object.__new__(cls)
        problem._begin(costs, seed=seed, memory=memory)
        return problem.changed(_k=k, **fields)

    @property
    def m(self) -> int:
        return self.costs.shape[0]

    @property
    def n(self) -> int:
        return self.costs.shape[1]

    @property
    def k(self) -> int:
        if self._k is None:
            raise invalid("k", "must be known by now", "none", "Use problem.with_k(k).")
        return self._k

    @property
    def same_set(self) -> bool:
        """Whether the target is the source."""
        return isinstance(self.costs, FeatureCosts) and self.costs.source is self.costs.target

    @cached_property
    def masses(self) -> Masses:
        return integer_masses(self.k, self.n, self.target_weights)

    def with_k(self, k: Any) -> Problem:
        """The same problem for k prototypes, split into its groups."""
        count = checked_count(k, self.m)
        require_rows(count, self.initial, self.candidates)
        if self.limits is not None:
            self.limits.require(count, self.initial, self.candidates)
        problem = self.changed(_k=count, groups=())
        if self._group_labels is None:
            return problem
        return problem.changed(groups=_split(problem, *self._group_labels, self._budgets))

    def excluding(self, rows: NDArray[Any]) -> Problem:
        """The same problem, in which these rows may not be chosen either, for any k."""
        candidates = np.setdiff1d(self.candidates, rows)
        return self.changed(candidates=candidates, groups=(), _k=None)

    def with_seed(self, seed: int | None) -> Problem:
        """The same problem for methods that draw; its groups draw from the same seed."""
        if seed is None:
            return self
        groups = tuple(
            replace(group, problem=group.problem.changed(seed=seed)) for group in self.groups
        )
        return self.changed(seed=seed, groups=groups)

    def with_checkpoint(self, checkpoint: Checkpoint) -> Problem:
        """The same problem, whose picks are saved as they are made."""
        groups = tuple(
            replace(
                group,
                problem=group.problem.changed(checkpoint=checkpoint.part(str(group.label))),
            )
            for group in self.groups
        )
        return self.changed(groups=groups, checkpoint=checkpoint)

    def changed(self, **fields: Any) -> Problem:
        """A copy with other values of some fields, which the caller has checked."""
        unknown = set(fields) - set(self.__dict__)
        assert not unknown, unknown
        copy = object.__new__(Problem)
        copy.__dict__ = {**self.__dict__, **fields}
        copy.__dict__.pop("masses", None)
        return copy

    def among(
        self,
        source_rows: NDArray[np.intp],
        target_rows: NDArray[np.intp],
        target_weights: NDArray[np.float64] | None,
    ) -> Problem:
        """The problem among some of its rows, which are numbered anew, with these weights."""
        place = np.full(self.m, -1)
        place[source_rows] = np.arange(len(source_rows))
        initial, candidates = place[self.initial], place[self.candidates]
        return self.changed(
            costs=self.costs.restrict(source_rows, target_rows),
            target_weights=target_weights,
            initial=initial[initial >= 0],
            candidates=candidates[candidates >= 0],
            weights_origin=None,
            groups=(),
            limits=None if self.limits is None else self.limits.among(source_rows),
            given=None,
            _group_labels=None,
        )

    def twins(self, row: int) -> NDArray[np.intp]:
        """Positions among the candidates of rows too close to `row` to be chosen beside it."""
        if self.twin_distance is None:
            return np.empty(0, np.intp)
        return np.flatnonzero(self.costs.twins(row, self.twin_distance)[self.candidates])

    def too_few_distinct(self, found: int) -> InfeasibleError:
        limited = "" if self.limits is None else " within the limits of their sources"
        return InfeasibleError(
            f"'distinct' must leave at least k={self.k} examples to choose. Got only {found} that "
            f"are more than {self.twin_distance:g} apart{limited} instead. Lower the threshold or "
            "k."
        )

    def _checked_groups(
        self, groups: Any, target_groups: Any, budgets: Any
    ) -> tuple[NDArray[Any], NDArray[Any]] | None:
        if groups is None:
            _refuse_options_of_groups(target_groups, budgets)
            return None
        labels = as_labels(groups, "groups", self.m)
        if target_groups is not None:
            return labels, as_labels(target_groups, "target_groups", self.n)
        if not self.same_set:
            raise invalid(
                "target_groups",
                "must be given when the target is not the source, and with a matrix of costs",
                "None",
                "Pass one group label per target row.",
            )
        return labels, labels

    def __repr__(self) -> str:
        target = "the target is the source" if self.same_set else f"{self.n:,} targets"
        k = "" if self._k is None else f"k={self._k}, "
        metric = metric_label(self.costs.metric, self.costs.bandwidth)
        return f"Problem({k}{self.m:,} source rows, {target}, {metric})"


def as_problem(source: Any, target: Any = None, **conditions: Any) -> Problem:
    """The problem that was given, or a new one from the arguments."""
    if not isinstance(source, Problem):
        return Problem(source, target, **conditions)
    usual = {name: each.default for name, each in signature(Problem).parameters.items()}
    for name, value in {"target": target, **conditions}.items():
        default = usual[name]
        if value is not default and not (isinstance(value, str | int) and value == default):
            raise invalid(
                name, "must be said to the Problem", "it beside a Problem", f"Problem(…, {name}=…)."
            )
    return source


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
        part = problem.among(source_rows, target_rows, share)
        part = part.changed(_k=int(quota[index]), effort=problem.effort / np.count_nonzero(quota))
        parts.append(Group(name, source_rows, target_rows, mass, part))
    return tuple(parts)
