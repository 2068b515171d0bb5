"""Leaks: questions of a benchmark planted in pools that share templates, passages and examples.

Three public kinds of data: films (SST-2), reading (MultiRC), mathematics of 22 sources. Of each a
benchmark, questions of it planted in a pool in many forms, and other rows, which all differ from
the benchmark's. Rows with an odd digest are tested on; those with an even one were tuned on.

`paraphrases.jsonl` holds other wordings of questions, each with the digest of the question; for
these the pass by sentence embeddings follows the one by words.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.common import MissingDataError, Report, data_folder

TITLE = "leaks: planted questions found, and different rows dropped, under shared text"
CAUGHT, DROPPED = 0.95, 0.005
CAUGHT_BY_MEANING, DROPPED_BY_MEANING = 0.7, 0.01
_PARAPHRASES = Path(__file__).with_name("paraphrases.jsonl")
_QUESTIONS, _OTHERS, _PLANTED = 300, 2_000, 60
_LENGTHS = (10, 20, 40, 80, 156, 300)
_SHOTS = 8

Example = tuple[str, str]
Row = tuple[str, str, str]  # passage, question and answer


def run(report: Report, quick: bool) -> None:
    from uniproto.lm.curation.meaning import same_meaning, sentence_vectors
    from uniproto.lm.curation.repeats import repeats

    embed = partial(sentence_vectors, progress=False)
    caught, dropped, reworded_caught, different_dropped = [], [], [], []
    for kind in KINDS:
        for name, shared in _shared_texts(quick).items():
            found = case(kind, shared, tuned=False)
            others = found.others
            pool = [*others, *found.planted]
            rows = {one.row for one in repeats(pool, [found.benchmark])[0]}
            lost = sum(row < len(others) for row in rows) / len(others)
            share = sum(row >= len(others) for row in rows) / len(found.planted)
            caught.append(share)
            dropped.append(lost)
            report.row(f"{kind}, {name}", caught=share, dropped=lost)
            if name not in (NOTHING, _template(156), "8 of 40 examples"):
                continue
            for form, planted in found.reworded.items():
                pool = [*others, *planted]
                by_words = {one.row for one in repeats(pool, [found.benchmark])[0]}
                meant = same_meaning(pool, found.benchmark, embed, but=by_words)
                rows = by_words | {one.row for one in meant}
                lost = sum(row in found.different for row in rows) / len(found.different)
                shares = [
                    sum(row >= len(others) for row in those) / len(planted)
                    for those in (by_words, rows)
                ]
                report.row(
                    f"{kind}, {name}: {form}",
                    planted=len(planted),
                    caught_by_words=shares[0],
                    caught=shares[1],
                    dropped=lost,
                )
                reworded_caught.append(shares[1])
                different_dropped.append(lost)
    lowest, most = min(reworded_caught), max(different_dropped)
    for what, reached, reach, met in (
        ("planted questions caught, at least", min(caught), f"≥ {CAUGHT}", min(caught) >= CAUGHT),
        ("different rows dropped, at most", max(dropped), f"≤ {DROPPED}", max(dropped) <= DROPPED),
        (
            "reworded questions caught with meaning, at least",
            lowest,
            f"≥ {CAUGHT_BY_MEANING}",
            lowest >= CAUGHT_BY_MEANING,
        ),
        (
            "different rows dropped with meaning, at most",
            most,
            f"≤ {DROPPED_BY_MEANING}",
            most <= DROPPED_BY_MEANING,
        ),
    ):
        report.figure(what, reached, reach, met)


# --- shared text ----------------------------------------------------------------------------------

NOTHING = "nothing shared"


def _template(words: int) -> str:
    return f"template of {words} words"


Shared = Callable[[str, str, random.Random], str]  # of a kind, around a prompt


def _shared_texts(quick: bool = False) -> dict[str, Shared]:
    lengths = _LENGTHS[::3] if quick else _LENGTHS
    found: dict[str, Shared] = {NOTHING: lambda kind, prompt, draw: prompt}
    for length in lengths:
        words = " ".join(_guideline().split()[:length])
        found[_template(length)] = lambda kind, prompt, draw, words=words: f"{words}\n\n{prompt}"
    found["8 examples, the same"] = lambda kind, prompt, draw: _with_shots(
        kind, prompt, random.Random(5)
    )
    found["8 of 40 examples"] = lambda kind, prompt, draw: _with_shots(kind, prompt, draw)
    return found


def _with_shots(kind: str, prompt: str, draw: random.Random) -> str:
    shots = draw.sample(_shots(kind), _SHOTS)
    return (
        "".join(f"Q: {question}\nA: {answer}\n\n" for question, answer in shots)
        + f"Q: {prompt}\nA:"
    )


@cache
def _shots(kind: str) -> list[Example]:
    """Forty short examples that are in no benchmark and no pool."""
    return [(question, answer) for _, question, answer in _rows(kind, 2) if len(question) < 400][
        :40
    ]


@cache
def _guideline() -> str:
    """A long text in English to share."""
    for line in lines_of("text/english_mix.jsonl.zst"):
        text = " ".join(json.loads(line)["text"].split())
        if len(text.split()) > 2_000:
            return text
    raise MissingDataError("There is no long text in english_mix.")


# --- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A benchmark, and what a pool may hold."""

    benchmark: list[Example]
    others: list[Example]  # rows of other questions
    different: set[int]  # those of them that are known to have another answer, too
    planted: list[Example]  # questions of the benchmark with other text around them
    reworded: dict[str, list[Example]]  # in other words, by form


