"""Pages of charts and numbers, in the looks of the report: comparisons, and costs over k."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from uniproto.report.charts import BLUE, GREEN, GREY, HALO, INK, ORANGE, PINK
from uniproto.report.page import as_json, chart_library, content_policy, page_file, templates

# Fixed colours of pictures, by the names that pages look up in their light or dark set.
_NAMES = {
    BLUE: "$blue",
    ORANGE: "$orange",
    GREEN: "$green",
    PINK: "$pink",
    GREY: "$grey",
    INK: "$ink",
    HALO: "$paper",
}


@dataclass(frozen=True)
class PageChart:
    """A chart, its title and a sentence about it."""

    name: str
    title: str
    words: str
    chart: Any


@dataclass(frozen=True)
class ResultsPage:
    """What such a page says; `table` are the columns of `rows`."""

    eyebrow: str
    headline: str
    lead: str
    charts: Sequence[PageChart]
    table: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]


def render_results(content: ResultsPage) -> str:
    """The whole page. Everything that is data goes through Jinja's or JSON's escaping."""
    from markupsafe import Markup

    style, library = page_file("style.css"), chart_library()
    script = page_file("charts.js") + page_file("results.js")
    charts = {
        each.name: _with_named_colours(
            each.chart.properties(
                width="container", description=f"{each.title}. {each.words}"
            ).to_dict(validate=False)
        )
        for each in content.charts
    }
    rendered = (
        templates()
        .get_template("results.html.j2")
        .render(
            c=content,
            policy=content_policy(style, script, library),
            style=Markup(style),
            script=Markup(script),
            library=Markup(library),
            data=Markup(as_json({"charts": charts})),
        )
    )
    return str(rendered)


def _with_named_colours(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_named_colours(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_named_colours(part) for part in value]
    return _NAMES.get(value, value) if isinstance(value, str) else value
