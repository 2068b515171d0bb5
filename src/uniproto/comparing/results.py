"""Results of `compare` and `path`: seeds, tables and files."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.csv
import pyarrow.parquet as pq

from uniproto.data.columns import as_frame
from uniproto.errors import InvalidInputError, as_index, printable
from uniproto.geometry.metrics import metric_label
from uniproto.report.words import aligned, html_table, mean_and_spread, number_column
from uniproto.runs.atomic import require_writable
from uniproto.runs.publish import publishing, require_publishable, write_record
from uniproto.runs.records import as_table, versions, without_infinity
from uniproto.runtime.memory import readable
from uniproto.selection.selection import Selection

if TYPE_CHECKING:
    import pandas as pd

    from uniproto.report.page import ResultsPage


def as_seeds(seeds: int | Iterable[int]) -> list[int]:
    """The seeds 0, 1, … for a number of seeds, or the given seeds.

    >>> as_seeds(3), as_seeds([7, 11])
    ([0, 1, 2], [7, 11])
    """
    try:
        given = seeds if isinstance(seeds, Iterable) else range(as_index(seeds))
        listed = [as_index(each) for each in given]
    except TypeError:
        listed = []
    if not listed or min(listed) < 0 or len(set(listed)) < len(listed):
        raise InvalidInputError(
            f"must be a number of seeds, or different seeds of at least 0, not {seeds!r}.",
            parameter="seeds",
        )
    return listed


_ENDINGS = ("parquet", "csv", "png", "svg", "html")


def require_results_folder(folder: Path, name: str) -> None:
    """Refuse, before the work, a folder in which the names of the results are taken."""
    require_writable(folder)
    require_publishable(folder, f"{name}.json", [f"{name}.{ending}" for ending in _ENDINGS])


def save_results(
    folder: Path,
    name: str,
    rows: Sequence[Mapping[str, Any]],
    record: Any,
    chart: Any,
    page: ResultsPage,
) -> Path:
    """Write NAME.parquet, .csv, .json, .png, .svg and .html, all or none."""
    from uniproto.report.charts import save_chart
    from uniproto.report.page import render_results

    table = as_table(rows)
    with publishing(folder, f"{name}.json") as stage:
        pq.write_table(table, stage / f"{name}.parquet")
        pyarrow.csv.write_csv(table, stage / f"{name}.csv")
        for ending in ("png", "svg"):
            save_chart(chart, stage / f"{name}.{ending}")
        text = render_results(page)
        (stage / f"{name}.html").write_text(text, encoding="utf-8", errors="backslashreplace")
        write_record(stage, f"{name}.json", without_infinity(record))
    return folder


JUDGED = ("accuracy", "balanced_accuracy", "minority_accuracy")
_MEASURED = ("cost", "seconds", "weight_ratio", "weight_entropy")
_BY_CLASS = ("class_accuracy", "class_prototypes")
_MOST_CLASSES = 16  # that are printed; files hold all
_WIDTH = 100


@dataclass(frozen=True)
class Comparison:
    """Results of several methods on one problem. Made by `uniproto.compare`.

    `rows` has one dict per method and seed: `method`, `seed` (None for a deterministic method),
    `cost`, `cost_is_exact`, `seconds` (of the selection alone), `peak_memory` (growth of the
    process in bytes), `weight_ratio` and `weight_entropy` (of the weights the method learned; 1
    and 1 if all are equal), `accuracy`, `balanced_accuracy`,
    `minority_accuracy` (None without labels, the last also without minority classes),
    `class_accuracy` and `class_prototypes` (dicts, empty without labels) and `indices`.
    `proportional` is the number of prototypes of each class in proportion to its target rows.
    `skipped` holds the reason for each skipped method; `warnings` are about the labels.
    """

    rows: list[dict[str, Any]]
    k: int
    shape: tuple[int, int]
    metric: str
    bandwidth: float | None
    seeds: list[int]
    methods: dict[str, dict[str, Any]]  # label -> name and options
    skipped: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    minority: list[Hashable] = field(default_factory=list)
    classes: list[Hashable] = field(default_factory=list)
    proportional: dict[Hashable, float] = field(default_factory=dict)

    @property
    def summary_rows(self) -> list[dict[str, Any]]:
        """One dict per method, the lowest mean cost first.

        Values are means over seeds, `<name>_spread` their standard deviations (None after a single
        run), but `peak_memory` is the maximum; `runs` is the number of runs.
        """
        found = []
        for label in self.methods:
            runs = [row for row in self.rows if row["method"] == label]
            summary: dict[str, Any] = {"method": label, "runs": len(runs)}
            for name in (*_MEASURED, *JUDGED):
                mean, spread = mean_and_spread([run[name] for run in runs])
                summary |= {name: mean, f"{name}_spread": spread}
            peaks = [run["peak_memory"] for run in runs if run["peak_memory"] is not None]
            summary["peak_memory"] = max(peaks, default=None)
            summary["cost_is_exact"] = all(run["cost_is_exact"] for run in runs)
            for column in _BY_CLASS:
                summary[column] = {
                    name: mean_and_spread([run[column][name] for run in runs])[0]
                    for name in self.classes
                }
            found.append(summary)
        return sorted(found, key=lambda summary: summary["cost"])

    def to_frame(self) -> pd.DataFrame:
        """A data frame with a line for each method and seed."""
        return as_frame(as_table([_flat(row) for row in self.rows]), "save(folder)")

    def _repr_html_(self) -> str:
        """The table of methods for notebooks."""
        notes = self.notes(self.summary_rows)
        return html_table(str(self).split("\n")[0], self._columns(self.summary_rows), notes)

    def table(self) -> None:
        """Print the methods, the lowest cost first, and why others were skipped."""
        print(self)

    def __str__(self) -> str:
        m, n = self.shape
        summaries = self.summary_rows
        parts = [
            f"{self.k} of {m:,} source rows for {n:,} targets "
            f"({metric_label(self.metric, self.bandwidth)})",
            aligned(self._columns(summaries)),
        ]
        if self.classes:
            parts.append(self._by_class(summaries))
        parts.append("\n".join(self.notes(summaries)))
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.methods)}; k={self.k}, {len(self.rows)} runs)"

    def save(self, folder: str | os.PathLike[str], *, command: str = "") -> Path:
        """Write comparison.parquet, .csv, .json and the plot (.png, .svg, .html).

        All of them or none; other files in the folder are left alone. The page names the `command`
        that asked for it.
        """
        from uniproto.comparing.charts import comparison_chart, comparison_page

        record = {
            "format": 1,
            **{name: value for name, value in vars(self).items() if name != "classes"},
            "proportional": [[name, share] for name, share in self.proportional.items()],
            "summary": self.summary_rows,
            "versions": versions(),
        }
        return save_results(
            Path(folder),
            "comparison",
            [_flat(row) for row in self.rows],
            record,
            comparison_chart(self),
            replace(comparison_page(self), command=command),
        )

    def _columns(self, summaries: list[dict[str, Any]]) -> dict[str, list[str]]:
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
        for name in JUDGED:
            if summaries[0][name] is not None:
                columns[name.removesuffix("_accuracy")] = number_column(
                    [(each[name], each[f"{name}_spread"]) for each in summaries], places=3
                )
        return columns

    def _by_class(self, summaries: list[dict[str, Any]]) -> str:
        if len(self.classes) > _MOST_CLASSES:
            return f"The accuracy and the prototypes of {len(self.classes)} classes are in 'rows'."
        methods = [each["method"] for each in summaries]
        accuracies = {"accuracy by class": methods}
        prototypes = {"prototypes by class": ["in proportion", *methods]}
        for name in self.classes:
            title = f"{name}{'°' if name in self.minority else ''}"
            accuracies[title] = [f"{each['class_accuracy'][name]:.3f}" for each in summaries]
            counts = [each["class_prototypes"][name] for each in summaries]
            prototypes[title] = [f"{count:.1f}" for count in (self.proportional[name], *counts)]
        return f"{aligned(accuracies)}\n\n{aligned(prototypes)}"

    def notes(self, summaries: list[dict[str, Any]]) -> list[str]:
        drawn = [summary["method"] for summary in summaries if summary["runs"] > 1]
        notes = ["* the lowest cost: optimal transport, all prototypes with equal weight"]
        if drawn:
            notes.append(f"± is the standard deviation over {len(self.seeds)} seeds")
        elif any(row["seed"] is not None for row in self.rows):
            notes.append("one seed says nothing about the spread of random draws: use more")
        if self.minority:
            notes.append(f"° minority classes: {', '.join(map(str, self.minority))}")
        elif self.classes:
            notes.append("no class is below half the mean class size, so none is a minority")
        notes += [f"warning: {text}" for text in self.warnings]
        notes += [f"skipped: {label}: {reason}" for label, reason in self.skipped.items()]
        return [
            textwrap.fill(printable(note), _WIDTH, subsequent_indent="  ", break_on_hyphens=False)
            for note in notes
        ]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """The row with one column per class, and without the indices."""
    plain = {name: value for name, value in row.items() if not isinstance(value, dict | list)}
    shares = {f"accuracy_{name}": share for name, share in row["class_accuracy"].items()}
    counts = {f"prototypes_{name}": count for name, count in row["class_prototypes"].items()}
    return plain | shares | counts


@dataclass(frozen=True)
class KPath:
    """Costs over k. Made by `uniproto.path`.

    `rows` has one dict for each k in `ks`, ascending: `k`, `cost`, `cost_is_exact`,
    `lower_bound` (on the cost of any k rows; None without `certify`), `random_cost` and
    `random_spread` (mean and standard deviation over random selections) and `seconds` (of the
    selection alone). `knee` is the k after which more prototypes help least, see `knee_of`. With
    `max_cost`, `chosen` is the smallest k found that reaches it, `selection` its selection, and
    `searched` the costs at the other k that were tried.
    """

    rows: list[dict[str, Any]]
    method: str
    shape: tuple[int, int]
    metric: str
    bandwidth: float | None
    knee: int | None
    max_cost: float | None = None
    chosen: int | None = None
    selection: Selection | None = None
    searched: dict[int, float] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        """A data frame with a line for each k."""
        return as_frame(as_table(self.rows), "save(folder)")

    def _repr_html_(self) -> str:
        """The table of costs for notebooks."""
        title, *_, last = str(self).split("\n\n")
        return html_table(title, self._columns(), [last])

    def table(self) -> None:
        """Print a line for each k, with the knee and the chosen k marked."""
        print(self)

    def _columns(self) -> dict[str, list[str]]:
        rows = self.rows
        costs = number_column([(row["cost"], None) for row in rows])
        return {
            "k": [str(row["k"]) for row in rows],
            "": ["knee" if row["k"] == self.knee else "" for row in rows],
            "cost": [
                cost if row["cost_is_exact"] else f"≤ {cost}"
                for cost, row in zip(costs, rows, strict=True)
            ],
            "lower bound": number_column([(row["lower_bound"], None) for row in rows]),
            "random": number_column([(row["random_cost"], row["random_spread"]) for row in rows]),
            "below random": [_below(row["cost"], row["random_cost"]) for row in rows],
            "seconds": [f"{row['seconds']:.3g}" for row in rows],
        }

    def __str__(self) -> str:
        m, n = self.shape
        parts = [
            f"{printable(self.method)} on {m:,} source rows for {n:,} targets "
            f"({metric_label(self.metric, self.bandwidth)})",
            aligned(self._columns()),
        ]
        if self.selection is not None:
            parts.append(
                f"k = {self.chosen} is the smallest k found with a cost of at most "
                f"{self.max_cost:g}: it costs {self.selection.cost:.4g}."
            )
        parts.append("Each line is a separate run: its rows are not the first rows of another.")
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        ks = ", ".join(str(row["k"]) for row in self.rows)
        chosen = "" if self.chosen is None else f", chosen={self.chosen}"
        return f"KPath({self.method}, k={ks}; knee={self.knee}{chosen})"

    def save(self, folder: str | os.PathLike[str], *, command: str = "") -> Path:
        """Write path.parquet, .csv, .json and the plot (.png, .svg, .html).

        With `max_cost`, the chosen selection is saved in the subfolder `selection`. The page names
        the `command` that asked for it.
        """
        from uniproto.comparing.charts import path_chart, path_page

        folder = Path(folder)
        fields = {name: value for name, value in vars(self).items() if name != "selection"}
        record = {"format": 1, **fields, "versions": versions()}
        if self.selection is not None:
            self.selection.save(folder / "selection")
        page = replace(path_page(self), command=command)
        return save_results(folder, "path", self.rows, record, path_chart(self), page)


def _below(cost: float, random_cost: float | None) -> str:
    return f"{1 - cost / random_cost:.1%}" if random_cost else "–"
