"""Judging language models: benchmarks, answers, and a sandbox for their programs.

>>> from uniproto.judging import same_answer
>>> same_answer("1,200 dollars", "1200", "gsm8k")
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniproto.judging.answers import extract_answer, program_answer, same_answer
    from uniproto.judging.benchmarks import read_questions
    from uniproto.judging.evaluation import Evaluation, side_by_side
    from uniproto.judging.run import evaluate
    from uniproto.judging.sandbox import ProgramResult, run_program, run_programs
    from uniproto.judging.superglue import superglue_rows

_HOMES = {  # imported when first used: torch, transformers and sympy take seconds to load
    "Evaluation": "uniproto.judging.evaluation",
    "ProgramResult": "uniproto.judging.sandbox",
    "evaluate": "uniproto.judging.run",
    "extract_answer": "uniproto.judging.answers",
    "program_answer": "uniproto.judging.answers",
    "read_questions": "uniproto.judging.benchmarks",
    "run_program": "uniproto.judging.sandbox",
    "run_programs": "uniproto.judging.sandbox",
    "same_answer": "uniproto.judging.answers",
    "side_by_side": "uniproto.judging.evaluation",
    "superglue_rows": "uniproto.judging.superglue",
}

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


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'uniproto.judging' has no attribute {name!r}")