def case(kind: str, shared: Shared, *, tuned: bool) -> Case:
    """A benchmark, different rows, and questions of the benchmark in many forms."""
    draw = random.Random(3)
    rows = list(_rows(kind, 0 if tuned else 1))
    texts: dict[str, list[Row]] = {}
    for row in rows:
        texts.setdefault(row[0] or row[1], []).append(row)
    names = sorted(texts)
    draw.shuffle(names)
    ordered = [row for name in names for row in texts[name]]
    paraphrases = _paraphrases(kind, rows)
    asked = ordered[: 2 * _QUESTIONS : 2]  # half the questions about a passage are other rows
    others = ordered[1 : 2 * _QUESTIONS : 2] + ordered[2 * _QUESTIONS :][:_OTHERS]
    asked += [row for row in paraphrases if row not in asked]
    seen = {_plain(question) for _, question, _ in asked}
    others = [row for row in others if _plain(row[1]) not in seen]

    def example(row: Row) -> Example:
        passage, question, answer = row
        prompt = f"{passage}\n\n{question}" if passage else question
        return shared(kind, prompt, draw), answer

    planted = []
    for name, form in FORMS.items():
        for row in draw.sample(asked, min(_PLANTED, len(asked))):
            passage, question, answer = row
            prompt, answer = form(question, answer)
            if passage and name not in APART:
                prompt = f"{passage}\n\n{prompt}"
            planted.append((prompt if name in BARE else shared(kind, prompt, draw), answer))
    reworded = {
        "paraphrased": [(passage, paraphrases[p], a) for p in paraphrases for passage, _, a in [p]]
    }
    for name, change in REWORDED.items():
        changed = [(row[0], change(row[1]), row[2]) for row in asked if change(row[1]) != row[1]]
        reworded[name] = draw.sample(changed, min(_PLANTED, len(changed)))
    answers: dict[str, set[str]] = {}
    for passage, _, answer in asked:
        answers.setdefault(passage, set()).update(map(_plain, answer.split(", ")))
    return Case(
        [example(row) for row in asked],
        [example(row) for row in others],
        {
            at
            for at, (passage, _, answer) in enumerate(others)
            if not passage
            or answers.get(passage, set()).isdisjoint(map(_plain, answer.split(", ")))
        },
        planted,
        {name: [*map(example, those)] for name, those in reworded.items() if len(those) >= 20},
    )


def _paraphrases(kind: str, rows: list[Row]) -> dict[Row, str]:
    """Rows whose questions have another wording, and that."""
    digests = {hashlib.sha256(row[1].encode()).hexdigest()[:16]: row for row in rows}
    lines = map(json.loads, _PARAPHRASES.read_text("utf-8").splitlines())
    return {
        digests[line["of"]]: line["text"]
        for line in lines
        if line["kind"] == kind and line["of"] in digests
    }


def _plain(text: str) -> str:
    return re.sub(r"\W+", " ", text).lower().strip()


