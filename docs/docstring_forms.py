"""For the reference pages: what the docstrings of this project need to become Markdown.

Examples stand as bare doctests, whose prompts Markdown would read as quotations. And one entry may
explain several parameters, whose names may take two lines.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

# A doctest and what it prints, up to the next empty line.
_EXAMPLE = re.compile(r"^([ \t]*)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
_NAMES_ON_TWO_LINES = re.compile(r"^([ \t]+\w+(?:, \w+)*),\n[ \t]+((?:\w+, )*\w+: )", re.MULTILINE)


class DocstringForms(griffe.Extension):
    """Change every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = in_markdown(obj.docstring.value)


def in_markdown(docstring: str) -> str:
    """The docstring with its doctests in fences, without their notes to the test runner."""

    def fence(found: re.Match[str]) -> str:
        example = re.sub(r"\s*# doctest:.*", "", found[0])
        return f"\n{found[1]}```pycon\n{example}\n{found[1]}```\n"

    return _EXAMPLE.sub(fence, _NAMES_ON_TWO_LINES.sub(r"\1, \2", docstring))
