"""The checked question: which rows may be chosen, and what they must represent."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from uniproto.data.arrays import as_labels, as_rows, distinct_labels, row_numbers, sampled_rows
from uniproto.errors import (
    InfeasibleError,
    InvalidInputError,
    TooFewApartError,
    asking,
    known_keywords,
    require_int,
)
from uniproto.geometry.bandwidth import as_bandwidth, origin_of
from uniproto.geometry.costs import MATRIX_METRICS, WITH_BANDWIDTH, Costs, metric_name
from uniproto.geometry.cpu_lists import CpuLists
from uniproto.geometry.feature_costs import FeatureCosts
from uniproto.geometry.lists import ListBuilder, make_builder
from uniproto.geometry.metrics import metric_label
from uniproto.problem.checks import (
    AUTO,
    checked_costs,
    checked_weights,
    require_rows,
    rows_to_choose,
    twin_distance,
    why_metric,
)
from uniproto.problem.groups import SourceLimits, checked_limits, quotas
from uniproto.problem.masses import Masses, integer_masses
from uniproto.problem.values import (
    RBF,
    Compute,
    Groups,
    Laplacian,
    Limits,
    NamedColumns,
    TargetSample,
    as_columns,
    as_kind,
    metric_of,
)
from uniproto.problem.weights import named_weights, weights_from
from uniproto.runs.checkpoint import Checkpoint
from uniproto.runtime.memory import memory_budget

if sys.version_info >= (3, 11):
    from typing import Unpack as Unpack
else:
    from typing_extensions import Unpack as Unpack

if TYPE_CHECKING:
    from uniproto.data.tables import Input
    from uniproto.features.compared_rows import Given
    from uniproto.problem.near import NearRows

_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


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

    A pandas Series passed with a data frame (groups, labels, weights, masks) is matched by its
    index.
    A target with the very rows of the source counts as the source, everywhere; `same_set` says
    so. The rows and columns of a matrix of costs are always two sets.

    Args:
        source: the pool, one row per example: a NumPy array or memory map; the path of a file or
            of a folder of Parquet files (kept on disk where it does not fit); a pandas, polars or
            Arrow table, whose columns are made comparable first; a torch tensor; a SciPy sparse
            matrix; with a matrix metric the m × n matrix itself.
        target: what the chosen rows must represent, given like the source. Default: the source
            itself.
        features: how rows become vectors. Of a table: `Columns(use=…, ignore=…, scale=…)`; False,
            to take numbers as they are; or a fitted transformer, such as a `ColumnTransformer`.
            By a model: `Text("review")`, `Images("path")`, `lm.Gradients(model)` or
            `lm.HiddenStates(model)`; a row without a vector is never chosen and weighs nothing.
            Columns that other options name are no features. Default: columns are made comparable
            unless they are one vector already, such as e0 … e383; `given.preparation` says what
            became of each.
        metric: how rows are compared: `cosine`, `euclidean`, `sqeuclidean`, `l1`, `dot` (max −
            inner product), `rbf` or `RBF(bandwidth)`, `laplacian` or `Laplacian(bandwidth)`,
            `precomputed` (source is an m × n cost matrix) or `similarity` (source is an m × n
            similarity matrix, cost = max − similarity). Default: `auto`: `euclidean` for
            tables, whose columns are made comparable, and for arrays of up to 20 columns; `cosine`
            for more columns, and for rows of length 1. The summary says which, and why.
        target_weights: how much each target row counts: one non-negative number per row; the name
            of a column; `Balanced(labels)`, the same total for every class; or `Density(q, alpha)`,
            more where targets lie apart. Default: all equal.
        groups: a separate selection inside each group: one label per source row, the name of a
            column, or `Groups(labels, target=…, budgets=…)`.
        limits: `Limits(labels, at_most=…, at_least=…)`: how many rows with each label may or must
            be chosen.
        include: rows already chosen. They come first and count towards k. Whole numbers are
            positions, whatever index a data frame has; its labels are a pandas `Index`.
        exclude: rows never to choose: numbers, labels or a mask. They remain targets where source
            and target are one set.
        min_distance: a distance, or `"auto"` (a hundredth of the median): no two chosen rows are
            that close to each other, but for rows of `include`.
        compute: `Compute(memory=…, device=…, neighbours=…)`: changes how long it takes.
        seed: for methods that draw random numbers.

    >>> import uniproto
    >>> problem = uniproto.Problem([[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0]])
    >>> problem
    Problem(4 source rows, the target is the source, euclidean)
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
    metric_origin: str | None  # why this metric, where none was asked for
    weights_origin: str | None  # how the record names weights given by name
    bandwidth_origin: str | None  # how it names a bandwidth that was computed
    groups: tuple[Group, ...]  # once k is known
    given: Given  # source and target as the user has them, as far as they are known
    asked: dict[str, Any]  # the arguments, but for those at their defaults
    near: tuple[tuple[str, NearRows], ...]  # rows excluded, and the files they are near to
    limits: SourceLimits | None  # how many rows each source of the pool may and must give
    keep: SourceLimits | None  # how many rows of an earlier choice must stay
    checkpoint: Checkpoint | None  # where a run saves its picks, if it must survive a kill
    effort: float  # the share of the usual work of a search that is for this problem: a group's
    _k: int | None
    _group_labels: tuple[NDArray[Any], NDArray[Any]] | None  # of source and target rows
    _budgets: str | Mapping[Hashable, int]

    @known_keywords
    def __init__(
        self,
        source: Any,
        target: Any = None,
        *,
        features: Any = None,
        metric: str | RBF | Laplacian = "auto",
        target_weights: Any = None,
        groups: Any = None,
        limits: Limits | None = None,
        include: Any = (),
        exclude: Any = (),
        min_distance: float | str | None = None,
        compute: Compute | None = None,
        seed: int = 0,
    ) -> None:
        from uniproto.features.model_features import ModelFeatures

        asked = {name: value for name, value in locals().items() if name in _ARGUMENTS}
        compute = as_kind("compute", compute, Compute, "Pass Compute(memory='4GB').") or Compute()
        limits = as_kind("limits", limits, Limits, "Pass Limits(labels, at_most=5).")
        groups = groups if isinstance(groups, Groups | None) else Groups(groups)
        bandwidth = metric.bandwidth if isinstance(metric, RBF | Laplacian) else None
        name = metric_of(metric)
        auto = str(name) == AUTO
        name = name if auto else metric_name(name)
        is_arrow = hasattr(source, "column_names")
        source, target = _opened(source, target, compute, features, seed)
        named = NamedColumns(source, target)
        identity, classes = (getattr(features, name, None) for name in ("id", "labels"))
        if identity is not None:
            named.of_source(identity, "id")
        if classes is not None:
            named.of_target(classes, "labels")
        labels = self._named_labels(groups, named)
        limited = None if limits is None else named.of_source(limits.labels, "limits")
        target_weights = named_weights(target_weights, named)
        if auto and isinstance(features, ModelFeatures):
            auto, name = False, "cosine"
        compared, aim, given = _compared(source, target, features, name, named.aside)
        plain = given.preparation is None
        name = "euclidean" if auto and not plain else name
        warn = plain and given.model is None
        barred, weightless = given.without
        width = bandwidth
        if barred.size + weightless.size and name in WITH_BANDWIDTH:  # a share of others' distances
            seen = np.delete(compared, barred, axis=0)
            others = None if aim is None else np.delete(aim, weightless, axis=0)
            width = checked_costs(seen, others, name, bandwidth, warn=False).bandwidth
        costs = checked_costs(compared, aim, name, width, warn=warn, names=given.columns)
        budget = memory_budget(compute.memory)
        self._begin(costs, seed=require_int("seed", seed, least=0), memory=budget)
        self.asked = {name: asked[name] for name in asked if not is_usual(name, asked[name])}
        as_frame = hasattr(given.source, "column_names") and not is_arrow
        self.given = replace(given, how=features, id=identity, as_frame=as_frame)
        if auto:
            self.metric_origin = why_metric(costs, prepared=not plain)
        if costs.bandwidth is not None:
            known = self.m - barred.size, self.n - weightless.size
            self.bandwidth_origin = origin_of(as_bandwidth(bandwidth), *known)
        include = row_numbers(include, source.content, "include")
        exclude = row_numbers(exclude, source.content, "exclude")
        self.initial, self.candidates = rows_to_choose(include, exclude, self.m, barred)
        for rule, given_rows in (("include", include), ("exclude", exclude)):
            if rows := as_rows(given_rows, rule, self.m).tolist():
                self.asked[rule] = rows
            else:
                self.asked.pop(rule, None)
        self.lists = make_builder(compute.device, compute.neighbours, costs)
        weights, self.weights_origin = weights_from(
            target_weights, costs, compute, budget, weightless
        )
        self.target_weights = checked_weights(weights, self.n)
        self.twin_distance = twin_distance(min_distance, costs, barred)
        if groups is not None:
            self._group_labels, self._budgets = self._checked_groups(*labels), groups.budgets
        self.limits = checked_limits(limits, limited, self.m)
        if self.limits is not None and groups is not None:
            raise InvalidInputError(
                "are about one selection over all rows: drop 'groups', or use the budgets "
                "of Groups(…).",
                parameter="limits",
            )

    def _begin(self, costs: Costs, *, seed: int, memory: int) -> None:
        """Set every field to its default."""
        from uniproto.features.compared_rows import Given

        self.costs, self.seed, self.memory = costs, seed, memory
        self._k = None
        self.target_weights = None
        self.initial, self.candidates = np.empty(0, np.intp), np.arange(self.m)
        self.twin_distance = None
        self.lists = CpuLists()
        self.metric_origin = self.weights_origin = self.bandwidth_origin = None
        self.groups, self.checkpoint = (), None
        self.limits = self.keep = None
        self.effort = 1.0
        self.given = Given()
        self.asked, self.near = {}, ()
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
        assert self._k is not None, "use problem.with_k(k)"
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
        count = require_int("k", k, too_small="Ask for one prototype or more.")
        require_rows(count, len(self.candidates), len(self.initial))
        if self.limits is not None:
            self.limits.require(count, self.initial, self.candidates)
        problem = self.changed(_k=count, groups=())
        if self._group_labels is None:
            return problem
        problem = problem.changed(groups=_split(problem, *self._group_labels, self._budgets))
        return problem if self.checkpoint is None else problem.with_checkpoint(self.checkpoint)

    @property
    def rules(self) -> tuple[SourceLimits, ...]:
        """Every rule on how many rows may come from where."""
        return tuple(rule for rule in (self.limits, self.keep) if rule is not None)

    def excluding(self, path: str, near: NearRows) -> Problem:
        """The same problem without rows that are near to, or repeat, those of a file, for any k."""
        candidates = np.setdiff1d(self.candidates, near.rows)
        return self.changed(
            candidates=candidates, near=(*self.near, (path, near)), groups=(), _k=None
        )

    @property
    def near_rows(self) -> list[int]:
        """The rows that are excluded for being near to others."""
        return sorted({row for _, near in self.near for row in near.rows.tolist()})

    def identities(self) -> dict[str, Any] | None:
        """What a record says about the files of source and target; None where one is no file."""
        costs: Any = self.costs
        width = costs.source.shape[1] if isinstance(costs, FeatureCosts) else self.n
        found = [each.identity(width) for each in self.given.inputs]
        if None in found:
            return None
        source, target = (*found, None)[:2]
        return {"source": source, "target": target}

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
        costs: Costs | None = None,
    ) -> Problem:
        """The problem among some of its rows, ascending and renumbered, with these weights.

        `costs` are those of these rows, where they are known.
        """
        initial = places_among(source_rows, self.initial)
        return self.changed(
            costs=self.costs.restrict(source_rows, target_rows) if costs is None else costs,
            target_weights=target_weights,
            initial=initial[initial >= 0],
            candidates=np.flatnonzero(places_among(self.candidates, source_rows) >= 0),
            weights_origin=None,
            groups=(),
            limits=None if self.limits is None else self.limits.among(source_rows),
            keep=None if self.keep is None else self.keep.among(source_rows),
            given=replace(self.given, source=None, target=None, columns=(), preparation=None),
            _group_labels=None,
        )

    def drawn_targets(
        self, size: int, random: np.random.Generator
    ) -> tuple[NDArray[np.intp], NDArray[np.float64] | None]:
        """`size` random targets, drawn as often as their weight says, and their new weights."""
        if self.target_weights is None:
            return some_of(self.n, size, random), None
        drawn = random.choice(self.n, size, p=self.target_weights / self.target_weights.sum())
        targets, counts = np.unique(drawn, return_counts=True)
        return targets, counts / counts.sum()

    def both_labels(self, labels: Any, parameter: str) -> tuple[Any, Any]:
        """Labels of the source's rows and of the target's; None for the target where not given.

        They are one sequence, a pair of them, or the name of a column.
        """
        return NamedColumns(*self.given.inputs).both(labels, parameter)

    def twins(self, row: int) -> NDArray[np.intp]:
        """Positions among the candidates of rows too close to `row` to be chosen with it."""
        if self.twin_distance is None:
            return np.empty(0, np.intp)
        return np.flatnonzero(self.costs.twins(row, self.twin_distance)[self.candidates])

    def too_few_distinct(self, found: int) -> InfeasibleError:
        if self.twin_distance is None:
            return InfeasibleError(
                f"cannot hold together with the earlier prototypes that must stay: got {found} of "
                f"{self.k} rows. Allow more changes, or raise the limits.",
                parameter="limits",
            )
        limited = "" if self.limits is None else " within the limits of their sources"
        return TooFewApartError(
            f"must leave at least k={self.k} examples to choose. Got only {found} "
            f"that are more than {self.twin_distance:g} apart{limited} instead. Lower it or k.",
            parameter="min_distance",
        )

    @staticmethod
    def _named_labels(groups: Groups | None, named: NamedColumns) -> tuple[Any, Any]:
        """The groups of source and target rows, columns of a table by their names."""
        if groups is None:
            return None, None
        target = groups.target
        if target is None and named.has_target and isinstance(groups.labels, str):
            target = groups.labels
            if named.of_the_target and target not in named.of_the_target:
                text = f"{target}:LABEL=N"
                limits = asking(
                    f"limits=Limits({target!r}, …)",
                    "at_most",
                    f"{text}, --at-least or --budget {text}",
                )
                raise InvalidInputError(
                    f"must name a column of the target, too, which has no {target!r}. If it has no "
                    f"such labels, limit the sources instead: {limits}.",
                    parameter="groups",
                )
        return named.of_source(groups.labels, "groups"), named.of_target(target, "groups")

    def _checked_groups(self, labels: Any, target: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        of_source = as_labels(labels, "groups", self.m)
        if target is not None:
            return of_source, as_labels(target, "groups", self.n)
        if not self.same_set:
            raise InvalidInputError(
                "needs labels of the target, too: pass Groups(labels, target=…).",
                parameter="groups",
            )
        return of_source, of_source

    def __repr__(self) -> str:
        target = "the target is the source" if self.same_set else f"{self.n:,} targets"
        k = "" if self._k is None else f"k={self._k}, "
        metric = metric_label(self.costs.metric, self.costs.bandwidth)
        return f"Problem({k}{self.m:,} source rows, {target}, {metric})"


_ARGUMENTS = inspect.signature(Problem).parameters


def is_usual(name: str, value: Any) -> bool:
    """Whether an argument of a `Problem` is at its default; no rows are none."""
    usual = _ARGUMENTS[name].default
    if usual == ():
        return isinstance(value, list | tuple) and not value
    return value is usual or (type(value) is type(usual) and bool(value == usual))


class ProblemOptions(TypedDict, total=False):
    """The options of a `Problem`, which `select`, `compare`, `path` and `cost` pass on to it."""

    features: Any
    metric: str | RBF | Laplacian
    target_weights: Any
    groups: Any
    limits: Limits | None
    include: Any
    exclude: Any
    min_distance: float | str | None
    compute: Compute | None
    seed: int


def takes_problem_options(function: Callable[_Given, _Returned]) -> Callable[_Given, _Returned]:
    """Explain the options of a `Problem` in a function's docstring, and refuse unknown ones."""
    text = inspect.getdoc(Problem)
    if text and function.__doc__:  # Python may run without docstrings
        options = text[text.index("    features:") : text.index("\n\n", text.index("    seed:"))]
        text = inspect.cleandoc(function.__doc__)
        function.__doc__ = text.replace("    problem: as for `Problem`.", options)
    return known_keywords(function, ProblemOptions.__annotations__)


