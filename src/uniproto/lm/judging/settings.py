"""The settings of an evaluation: the options of `uniproto evaluate` are made from them."""

from __future__ import annotations

from dataclasses import dataclass

from uniproto.runtime.settings import setting


@dataclass(frozen=True)
class EvaluateSettings:
    """What is asked, how, and where the results go.

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
    fresh: bool = setting(False, "forget earlier answers in OUT", common=True)
    allow_partial: bool = setting(False, "accept data sets that lack questions")
    max_new_tokens: int = setting(2048, "longest answer, in tokens")
    template: str | None = setting(
        None,
        "the prompt, with {instruction} in it, or chat (the one the model was tuned with)",
        metavar="TEXT",
    )
    base: str | None = setting(
        None, "the model an adapter belongs to (it says so)", metavar="PATH_OR_HUB_ID"
    )
    device: str = setting("auto", "auto takes a GPU where there is one", choices=("auto", "cpu"))
    program_seconds: float = setting(
        5.0, "time for one program that the model writes", metavar="SECONDS"
    )
    trust_generated_code: bool = setting(
        False,
        "run programs even where the system cannot contain them: they can then do whatever you "
        "can do",
    )
