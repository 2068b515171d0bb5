"""Self-contained HTML pages: reports, comparisons, notebook cards."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from uniproto.features.cache import cache_folder
from uniproto.features.preparation import words_of
from uniproto.problem.problem import Problem
from uniproto.report.charts import BLUE, GREEN, GREY, HALO, INK, ORANGE, PINK
from uniproto.report.content import Content
from uniproto.report.coverage import OVER, UNDER
from uniproto.report.targets import drawn_targets, project
from uniproto.report.words import LONGEST_NAME, counted, cut, figure, percent, seconds
from uniproto.runs.atomic import write_text

if TYPE_CHECKING:
    from uniproto.selection.selection import Selection


_OF_CARDS = [
    "rank",
    "row",
    "name",
    "group",
    "targets",
    "unusual",
    "picture",
    "lights",
]
_DIGITS = 5  # of coordinates on the map


def render(content: Content) -> str:
    """The page of a selection."""
    limits = {"under": UNDER, "over": OVER}
    return _chart_page("template.html.j2", "page.js", page_data(content), c=content, **limits)


def _chart_page(template: str, script: str, data: Any, **more: Any) -> str:
    """A page with charts; `data` is what its script reads."""
    from markupsafe import Markup

    return render_page(
        "uniproto.report",
        template,
        style=page_file("style.css"),
        script=page_file("charts.js") + page_file(script),
        library=chart_library(),
        data=Markup(as_json(data)),
        **more,
    )


def render_page(
    package: str, template: str, /, *, style: str, script: str, library: str = "", **values: Any
) -> str:
    """A whole page from a package's template, which escapes all `values`.

    The page may use this style and these scripts, and nothing else.
    """
    from markupsafe import Markup

    ours = {"style": Markup(style), "script": Markup(script), "library": Markup(library)}
    policy = content_policy(style, *filter(None, (script, library)))
    page = templates(package).get_template(template)
    return str(page.render(policy=policy, **ours, **values))


@cache
def templates(package: str = "uniproto.report") -> Any:
    """The templates of a package, with escaping and strict names.

    >>> templates().from_string("{{ x }}").render(x="<b>")
    '&lt;b&gt;'
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"figure": figure, "seconds": seconds, "share": percent}
    environment.globals["counted"] = counted
    return environment


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script; cached, as bundling takes seconds."""
    import vl_convert

    name = f"charts-{version('vl-convert-python')}.js"
    with suppress(OSError, RuntimeError):  # not cached yet, or no home directory
        return (cache_folder() / name).read_text(encoding="utf-8")
    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    # "</script" can only occur inside a string, where it can be escaped.
    script = script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    with suppress(OSError, RuntimeError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        write_text(cache_folder() / name, script)
    return script


def page_data(content: Content) -> dict[str, Any]:
    """The data of the page's script, by columns to save space."""
    from uniproto.report.figures import figures

    items, cards = content.items, content.cards
    return {
        "title": content.title,
        "shape": content.shape,
        "drawn": content.drawn,
        "degree": None if content.projection is None else content.projection.degree,
        "columns": content.table,
        "named": bool(content.table) and content.table[0] != "x0",
        "paints": content.paints,
        "noun": content.noun,
        "kind": content.kind,
        "coverage": content.kinds,
        "items": {
            "row": [item.row for item in items],
            "name": _unless_empty([item.name for item in items]),
            "text": _unless_empty([item.text for item in items]),
            "cost": [_short(item.cost) for item in items],
            content.kind: [item.label for item in items],
            "group": [item.group for item in items],
            "picture": [item.picture for item in items],
            "x": [_short(item.x) for item in items[: content.drawn]],
            "y": [_short(item.y) for item in items[: content.drawn]],
        },
        "prototypes": [
            {name: getattr(card, name) for name in _OF_CARDS}
            | {content.kind: card.label, "away": _short(card.away)}
            | {"x": _short(card.x), "y": _short(card.y)}
            for card in cards
        ],
        "pictures": content.pictures,
        "charts": figures(content),
    }


