"""Finding the Python program in what a model wrote. Nothing is run here."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

_FENCE = re.compile(
    r"^[ \t]*```[ \t]*(\w*)[^\n]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE
)
_BEGINS = re.compile(
    r"\s*(?:import |from \w+(?:\.\w+)* import |def |class |print\(|[A-Za-z_]\w*\s*=[^=])"
)
_PYTHON = ("", "python", "py", "python3")
_LONGEST = 50_000  # letters; what is longer was not meant to answer a question


def extract_program(output: str) -> str | None:
    """The program in a model's output, None where there is none.

    A fenced block counts first, also one that was never closed. Otherwise the code must stand
    bare: from the first line that looks like it to the last one that still parses.

    >>> extract_program("Sure!\\n```python\\nprint(1 + 1)\\n```\\nThat is it.")
    'print(1 + 1)'
    >>> extract_program("x = 3\\nprint(x)\\nThe answer is 3.")
    'x = 3\\nprint(x)'
    >>> extract_program("The answer is 3.")
    """
    text = output[:_LONGEST]
    blocks = [block for tag, block in _FENCE.findall(text) if tag.lower() in _PYTHON]
    if blocks and "print" not in blocks[0]:  # explained piece by piece: it prints at its end
        blocks.insert(0, "\n".join(map(textwrap.dedent, blocks)))
    for block in blocks:
        if found := _longest_program(block):
            return found
    lines = text.split("\n")
    begins = [place for place, line in enumerate(lines) if _BEGINS.match(line)][:1]
    starts = (_longest_program("\n".join(lines[place:])) for place in (0, *begins))
    return next(filter(None, starts), None)


def _longest_program(code: str) -> str | None:
    """The longest beginning that parses and does something, None where there is none."""
    lines = textwrap.dedent(code).strip("\n").split("\n")
    while lines:
        candidate = "\n".join(lines).rstrip()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a model's odd escapes are its own affair
                tree = ast.parse(candidate)
        except SyntaxError as error:
            # The line it complains of goes, and all after it; at least the last one.
            lines = lines[: min(max((error.lineno or 1) - 1, 0), len(lines) - 1)]
            continue
        except (ValueError, RecursionError, MemoryError):  # too deep, or no text at all
            return None
        return candidate if any(map(_does_something, tree.body)) else None
    return None


def _does_something(statement: ast.stmt) -> bool:
    """Words and numbers alone are valid Python, too: "42", or "Yes"."""
    return not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call)
