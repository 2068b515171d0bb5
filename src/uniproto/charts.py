"""Every chart this package draws, by one library (Altair), which loads only when one is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniproto.choosing_k import KPath
    from uniproto.comparison import Comparison

# Okabe and Ito's colours, told apart by people with any kind of colour vision.
BLUE, ORANGE, GREEN, PINK, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#666666"
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
            x=alt.X("cost:Q", title="optimal-transport cost (lower is better)", scale=_loose(alt)),
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
                    scale=_loose(alt),
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
    return _styled(
        alt,
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
        y=alt.Y("cost:Q", title="optimal-transport cost", scale=_loose(alt)),
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
    return _styled(
        alt,
        alt.layer(*layers).properties(width=620, height=360),
        f"How many prototypes of {m:,} source rows for {n:,} targets?",
        f"{path.metric} costs"
        + ("" if path.max_cost is None else f"; dotted: the cost of {path.max_cost:g} asked for"),
    )


def save_chart(chart: Any, path: Path) -> None:
    """Write a chart as .png, .svg or .html; the page needs no network to open."""
    if path.suffix == ".html":
        chart.save(str(path), inline=True)
    elif path.suffix == ".png":
        chart.save(str(path), scale_factor=2)
    else:
        chart.save(str(path))


def _with_ends(summary: dict[str, Any], name: str) -> dict[str, Any]:
    spread = summary[f"{name}_spread"] or 0.0
    kept = {key: summary[key] for key in ("method", "cost", "seconds")}
    return kept | {"low": summary[name] - spread, "high": summary[name] + spread}


def _loose(alt: Any) -> Any:
    """An axis that need not begin at 0: differences are what is looked at."""
    return alt.Scale(zero=False, nice=True, padding=10)


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


def _styled(alt: Any, chart: Any, title: str, subtitle: str) -> Any:
    return (
        chart.properties(
            title=alt.TitleParams(
                title,
                subtitle=subtitle,
                anchor="start",
                fontSize=17,
                subtitleFontSize=12,
                subtitleColor=GREY,
                offset=14,
            ),
            padding=16,
        )
        .configure_view(stroke="#dddddd")
        .configure_axis(labelFontSize=12, titleFontSize=12, gridColor="#eeeeee", titlePadding=8)
        .configure_legend(labelFontSize=12, titleFontSize=12)
        .configure_title(fontSize=13)
    )


# The rest of Okabe and Ito's colours; black is for what all others are measured against.
_LINE_COLOURS = (BLUE, "#56B4E9", "#000000", GREEN, "#D55E00", ORANGE, PINK)
_DASHES = ([1, 0], [6, 3], [1, 0], [1, 0], [1, 0], [2, 2], [6, 3])


def seed_bands_chart(
    points: list[dict[str, Any]],
    lines: list[str],
    title: str,
    subtitle: str,
    *,
    axis: str = "%",
    panel_width: int = 190,
) -> Any:
    """Small multiples of means over draws against k: `lines` in colour with bands, others grey.

    A point has `panel` (its column), `row`, `k`, `line`, `shown` (its name among `lines`, or
    None), `mean`, `low` and `high`.
    """
    import altair as alt

    counts = sorted({point["k"] for point in points})
    present = [name for name in lines if any(point["shown"] == name for point in points)]
    places = [lines.index(name) for name in present]
    legend = alt.Legend(
        orient="bottom",
        columns=3,
        labelLimit=400,
        symbolType="stroke",
        symbolSize=400,
        symbolStrokeWidth=2.5,
        symbolOpacity=1,
    )
    colours = alt.Scale(domain=present, range=[_LINE_COLOURS[place] for place in places])
    colour = alt.Color("shown:N", title=None, legend=legend, scale=colours)
    dash = alt.StrokeDash(
        "shown:N",
        title=None,
        legend=legend,
        scale=alt.Scale(domain=present, range=[_DASHES[place] for place in places]),
    )
    rows = list(dict.fromkeys(point["row"] for point in points))
    panels = list(dict.fromkeys(point["panel"] for point in points))

    def panel(row: str, column: str) -> Any:
        here = [point for point in points if (point["row"], point["panel"]) == (row, column)]
        coloured = [point for point in here if point["shown"] is not None]
        grey = [point for point in here if point["shown"] is None]
        x = alt.X(
            "k:Q",
            title="prototypes" if row == rows[-1] else None,
            scale=alt.Scale(type="log", nice=False, padding=8),
            axis=alt.Axis(values=counts, format="d", labels=row == rows[-1]),
        )
        y = alt.Y(
            "mean:Q",
            title=row if column == panels[0] else None,
            axis=alt.Axis(format=axis, tickCount=5),
            scale=_loose(alt),
        )
        others = alt.Chart(alt.Data(values=grey)).mark_line(
            color="#bbbbbb", strokeWidth=1, opacity=0.9
        )
        band = alt.Chart(alt.Data(values=coloured)).mark_area(opacity=0.12)
        means = alt.Chart(alt.Data(values=coloured)).mark_line(strokeWidth=2)
        return alt.layer(
            others.encode(x=x, y=y, detail="line:N"),
            band.encode(x=x, y="low:Q", y2="high:Q", color=colour),
            means.encode(x=x, y=y, color=colour, strokeDash=dash),
        ).properties(
            width=panel_width,
            height=150,
            title=alt.TitleParams(column if row == rows[0] else "", anchor="middle"),
        )

    grid = alt.vconcat(
        *(
            alt.hconcat(*(panel(row, column) for column in panels), spacing=14).resolve_scale(
                y="independent"
            )
            for row in rows
        ),
        spacing=8,
    )
    return _styled(alt, grid, title, subtitle)


def differences_chart(cells: list[dict[str, Any]], title: str, subtitle: str) -> Any:
    """Paired differences with their standard errors, coloured by k, in panels.

    A cell has `panel` (its column), `row`, `level` (its place on the horizontal axis), `k`, `mean`
    and `error`.
    """
    import altair as alt

    counts = sorted({cell["k"] for cell in cells})
    rows = list(dict.fromkeys(cell["row"] for cell in cells))
    panels = list(dict.fromkeys(cell["panel"] for cell in cells))
    ends = [
        cell
        | {
            "low": cell["mean"] - 2 * (cell["error"] or 0),
            "high": cell["mean"] + 2 * (cell["error"] or 0),
        }
        for cell in cells
    ]
    bottom, top = (min(end["low"] for end in ends), max(end["high"] for end in ends))
    colours = (ORANGE, GREEN, BLUE, PINK, GREY)[: len(counts)]

    def panel(row: str, column: str) -> Any:
        here = [end for end in ends if (end["row"], end["panel"]) == (row, column)]
        levels = list(dict.fromkeys(end["level"] for end in here))
        x = alt.X(
            "level:N",
            sort=levels,
            title="skew" if row == rows[-1] else None,
            axis=alt.Axis(labelAngle=0, labels=row == rows[-1], ticks=False),
        )
        offset = alt.XOffset("k:N", sort=counts)
        colour = alt.Color(
            "k:N", title="prototypes", scale=alt.Scale(domain=counts, range=list(colours))
        )
        shape = alt.Shape("k:N", title="prototypes", scale=alt.Scale(domain=counts))
        y = alt.Y(
            "mean:Q",
            title=row if column == panels[0] else None,
            axis=alt.Axis(format="+%", labels=column == panels[0]),
            scale=alt.Scale(domain=[bottom, top], nice=True),
        )
        data = alt.Chart(alt.Data(values=here))
        zero = alt.Chart(alt.Data(values=[{"mean": 0}])).mark_rule(color=GREY, strokeWidth=1.2)
        return alt.layer(
            zero.encode(y=y),
            data.mark_rule(strokeWidth=2).encode(
                x=x, xOffset=offset, y="low:Q", y2="high:Q", color=colour
            ),
            data.mark_point(filled=True, size=45, opacity=1).encode(
                x=x, xOffset=offset, y=y, color=colour, shape=shape
            ),
        ).properties(
            width=170,
            height=150,
            title=alt.TitleParams(column if row == rows[0] else "", anchor="middle"),
        )

    grid = alt.vconcat(
        *(alt.hconcat(*(panel(row, column) for column in panels), spacing=8) for row in rows),
        spacing=6,
    )
    return _styled(alt, grid, title, subtitle)


# What the experiments draw with.


def styled(chart: Any, title: str, subtitle: str = "") -> Any:
    """A finished chart in the style of all others, with a title and a line below it."""
    import altair as alt

    return _styled(alt, chart, title, subtitle)


def small_multiples(panels: Sequence[Any], columns: int, shared: Sequence[str] = ()) -> Any:
    """Panels in rows of so many; axes in `shared` ("x", "y") have one scale for all."""
    import altair as alt

    channels: dict[str, Any] = {
        "x": "shared" if "x" in shared else "independent",
        "y": "shared" if "y" in shared else "independent",
        **dict.fromkeys(("color", "strokeDash", "size"), "shared"),  # one legend for all
    }
    return alt.concat(*panels, columns=columns, spacing=22).resolve_scale(**channels)


def dots_and_means(
    rows: Sequence[Mapping[str, Any]],
    *,
    x: Any,
    y: Any,
    series: str,
    colours: Mapping[str, str],
    title: str,
    width: int = 330,
    height: int = 170,
) -> Any:
    """Repeated measurements as circles, their means as diamonds; one line per y and series.

    `x` is an `altair.X` of the measured column, `y` an `altair.Y` of the names, `series` the
    column that `colours` gives a colour to.
    """
    import altair as alt

    base = alt.Chart(alt.Data(values=[dict(row) for row in rows])).encode(
        y=y, color=_series_colour(alt, series, colours)
    )
    if str(y["shorthand"]).split(":")[0] != series:
        base = base.encode(yOffset=alt.YOffset(f"{series}:N", sort=list(colours)))
    mean = x.copy()
    mean.aggregate = "mean"
    return alt.layer(
        base.mark_circle(size=45, opacity=0.4).encode(x=x),
        base.mark_point(shape="diamond", filled=True, size=110, opacity=1).encode(x=mean),
    ).properties(width=width, height=height, title=title)


def lines_and_bands(
    rows: Sequence[Mapping[str, Any]],
    *,
    x: Any,
    y: Any,
    series: str,
    colours: Mapping[str, str],
    title: str,
    dashes: Mapping[str, Sequence[int]] | None = None,
    band: float = 0.18,
    width: int = 330,
    height: int = 230,
) -> Any:
    """Curves measured several times: the mean as a line, from the lowest to the highest a band.

    `dashes` gives some series a pattern, so that curves on top of one another can be told apart;
    `band` is the opacity of the bands.
    """
    import altair as alt

    names = list(colours)
    base = alt.Chart(alt.Data(values=[dict(row) for row in rows]))
    colour = _series_colour(alt, series, colours, symbol="stroke")
    mean, low = y.copy(), y.copy()
    mean.aggregate, low.aggregate = "mean", "min"
    column = str(y["shorthand"]).split(":")[0]
    line = base.mark_line(strokeWidth=2.2, strokeJoin="round").encode(x=x, y=mean, color=colour)
    if dashes is not None:
        line = line.encode(
            strokeDash=alt.StrokeDash(
                f"{series}:N",
                legend=None,
                scale=alt.Scale(domain=names, range=[list(dashes.get(n, [1, 0])) for n in names]),
            )
        )
    return alt.layer(
        base.mark_area(opacity=band).encode(x=x, y=low, y2=f"max({column}):Q", color=colour), line
    ).properties(width=width, height=height, title=title)


def _series_colour(
    alt: Any, series: str, colours: Mapping[str, str], symbol: str = "circle"
) -> Any:
    return alt.Color(
        f"{series}:N",
        title=None,
        scale=alt.Scale(domain=list(colours), range=list(colours.values())),
        legend=alt.Legend(
            orient="bottom", labelLimit=400, symbolType=symbol, symbolOpacity=1, symbolSize=160
        ),
    )


def save_chart_files(chart: Any, folder: Path, name: str) -> None:
    """Write NAME.png, .svg and .html as `save_chart` does, checking a large chart only once."""
    import altair as alt
    import vl_convert

    spec = chart.to_dict()
    version = "_".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    (folder / f"{name}.png").write_bytes(
        vl_convert.vegalite_to_png(spec, vl_version=version, scale=2)
    )
    (folder / f"{name}.svg").write_text(
        vl_convert.vegalite_to_svg(spec, vl_version=version), encoding="utf-8"
    )
    (folder / f"{name}.html").write_text(
        vl_convert.vegalite_to_html(spec, vl_version=version, bundle=True), encoding="utf-8"
    )