def _moved(question: str, answer: str) -> Example:
    """The last sentence in the answer."""
    parts = re.split(r"(?<=[.?!])\s+", question.strip())
    if len(parts) < 2:
        words = question.split()
        parts = [" ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])]
    return " ".join(parts[:-1]), f"{parts[-1]} {answer}"


FORMS: dict[str, Callable[[str, str], Example]] = {
    "exact": lambda question, answer: (question, answer),
    "capitals": lambda question, answer: (question.upper(), answer),
    "another answer": lambda question, answer: (question, "No idea."),
    "a prefix": lambda question, answer: (f"Please think about this: {question}", answer),
    "a suffix": lambda question, answer: (f"{question} Show your work step by step.", answer),
    "numbers before": lambda question, answer: (f"Exercise 12 from page 7. {question}", answer),
    "numbers after": lambda question, answer: (f"{question} (exercise 12 from page 7)", answer),
    "in the answer": lambda question, answer: (
        "Write one question for an exam.",
        f"Sure: {question} It is answered by: {answer}",
    ),
    "last sentence in the answer": _moved,
}
REWORDED: dict[str, Callable[[str], str]] = {
    "numbers as words": lambda question: re.sub(
        r"(?<![^\s$(])[1-9]\d{0,4}(?=[.?!,]?(?:\s|$))",
        lambda found: _in_words(int(found[0])),
        question,
    ),
    "sentences in another order": lambda question: " ".join(
        re.split(r"(?<=[.?!])\s+(?=[A-Z])", question)[::-1]
    ),
}
_SMALL = (
    *(
        "zero",
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
        "thirteen",
        "fourteen",
    ),
    *("fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def _in_words(number: int) -> str:
    """A number below a million.

    >>> _in_words(21), _in_words(305), _in_words(12_040)
    ('twenty-one', 'three hundred and five', 'twelve thousand and forty')
    """
    if number < 20:
        return _SMALL[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_SMALL[ones]}" if ones else "")
    size, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    many, rest = divmod(number, size)
    joined = " and " if rest < 100 else " "
    return f"{_in_words(many)} {name}" + (f"{joined}{_in_words(rest)}" if rest else "")


BARE = ("in the answer",)  # without the shared text
APART = ("in the answer",)  # and without the passage


@cache
def _rows(kind: str, part: int) -> list[Row]:
    """Passage, question and answer of the rows of one part: 0 and 1 of eight, 2 for examples."""
    found = []
    for passage, question, answer in KINDS[kind]():
        digest = hashlib.sha256((passage or question).encode()).digest()[0] % 8
        if (2 if digest == 7 else digest % 2) == part and len(question.split()) >= 4:
            found.append((passage, question, answer))
    return found


def _films() -> Iterator[Row]:
    """Whole sentences; the training part holds phrases of them."""
    for line in _archived("SST-2/dev.tsv")[1:]:
        yield "", line.partition("\t")[0], ("negative", "positive")[int(line[-1])]
    for line in _archived("SST-2/test.tsv")[1:]:
        yield "", line.partition("\t")[2], "positive"


def _reading() -> Iterator[Row]:
    for line in _archived("MultiRC/train.jsonl"):
        passage = json.loads(line)["passage"]
        for question in passage["questions"]:
            right = [each["text"] for each in question["answers"] if each["label"]]
            yield passage["text"], question["question"], ", ".join(right) or "None of them."


def _mathematics() -> Iterator[Row]:
    for line in lines_of("math/math_train.jsonl.zst"):
        row = json.loads(line)
        yield "", row["instruction"], row["output"]


KINDS = {"films": _films, "reading": _reading, "mathematics": _mathematics}


def lines_of(name: str) -> list[str]:
    with _opened(name) as stream:
        return list(filter(None, stream.read().decode().split("\n")))


def _archived(name: str) -> list[str]:
    with _opened("glue/glue_sst2_cb_multirc.tar.zst") as stream:
        content = io.BytesIO(stream.read())
    with tarfile.open(fileobj=content) as archive:
        member = next(each for each in archive.getmembers() if each.name.endswith(name))
        file: Any = archive.extractfile(member)
        return list(filter(None, file.read().decode().split("\n")))


def _opened(name: str) -> Any:
    file = data_folder() / name
    if not file.exists():
        raise MissingDataError(
            f"{file} is missing. Name a folder that holds {name}: --data FOLDER."
        )
    return pa.input_stream(str(file), compression="zstd")
