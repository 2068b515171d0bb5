"""Charts and pages of comparisons, and of costs over k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import altair as alt

from uniproto.geometry.metrics import metric_label
from uniproto.report.charts import BLUE, GREEN, GREY, HALO, INK, ORANGE, PINK, loose_scale, styled
from uniproto.report.page import PageChart, ResultsPage
from uniproto.report.words import LONGEST_NAME, counted, cut, figure, page_text, seconds
from uniproto.runtime.memory import readable

if TYPE_CHECKING:
    from uniproto.comparing.results import Comparison, KPath


_ROW_HEIGHT = 26
_PANEL_WIDTH = 270
_ACCURACIES = {
    "accuracy": "all rows",
    "balanced_accuracy": "mean of classes",
    "minority_accuracy": "minority classes",
}
_BOUND = "no choice can be below this"
_RANDOM = "random, ± one standard deviation"


def comparison_chart(comparison: Comparison) -> Any:
    """Panels with one line per method: cost, accuracy (with labels) and time."""
    summaries = comparison.summary_rows
    panels = [each.chart for each in _panels(comparison)]
    panels = [panels[0], *(panel.encode(y=_method_axis(summaries)) for panel in panels[1:])]
    m, n = comparison.shape
    drawn = any(summary["runs"] > 1 for summary in summaries)
    return styled(
        alt.hconcat(*(panel.properties(width=_PANEL_WIDTH) for panel in panels), spacing=24),
        f"{comparison.k} prototypes of {m:,} source rows for {n:,} targets",
        f"{metric_label(comparison.metric, comparison.bandwidth)} costs"
        + (
            f"; circles: the {len(comparison.seeds)} seeds of methods that draw at random, "
            "diamonds: means, lines: ± one standard deviation"
            if drawn
            else ""
        ),
    )


def _panels(comparison: Comparison, **changes: Any) -> list[PageChart]:
    """A panel for each quantity that is compared."""
    summaries = comparison.summary_rows
    found = [
        (
            "Cost",
            "Circles: runs; diamonds: means; lines: ± one standard deviation.",
            _cost_panel(comparison.rows, summaries),
        )
    ]
    if summaries[0]["accuracy"] is not None:
        words = "Every target gets the label of its nearest prototype."
        found.append(("Accuracy", words, _accuracy_panel(summaries)))
    found.append(("Time", "Of picking alone.", _time_panel(summaries)))
    changes["height"] = _ROW_HEIGHT * len(summaries)
    return [
        PageChart(title.lower(), title, words, chart.properties(**{"title": title, **changes}))
        for title, words, chart in found
    ]


def _cost_panel(rows: list[dict[str, Any]], summaries: list[dict[str, Any]]) -> Any:
    shown = ("method", "seed", "cost", "seconds", "peak_memory", "accuracy")
    runs = alt.Chart(alt.Data(values=[{name: row[name] for name in shown} for row in rows]))
    means = alt.Chart(alt.Data(values=_means(summaries)))
    x = alt.X("cost:Q", title="optimal-transport cost (lower is better)", scale=loose_scale(alt))
    x = x.axis(tickCount=5, labelOverlap="greedy")
    y = _method_axis(summaries, labelled=True)
    return alt.layer(
        runs.mark_circle(size=40, color=BLUE, opacity=0.35).encode(
            x=x, y=y, tooltip=[alt.Tooltip(f"{name}:N") for name in ("method", "seed", "cost")]
        ),
        means.mark_rule(color=BLUE, strokeWidth=2).encode(x="low:Q", x2="high:Q", y=y),
        means.mark_point(color=BLUE, filled=True, size=90, shape="diamond", opacity=1).encode(
            x="cost:Q", y=y
        ),
    )


def _accuracy_panel(summaries: list[dict[str, Any]]) -> Any:
    judged = [
        {"method": summary["method"], "counting": words, "share": summary[name]}
        for summary in summaries
        for name, words in _ACCURACIES.items()
        if summary[name] is not None
    ]
    present = [
        words for words in _ACCURACIES.values() if any(each["counting"] == words for each in judged)
    ]
    colours = alt.Scale(domain=present, range=[BLUE, ORANGE, PINK][: len(present)])
    legend = alt.Legend(orient="bottom")
    return (
        alt.Chart(alt.Data(values=judged))
        .mark_point(filled=True, size=80, opacity=0.9)
        .encode(
            x=alt.X(
                "share:Q",
                title="1-nearest-prototype accuracy (higher is better)",
                axis=alt.Axis(format="%"),
                scale=loose_scale(alt),
            ),
            y=_method_axis(summaries, labelled=True),
            color=alt.Color("counting:N", title=None, scale=colours, legend=legend),
            shape=alt.Shape("counting:N", title=None, scale=alt.Scale(domain=present)),
            tooltip=["method:N", "counting:N", alt.Tooltip("share:Q", format=".1%")],
        )
    )


def _time_panel(summaries: list[dict[str, Any]]) -> Any:
    return (
        alt.Chart(alt.Data(values=_means(summaries)))
        .mark_point(color=GREEN, filled=True, size=80, opacity=1)
        .encode(
            x=alt.X(
                "seconds:Q",
                title="seconds to pick (logarithmic)",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(
                    format="~g",
                    values=[10.0**power for power in range(-6, 6)],
                    labelOverlap="greedy",
                ),
            ),
            y=_method_axis(summaries, labelled=True),
            tooltip=["method:N", alt.Tooltip("seconds:Q", format=".3g")],
        )
    )


def _method_axis(summaries: list[dict[str, Any]], labelled: bool = False) -> Any:
    """One line per method, in the order of the table; only the first panel names them."""
    axis = alt.Axis(title=None, labelLimit=320, ticks=False) if labelled else None
    return alt.Y("method:N", sort=[summary["method"] for summary in summaries], axis=axis)


def _means(summaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean costs, with the ends of a line of ± one standard deviation."""
    return [
        {
            "method": summary["method"],
            "cost": summary["cost"],
            "seconds": summary["seconds"],
            "low": summary["cost"] - (summary["cost_spread"] or 0.0),
            "high": summary["cost"] + (summary["cost_spread"] or 0.0),
        }
        for summary in summaries
    ]


