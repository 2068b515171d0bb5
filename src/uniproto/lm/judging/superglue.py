"""SST-2, CB and MultiRC as plain instructions: the same words to tune with and to judge by.

Every example is an instruction and a label word that answers it. A model is tuned on the word
(`superglue_rows`) and judged by which of the task's words it finds likeliest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from uniproto.errors import InputFileError, invalid, require_name
from uniproto.lm.judging.benchmark_files import (
    Question,
    field,
    is_archive,
    json_lines,
    read_member,
    read_text,
    require_complete,
)

SPLITS = ("train", "validation")
_FILES: Mapping[tuple[str, str], tuple[str, int]] = MappingProxyType(
    {  # by task and split: the file, and how many examples it has
        ("sst2", "train"): ("SST-2/train.tsv", 67349),
        ("sst2", "validation"): ("SST-2/dev.tsv", 872),
        ("cb", "train"): ("CB/train.jsonl", 250),
        ("cb", "validation"): ("CB/val.jsonl", 56),
        ("multirc", "train"): ("MultiRC/train.jsonl", 27243),
        ("multirc", "validation"): ("MultiRC/val.jsonl", 4848),
    }
)
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
    """Rows `{source, instruction, output}` for `uniproto finetune`: what the judge asks, answered.

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
            raise invalid(
                "examples",
                f"must lie between 1 and the {len(found)} of {task} {split}",
                examples,
                "Ask for fewer, or leave it out for all.",
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
        f"{data}: the data folder must hold {inside} for {task}, or an archive with it. "
        "It does not. Name the folder above it with --data."
    )


def _sst2(text: str, name: str) -> Iterator[Question]:
    head, *lines = text.rstrip("\n").split("\n")
    columns = head.rstrip("\r").split("\t")
    if not {"sentence", "label"} <= set(columns):
        raise InputFileError(
            f"{name}: the first line must name the columns sentence and label. Got {head!r} "
            "instead. Is it GLUE's file, and not the test set without labels?"
        )
    for number, line in enumerate(lines):
        row = dict(zip(columns, line.rstrip("\r").split("\t"), strict=False))
        label = _label(row, {"0": "negative", "1": "positive"}, name)
        instruction = (
            f"Review: {field(row, 'sentence', name).strip()}\n"
            "Is the sentiment of this review positive or negative?"
        )
        yield Question("sst2", f"sst2-{number}", instruction, label, SST2_WORDS)


def _cb(text: str, name: str) -> Iterator[Question]:
    words = {"entailment": "yes", "contradiction": "no", "neutral": "maybe"}
    for number, row in enumerate(json_lines(text, name)):
        instruction = (
            f"Premise: {field(row, 'premise', name).strip()}\n"
            f"Hypothesis: {field(row, 'hypothesis', name).strip()}\n"
            "Does the premise imply the hypothesis? Answer yes, no or maybe."
        )
        label = _label(row, words, name)
        yield Question("cb", f"cb-{row.get('idx', number)}", instruction, label, CB_WORDS)


def _multirc(text: str, name: str) -> Iterator[Question]:
    words = {"0": "no", "1": "yes"}
    for passage_number, row in enumerate(json_lines(text, name)):
        passage = field(row, "passage", name)
        for question_number, question in enumerate(field(passage, "questions", name)):
            group = f"multirc-{passage_number}-{question_number}"
            for number, answer in enumerate(field(question, "answers", name)):
                # The passage comes first: what is cut from a prompt too long is its beginning.
                instruction = (
                    f"Passage: {field(passage, 'text', name).strip()}\n"
                    f"Question: {field(question, 'question', name).strip()}\n"
                    f"Answer: {str(field(answer, 'text', name)).strip()}\n"
                    "Is this a correct answer to the question? Answer yes or no."
                )
                label = _label(answer, words, name)
                yield Question(
                    "multirc", f"{group}-{number}", instruction, label, MULTIRC_WORDS, group
                )


def _label(row: dict[str, Any], words: Mapping[str, str], name: str) -> str:
    label = str(field(row, "label", name))
    if label not in words:
        raise InputFileError(
            f"{name}: every label must be one of {', '.join(words)}. Got {label!r} instead. Is it "
            "the file of another benchmark?"
        )
    return words[label]


_READERS: Mapping[str, Callable[[str, str], Iterator[Question]]] = MappingProxyType(
    {"sst2": _sst2, "cb": _cb, "multirc": _multirc}
)