def as_problem(function: str, source: Any, target: Any, options: ProblemOptions) -> Problem:
    """The problem that was given, or a new one from the arguments of a function."""
    if not isinstance(source, Problem):
        return Problem(source, target, **options)
    for name in (*(["target"] if target is not None else []), *options):
        raise InvalidInputError(
            f"must be passed to Problem(…), not to {function}().", parameter=name
        )
    return source


def _opened(
    source: Any, target: Any, compute: Compute, features: Any, seed: int
) -> tuple[Input, Input | None]:
    """The source and the target with what their paths lead to, or a sample of the target."""
    from uniproto.features.compared_rows import opened

    found = opened(source, "source", compute.memory, features)
    if not isinstance(target, TargetSample):
        same = target is None
        return found, None if same else opened(target, "target", compute.memory, features)
    aim = found if target.of is None else opened(target.of, "target", compute.memory, features)
    drawn = sampled_rows(len(aim), target.rows, seed, "target_sample")
    return found, replace(aim, parameter="target", drawn=drawn, seed=seed)


def _compared(
    source: Input, target: Input | None, features: Any, metric: Any, aside: Mapping[str, str]
) -> tuple[Any, Any, Given]:
    """What is compared of source and target, and what it was made from; `aside` are no features."""
    from uniproto.features.compared_rows import compared_rows, rows_of_model
    from uniproto.features.model_features import ModelFeatures

    is_sample = target is not None and target.drawn is not None
    if is_sample and (isinstance(features, ModelFeatures) or metric in MATRIX_METRICS):
        raise InvalidInputError(
            "needs rows of numbers, compared by a metric of vectors. Leave it out.",
            parameter="target_sample",
        )
    if isinstance(features, ModelFeatures):
        if metric in MATRIX_METRICS:
            raise InvalidInputError(
                f"must compare the vectors of a model, not be {metric!r}. Use cosine.",
                parameter="metric",
            )
        return rows_of_model(source, target, features)
    columns = as_columns(features)
    if columns.prepare is None and metric in MATRIX_METRICS:
        columns = replace(columns, prepare=False)
    return compared_rows(source, target, columns, aside)