def path_chart(path: KPath) -> Any:
    """Cost against k: of the method, of random rows, and the lower bound."""
    m, n = path.shape
    return styled(
        path_panel(path).properties(width=620),
        f"How many prototypes of {m:,} source rows for {n:,} targets?",
        f"{path.metric} costs"
        + ("" if path.max_cost is None else f"; dotted: the cost allowed, {path.max_cost:g}"),
    )


def path_panel(path: KPath) -> Any:
    """The chart without title and style."""
    x = alt.X(
        "k:Q",
        title="number of prototypes k (logarithmic)",
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(values=[row["k"] for row in path.rows], format="d", labelOverlap=True),
    )
    layers = _cost_lines(path, x)
    if path.knee is not None:
        layers += _mark(path, x, path.knee, f"knee: k = {path.knee}", "top")
    if path.max_cost is not None and path.chosen is not None:
        layers += [
            alt.Chart(alt.Data(values=[{"cost": path.max_cost}]))
            .mark_rule(color=GREY, strokeDash=[2, 3])
            .encode(y="cost:Q")
        ]
        layers += _mark(path, x, path.chosen, f"chosen: k = {path.chosen}", "bottom")
    return alt.layer(*layers).properties(height=360)


def _cost_lines(path: KPath, x: Any) -> list[Any]:
    """A line with points for each series; that of random rows has a band."""
    random = _random_points(path)
    points = [*_points(path, "cost", path.method), *_points(path, "lower_bound", _BOUND), *random]
    present = list(dict.fromkeys(point["line"] for point in points))
    colours = {path.method: BLUE, _BOUND: GREEN, _RANDOM: ORANGE}
    dashes = {path.method: [1, 0], _BOUND: [6, 4], _RANDOM: [1, 0]}
    legend = alt.Legend(
        orient="top",
        direction="vertical",
        labelLimit=400,
        symbolType="stroke",
        symbolSize=400,
        symbolStrokeWidth=2.5,
    )

    def in_order(values: dict[str, Any]) -> dict[str, Any]:
        scale = alt.Scale(domain=present, range=[values[name] for name in present])
        return {"title": None, "legend": legend, "scale": scale}

    lines = alt.Chart(alt.Data(values=points)).encode(
        x=x,
        y=alt.Y("cost:Q", title="optimal-transport cost", scale=loose_scale(alt)),
        color=alt.Color("line:N", **in_order(colours)),
    )
    band = (
        alt.Chart(alt.Data(values=random))
        .mark_area(opacity=0.25, color=ORANGE)
        .encode(x=x, y="low:Q", y2="high:Q")
    )
    return [
        *([band] if random else []),
        lines.mark_line(strokeWidth=2).encode(
            strokeDash=alt.StrokeDash("line:N", **in_order(dashes))
        ),
        lines.mark_point(filled=True, size=50, opacity=1).encode(
            tooltip=["line:N", "k:Q", alt.Tooltip("cost:Q", format=".5g")]
        ),
    ]


