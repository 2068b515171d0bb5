"""The benchmarks by name, and the questions of a suite."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from uniproto.data.files import reading
from uniproto.errors import (
    InputFileError,
    InvalidInputError,
    require_int,
    require_name,
    unknown_name,
)
from uniproto.lm.judging.benchmark_files import (
    Question,
    is_archive,
    json_lines,
    math_questions,
    read_member,
    read_text,
    require_complete,
)

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


BENCHMARKS: Mapping[str, Benchmark] = {
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
MATH_SUITE = tuple(each.name for each in BENCHMARKS.values() if each.is_math)
SUPERGLUE_SUITE = tuple(each.name for each in BENCHMARKS.values() if not each.is_math)


def title_of(name: str) -> str:
    """The name of a data set or an average in a table.

    >>> title_of("gsm8k"), title_of("overall"), title_of("superglue")
    ('GSM8K', 'overall average', 'average')
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name].title
    return "average" if name == SUPERGLUE else f"{name} average"


def datasets_of(suite: str | Sequence[str]) -> list[str]:
    """The data sets of a suite, or of a list of names, in the order of the tables.

    `math` alone is the suite of six. The data set is `MATH`, or `math` with others or in a list.

    >>> datasets_of("superglue"), datasets_of("svamp,gsm8k"), datasets_of("MATH")
    (['sst2', 'cb', 'multirc'], ['gsm8k', 'svamp'], ['math'])
    """
    if suite == "math":
        return list(MATH_SUITE)
    if suite == "superglue":
        return list(SUPERGLUE_SUITE)
    given = suite.split(",") if isinstance(suite, str) else suite
    names = [
        each
        for name in given
        for each in (SUPERGLUE_SUITE if name.strip() == "superglue" else [name.strip().lower()])
    ]
    for name in names:
        if name not in BENCHMARKS:
            raise unknown_name("suite", name, [*BENCHMARKS, "superglue"])
    return [name for name in BENCHMARKS if name in names]


@dataclass(frozen=True)
class DataSet:
    """The questions to ask of one benchmark, and how many its files have."""

    name: str
    questions: tuple[Question, ...]
    found: int  # in the files

    def note(self) -> str:
        """A note for readers of the score; empty if nothing is unusual.

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
    """The data sets of a suite, complete or an error; `limit` takes that many of each.

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
        raise InputFileError(f"{folder}: there is no such folder or file. Check the path.")
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
    """A checksum of the questions and answers."""
    found = hashlib.sha256()
    for each in datasets.values():
        for question in each.questions:
            found.update(repr(question).encode("utf-8", "surrogatepass"))
    return found.hexdigest()


# --- SuperGLUE ------------------------------------------------------------------------------------


SPLITS = ("train", "validation")
_FILES: Mapping[tuple[str, str], tuple[str, int]] = {  # and how many examples they have
    ("sst2", "train"): ("SST-2/train.tsv", 67349),
    ("sst2", "validation"): ("SST-2/dev.tsv", 872),
    ("cb", "train"): ("CB/train.jsonl", 250),
    ("cb", "validation"): ("CB/val.jsonl", 56),
    ("multirc", "train"): ("MultiRC/train.jsonl", 27243),
    ("multirc", "validation"): ("MultiRC/val.jsonl", 4848),
}
SST2_WORDS = ("positive", "negative")
CB_WORDS = ("yes", "no", "maybe")
MULTIRC_WORDS = ("yes", "no")


def superglue_rows(
    task: str,
    split: str,
    data: str | Path,
    *,
    examples: int | None = None,
    seed: int = 0,
    allow_partial: bool = False,
) -> list[dict[str, str]]:
    """Rows `{source, instruction, output}` for `uniproto finetune`: questions with their answers.

    `task` is "sst2", "cb" or "multirc", `split` "train" or "validation", and `data` a folder with
    SST-2/train.tsv, CB/train.jsonl and MultiRC/train.jsonl (or an archive of it). `examples` draws
    that many at random, without repeats, in an order that depends on `seed` alone.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "SST-2"
    >>> folder.mkdir()
    >>> _ = (folder / "train.tsv").write_text("sentence\\tlabel\\na fine film .\\t1\\n")
    >>> [row] = superglue_rows("sst2", "train", folder, allow_partial=True)
    >>> row["source"], row["output"], row["instruction"].splitlines()[0]
    ('sst2', 'positive', 'Review: a fine film .')
    """
    found = labelled_examples(task, split, data, allow_partial=allow_partial)
    if examples is not None:
        if not 1 <= examples <= len(found):
            raise InvalidInputError(
                f"must lie between 1 and the {len(found)} of {task} {split}, not {examples}.",
                parameter="examples",
            )
        found = random.Random(seed).sample(found, examples)
    return [{"source": task, "instruction": each.text, "output": each.gold} for each in found]