def _split(
    problem: Problem,
    labels: NDArray[Any],
    target_labels: NDArray[Any],
    budgets: str | Mapping[Hashable, int],
) -> tuple[Group, ...]:
    """One problem per group: its candidates against its own target rows."""
    names, target_group = distinct_labels(target_labels, "groups")
    present = set(labels.tolist())
    missing = [name for name in names.tolist() if name not in present]
    if missing:
        raise InfeasibleError(
            f"must have source rows for every group of the target, also for {missing}.",
            parameter="groups",
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
            "must only hold rows of groups that the target has.", parameter="include"
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
                f"must give group {name!r} some weight: {quota[index]} of its "
                "rows are to be chosen.",
                parameter="target_weights",
            )
        share = None if problem.target_weights is None else weights[target_rows] / mass
        part = problem.among(source_rows, target_rows, share)
        part = part.changed(_k=int(quota[index]), effort=problem.effort / np.count_nonzero(quota))
        parts.append(Group(name, source_rows, target_rows, mass, part))
    return tuple(parts)


def places_among(rows: NDArray[np.intp], numbers: NDArray[np.intp]) -> NDArray[np.intp]:
    """Where each number is among ascending rows; -1: nowhere.

    >>> places_among(np.array([2, 5, 7]), np.array([7, 3, 2]))
    array([ 2, -1,  0])
    """
    if not len(rows):
        return np.full(len(numbers), -1)
    places = np.minimum(np.searchsorted(rows, numbers), len(rows) - 1)
    return np.where(rows[places] == numbers, places, -1)


def some_of(count: int, size: int, random: np.random.Generator) -> NDArray[np.intp]:
    """`size` of so many positions at random, ascending; nearly the same ones of a few more."""
    if size >= count:
        return np.arange(count)
    return np.sort(np.argpartition(random.random(count), size)[:size])
