"""Judging language models: benchmarks, answers, and a sandbox for their programs.

>>> from uniproto.lm.judging import same_answer
>>> same_answer("1,200 dollars", "1200", "gsm8k")
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from uniproto.runtime.late import late_names
from uniproto.runtime.settings import setting

if TYPE_CHECKING:
    from uniproto.lm.judging.answers import extract_answer, program_answer, same_answer
    from uniproto.lm.judging.benchmarks import read_questions, superglue_rows
    from uniproto.lm.judging.evaluation import Evaluation, side_by_side
    from uniproto.lm.judging.run import evaluate
    from uniproto.lm.judging.sandbox import ProgramResult, run_program, run_programs


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


@dataclass(frozen=True)
class EvaluateSettings:
    """The settings of an evaluation.

    >>> EvaluateSettings(data="data", out="judged").max_new_tokens
    2048
    """

    data: str = setting(help="folder of the benchmarks", common=True, metavar="DIR")
    out: str = setting(help="folder for the results", common=True, metavar="DIR", flags=("-o",))
    suite: str = setting(
        "math", "math, superglue, or names of data sets", common=True, metavar="NAMES"
    )
    limit: int | None = setting(None, "only the first N of each data set (all)", common=True)
    batch_size: int = setting(16, "prompts at a time", common=True)
    bf16: bool = setting(False, "bfloat16 arithmetic (float32)", common=True)
    fresh: bool = setting(False, "start over: discard earlier answers in OUT", common=True)
    allow_partial: bool = setting(False, "accept incomplete data sets")
    max_new_tokens: int = setting(2048, "longest answer, in tokens")
    template: str | None = setting(
        None,
        "the prompt, with {instruction} in it, or chat (the one the model was tuned with)",
        metavar="TEXT",
    )
    base: str | None = setting(
        None, "base model of an adapter (as the adapter says)", metavar="PATH_OR_HUB_ID"
    )
    device: str = setting("auto", "auto: a GPU if there is one", choices=("auto", "cpu"))
    program_seconds: float = setting(
        5.0, "time limit for each program that the model writes", metavar="SECONDS"
    )
    trust_generated_code: bool = setting(
        False,
        "run programs even where the system cannot contain them: they can then do whatever you "
        "can do",
    )


# Imported when first used: torch, transformers and sympy take seconds to load.
__getattr__ = late_names(
    __name__,
    {
        "Evaluation side_by_side": "uniproto.lm.judging.evaluation",
        "ProgramResult run_program run_programs": "uniproto.lm.judging.sandbox",
        "evaluate": "uniproto.lm.judging.run",
        "extract_answer program_answer same_answer": "uniproto.lm.judging.answers",
        "read_questions superglue_rows": "uniproto.lm.judging.benchmarks",
    },
)
