"""Programs in what models write."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from uniproto.lm.judging.answers.programs import extract_program

CASES = [
    ("print(1)", "print(1)"),
    ("```python\nx = 1\nprint(x)\n```", "x = 1\nprint(x)"),
    ("```\nprint(1)\n```", "print(1)"),
    ("```py\nprint(1)", "print(1)"),  # cut off before the fence closed
    ("Here:\n\n```python\nprint(1)\n```\nand\n```python\nprint(2)\n```", "print(1)"),
    ("```text\nhello\n```\n```python\nprint(2)\n```", "print(2)"),
    ("Let me think.\nimport math\nprint(math.pi)", "import math\nprint(math.pi)"),
    ("a = 1\nprint(a)\n\n### Note\nThat was all of it.", "a = 1\nprint(a)\n\n### Note"),
    ("def f():\n    return 1\nprint(f())\nThe answer is 1.", "def f():\n    return 1\nprint(f())"),
    ("x = 1\nprint(x)\ny = (1,", "x = 1\nprint(x)"),  # cut off in the middle of a line
    ("  x = 1\n  print(x)", "x = 1\nprint(x)"),
    ("print('\\d')", "print('\\d')"),  # a warning of the parser's is no error
    ("for i in range(3):\n    print(i)", "for i in range(3):\n    print(i)"),
    ("The answer is 7.", None),
    ("7", None),
    ("Yes", None),
    ("x + 1", None),
    ("", None),
    ("```python\n```", None),
    ("(" * 5000, None),
    ("x = " + "-" * 20_000 + "1\nprint(x)", None),
]


@pytest.mark.parametrize(("output", "program"), CASES)
def test_programs_are_found(output: str, program: str | None) -> None:
    assert extract_program(output) == program


@settings(deadline=None)  # of a busy machine
@given(st.text(max_size=100))
def test_nothing_a_model_writes_breaks_it(text: str) -> None:
    found = extract_program(text)
    assert found is None or compile(found, "program", "exec", dont_inherit=True, flags=0x400)
