"""The questions of a suite: read, counted, and refused where some are missing."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from uniproto.errors import InputFileError, invalid
from uniproto.judging.benchmark_files import math_questions
from uniproto.judging.benchmarks import BENCHMARKS, Question, datasets_of
from uniproto.judging.superglue import labelled_examples


@dataclass(frozen=True)
class DataSet:
    """The questions to ask of one benchmark, and how many there were to choose from."""

    name: str
    questions: tuple[Question, ...]
    found: int  # in the files
    limit: int | None = None

    def note(self) -> str:
        """What a reader of a score must know; empty where nothing is unusual.

        >>> DataSet("cb", (), 56, limit=10).note()
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
    if limit is not None and limit < 1:
        raise invalid("limit", "must be at least 1", limit, "Leave it out for all questions.")
    folder = Path(data)
    if not folder.exists():
        raise InputFileError(
            f"{folder}: the data must be a folder or a file. There is none. Check the path."
        )
    found = {}
    for name in datasets_of(suite):
        questions = _all_questions(name, folder, allow_partial)
        found[name] = DataSet(name, tuple(questions[:limit]), len(questions), limit)
    return found


def _all_questions(name: str, data: Path, allow_partial: bool) -> list[Question]:
    if not BENCHMARKS[name].is_math:
        return labelled_examples(name, "validation", data, allow_partial=allow_partial)
    questions, file = math_questions(name, data)
    expected = BENCHMARKS[name].size
    if not questions or (len(questions) < expected and not allow_partial):
        raise InputFileError(
            f"{file}: {name} must have its {expected:,} questions. Got {len(questions):,} instead. "
            "Fetch the whole file, or allow a part of it explicitly (--allow-partial)."
        )
    return questions


def digest(datasets: Mapping[str, DataSet]) -> str:
    """One number for exactly these questions and answers."""
    whole = hashlib.sha256()
    for each in datasets.values():
        for question in each.questions:
            whole.update(repr(question).encode("utf-8", "surrogatepass"))
    return whole.hexdigest()
