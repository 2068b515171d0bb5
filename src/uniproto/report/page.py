"""From content to one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any

from uniproto.report.content import Content
from uniproto.report.figures import charted_shares, figures
from uniproto.report.words import counted, figure, seconds

_DIGITS = 5  # of coordinates on the map: more cannot be seen


def render(content: Content) -> str:
    """The whole page. Everything that is data goes through Jinja's or JSON's escaping."""
    from markupsafe import Markup

    style, library = page_file("style.css"), chart_library()
    script = page_file("charts.js") + page_file("page.js")
    template = templates().get_template("template.html.j2")
    rendered = template.render(
        c=content,
        charted={coverage.kind: charted_shares(coverage) for coverage in content.coverage},
        policy=content_policy(style, script, library),
        style=Markup(style),
        script=Markup(script),
        library=Markup(library),
        data=Markup(as_json(page_data(content))),
    )
    return str(rendered)


def template_environment(package: str) -> Any:
    """For the templates beside a package's code: everything is escaped, a missing name is an error.

    >>> template_environment("uniproto.report").from_string("{{ x }}").render(x="<b>")
    '&lt;b&gt;'
    """
    import jinja2

    return jinja2.Environment(
        loader=jinja2.PackageLoader(package, "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def templates() -> Any:
    """The templates of our pages."""
    environment = template_environment("uniproto.report")
    environment.filters |= {"figure": figure, "seconds": seconds, "share": _percent}
    environment.globals["counted"] = counted
    return environment


@cache
def chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script."""
    import vl_convert

    script = str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
    # What would end a script element can only stand inside a string there.
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def page_data(content: Content) -> dict[str, Any]:
    """What the script needs to know: by columns, as that is shorter."""
    items, cards = content.items, content.cards
    return {
        "title": content.title,
        "shape": content.shape,
        "drawn": content.drawn,
        "columns": content.table,
        "named": bool(content.table) and content.table[0] != "x0",
        "coverage": {coverage.kind: coverage.names for coverage in content.coverage},
        "items": {
            "row": [item.row for item in items],
            "name": _unless_empty([item.name for item in items]),
            "text": _unless_empty([item.text for item in items]),
            "cost": [_short(item.cost) for item in items],
            "class": [item.label for item in items],
            "group": [item.group for item in items],
            "picture": [item.picture for item in items],
            "x": [_short(item.x) for item in items[: content.drawn]],
            "y": [_short(item.y) for item in items[: content.drawn]],
        },
        "prototypes": [
            {
                "rank": card.rank,
                "row": card.row,
                "name": card.name,
                "class": card.label,
                "group": card.group,
                "gain": card.gain,
                "fill": card.fill,
                "mass": card.mass,
                "targets": card.targets,
                "away": _short(card.away),
                "unusual": card.unusual,
                "picture": card.picture,
                "x": _short(card.x),
                "y": _short(card.y),
                "lights": card.lights,
            }
            for card in cards
        ],
        "pictures": content.pictures,
        "charts": figures(content),
    }


def as_json(value: Any) -> str:
    """JSON that no HTML parser takes for markup, and no script for the end of a line.

    >>> as_json("</script>&")
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def content_policy(style: str, *scripts: str) -> str:
    """Only this style and these scripts, pictures from the page itself, and no network at all.

    The charts' expressions are interpreted rather than compiled (`ast` in page.js), so that no
    code is ever made from text.
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
def page_file(name: str) -> str:
    return files("uniproto.report").joinpath(name).read_text(encoding="utf-8")


def _percent(value: float) -> str:
    return f"{value:.0%}" if value >= 0.0995 or value == 0 else f"{value:.1%}"


def _short(value: float | None) -> float | None:
    if value is None or value != value:
        return None
    return float(f"{value:.{_DIGITS}g}")


def _unless_empty(values: list[str]) -> list[str]:
    return values if any(values) else []
