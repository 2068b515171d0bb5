"""The pages of comparisons and of paths over k."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uniproto.comparing.charts import comparison_panels, path_panel
from uniproto.report.results_page import PageChart, ResultsPage
from uniproto.report.words import LONGEST_NAME, counted, cut, figure, page_text, seconds
from uniproto.runtime.memory import readable

if TYPE_CHECKING:
    from uniproto.comparing.results import Comparison, KPath


def comparison_page(comparison: Comparison) -> ResultsPage:
    """Several methods on one problem."""
    summaries = comparison.summary_rows
    best = summaries[0]
    m, n = comparison.shape
    judged = {"accuracy": "accuracy", "minority_accuracy": "minority"}
    shown = {name: title for name, title in judged.items() if best[name] is not None}
    random = next((each for each in summaries if each["method"] == "random"), None)
    lead = f"On average a target is {figure(best['cost'])} from its prototype"
    if random is not None and random is not best:
        lead += f"; with random ones {figure(random['cost'])}"
    rows = [
        [
            cut(each["method"], LONGEST_NAME),
            ("" if each["cost_is_exact"] else "≤ ") + _spread(each["cost"], each["cost_spread"]),
            *(_spread(each[name], each[f"{name}_spread"], 3) for name in shown),
            seconds(each["seconds"]),
            "–" if each["peak_memory"] is None else readable(each["peak_memory"]),
            figure(each["weight_ratio"], 3),
            str(each["runs"]),
        ]
        for each in summaries
    ]
    return ResultsPage(
        eyebrow=f"{comparison.k:,} prototypes of {counted(m, 'source row')} for "
        f"{counted(n, 'target')}, {comparison.metric} costs",
        headline=f"{cut(best['method'], LONGEST_NAME)} costs least",
        lead=f"{lead}.",
        charts=comparison_panels(comparison),
        table=["method", "cost", *shown.values(), "time", "memory", "weight ratio", "runs"],
        rows=rows,
        notes=[
            page_text(note).replace("\n ", "")
            for note in comparison.notes(summaries)
            if not note.startswith("*")  # of the table that is printed
        ],
    )


def path_page(path: KPath) -> ResultsPage:
    """Costs over k."""
    m, n = path.shape
    first, last = path.rows[0], path.rows[-1]
    headline = f"From {first['k']:,} to {last['k']:,} prototypes"
    if path.chosen is not None:
        headline = f"{path.chosen:,} prototypes are enough"
    elif path.knee is not None:
        headline = f"Beyond {path.knee:,} prototypes, more help less"
    lead = (
        f"On average a target is {figure(first['cost'])} from its prototype with {first['k']:,} of "
        f"them, {figure(last['cost'])} with {last['k']:,}."
    )
    words = "Lower is better; k is on a logarithmic scale."
    if path.max_cost is not None:
        words += f" Dotted: the cost allowed, {figure(path.max_cost)}."
    rows = [
        [
            f"{row['k']:,}",
            ("" if row["cost_is_exact"] else "≤ ") + figure(row["cost"]),
            figure(row["lower_bound"]),
            _spread(row["random_cost"], row["random_spread"]),
            seconds(row["seconds"]),
        ]
        for row in path.rows
    ]
    return ResultsPage(
        eyebrow=f"{cut(path.method, LONGEST_NAME)} on {counted(m, 'source row')} for "
        f"{counted(n, 'target')}, {path.metric} costs",
        headline=headline,
        lead=lead,
        charts=[PageChart("path", "Cost over k", words, path_panel(path))],
        table=["k", "cost", "no choice can be below", "random", "time"],
        rows=rows,
        notes=[
            "Every line is a run of its own: no line's rows are the first of another's.",
            "The knee is where the cost lies farthest below the straight line from the first k to "
            "the last, over log k. It depends on which k were tried: a hint, not a law.",
        ],
    )


def _spread(mean: float | None, spread: float | None, digits: int = 4) -> str:
    return figure(mean, digits) + ("" if spread is None else f" ± {figure(spread, 2)}")
