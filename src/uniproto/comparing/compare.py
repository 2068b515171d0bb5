"""Several methods on the same problem."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.comparing.accuracy import (
    LabelsWarning,
    accuracy,
    checked_labels,
    doubts,
    minority_classes,
    nearest_prototype,
    weight_skew,
)
from uniproto.comparing.results import JUDGED, Comparison, as_seeds
from uniproto.errors import InvalidInputError, UniprotoError, WrongTypeError
from uniproto.geometry.blocks import spread_rows
from uniproto.methods import (
    FOR_A_TASK,
    METHODS,
    Method,
    UniProto,
    as_method,
)
from uniproto.problem.problem import (
    Problem,
    ProblemOptions,
    Unpack,
    as_problem,
    takes_problem_options,
)
from uniproto.problem.values import ignoring
from uniproto.runtime.memory import PeakMemory
from uniproto.runtime.progress import Progress
from uniproto.select import run_method
from uniproto.selection.selection import Selection


@takes_problem_options
def compare(
    source: Any,
    k: int,
    target: Any = None,
    *,
    methods: Iterable[str | Method] | Mapping[str, str | Method] | None = None,
    labels: Any = None,
    minority: Collection[Hashable] | None = None,
    seeds: int | Iterable[int] = 5,
    progress: bool | None = None,
    **problem: Unpack[ProblemOptions],
) -> Comparison:
    """Run several methods on the same problem and compare the results.

    Costs are those of equally weighted prototypes, also for methods that learn weights, by an exact
    solve (`cost_is_exact` is False where that did not fit). With labels, each target row is given
    the label of its nearest prototype in `metric`; the accuracy is the share of correct labels, in
    which all target rows count equally, whatever their weights.

    Args:
        source: the pool, or a `Problem`, as for `select`.
        k: how many rows to choose.
        target: what the chosen rows must represent. Default: the source itself.
        methods: names, method objects, or a mapping from a label of your own to either. A method
            that cannot answer the problem is an error. Default: every method that can; those that
            cannot are in `skipped` with the reason.
        labels: one class per source row, or the name of a column; where the target is another
            set of rows, a pair: the classes of the source's rows and of the target's.
        minority: the classes `minority_accuracy` is the mean over. Default: those below half the
            mean class size of the target.
        seeds: how many seeds (0, 1, …), or which. Methods that draw at random run once for each,
            the others once, with the seed None.
        progress: True or False to force or forbid progress bars.
        problem: as for `Problem`.

    Returns:
        A `Comparison`: `rows`, `summary_rows`, `table()`, `save(folder)`.

    `seconds` and `peak_memory` are those of the selection alone, after a warm-up run on a few rows;
    see `docs/comparing.md` for what is measured.

    >>> import uniproto
    >>> points = [[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0]]
    >>> found = uniproto.compare(points, k=2, methods=["uniproto", "random"], labels=list("aabb"))
    >>> len(found.rows), found.rows[0]["method"], found.rows[0]["accuracy"]
    (6, 'uniproto', 1.0)
    """
    if "seed" in problem:
        raise WrongTypeError(
            "is no parameter of compare(). Did you mean 'seeds'?", parameter="seed"
        )
    chosen = _labelled(_COMPARED if methods is None else methods)
    listed = as_seeds(seeds)
    if isinstance(labels, str) and not isinstance(source, Problem):
        problem["features"] = ignoring(problem.get("features"), labels)
    question = as_problem("compare", source, target, problem)
    question = question.with_k(k).with_seed(listed[0])
    judge = _MethodEvaluator(question, checked_labels(labels, question), minority)
    for text in judge.warnings:
        warnings.warn(LabelsWarning(text), stacklevel=2)
    rows, ran, skipped = _run(
        judge, chosen, listed, Progress(progress), explicit=methods is not None
    )
    return Comparison(
        rows=rows,
        k=question.k,
        shape=question.costs.shape,
        metric=question.costs.metric,
        bandwidth=question.costs.bandwidth,
        seeds=listed,
        methods=ran,
        skipped=skipped,
        warnings=judge.warnings,
        minority=judge.minority,
        classes=judge.classes,
        proportional=judge.proportional,
    )


def _labelled(
    methods: Iterable[str | Method] | Mapping[str, str | Method],
) -> dict[str, Method]:
    """Methods by label."""
    if isinstance(methods, Mapping):
        chosen = {str(label): as_method(method, "methods") for label, method in methods.items()}
    else:
        if isinstance(methods, str) or not isinstance(methods, Iterable):
            raise InvalidInputError(
                f"must be a list or a mapping, not {methods!r}.", parameter="methods"
            )
        chosen = {}
        for each in methods:
            method = as_method(each, "methods")
            label = method_label(method)
            if label in chosen:
                raise InvalidInputError(
                    f"names {label!r} twice. Pass a mapping from labels to methods.",
                    parameter="methods",
                )
            chosen[label] = method
    if not chosen:
        raise InvalidInputError("must name at least one method.", parameter="methods")
    return chosen


def _run(
    judge: _MethodEvaluator,
    methods: dict[str, Method],
    seeds: list[int],
    progress: Progress,
    *,
    explicit: bool,
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]], dict[str, str]]:
    """The results of each method and seed, the methods' options, and why some were skipped."""
    planned: dict[str, list[int | None]] = {
        label: [*seeds] if draws_at_random(method) else [None] for label, method in methods.items()
    }
    rows: dict[str, list[dict[str, Any]]] = {}
    options: dict[str, dict[str, Any]] = {}
    skipped: dict[str, str] = {}
    small = small_problem(judge.problem)
    failing = {label for label, method in methods.items() if not warms_up(small, method)}
    with progress.stage("compare", sum(map(len, planned.values()))) as advance:
        # Methods that are likely to fail run first, so that errors are raised early.
        for label in sorted(methods, key=lambda label: label not in failing):
            found = []
            try:
                for seed in planned[label]:
                    selection, row = judge.run(methods[label], seed)
                    found.append({"method": label, "seed": seed} | row)
                    advance(1)
            except UniprotoError as error:
                if explicit:
                    raise
                skipped[label] = str(error)
                advance(len(planned[label]) - len(found))
                continue
            rows[label] = found
            options[label] = {
                "method": selection.details.method,
                "options": selection.details.options,
            }
    ran = [label for label in methods if label in rows]
    every = [row for label in ran for row in rows[label]]
    return every, {label: options[label] for label in ran}, skipped


