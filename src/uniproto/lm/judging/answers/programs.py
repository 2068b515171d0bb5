"""Finding the Python program in what a model wrote. Nothing is run here."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

_BEGINS = re.compile(
    r"\s*(?:import |from \w+(?:\.\w+)* import |def |class |print\(|[A-Za-z_]\w*\s*=[^=])"
)
_PYTHON = ("", "python", "py", "python3")
_MAX_LENGTH = 50_000  # characters; a longer text was not meant to answer a question
_MAX_PARSED = 6 * _MAX_LENGTH  # characters given to the parser in all, for one answer


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
    lines = output[:_MAX_LENGTH].split("\n")
    blocks = _python_blocks(lines)
    if blocks and "print" not in blocks[0]:  # explained piece by piece: it prints at its end
        blocks.insert(0, "\n".join(map(textwrap.dedent, blocks)))
    begins = [at for at, line in enumerate(lines) if _BEGINS.match(line)][:1]
    bare = ["\n".join(lines[at:]) for at in (0, *begins)]
    left = _MAX_PARSED
    for code in (*blocks, *bare):
        program, left = _longest_program(code, left)
        if program is not None or left < 0:
            return program
    return None


def _python_blocks(lines: list[str]) -> list[str]:
    """The blocks between ``` and ``` that may be Python; the last may lack its end."""
    blocks: list[str] = []
    block: list[str] | None = None
    tag = ""
    for line in [*lines, "```"]:
        is_fence = line.lstrip(" \t").startswith("```")
        if block is None and is_fence:
            block, tag = [], re.split(r"\W", line.strip()[3:].strip(), maxsplit=1)[0]
        elif block is not None and is_fence:
            if tag.lower() in _PYTHON:
                blocks.append("\n".join(block))
            block = None
        elif block is not None:
            block.append(line)
    return blocks


def _longest_program(code: str, left: int) -> tuple[str | None, int]:
    """The longest beginning that parses and does something, None where there is none.

    And the characters left of those that may be parsed: a hostile text can fail at every line.
    """
    lines = textwrap.dedent(code).strip("\n").split("\n")
    while lines:
        candidate = "\n".join(lines).rstrip()
        left -= len(candidate)
        if left < 0:
            break
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a model's odd escapes are its own affair
                tree = ast.parse(candidate)
        except SyntaxError as error:
            del lines[_end_before(error, lines) :]
            continue
        except (ValueError, RecursionError, MemoryError):  # too deep, or no text at all
            break
        return (candidate if any(map(_does_something, tree.body)) else None), left
    return None, left


def _end_before(error: SyntaxError, lines: list[str]) -> int:
    """How many lines may stay: those before the one Python complains of; never all.

    Of a `try` without `except` Python names the line after its block, and would do so for every
    shorter block: there, the line that opened the block goes.
    """
    end = min(max((error.lineno or 1) - 1, 0), len(lines) - 1)
    if "expected 'except'" not in error.msg or end < len(lines) - 1:
        return end
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        if line.strip() and len(line) - len(line.lstrip()) < indents[-1]:
            return at
    return end


def _does_something(statement: ast.stmt) -> bool:
    """Words and numbers alone are valid Python, too: "42", or "Yes"."""
    return not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call)
