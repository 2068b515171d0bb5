"""The charts of results that commands write: methods side by side, and costs over k."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uniproto.charts import BLUE, GREEN, GREY, ORANGE, PINK, loose_scale, styled

if TYPE_CHECKING:
    from uniproto.choosing_k import KPath
    from uniproto.comparison import Comparison

_ROW_HEIGHT = 26
_PANEL_WIDTH = 270


def comparison_chart(comparison: Comparison) -> Any:
    """Panels side by side, one line per method: cost, accuracy (with labels), time."""
    import altair as alt

    summaries = comparison.summary_rows
    order = [summary["method"] for summary in summaries]
    runs = [
        {
            name: row[name]
            for name in ("method", "seed", "cost", "seconds", "peak_memory", "accuracy")
        }
        for row in comparison.rows
    ]
    means = [_with_ends(summary, "cost") for summary in summaries]
    height = _ROW_HEIGHT * len(order)

    def methods(labelled: bool) -> Any:
        axis = alt.Axis(title=None, labelLimit=320, ticks=False) if labelled else None
        return alt.Y("method:N", sort=order, axis=axis)

    cost = alt.layer(
        alt.Chart(alt.Data(values=runs))
        .mark_circle(size=40, color=BLUE, opacity=0.35)
        .encode(
            x=alt.X(
                "cost:Q", title="optimal-transport cost (lower is better)", scale=loose_scale(alt)
            ),
            y=methods(True),
            tooltip=[alt.Tooltip(f"{name}:N") for name in ("method", "seed", "cost")],
        ),
        alt.Chart(alt.Data(values=means))
        .mark_rule(color=BLUE, strokeWidth=2)
        .encode(x="low:Q", x2="high:Q", y=methods(True)),
        alt.Chart(alt.Data(values=means))
        .mark_point(color=BLUE, filled=True, size=90, shape="diamond", opacity=1)
        .encode(x="cost:Q", y=methods(True)),
    ).properties(width=_PANEL_WIDTH, height=height, title="Cost")
    panels = [cost]
    kinds = {
        "accuracy": "all rows",
        "balanced_accuracy": "mean of classes",
        "minority_accuracy": "minority classes",
    }
    judged = [
        {"method": summary["method"], "counting": words, "share": summary[name]}
        for summary in summaries
        for name, words in kinds.items()
        if summary[name] is not None
    ]
    if judged:
        present = [words for words in kinds.values() if any(j["counting"] == words for j in judged)]
        panels.append(
            alt.Chart(alt.Data(values=judged))
            .mark_point(filled=True, size=80, opacity=0.9)
            .encode(
                x=alt.X(
                    "share:Q",
                    title="1-nearest-prototype accuracy (higher is better)",
                    axis=alt.Axis(format="%"),
                    scale=loose_scale(alt),
                ),
                y=methods(False),
                color=alt.Color(
                    "counting:N",
                    title="counting",
                    scale=alt.Scale(domain=present, range=[BLUE, ORANGE, PINK][: len(present)]),
                ),
                shape=alt.Shape("counting:N", title="counting", scale=alt.Scale(domain=present)),
                tooltip=["method:N", "counting:N", alt.Tooltip("share:Q", format=".1%")],
            )
            .properties(width=_PANEL_WIDTH, height=height, title="Accuracy")
        )
    panels.append(
        alt.Chart(alt.Data(values=means))
        .mark_point(color=GREEN, filled=True, size=80, opacity=1)
        .encode(
            x=alt.X(
                "seconds:Q",
                title="seconds to pick (logarithmic)",
                scale=alt.Scale(type="log"),
                axis=alt.Axis(format="~g", values=[10.0**power for power in range(-6, 6)]),
            ),
            y=methods(False),
            tooltip=["method:N", alt.Tooltip("seconds:Q", format=".3g")],
        )
        .properties(width=_PANEL_WIDTH, height=height, title="Time")
    )
    m, n = comparison.shape
    drawn = any(summary["runs"] > 1 for summary in summaries)
    return styled(
        alt.hconcat(*panels, spacing=24),
        f"{comparison.k} prototypes of {m:,} source rows for {n:,} targets",
        f"{comparison.metric} costs"
        + (
            f"; circles: the {len(comparison.seeds)} seeds of methods that draw at random, "
            "diamonds: means, lines: ± one standard deviation"
            if drawn
            else ""
        ),
    )


def path_chart(path: KPath) -> Any:
    """Cost against k: the method's, random's, and the bound no choice can be below."""
    import altair as alt

    bound, drawn = "no choice can be below this", "random, ± one standard deviation"
    x = alt.X(
        "k:Q",
        title="number of prototypes k (logarithmic)",
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(values=[row["k"] for row in path.rows], format="d", labelOverlap=True),
    )
    points = [{"k": row["k"], "cost": row["cost"], "line": path.method} for row in path.rows]
    points += [
        {"k": row["k"], "cost": row["lower_bound"], "line": bound}
        for row in path.rows
        if row["lower_bound"] is not None
    ]
    random = [
        {
            "k": row["k"],
            "cost": row["random_cost"],
            "line": drawn,
            "low": row["random_cost"] - (row["random_spread"] or 0),
            "high": row["random_cost"] + (row["random_spread"] or 0),
        }
        for row in path.rows
        if row["random_cost"] is not None
    ]
    present = list(dict.fromkeys(point["line"] for point in [*points, *random]))
    colours = {path.method: BLUE, bound: GREEN, drawn: ORANGE}
    dashes = {path.method: [1, 0], bound: [6, 4], drawn: [1, 0]}
    legend = alt.Legend(
        orient="top", labelLimit=400, symbolType="stroke", symbolSize=400, symbolStrokeWidth=2.5
    )
    colour = alt.Color(
        "line:N",
        title=None,
        scale=alt.Scale(domain=present, range=[colours[name] for name in present]),
        legend=legend,
    )
    lines = alt.Chart(alt.Data(values=[*points, *random])).encode(
        x=x,
        y=alt.Y("cost:Q", title="optimal-transport cost", scale=loose_scale(alt)),
        color=colour,
    )
    layers = [
        alt.Chart(alt.Data(values=random))
        .mark_area(opacity=0.25, color=ORANGE)
        .encode(x=x, y="low:Q", y2="high:Q")
    ] * bool(random)
    layers += [
        lines.mark_line(strokeWidth=2).encode(
            strokeDash=alt.StrokeDash(
                "line:N",
                title=None,
                legend=legend,
                scale=alt.Scale(domain=present, range=[dashes[name] for name in present]),
            )
        ),
        lines.mark_point(filled=True, size=50, opacity=1).encode(
            tooltip=["line:N", "k:Q", alt.Tooltip("cost:Q", format=".5g")]
        ),
    ]
    if path.knee is not None:
        layers += _mark(alt, x, path.knee, f"knee: k = {path.knee}", "top")
    if path.max_cost is not None and path.chosen is not None:
        layers += [
            alt.Chart(alt.Data(values=[{"cost": path.max_cost}]))
            .mark_rule(color=GREY, strokeDash=[2, 3])
            .encode(y="cost:Q")
        ]
        layers += _mark(alt, x, path.chosen, f"chosen: k = {path.chosen}", "bottom")
    m, n = path.shape
    return styled(
        alt.layer(*layers).properties(width=620, height=360),
        f"How many prototypes of {m:,} source rows for {n:,} targets?",
        f"{path.metric} costs"
        + ("" if path.max_cost is None else f"; dotted: the cost of {path.max_cost:g} asked for"),
    )


def _with_ends(summary: dict[str, Any], name: str) -> dict[str, Any]:
    spread = summary[f"{name}_spread"] or 0.0
    kept = {key: summary[key] for key in ("method", "cost", "seconds")}
    return kept | {"low": summary[name] - spread, "high": summary[name] + spread}


def _mark(alt: Any, x: Any, k: int, words: str, side: str) -> list[Any]:
    """A vertical line at k, with words beside it."""
    at = alt.Chart(alt.Data(values=[{"k": k}]))
    halo, ink = {"stroke": "white", "strokeWidth": 5}, {"color": "#333333"}
    return [
        at.mark_rule(color=GREY, strokeDash=[4, 3]).encode(x=x),
        *(
            at.mark_text(align="left", dx=6, fontSize=13, fontWeight="bold", **style).encode(
                x=x, y=alt.value(14 if side == "top" else 346), text=alt.value(words)
            )
            for style in (halo, ink)
        ),
    ]