def as_json(value: Any) -> str:
    """JSON that is safe inside a script element of an HTML page.

    >>> as_json("</script>&")
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def content_policy(style: str, *scripts: str) -> str:
    """A content security policy: this style, these scripts, embedded pictures and no network.

    The expressions of charts are interpreted rather than compiled (`ast` in page.js), so that no
    code is created from text.
    """
    return "; ".join(
        [
            "default-src 'none'",
            "img-src data:",
            f"style-src {_hash(style)}",
            f"script-src {' '.join(map(_hash, scripts))}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


@cache
def page_file(name: str, package: str = "uniproto.report") -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")


def _short(value: float | None) -> float | None:
    if value is None or value != value:
        return None
    return float(f"{value:.{_DIGITS}g}")


def _unless_empty(values: list[str]) -> list[str]:
    return values if any(values) else []


# Colours of image files, by the names that pages resolve by their theme.
_COLOURS = (BLUE, ORANGE, GREEN, PINK, GREY, INK, HALO)
_NAMES = dict(
    zip(_COLOURS, ["$blue", "$orange", "$green", "$pink", "$grey", "$ink", "$paper"], strict=True)
)


@dataclass(frozen=True)
class PageChart:
    """A chart, its title and a sentence about it."""

    name: str
    title: str
    words: str
    chart: Any


@dataclass(frozen=True)
class ResultsPage:
    """The content of a page of results; `table` are the columns of `rows`, texts the first ones."""

    eyebrow: str
    headline: str
    lead: str
    charts: Sequence[PageChart]
    table: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str]
    command: str = ""  # that made it, in a shell
    texts: int = 1  # columns of the table that hold texts


def render_results(content: ResultsPage) -> str:
    """A page of charts and numbers, in the style of the report."""
    charts = {}
    for each in content.charts:
        words = f"{each.title}. {each.words}"
        chart = each.chart.properties(width="container", description=words)
        charts[each.name] = _with_named_colours(chart.to_dict(validate=False))
    return _chart_page("results.html.j2", "results.js", {"charts": charts}, c=content)


def _with_named_colours(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_named_colours(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_with_named_colours(part) for part in value]
    return _NAMES.get(value, value) if isinstance(value, str) else value


_WIDTH, _HEIGHT, _ROOM = 300, 220, 10
_MOST_DRAWN = 600
_MOST_ROWS, _MOST_COLUMNS = 8, 8


def card(selection: Selection, problem: Problem | None, table: pa.Table) -> str:
    """Static HTML for a notebook; `table` are the prototypes."""
    first = table.slice(0, _MOST_ROWS).to_pylist()
    names = table.column_names[:_MOST_COLUMNS]
    prepared = selection.details.preparation
    certificate = selection.certificate
    m, n = selection.details.shape
    points, diamonds = ([], []) if problem is None else _map(selection, problem)
    template = templates().get_template("card.html.j2")
    rendered = template.render(
        headline=f"{counted(selection.k, 'prototype')} of {m:,} rows for {n:,}"
        f" ({selection.details.method}, {selection.details.metric})",
        words=selection.in_words(),
        bound=""
        if certificate is None or selection.details.proof is not None  # the words say that
        else f"no choice can be below {figure(certificate.lower_bound)}",
        names=[cut(name, LONGEST_NAME) for name in names],
        rows=[[cut(row[name], LONGEST_NAME) for name in names] for row in first],
        more=max(0, selection.k - _MOST_ROWS),
        columns=[] if prepared is None else prepared.rows,
        became="" if prepared is None else words_of(prepared.rows),
        points=points,
        diamonds=diamonds,
        width=_WIDTH,
        height=_HEIGHT,
    )
    return str(rendered)


def _map(selection: Selection, problem: Problem) -> tuple[list[Any], list[Any]]:
    """Places of some targets and of all prototypes, in pixels."""
    plan = selection.plan
    weights = np.asarray(plan.sum(axis=0)).ravel()
    drawn = drawn_targets(plan, weights, np.empty(0, np.intp))
    if len(drawn) > _MOST_DRAWN:
        drawn = np.sort(np.random.default_rng(0).choice(drawn, _MOST_DRAWN, replace=False))
    found = project(problem, plan, selection.indices, drawn)
    both = np.vstack([found.targets, found.prototypes])
    low, high = both.min(axis=0), both.max(axis=0)
    size = np.array([_WIDTH, _HEIGHT]) - 2 * _ROOM
    places = (both - low) / np.where(high > low, high - low, 1.0)
    places[:, 1] = 1 - places[:, 1]
    pixels = (_ROOM + places * size).round(1).tolist()
    return pixels[: len(drawn)], pixels[len(drawn) :]
