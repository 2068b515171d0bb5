"""The benchmarks by name: what they are called, how many questions they have, which suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from uniproto.errors import invalid, unknown_name


@dataclass(frozen=True)
class Question:
    """What is asked and what is right.

    `words` are the label words of a classification task, empty where the answer is free text;
    `group` joins the answers to one question of MultiRC.
    """

    dataset: str
    id: str
    text: str
    gold: str
    words: tuple[str, ...] = ()
    group: str | None = None


IN_DOMAIN, OUT_OF_DOMAIN, SUPERGLUE = "in-domain", "out-of-domain", "superglue"


@dataclass(frozen=True)
class Benchmark:
    """A data set that models are judged by; `part` is its place in the paper's tables."""

    name: str
    title: str
    size: int
    part: str

    @property
    def is_math(self) -> bool:
        return self.part != SUPERGLUE


BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType(
    {
        each.name: each
        for each in (
            Benchmark("gsm8k", "GSM8K", 1319, IN_DOMAIN),
            Benchmark("math", "MATH", 5000, IN_DOMAIN),
            Benchmark("numglue", "NumGLUE", 1042, IN_DOMAIN),
            Benchmark("svamp", "SVAMP", 1000, OUT_OF_DOMAIN),
            Benchmark("deepmind", "Mathematics", 1000, OUT_OF_DOMAIN),
            Benchmark("simuleq", "SimulEq", 514, OUT_OF_DOMAIN),
            Benchmark("sst2", "SST-2", 872, SUPERGLUE),
            Benchmark("cb", "CB", 56, SUPERGLUE),
            Benchmark("multirc", "MultiRC", 4848, SUPERGLUE),
        )
    }
)
MATH_SUITE = tuple(each.name for each in BENCHMARKS.values() if each.is_math)
SUPERGLUE_SUITE = tuple(each.name for each in BENCHMARKS.values() if not each.is_math)


def datasets_of(suite: str | Sequence[str]) -> list[str]:
    """The data sets of a suite, or of a list of names, in the order of the tables.

    `math` alone is the suite of six. The data set is MATH, or math beside others or in a list.

    >>> datasets_of("superglue"), datasets_of("svamp,gsm8k"), datasets_of("MATH")
    (['sst2', 'cb', 'multirc'], ['gsm8k', 'svamp'], ['math'])
    """
    if suite == "math":
        return list(MATH_SUITE)
    if suite == "superglue":
        return list(SUPERGLUE_SUITE)
    given = suite.split(",") if isinstance(suite, str) else suite
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        raise invalid(
            "suite", "must be a text or a list of texts", repr(suite), "Try 'math' or 'gsm8k'."
        )
    names = [
        each
        for name in given
        for each in (SUPERGLUE_SUITE if name.strip() == "superglue" else [name.strip().lower()])
    ]
    for name in names:
        if name not in BENCHMARKS:
            raise unknown_name("suite", name, [*BENCHMARKS, "superglue"])
    if not names or len(set(names)) < len(names):
        raise invalid(
            "suite",
            "must be math, superglue, or data sets by name, each once",
            ",".join(names) or "nothing",
            "Name them with commas between: gsm8k,svamp.",
        )
    return [name for name in BENCHMARKS if name in names]
