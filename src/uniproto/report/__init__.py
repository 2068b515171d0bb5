"""The report: one HTML file with the verdict, a map and every prototype."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.errors import require_int
from uniproto.runs.publish import write_page

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem
    from uniproto.report.examples import Examples
    from uniproto.selection.selection import Selection

PAGE = "report.html"  # in a folder of results; removed when they are replaced


def write_report(
    selection: Selection,
    path: str | os.PathLike[str],
    source: Examples,
    target: Examples,
    *,
    problem: Problem | None,
    random: int | None = None,
    **options: Any,
) -> Path:
    """Write the page atomically and return its path; `options` are those of `Content`."""
    from uniproto.report.content import Content
    from uniproto.report.page import render

    if random is not None:
        require_int("random", random, least=0)
    content = Content(selection, source, target, problem=problem, random=random, **options)
    write_page(Path(path), render(content))
    return Path(path)