def _points(path: KPath, column: str, line: str) -> list[dict[str, Any]]:
    return [
        {"k": row["k"], "cost": row[column], "line": line}
        for row in path.rows
        if row[column] is not None
    ]


def _random_points(path: KPath) -> list[dict[str, Any]]:
    return [
        {
            "k": row["k"],
            "cost": row["random_cost"],
            "line": _RANDOM,
            "low": row["random_cost"] - (row["random_spread"] or 0),
            "high": row["random_cost"] + (row["random_spread"] or 0),
        }
        for row in path.rows
        if row["random_cost"] is not None
    ]


def _mark(path: KPath, x: Any, k: int, words: str, side: str) -> list[Any]:
    """A vertical line at k, with a label on the side that has more room."""
    is_right = k**2 > path.rows[0]["k"] * path.rows[-1]["k"]  # of the middle, as k is logarithmic
    place: dict[str, Any] = {"align": "right" if is_right else "left", "dx": -6 if is_right else 6}
    at = alt.Chart(alt.Data(values=[{"k": k}]))
    halo, ink = {"stroke": HALO, "strokeWidth": 5}, {"color": INK}
    return [
        at.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x=x),
        *(
            at.mark_text(**place, fontSize=13, fontWeight="bold", **style).encode(
                x=x, y=alt.value(14 if side == "top" else 346), text=alt.value(words)
            )
            for style in (halo, ink)
        ),
    ]


def comparison_page(comparison: Comparison) -> ResultsPage:
    """The page of a comparison."""
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
        charts=_panels(comparison, title=""),  # the page prints it
        table=["method", "cost", *shown.values(), "time", "memory", "weight ratio", "runs"],
        rows=rows,
        notes=[
            page_text(note).replace("\n ", "")
            for note in comparison.notes(summaries)
            if not note.startswith("*")  # of the table that is printed
        ],
    )


def path_page(path: KPath) -> ResultsPage:
    """The page of costs over k."""
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
            "knee" if row["k"] == path.knee else "",
            ("" if row["cost_is_exact"] else "≤ ") + figure(row["cost"]),
            figure(row["lower_bound"]),
            _spread(row["random_cost"], row["random_spread"]),
            seconds(row["seconds"]),
        ]
        for row in path.rows
    ]
    if path.chosen is not None and path.selection is not None:
        why = f"chosen: the smallest k found with a cost of at most {path.max_cost:g}"
        place = sum(each["k"] < path.chosen for each in path.rows)
        if place < len(rows) and rows[place][0] == f"{path.chosen:,}":
            rows[place][1] = why
        else:  # found between those that were asked for
            cost = figure(path.selection.cost)
            rows.insert(place, [f"{path.chosen:,}", why, cost, "–", "–", "–"])
    return ResultsPage(
        eyebrow=f"{cut(path.method, LONGEST_NAME)} on {counted(m, 'source row')} for "
        f"{counted(n, 'target')}, {path.metric} costs",
        headline=headline,
        lead=lead,
        charts=[PageChart("path", "Cost over k", words, path_panel(path))],
        table=["k", "why", "cost", "lower bound", "random", "time"],
        texts=2,
        rows=rows,
        notes=[
            "Each line is a separate run: the rows of one are not the first rows of another.",
            "The knee is where the cost lies farthest below the straight line from the first k to "
            "the last, over log k. It depends on which k were tried.",
        ],
    )


def _spread(mean: float | None, spread: float | None, digits: int = 4) -> str:
    return figure(mean, digits) + ("" if spread is None else f" ± {figure(spread, 2)}")
