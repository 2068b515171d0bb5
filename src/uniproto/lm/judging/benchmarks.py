"""The benchmarks by name, and the questions of a suite."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from uniproto.errors import InputFileError, invalid, require_int, unknown_name
from uniproto.lm.judging.benchmark_files import Question, math_questions, require_complete
from uniproto.lm.judging.superglue import labelled_examples

IN_DOMAIN, OUT_OF_DOMAIN, SUPERGLUE = "in-domain", "out-of-domain", "superglue"
OVERALL = "overall"


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


def title_of(name: str) -> str:
    """What a data set or an average is called in a table.

    >>> title_of("gsm8k"), title_of("overall"), title_of("superglue")
    ('GSM8K', 'overall average', 'average')
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name].title
    return "average" if name == SUPERGLUE else f"{name} average"


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


@dataclass(frozen=True)
class DataSet:
    """The questions to ask of one benchmark, and how many there were to choose from."""

    name: str
    questions: tuple[Question, ...]
    found: int  # in the files

    def note(self) -> str:
        """What a reader of a score must know; empty where nothing is unusual.

        >>> DataSet("cb", (), 56).note()
        'the first 0 of 56'
        """
        size = BENCHMARKS[self.name].size
        notes = []
        if len(self.questions) < self.found:
            notes.append(f"the first {len(self.questions):,} of {self.found:,}")
        if self.found != size:
            notes.append(f"{self.found:,} in the files, {size:,} published")
        return "; ".join(notes)


def read_questions(
    suite: str | Sequence[str],
    data: str | Path,
    *,
    limit: int | None = None,
    allow_partial: bool = False,
) -> dict[str, DataSet]:
    """The data sets of a suite, complete or an error; `limit` takes the first so many of each.

    >>> import json, tempfile
    >>> file = Path(tempfile.mkdtemp()) / "math_test.jsonl"
    >>> _ = file.write_text(json.dumps({"dataset": "svamp", "question": "1 + 1?", "answer": "2"}))
    >>> read_questions("svamp", file, allow_partial=True)["svamp"].questions[0].gold
    '2'
    >>> read_questions("svamp", file)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    uniproto.errors.InputFileError: ...: svamp must have its 1,000 questions. Got 1 instead. ...
    """
    if limit is not None:
        require_int("limit", limit)
    folder = Path(data)
    if not folder.exists():
        raise InputFileError(
            f"{folder}: the data must be a folder or a file. There is none. Check the path."
        )
    found = {}
    for name in datasets_of(suite):
        questions = _all_questions(name, folder, allow_partial)
        found[name] = DataSet(name, tuple(questions[:limit]), len(questions))
    return found


def _all_questions(name: str, data: Path, allow_partial: bool) -> list[Question]:
    if not BENCHMARKS[name].is_math:
        return labelled_examples(name, "validation", data, allow_partial=allow_partial)
    questions, file = math_questions(name, data)
    published = BENCHMARKS[name].size
    require_complete(name, questions, published, file, allow_partial=allow_partial)
    return questions


def digest(datasets: Mapping[str, DataSet]) -> str:
    """One number for exactly these questions and answers."""
    found = hashlib.sha256()
    for each in datasets.values():
        for question in each.questions:
            found.update(repr(question).encode("utf-8", "surrogatepass"))
    return found.hexdigest()
