"""Judging language models: benchmarks, answers, and a sandbox for their programs.

>>> from uniproto.lm.judging import same_answer
>>> same_answer("1,200 dollars", "1200", "gsm8k")
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uniproto.runtime.late import late_names

if TYPE_CHECKING:
    from uniproto.lm.judging.answers import extract_answer, program_answer, same_answer
    from uniproto.lm.judging.benchmarks import read_questions
    from uniproto.lm.judging.evaluation import Evaluation, side_by_side
    from uniproto.lm.judging.run import evaluate
    from uniproto.lm.judging.sandbox import ProgramResult, run_program, run_programs
    from uniproto.lm.judging.superglue import superglue_rows


__all__ = [
    "Evaluation",
    "ProgramResult",
    "evaluate",
    "extract_answer",
    "program_answer",
    "read_questions",
    "run_program",
    "run_programs",
    "same_answer",
    "side_by_side",
    "superglue_rows",
]

# Imported when first used: torch, transformers and sympy take seconds to load.
__getattr__ = late_names(
    __name__,
    {
        "Evaluation": "uniproto.lm.judging.evaluation",
        "ProgramResult": "uniproto.lm.judging.sandbox",
        "evaluate": "uniproto.lm.judging.run",
        "extract_answer": "uniproto.lm.judging.answers",
        "program_answer": "uniproto.lm.judging.answers",
        "read_questions": "uniproto.lm.judging.benchmarks",
        "run_program": "uniproto.lm.judging.sandbox",
        "run_programs": "uniproto.lm.judging.sandbox",
        "same_answer": "uniproto.lm.judging.answers",
        "side_by_side": "uniproto.lm.judging.evaluation",
        "superglue_rows": "uniproto.lm.judging.superglue",
    },
)