def labelled_examples(
    task: str, split: str, data: str | Path, *, allow_partial: bool = False
) -> list[Question]:
    """Every example of a split, in the file's order; fewer than there should be is an error."""
    require_name("task", task, _READERS)
    require_name("split", split, SPLITS)
    file, published = _FILES[task, split]
    text, name = _find(task, Path(file), Path(data))
    with reading(Path(name), f"the examples of {task}, each with its label"):
        found = list(_READERS[task](text, name))
    require_complete(task, found, published, name, allow_partial=allow_partial)
    return found


def _find(task: str, inside: Path, data: Path) -> tuple[str, str]:
    """The text of a task's file, in a folder or an archive, and the file's name for messages."""
    places = [data / inside, data / "glue" / inside]
    if data.name == inside.parent.name:  # the task's own folder was named
        places.append(data / inside.name)
    for place in places:
        if place.is_file():
            return read_text(place), str(place)
    archives = [data] if data.is_file() else sorted(p for p in data.glob("*") if is_archive(p))
    archives += sorted(p for p in (data / "glue").glob("*") if is_archive(p))
    for archive in filter(is_archive, archives):
        text = read_member(archive, inside.as_posix())
        if text is not None:
            return text, f"{archive}:{inside}"
    raise InputFileError(
        f"{data}: no {inside} here for {task}, nor an archive with it. Name the folder above it "
        "with --data."
    )


def _sst2(text: str, name: str) -> Iterator[Question]:
    head, *lines = text.rstrip("\n").split("\n")
    columns = head.rstrip("\r").split("\t")
    for number, line in enumerate(lines):
        row = dict(zip(columns, line.rstrip("\r").split("\t"), strict=False))
        label = {"0": "negative", "1": "positive"}[str(row["label"])]
        instruction = (
            f"Review: {row['sentence'].strip()}\n"
            "Is the sentiment of this review positive or negative?"
        )
        yield Question("sst2", f"sst2-{number}", instruction, label, SST2_WORDS)


def _cb(text: str, name: str) -> Iterator[Question]:
    words = {"entailment": "yes", "contradiction": "no", "neutral": "maybe"}
    for number, row in enumerate(json_lines(text, name)):
        instruction = (
            f"Premise: {row['premise'].strip()}\n"
            f"Hypothesis: {row['hypothesis'].strip()}\n"
            "Does the premise imply the hypothesis? Answer yes, no or maybe."
        )
        label = words[str(row["label"])]
        yield Question("cb", f"cb-{row.get('idx', number)}", instruction, label, CB_WORDS)


def _multirc(text: str, name: str) -> Iterator[Question]:
    words = {"0": "no", "1": "yes"}
    for passage_number, row in enumerate(json_lines(text, name)):
        passage = row["passage"]
        for question_number, question in enumerate(passage["questions"]):
            group = f"multirc-{passage_number}-{question_number}"
            for number, answer in enumerate(question["answers"]):
                # The passage comes first: what is cut from a prompt too long is its beginning.
                instruction = (
                    f"Passage: {passage['text'].strip()}\n"
                    f"Question: {question['question'].strip()}\n"
                    f"Answer: {str(answer['text']).strip()}\n"
                    "Is this a correct answer to the question? Answer yes or no."
                )
                label = words[str(answer["label"])]
                yield Question(
                    "multirc", f"{group}-{number}", instruction, label, MULTIRC_WORDS, group
                )


_READERS: Mapping[str, Callable[[str, str], Iterator[Question]]] = {
    "sst2": _sst2,
    "cb": _cb,
    "multirc": _multirc,
}
