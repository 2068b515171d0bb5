"""Every judged item in one HTML file that needs nothing else: filters, search, pages of items."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from uniproto.lm.judging.benchmarks import (
    BENCHMARKS,
    IN_DOMAIN,
    OUT_OF_DOMAIN,
    OVERALL,
    SUPERGLUE,
    title_of,
)

# The look and the policy are the report's: one style of page for all that uniproto writes.
from uniproto.report.page import content_policy, template_environment

_LONGEST = 6000  # letters of one text on the page; items.jsonl has all of it
_SHOWN = ("id", "question", "gold", "predicted", "verdict", "how", "stopped", "scores")
_TEXTS = ("output", "program", "program_status", "printed", "program_output", "unreadable")


def render(
    model: str,
    items: Sequence[Mapping[str, Any]],
    scores: Mapping[str, Mapping[str, Any]],
    notes: Mapping[str, str],
    settings: Mapping[str, Any],
) -> str:
    """The page of an evaluation. What models wrote reaches it as compressed data, shown as text."""
    from markupsafe import Markup

    style = _file("uniproto.report", "style.css") + _file("uniproto.lm.judging", "page.css")
    script = _file("uniproto.lm.judging", "page.js")
    headline, averages = _headline(scores)
    page = template_environment("uniproto.lm.judging").get_template("page.html.j2")
    rendered = page.render(
        model=model,
        headline=headline,
        averages=averages,
        rows=_rows(scores),
        notes=[f"{BENCHMARKS[name].title}: {note}" for name, note in notes.items()],
        template=settings.get("template"),
        trusted=settings.get("contained") is False,
        count=len(items),
        policy=content_policy(style, script),
        style=Markup(style),
        script=Markup(script),
        data=packed(page_items(items)),
    )
    return str(rendered)


def page_items(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What the page shows of each item; what is empty is left out.

    >>> item = {"dataset": "cb", "id": "cb-0", "verdict": "right", "printed": None}
    >>> page_items([item])
    [{'dataset': 'CB', 'id': 'cb-0', 'verdict': 'right'}]
    """
    found = []
    for item in items:
        shown = {"dataset": BENCHMARKS[item["dataset"]].title}
        for name in (*_SHOWN, *_TEXTS):
            value = item.get(name)
            if value not in (None, ""):
                shown[name] = _clipped(value) if isinstance(value, str) else value
        found.append(shown)
    return found


def packed(value: Any) -> str:
    """JSON, compressed, in letters that mean nothing to HTML.

    Half a surrogate pair becomes an escape, which JSON can hold and UTF-8 cannot.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    raw = gzip.compress(text.encode("utf-8", "backslashreplace"), mtime=0)
    return base64.b64encode(raw).decode("ascii")


def _clipped(text: str) -> str:
    if len(text) <= _LONGEST:
        return text
    more = len(text) - _LONGEST
    return f"{text[:_LONGEST]}\n… and {more:,} letters more, which are in items.jsonl"


def _headline(scores: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[tuple[str, str, str]]]:
    tiles = [
        (title_of(name).capitalize(), _percent(scores[name]["accuracy"]), _error(scores[name]))
        for name in (OVERALL, IN_DOMAIN, OUT_OF_DOMAIN, SUPERGLUE)
        if name in scores
    ]
    if tiles:
        return f"{tiles[0][1]} right on average", tiles
    data = [name for name in scores if name in BENCHMARKS]
    right, count = (sum(scores[name][key] for name in data) for key in ("right", "questions"))
    return f"{right:,} of {count:,} right", []


def _rows(scores: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    counts = ("questions", "by_program", "by_reasoning", "no_answer", "cut_off")
    return [
        {
            "title": BENCHMARKS[name].title,
            "part": BENCHMARKS[name].part,
            "accuracy": f"{_percent(each['accuracy'])} {_error(each)}",
            "f1": _percent(each.get("f1")),
            "exact": _percent(each.get("exact_match")),
            **{key: f"{each[key]:,}" if key in each else "" for key in counts},
        }
        for name, each in scores.items()
        if name in BENCHMARKS
    ]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _error(score: Mapping[str, Any]) -> str:
    if score["error"] == 0 and "low" in score:  # none or all right: Wilson's 95 % interval
        return f"{100 * score['low']:.1f}–{100 * score['high']:.1f}"
    return "" if score["error"] is None else f"± {100 * score['error']:.1f}"


def _file(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")
