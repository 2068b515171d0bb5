"""Shared parts of charts: colours, style, panels, files. Altair is imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from uniproto.runs.atomic import write_text
from uniproto.runs.records import as_table

# Okabe and Ito's colours, which are safe for colour-blind readers.
BLUE, ORANGE, GREEN, PINK, GREY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#666666"
INK, HALO = "#333333", "#ffffff"  # text on a chart, and its outline


def styled(chart: Any, title: str, subtitle: str = "") -> Any:
    """The chart in the common style, with title and subtitle."""
    import altair as alt

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


def save_chart(chart: Any, path: Path) -> None:
    """Write a chart as .png or .svg."""
    if path.suffix == ".png":
        chart.save(str(path), scale_factor=2)
    else:
        chart.save(str(path))


def loose_scale(alt: Any) -> Any:
    """A scale that need not include 0."""
    return alt.Scale(zero=False, nice=True, padding=10)


def small_multiples(panels: Sequence[Any], columns: int, shared: Sequence[str] = ()) -> Any:
    """Panels in a grid of `columns`; axes in `shared` ("x", "y") have a common scale."""
    import altair as alt

    channels: dict[str, Any] = {
        "x": "shared" if "x" in shared else "independent",
        "y": "shared" if "y" in shared else "independent",
        **dict.fromkeys(("color", "strokeDash", "size"), "shared"),  # one legend for all
    }
    return alt.concat(*panels, columns=columns, spacing=22).resolve_scale(**channels)


def curve(
    points: Sequence[Mapping[str, Any]],
    x: str = "step",
    title: str = "step",
    colour: str = BLUE,
    opacity: float = 1.0,
) -> Any:
    """The `log_perplexity` of points over their steps or their seconds, as a line."""
    import altair as alt

    return (
        alt.Chart(alt.Data(values=[dict(point) for point in points]))
        .mark_line(color=colour, strokeWidth=2, opacity=opacity, point=len(points) < 2)
        .encode(
            x=alt.X(f"{x}:Q", title=title),
            y=alt.Y("log_perplexity:Q", title="log-perplexity", scale=alt.Scale(zero=False)),
            tooltip=[f"{x}:Q", alt.Tooltip("log_perplexity:Q", format=".4f")],
        )
    )


CURVE_FILES = ("curves.csv", "curves.png")


def save_curves(
    folder: Path, points: Sequence[Mapping[str, Any]], chart: Callable[[], Any]
) -> None:
    """Write the `CURVE_FILES` of one run.

    If a package for drawing is missing, the table is written and a message printed, so that a long
    training run does not fail at its end.
    """
    import pyarrow as pa
    import pyarrow.csv

    buffer = pa.BufferOutputStream()
    pyarrow.csv.write_csv(as_table(points), buffer)
    write_text(folder / "curves.csv", buffer.getvalue().to_pybytes().decode("utf-8"))
    try:
        import vl_convert  # noqa: F401  (what draws it; Altair alone says so with a ValueError)

        save_chart(chart(), folder / "curves.png")
    except ImportError as error:
        print(f"curves.png was not drawn: {error}. curves.csv has its numbers.", file=sys.stderr)
