"""For the reference pages: examples in docstrings become code blocks.

The docstrings show examples as bare doctests. Markdown would read their prompts as quotations.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

# A doctest and what it prints, up to the next empty line.
_EXAMPLE = re.compile(r"^([ \t]*)>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class FencedDoctests(griffe.Extension):
    """Put a fence around every doctest, as deep as it stands."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(docstring: str) -> str:
    """The docstring with its doctests in fences; notes to the test runner are left out."""

    def fence(found: re.Match[str]) -> str:
        indent = found[1]
        example = re.sub(r"\s*# doctest:.*", "", found[0])
        return f"\n{indent}```pycon\n{example}\n{indent}```\n"

    return _EXAMPLE.sub(fence, docstring)
