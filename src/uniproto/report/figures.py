"""The page's charts as Vega-Lite specifications. Colours are names, which the page looks up in
its light or dark set: `$blue`, `$orange`, `$green`, `$pink`, `$grey`, `$ink`, `$paper`.
"""

from __future__ import annotations

from typing import Any

import altair as alt

from uniproto.report.content import Content
from uniproto.report.coverage import ClassCoverage

_ROW = 24
_PLACE_DIGITS = 6


def figures(content: Content) -> dict[str, Any]:
    """All charts, by the id of their element on the page."""
    found: dict[str, Any] = {}
    if content.projection is not None:
        found["map"] = _map(content)
    if content.curve is not None:
        found["curve"] = _curve(content)
    if len(content.rivals) > 1 or content.lower_bound is not None:
        found["final"] = _final(content)
    for coverage in content.coverage:
        found[f"coverage-{coverage.kind}"] = _coverage(coverage, content.noun)
    return {name: chart.to_dict(validate=False) for name, chart in found.items()}


def _map(content: Content) -> Any:
    """The map. The page supplies the data of its layers, after filters."""
    assert content.projection is not None
    first, second = content.projection.axes
    bare = alt.Axis(labels=False, ticks=False, grid=False, domain=False)
    places: dict[str, Any] = {
        "x": alt.X("x:Q", title=first, axis=bare, scale=_around(content, "x")),
        "y": alt.Y("y:Q", title=second, axis=bare, scale=_around(content, "y")),
    }
    hue = alt.Color("hue:N", scale=None)
    dim = alt.param(name="dim", value=False)
    zoom = alt.selection_interval(name="zoom", bind="scales", zoom="wheel![event.ctrlKey]")
    size = 14 if content.drawn > 4000 else 26 if content.drawn > 1000 else 44
    # Next to a zoomable layer, only layers with a tooltip receive pointer events; the page shows
    # its own tooltip.
    dot: dict[str, Any] = {"tooltip": True}
    diamond: dict[str, Any] = {"tooltip": True, "shape": "diamond", "filled": True}

    def points(name: str, **shown: Any) -> Any:
        return alt.Chart(alt.NamedData(name=name)).encode(**places, **shown)

    def opacity(dimmed: float, otherwise: float) -> Any:
        return alt.when(dim).then(alt.value(dimmed)).otherwise(alt.value(otherwise))

    return alt.layer(
        points("targets", color=hue, opacity=opacity(0.14, 0.6))
        .mark_circle(**dot, size=size)
        .add_params(dim, zoom),
        points("lit").mark_circle(
            **dot, size=3 * size, color="$orange", opacity=0.95, stroke="$paper", strokeWidth=0.5
        ),
        points("prototypes", color=hue, opacity=opacity(0.7, 1)).mark_point(
            **diamond,
            size=70 if content.k > 300 else 150,
            stroke="$ink",
            strokeWidth=1.4,
            cursor="pointer",
        ),
        points("chosen").mark_point(
            **diamond, size=300, color="$blue", opacity=1, stroke="$ink", strokeWidth=2.5
        ),
    ).properties(
        width="container",
        height=460,
        description=f"Map of {content.drawn:,} targets (dots) and {content.k:,} {content.noun}s "
        f"(diamonds) in two dimensions. Left and right arrow keys choose a {content.noun}, Escape "
        f"lets it go. The gallery holds the same {content.noun}s as a list.",
    )


def _around(content: Content, side: str) -> Any:
    """A scale for all points with some padding, independent of filters."""
    shown = [*content.items[: content.drawn], *content.cards]
    values = [float(getattr(point, side)) for point in shown]
    low, high = min(values), max(values)
    room = 0.04 * (high - low) or 1.0
    return alt.Scale(domain=[low - room, high + room], nice=False, zero=False)


def _with_room(costs: list[float]) -> Any:
    """A scale for these costs, which begins below 0 only if one of them does."""
    low, high = min(costs), max(costs)
    room = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    start = low - room if low < 0 else max(low - room, 0.0)
    return alt.Scale(domain=[start, high + room], nice=False, zero=False)


