"""What several methods chose for one problem: the figures, a table to read, files to keep."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uniproto.comparing.results import aligned, number_column, save_results
from uniproto.report.words import mean_and_spread
from uniproto.runs.records import versions
from uniproto.runtime.memory import readable

JUDGED = ("accuracy", "balanced_accuracy", "minority_accuracy")
_MEASURED = ("cost", "seconds", "weight_ratio", "weight_entropy")
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
            for name in (*_MEASURED, *JUDGED):
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
        from uniproto.comparing.charts import comparison_chart

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
        for name in JUDGED:
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


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """The row with one column per class, and without the picks, which a table has no place for."""
    plain = {name: value for name, value in row.items() if not isinstance(value, dict | list)}
    return plain | {f"accuracy_{name}": share for name, share in row["class_accuracy"].items()}
