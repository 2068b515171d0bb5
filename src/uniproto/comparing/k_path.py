"""Costs over k: a table to read, files to keep."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uniproto.comparing.results import aligned, number_column, save_results
from uniproto.runs.records import versions
from uniproto.selection.selection import Selection


@dataclass(frozen=True)
class KPath:
    """Costs over k. Made by `uniproto.path`.

    `rows` has one dict for each k asked for, ascending: `k`, `cost`, `cost_is_exact`,
    `lower_bound` (no choice of k rows can be below it; None where not asked for), `random_cost`
    and `random_spread` (mean and standard deviation of random choices) and `seconds` (of picking).
    `knee` is the k after which more prototypes help least, see `knee_of`. With `max_cost`,
    `chosen` is the smallest k found that reaches it, `selection` its selection, and `searched`
    the costs at every k tried between those asked for.
    """

    rows: list[dict[str, Any]]
    method: str
    shape: tuple[int, int]
    metric: str
    knee: int | None
    max_cost: float | None = None
    chosen: int | None = None
    selection: Selection | None = None
    searched: dict[int, float] = field(default_factory=dict)

    def table(self) -> None:
        """Print a line for each k, with the knee and the chosen k marked."""
        print(self)

    def __str__(self) -> str:
        m, n = self.shape
        rows = self.rows
        costs = number_column([(row["cost"], None) for row in rows])
        columns = {
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
        parts = [
            f"{self.method} on {m:,} source rows for {n:,} targets ({self.metric})",
            aligned(columns),
        ]
        if self.selection is not None:
            parts.append(
                f"k = {self.chosen} is the smallest k found with a cost of at most "
                f"{self.max_cost:g}: it costs {self.selection.cost:.4g}."
            )
        parts.append(
            "Every line is a run of its own: the first 10 picks of k = 20 are not those of k = 10."
        )
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        ks = ", ".join(str(row["k"]) for row in self.rows)
        chosen = "" if self.chosen is None else f", chosen={self.chosen}"
        return f"KPath({self.method}, k={ks}; knee={self.knee}{chosen})"

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write path.parquet, .csv, .json and the plot (.png, .svg, .html).

        With `max_cost`, the chosen selection goes into the folder `selection` beside them.
        """
        from uniproto.comparing.charts import path_chart

        folder = Path(folder)
        record = {
            "format": 1,
            "method": self.method,
            "shape": list(self.shape),
            "metric": self.metric,
            "rows": self.rows,
            "knee": self.knee,
            "max_cost": self.max_cost,
            "chosen": self.chosen,
            "searched": self.searched,
            "versions": versions(),
        }
        if self.selection is not None:
            self.selection.save(folder / "selection")
        return save_results(folder, "path", self.rows, record, path_chart(self))


def _below(cost: float, random_cost: float | None) -> str:
    return f"{1 - cost / random_cost:.1%}" if random_cost else "–"
