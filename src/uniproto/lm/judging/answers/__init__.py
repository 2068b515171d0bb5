r"""Final answers: found in a model's text or a program's output, and compared with the gold.

- :func:`extract_answer`: the final answer in a chain of thought.
- :func:`program_answer`: the answer a program printed.
- :func:`same_answer`: whether it is right. ``comparison`` states every rule.

>>> answer = extract_answer(r"So the area is $\boxed{2\sqrt{3}}$ square units.", "math")
>>> answer, same_answer(answer, r"\sqrt{12}", "math", time_limit=10)
('2\\sqrt{3}', True)
"""

from __future__ import annotations

from uniproto.lm.judging.answers.comparison import same_answer
from uniproto.lm.judging.answers.extraction import extract_answer, program_answer

__all__ = ["extract_answer", "program_answer", "same_answer"]
