"""Charts that only experiments draw: means over draws, paired differences, repeated runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from uniproto.report.charts import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    loose_scale,
    small_multiples,
    styled,
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
            scale=loose_scale(alt),
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
    return styled(grid, title, subtitle)


def differences_chart(
    cells: list[dict[str, Any]], title: str, subtitle: str, *, across: str = "skew"
) -> Any:
    """Paired differences with their standard errors, coloured by k, in panels.

    A cell has `panel` (its column), `row`, `level` (its place on the horizontal axis, which
    `across` names), `k`, `mean` and `error`.
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
            title=across if row == rows[-1] else None,
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
    return styled(grid, title, subtitle)


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

    colour = series_colour(alt, series, colours)
    base = alt.Chart(alt.Data(values=[dict(row) for row in rows])).encode(y=y, color=colour)
    if str(y["shorthand"]).split(":")[0] == series:
        colour.legend = None  # the axis has the names
    else:
        base = base.encode(yOffset=alt.YOffset(f"{series}:N", sort=list(colours)))
    mean = x.copy()
    mean.aggregate = "mean"
    return alt.layer(
        base.mark_circle(size=45, opacity=0.4).encode(x=x),
        base.mark_point(shape="diamond", filled=True, size=110, opacity=1).encode(x=mean),
    ).properties(width=width, height=height, title=title)


def save_chart_files(chart: Any, folder: Path, name: str) -> None:
    """Write NAME.png, .svg and .html, checking a large chart only once."""
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


def bandwidth_chart(cells: Sequence[Mapping[str, Any]]) -> Any:
    """What a bandwidth changes: means with bands, and dashed lines for the plain metric.

    A cell has `panel` (its column), `measure` (its row), `method`, `share` (None: the plain
    metric), `mean` and `error`.
    """
    import altair as alt

    methods = {"uniproto": BLUE, "kmedoids": ORANGE, "mmd_critic": GREEN}
    colour = series_colour(alt, "method", methods)
    drawn = [
        dict(cell) | {"low": cell["mean"] - cell["error"], "high": cell["mean"] + cell["error"]}
        for cell in cells
    ]
    curves = [cell for cell in drawn if cell["share"] is not None]
    shares = sorted({cell["share"] for cell in curves})
    x = alt.X(
        "share:Q",
        title="σ as a share of the median distance",
        scale=alt.Scale(type="log", domain=[shares[0], shares[-1]], nice=False),
        axis=alt.Axis(values=shares, format="~g", labelOverlap=False, labelFontSize=9),
    )

    def panel(column: str, measure: str) -> Any:
        def here(rows: list[dict[str, Any]]) -> Any:
            wanted = [row for row in rows if (row["panel"], row["measure"]) == (column, measure)]
            return alt.Chart(alt.Data(values=wanted))

        y = alt.Y("mean:Q", title=f"{measure}, difference", axis=alt.Axis(format="+.0%"))
        plain = here([cell for cell in drawn if cell["share"] is None])
        band = here(curves).mark_area(opacity=0.15).encode(x=x, y="low:Q", y2="high:Q")
        return alt.layer(
            plain.mark_rule(strokeDash=[5, 4]).encode(y=y, color=colour),
            band.encode(color=colour),
            here(curves).mark_line(strokeWidth=2, point=True).encode(x=x, y=y, color=colour),
        ).properties(width=230, height=170, title=column)

    columns = list(dict.fromkeys(cell["panel"] for cell in drawn))
    measures = list(dict.fromkeys(cell["measure"] for cell in drawn))
    rows = [
        alt.hconcat(*(panel(column, measure) for column in columns)).resolve_scale(y="shared")
        for measure in measures
    ]
    return styled(
        alt.vconcat(*rows),
        "1-NN accuracy under a Gaussian similarity, compared with UniPROT without it",
        "held-out draws; 0 is UniPROT by Euclidean distance (rows as given) or cosine (unit rows); "
        "dashed: the method in that metric; bands: ± a standard error over the data sets",
    )


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

    `dashes` gives some series a pattern, to distinguish overlapping curves;
    `band` is the opacity of the bands.
    """
    import altair as alt

    names = list(colours)
    base = alt.Chart(alt.Data(values=[dict(row) for row in rows]))
    colour = series_colour(alt, series, colours, symbol="stroke")
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


def series_colour(alt: Any, series: str, colours: Mapping[str, str], symbol: str = "circle") -> Any:
    return alt.Color(
        f"{series}:N",
        title=None,
        scale=alt.Scale(domain=list(colours), range=list(colours.values())),
        legend=alt.Legend(
            orient="bottom", labelLimit=400, symbolType=symbol, symbolOpacity=1, symbolSize=160
        ),
    )


METHOD_COLOURS = {
    "uniproto": BLUE,
    "colm": PINK,
    "greats": ORANGE,
    "gradnorm": "#D55E00",
    "maxloss": GREEN,
    "random": GREY,
    "full": "#000000",
}
_ENTROPIC = {"uniproto-entropic": "#56B4E9"}  # a name of the experiment, not of a method


def pretraining_curves(points: Sequence[Mapping[str, Any]], title: str, subtitle: str = "") -> Any:
    """One line per method against steps and against time; several seeds as a mean with a band.

    A point has `method`, `step`, `seconds` and `log_perplexity`. Seeds take different times, so
    in the panel of times a step stands at its mean time.
    """
    import altair as alt

    times: dict[tuple[str, int], list[float]] = {}
    for point in points:
        times.setdefault((point["method"], point["step"]), []).append(point["seconds"])
    shown = [
        {**point, "mean_seconds": sum(same) / len(same)}
        for point in points
        for same in [times[point["method"], point["step"]]]
    ]
    # The model before any training is far above the rest, and the same for all.
    trained = [point for point in shown if point["step"] > 0]
    if len({point["step"] for point in trained}) < 2:  # no line without it
        trained = shown
    present = {point["method"] for point in points}
    options: dict[str, Any] = {
        "y": alt.Y("log_perplexity:Q", title="validation log-perplexity", scale=loose_scale(alt)),
        "series": "method",
        "colours": {
            name: hue for name, hue in (METHOD_COLOURS | _ENTROPIC).items() if name in present
        },
        "width": 380,
        "height": 300,
    }
    panels = [
        lines_and_bands(
            trained,
            x=alt.X("step:Q", title="step", scale=alt.Scale(zero=True)),
            title="after equal steps",
            **options,
        ),
        lines_and_bands(
            trained,
            x=alt.X("mean_seconds:Q", title="seconds of training", scale=alt.Scale(zero=True)),
            title="after equal time",
            **options,
        ),
    ]
    return styled(small_multiples(panels, 2, shared=["y"]), title, subtitle)
