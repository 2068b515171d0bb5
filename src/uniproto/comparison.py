"""Several methods on the same problem, judged alike."""

from __future__ import annotations

import os
import textwrap
import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.contenders import (
    METHOD_NAMES,
    as_compared,
    draws_at_random,
    method_label,
    small_problem,
    warms_up,
    with_seed,
)
from uniproto.errors import UniprotoError, invalid
from uniproto.evaluation import (
    LabelsWarning,
    accuracy,
    checked_labels,
    doubts,
    minority_classes,
    nearest_prototype,
    weight_skew,
)
from uniproto.geometry.costs import MATRIX_METRICS
from uniproto.memory import readable
from uniproto.methods import Method
from uniproto.peak_memory import PeakMemory
from uniproto.problem import Problem, make_problem
from uniproto.progress import Progress
from uniproto.results import (
    aligned,
    as_seeds,
    mean_and_spread,
    number_column,
    save_results,
    versions,
)
from uniproto.select import answer
from uniproto.selection import Selection

_MEASURED = ("cost", "seconds", "weight_ratio", "weight_entropy")
_JUDGED = ("accuracy", "balanced_accuracy", "minority_accuracy")
_MOST_CLASSES = 16  # printed side by side; files hold them all
_WIDTH = 100


@dataclass(frozen=True)
class Comparison:
    """What several methods chose for one problem. Made by `uniproto.compare`.

    `rows` has one dict per method and seed: `method`, `seed` (None where the method draws nothing
    at random), `cost`, `cost_is_exact`, `seconds` (of picking alone), `peak_memory` (bytes above
    where the process stood), `weight_ratio` and `weight_entropy` (of the weights the method
    learned; 1 and 1 where all count equally), `accuracy`, `balanced_accuracy`,
    `minority_accuracy` (None without labels, the last also without minority classes),
    `class_accuracy` (a dict, empty without labels) and `indices`. `skipped` says for each method
    left out why; `warnings` what a reader of the accuracies must know.
    """

    rows: list[dict[str, Any]]
    k: int
    shape: tuple[int, int]
    metric: str
    seeds: list[int]
    methods: dict[str, dict[str, Any]]  # label -> name and options
    skipped: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    minority: list[Hashable] = field(default_factory=list)
    classes: list[Hashable] = field(default_factory=list)

    @property
    def summary_rows(self) -> list[dict[str, Any]]:
        """One dict per method, the lowest mean cost first.

        Each figure is a mean over seeds, `<figure>_spread` its standard deviation (None where
        there is one run only), but `peak_memory` is the most; `runs` says how many there were.
        """
        found = []
        for label in self.methods:
            runs = [row for row in self.rows if row["method"] == label]
            summary: dict[str, Any] = {"method": label, "runs": len(runs)}
            for name in (*_MEASURED, *_JUDGED):
                mean, spread = mean_and_spread([run[name] for run in runs])
                summary |= {name: mean, f"{name}_spread": spread}
            peaks = [run["peak_memory"] for run in runs if run["peak_memory"] is not None]
            summary["peak_memory"] = max(peaks, default=None)
            summary["cost_is_exact"] = all(run["cost_is_exact"] for run in runs)
            summary["class_accuracy"] = {
                name: mean_and_spread([run["class_accuracy"][name] for run in runs])[0]
                for name in self.classes
            }
            found.append(summary)
        return sorted(found, key=lambda summary: summary["cost"])

    def table(self) -> None:
        """Print the methods, the lowest cost first, and what was left out and why."""
        print(self)

    def __str__(self) -> str:
        m, n = self.shape
        summaries = self.summary_rows
        parts = [
            f"{self.k} of {m:,} source rows for {n:,} targets ({self.metric})",
            self._figures(summaries),
        ]
        if self.classes:
            parts.append(self._by_class(summaries))
        parts.append("\n".join(self._notes(summaries)))
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.methods)}; k={self.k}, {len(self.rows)} runs)"

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write comparison.parquet, .csv, .json and the plot (.png, .svg, .html).

        All of them or none; other files of the folder stay.
        """
        from uniproto.result_charts import comparison_chart

        record = {
            "format": 1,
            "k": self.k,
            "shape": list(self.shape),
            "metric": self.metric,
            "seeds": self.seeds,
            "methods": self.methods,
            "minority": self.minority,
            "rows": self.rows,
            "summary": self.summary_rows,
            "skipped": self.skipped,
            "warnings": self.warnings,
            "versions": versions(),
        }
        return save_results(
            Path(folder),
            "comparison",
            [_flat(row) for row in self.rows],
            record,
            comparison_chart(self),
        )

    def _figures(self, summaries: list[dict[str, Any]]) -> str:
        costs = number_column([(each["cost"], each["cost_spread"]) for each in summaries])
        lowest = summaries[0]["cost"]
        columns = {
            "method": [each["method"] for each in summaries],
            "": ["*" if each["cost"] == lowest else "" for each in summaries],
            "cost": [
                cost if each["cost_is_exact"] else f"≤ {cost}"
                for cost, each in zip(costs, summaries, strict=True)
            ],
            "seconds": [f"{each['seconds']:.3g}" for each in summaries],
            "memory": [
                "–" if each["peak_memory"] is None else readable(each["peak_memory"])
                for each in summaries
            ],
            "weight ratio": [f"{each['weight_ratio']:.3g}" for each in summaries],
            "entropy": [f"{each['weight_entropy']:.3f}" for each in summaries],
        }
        for name in _JUDGED:
            if summaries[0][name] is not None:
                columns[name.removesuffix("_accuracy")] = number_column(
                    [(each[name], each[f"{name}_spread"]) for each in summaries], places=3
                )
        return aligned(columns)

    def _by_class(self, summaries: list[dict[str, Any]]) -> str:
        if len(self.classes) > _MOST_CLASSES:
            return f"The accuracy of each of the {len(self.classes)} classes is in 'rows'."
        columns = {"accuracy by class": [each["method"] for each in summaries]}
        for name in self.classes:
            title = f"{name}{'°' if name in self.minority else ''}"
            columns[title] = [f"{each['class_accuracy'][name]:.3f}" for each in summaries]
        return aligned(columns)

    def _notes(self, summaries: list[dict[str, Any]]) -> list[str]:
        drawn = [summary["method"] for summary in summaries if summary["runs"] > 1]
        notes = ["* the lowest cost: optimal transport, all prototypes counting equally"]
        if drawn:
            notes.append(f"± is the standard deviation over {len(self.seeds)} seeds")
        elif any(row["seed"] is not None for row in self.rows):
            notes.append("one seed says nothing about the spread of random draws: ask for more")
        if self.minority:
            notes.append(f"° minority classes: {', '.join(map(str, self.minority))}")
        elif self.classes:
            notes.append("no class is below half the mean class size: there is no minority")
        notes += [f"warning: {text}" for text in self.warnings]
        notes += [f"left out: {label}: {reason}" for label, reason in self.skipped.items()]
        return [
            textwrap.fill(note, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
            for note in notes
        ]


def compare(
    source: Any,
    k: int,
    target: Any = None,
    *,
    methods: Iterable[str | Method] | Mapping[str, str | Method] | None = None,
    labels: Any = None,
    target_labels: Any = None,
    minority: Collection[Hashable] | None = None,
    seeds: int | Iterable[int] = 5,
    metric: str = "cosine",
    target_weights: Any = None,
    groups: Any = None,
    target_groups: Any = None,
    budgets: str | Mapping[Hashable, int] = "proportional",
    initial: Any = None,
    exclude: Any = None,
    distinct: bool | float = False,
    memory: int | float | str | None = None,
    device: str = "auto",
    lists: str = "exact",
    progress: bool | None = None,
) -> Comparison:
    """Run several methods on the same problem and set their results side by side.

    Costs are those of equally weighted prototypes, by an exact solve (`cost_is_exact` says where
    that did not fit), also for methods that learn weights. With labels, every target row is given
    the label of its nearest prototype in `metric`; the share that is right is the accuracy. All
    target rows count alike there, whatever their weights.

    Args:
        source, k, target: as for `select`.
        methods: names, method objects, or a mapping from a label of your own to either. A method
            that cannot answer the problem is an error. Default: every method that can, and
            `"uniproto+polish"`, which is `UniProto(polish=True)`; those that cannot are in
            `skipped` with the reason.
        labels: one class label per source row.
        target_labels: one per target row. Default: `labels`, where the target is the source.
        minority: the classes `minority_accuracy` is the mean over. Default: those below half the
            mean class size of the target.
        seeds: how many seeds (0, 1, …), or which. Methods that draw at random run once for each,
            the others once, with the seed None.
        target_weights: as for `select`; `"balanced"` balances the classes of the target.
        metric, groups, target_groups, budgets, initial, exclude, distinct, memory,
            device, lists, progress: as for `select`.

    Returns:
        A `Comparison`: `rows`, `summary_rows`, `table()`, `save(folder)`.

    `seconds` and `peak_memory` are of picking alone, after a run on a few rows has loaded the
    method's compiled code; see `docs/comparing.md` for what is measured.

    >>> import uniproto
    >>> points = [[1.0, 0.0], [0.9, 0.1], [0.1, 0.9], [0.0, 1.0]]
    >>> found = uniproto.compare(points, k=2, methods=["uniproto", "random"], labels=list("aabb"))
    >>> len(found.rows), found.rows[0]["method"], found.rows[0]["accuracy"]
    (6, 'uniproto', 1.0)
    """
    explicit = methods is not None
    one_set = target is None
    aim_labels = labels if one_set and target_labels is None else target_labels
    balanced = isinstance(target_weights, str) and target_weights == "balanced"
    chosen = _labelled(METHOD_NAMES if methods is None else methods)
    listed = as_seeds(seeds)
    problem = make_problem(
        source,
        k,
        target,
        metric=metric,
        target_weights=target_weights,
        target_labels=aim_labels if balanced else None,
        groups=groups,
        target_groups=target_groups,
        budgets=budgets,
        initial=initial,
        exclude=exclude,
        distinct=distinct,
        seed=listed[0],
        memory=memory,
        device=device,
        lists=lists,
    )
    m, n = problem.m, problem.n
    one_set = one_set and (metric not in MATRIX_METRICS or m == n)
    judge = _Judge(
        problem, checked_labels(labels, target_labels, (m, n), same_set=one_set), minority
    )
    for text in judge.warnings:
        warnings.warn(LabelsWarning(text), stacklevel=2)
    ran = _run(judge, chosen, listed, Progress(progress), explicit)
    return Comparison(
        rows=ran.rows,
        k=problem.k,
        shape=problem.costs.shape,
        metric=problem.costs.metric,
        seeds=listed,
        methods=ran.methods,
        skipped=ran.skipped,
        warnings=judge.warnings,
        minority=judge.minority,
        classes=judge.classes,
    )


def _labelled(
    methods: Iterable[str | Method] | Mapping[str, str | Method],
) -> dict[str, Method]:
    """Methods by the label each goes under."""
    remedy = "Pass for example methods=['uniproto', 'kmedoids', 'random']."
    if isinstance(methods, Mapping):
        chosen = {str(label): as_compared(method) for label, method in methods.items()}
    else:
        if isinstance(methods, str) or not isinstance(methods, Iterable):
            raise invalid(
                "methods", "must be a list of methods or a mapping", repr(methods), remedy
            )
        chosen = {}
        for method in map(as_compared, methods):
            label = method_label(method)
            if label in chosen:
                raise invalid(
                    "methods",
                    "must name every method once",
                    f"{label!r} twice",
                    "Drop one, or pass a mapping from labels to methods.",
                )
            chosen[label] = method
    if not chosen:
        raise invalid("methods", "must name at least one method", "none", remedy)
    return chosen


@dataclass(frozen=True)
class _Ran:
    rows: list[dict[str, Any]]
    methods: dict[str, dict[str, Any]]
    skipped: dict[str, str]


def _run(
    judge: _Judge,
    methods: dict[str, Method],
    seeds: list[int],
    progress: Progress,
    explicit: bool,
) -> _Ran:
    """Every method on every seed it needs, and why some were left out."""
    planned: dict[str, list[int | None]] = {
        label: [*seeds] if draws_at_random(method) else [None] for label, method in methods.items()
    }
    rows: dict[str, list[dict[str, Any]]] = {}
    options: dict[str, dict[str, Any]] = {}
    skipped: dict[str, str] = {}
    small = small_problem(judge.problem)
    failing = {label for label, method in methods.items() if not warms_up(small, method)}
    with progress.stage("compare", sum(map(len, planned.values()))) as advance:
        # What will likely fail goes first: an error is better known before an hour's work.
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
            options[label] = {"method": selection.method, "options": selection.options}
    ran = [label for label in methods if label in rows]
    return _Ran(
        [row for label in ran for row in rows[label]],
        {label: options[label] for label in ran},
        skipped,
    )


class _Judge:
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
        self.warnings: list[str] = []
        if labels is not None:
            source, target = labels
            self.minority = minority_classes(target, minority)
            self.classes = np.unique(target).tolist()
            self.warnings = doubts(source, target, problem.k)
        elif minority is not None:
            raise invalid("minority", "needs 'labels' as well", "only minority", "Pass both.")

    def run(self, method: Method, seed: int | None) -> tuple[Selection, dict[str, Any]]:
        with PeakMemory() as peak:
            selection = answer(with_seed(self.problem, seed), method, progress=False)
        ratio, entropy = weight_skew(selection.weights)
        row: dict[str, Any] = {
            "cost": selection.cost,
            "cost_is_exact": selection.cost_is_exact,
            "seconds": selection.timings["pick"],
            "peak_memory": peak.bytes,
            "weight_ratio": ratio,
            "weight_entropy": entropy,
            **dict.fromkeys(_JUDGED),
            "class_accuracy": {},
        }
        if self.labels is not None:
            source, target = self.labels
            nearest = nearest_prototype(self.problem.costs, selection.indices)
            judged = accuracy(source[selection.indices][nearest], target, self.minority)
            row |= {
                "accuracy": judged.overall,
                "balanced_accuracy": judged.balanced,
                "minority_accuracy": judged.minority,
                "class_accuracy": judged.per_class,
            }
        return selection, row | {"indices": selection.indices.tolist()}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """The row with one column per class, and without the picks, which a table has no place for."""
    plain = {name: value for name, value in row.items() if not isinstance(value, dict | list)}
    return plain | {f"accuracy_{name}": share for name, share in row["class_accuracy"].items()}