class _MethodEvaluator:
    """Runs a method on the problem and measures what it chose."""

    def __init__(
        self,
        problem: Problem,
        labels: tuple[NDArray[Any], NDArray[Any]] | None,
        minority: Collection[Hashable] | None,
    ) -> None:
        self.problem, self.labels = problem, labels
        self.minority: list[Hashable] = []
        self.classes: list[Hashable] = []
        self.proportional: dict[Hashable, float] = {}
        self.warnings: list[str] = []
        if labels is not None:
            source, target = labels
            self.minority = minority_classes(target, minority)
            names, counts = np.unique(target, return_counts=True)
            self.classes = names.tolist()
            shares = problem.k * counts / counts.sum()
            self.proportional = dict(zip(self.classes, shares.tolist(), strict=True))
            self.warnings = doubts(source, target, problem.k)
        elif minority is not None:
            raise InvalidInputError(
                "needs 'labels'. Name the column of classes.", parameter="minority"
            )

    def run(self, method: Method, seed: int | None) -> tuple[Selection, dict[str, Any]]:
        with PeakMemory() as peak:
            selection = run_method(self.problem.with_seed(seed), method, progress=False)
        ratio, entropy = weight_skew(selection.weights)
        row: dict[str, Any] = {
            "cost": selection.cost,
            "cost_is_exact": selection.cost_is_exact,
            "seconds": selection.details.timings["pick"],
            "peak_memory": peak.bytes,
            "weight_ratio": ratio,
            "weight_entropy": entropy,
            **dict.fromkeys(JUDGED),
            "class_accuracy": {},
            "class_prototypes": {},
        }
        if self.labels is not None:
            source, target = self.labels
            nearest = nearest_prototype(self.problem.costs, selection.indices)
            chosen = source[selection.indices]
            judged = accuracy(chosen[nearest], target, self.minority)
            row |= {
                "accuracy": judged.overall,
                "balanced_accuracy": judged.balanced,
                "minority_accuracy": judged.minority,
                "class_accuracy": judged.per_class,
                "class_prototypes": {name: chosen.tolist().count(name) for name in self.classes},
            }
        return selection, row | {"indices": selection.indices.tolist()}


_COMPARED = tuple(name for name in METHODS if name not in FOR_A_TASK)
_WARM_UP_ROWS, _WARM_UP_K = 500, 100  # enough to compile every loop of a method
_WARM_UP_SECONDS = 0.5


def draws_at_random(method: Method) -> bool:
    """Whether the seed can change a method's picks; assumed of methods that do not say."""
    return bool(getattr(method, "draws", True))


def method_label(method: Method) -> str:
    """A method's name with the options that are not its defaults.

    >>> from uniproto import Greedy, UniProto
    >>> method_label(UniProto()), method_label(Greedy(plan="resolve", sample=0.1))
    ('uniproto', 'greedy(plan=resolve, sample=0.1)')
    """
    options: dict[str, Any] = {}
    known: tuple[Any, ...] = fields(method) if is_dataclass(method) else ()
    for option in known:
        value = getattr(method, option.name)
        if option.default is MISSING or value != option.default:
            options[option.name] = value
    shown = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"{method.name}{f'({shown})' if shown else ''}"


def small_problem(problem: Problem) -> Problem:
    """A few rows of the problem, without its constraints."""
    rows, targets = (spread_rows(count, _WARM_UP_ROWS) for count in problem.costs.shape)
    return problem.among(rows, targets, None).changed(
        _k=min(problem.k, _WARM_UP_K, len(rows), len(targets)),
        initial=np.empty(0, np.intp),
        candidates=np.arange(len(rows)),
        twin_distance=None,
        limits=None,
    )


def warms_up(small: Problem, method: Method) -> bool:
    """Run the method once, so that loading code does not count as its time and memory."""
    if isinstance(method, UniProto) and method.seconds is not None:
        method = replace(method, seconds=_WARM_UP_SECONDS)
    try:
        run_method(small, method, progress=False)
    except UniprotoError:  # the full problem raises it again, with a better message
        return False
    return True