def _curve(content: Content) -> Any:
    assert content.curve is not None
    values = [
        {"pick": pick, "cost": value} for pick, value in enumerate(content.curve.values, start=1)
    ]
    if len(values) > 1000:
        values = values[:: len(values) // 500] + values[-1:]
    x = alt.X("pick:Q", title="picks", axis=alt.Axis(tickMinStep=1, format="d"))
    y = alt.Y("cost:Q", title="cost so far")
    tooltip = [alt.Tooltip("pick:Q"), alt.Tooltip("cost:Q", format=".4~g")]
    line = alt.Chart(alt.Data(values=values)).encode(x=x, y=y)
    layers = [
        line.mark_area(color="$blue", opacity=0.12),
        line.mark_line(color="$blue", strokeWidth=2.5),
        line.mark_point(color="$blue", size=60, opacity=0).encode(tooltip=tooltip),
        alt.Chart(alt.Data(values=[{"cost": content.cost}]))
        .mark_rule(color="$ink", strokeDash=[5, 4])
        .encode(y="cost:Q"),
        alt.Chart(alt.Data(values=[{"cost": content.cost, "words": "final cost"}]))
        .mark_text(align="left", baseline="bottom", dx=6, dy=-4, color="$ink")
        .encode(x=alt.value(0), y="cost:Q", text="words:N"),
    ]
    end = content.curve.values[-1]
    return alt.layer(*layers).properties(
        width="container",
        height=260,
        description=f"{content.curve.title}: from {content.curve.values[0]:.4g} after one pick "
        f"to {end:.4g} after {content.k:,}; the final cost is {content.cost:.4g}.",
    )


def _final(content: Content) -> Any:
    names = [
        rival.name if rival.runs == 1 else f"{rival.name} (mean of {rival.runs})"
        for rival in content.rivals
    ]
    values: list[dict[str, Any]] = [
        {
            "line": _line(place, name),
            "name": name,
            "cost": rival.cost,
            "low": rival.cost - (rival.spread or 0.0),
            "high": rival.cost + (rival.spread or 0.0),
            "ours": rival.name == "this selection",
        }
        for place, (name, rival) in enumerate(zip(names, content.rivals, strict=True))
    ]
    y = _named_lines(labelLimit=190)
    ends = [] if content.lower_bound is None else [content.lower_bound]
    ends += [value[end] for value in values for end in ("low", "high")]
    axis = alt.Axis(tickCount=8)  # the default leaves no space between labels
    x = alt.X("cost:Q", title="cost (lower is better)", scale=_with_room(ends), axis=axis)
    base = alt.Chart(alt.Data(values=values))
    layers = [
        base.mark_rule(strokeWidth=2, color="$orange").encode(x=alt.X("low:Q"), x2="high:Q", y=y),
        base.mark_point(filled=True, size=130, opacity=1).encode(
            x=x,
            y=y,
            shape=alt.when("datum.ours").then(alt.value("diamond")).otherwise(alt.value("circle")),
            color=alt.when("datum.ours").then(alt.value("$blue")).otherwise(alt.value("$orange")),
            tooltip=[alt.Tooltip("name:N"), alt.Tooltip("cost:Q", format=".4~g")],
        ),
    ]
    words = "; ".join(f"{value['name']} {value['cost']:.4g}" for value in values)
    if content.lower_bound is not None:
        bound = alt.Chart(alt.Data(values=[{"cost": content.lower_bound}]))
        layers += [
            bound.mark_rule(color="$green", strokeWidth=2, strokeDash=[6, 4]).encode(x="cost:Q"),
            bound.mark_text(align="left", dx=6, color="$green", fontWeight="bold").encode(
                x="cost:Q", y=alt.value(-8), text=alt.value("none can be below")
            ),
        ]
        words += f"; no choice can be below {content.lower_bound:.4g}"
    return alt.layer(*layers).properties(
        width="container",
        height=max(3, len(values)) * 34,
        description=f"Final costs: {words}.",
    )


def _coverage(coverage: ClassCoverage, noun: str) -> Any:
    shares = coverage.charted
    rows = [
        {
            "line": _line(place, share.name),
            "name": share.name,
            "target": share.target_share,
            "prototypes": share.prototype_share,
            "words": {"missing": "none"}.get(share.mark, share.mark),
            "mark": share.mark or "in step",
        }
        for place, share in enumerate(shares)
    ]
    y = _named_lines(labelLimit=150, labelPadding=9)
    layers = [_gaps_between_shares(rows, y), _both_shares(rows, y, noun)]
    if marked_rows := [row for row in rows if row["words"]]:
        layers.append(
            alt.Chart(alt.Data(values=marked_rows))
            .transform_calculate(share="max(datum.target, datum.prototypes)")
            .mark_text(align="left", dx=10, color="$ink", fontSize=11)
            .encode(x="share:Q", y=y, text="words:N")
        )
    marked = [f"{share.name} is {share.words}" for share in shares if share.mark]
    return alt.layer(*layers).properties(
        width="container",
        height=max(2, len(rows)) * _ROW,
        description=f"Share of each {coverage.kind} in the target and among {noun}s. "
        + ("; ".join(marked[:10]) or "None is clearly under- or over-represented")
        + ".",
    )


def _line(place: int, name: str) -> str:
    """A distinct key for each of a chart's lines, in their order.

    Vega stores keys in plain objects, in which names such as `constructor` exist already; a number
    in front makes them unique.
    """
    return f"{place:0{_PLACE_DIGITS}d}{name}"


def _named_lines(**style: Any) -> Any:
    """An axis with one line for each `line` of the data, labelled by its name."""
    name = f"slice(datum.label, {_PLACE_DIGITS})"
    axis = alt.Axis(ticks=False, domain=False, labelExpr=name, **style)
    return alt.Y("line:N", title=None, axis=axis)


def _gaps_between_shares(rows: list[dict[str, Any]], y: Any) -> Any:
    colours = {"in step": "$grey", "under": "$orange", "missing": "$orange", "over": "$pink"}
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_rule(strokeWidth=3, opacity=0.8)
        .encode(
            x=alt.X("target:Q"),
            x2="prototypes:Q",
            y=y,
            color=alt.Color("mark:N", scale=scale, legend=None),
        )
    )


def _both_shares(rows: list[dict[str, Any]], y: Any, noun: str) -> Any:
    """A circle for the share of the target, a diamond for that of the chosen rows."""
    titles = {"target": "share of the target", "prototypes": f"share of {noun}s"}
    points = [
        {**row, "of": title, "share": row[of]} for row in rows for of, title in titles.items()
    ]
    order = list(titles.values())
    return (
        alt.Chart(alt.Data(values=points))
        .mark_point(filled=True, size=90, opacity=1)
        .encode(
            x=alt.X("share:Q", title=None, axis=alt.Axis(format="%", orient="top", tickCount=5)),
            y=y,
            shape=alt.Shape(
                "of:N",
                title=None,
                scale=alt.Scale(domain=order, range=["circle", "diamond"]),
                legend=alt.Legend(orient="top", direction="vertical", labelLimit=300),
            ),
            fill=alt.Fill(
                "of:N", title=None, scale=alt.Scale(domain=order, range=["$ink", "$blue"])
            ),
            tooltip=[
                alt.Tooltip("name:N"),
                alt.Tooltip("of:N"),
                alt.Tooltip("share:Q", format=".1%"),
            ],
        )
    )
