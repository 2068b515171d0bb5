"""Rows to train on: the examples of files or of data sets on the hub, and where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.data.hub import local_data
from uniproto.data.tables import require_column
from uniproto.errors import InputFileError
from uniproto.features.cache import cache_folder
from uniproto.features.embedded import in_words
from uniproto.lm.features.examples import NO_ANSWER, Examples, read_examples, what_is_wrong_with
from uniproto.lm.finetune.chats import Turns
from uniproto.lm.finetune.settings import FinetuneSettings


@dataclass(frozen=True)
class InstructionRow:
    """A question and its answer, the turns of a chat, or (without a prompt) a plain text."""

    source: str
    prompt: str | None
    answer: str
    turns: Turns = ()

    @property
    def question(self) -> str:
        """The prompt, what comes before the answers of a chat, or the text."""
        if self.turns:
            return "\n".join(text for role, text in self.turns if role != "assistant")
        return self.answer if self.prompt is None else self.prompt

    @property
    def text(self) -> str:
        """The row as people read it."""
        if self.turns:
            return "\n\n".join(text for _, text in self.turns)
        return self.answer if self.prompt is None else f"{self.prompt}\n\n{self.answer}"


def as_row(example: Any, source: str = "") -> InstructionRow:
    """An example that nothing is wrong with, as a row to train on.

    >>> as_row(("1 + 1?", "2")), as_row("a text").prompt
    (InstructionRow(source='', prompt='1 + 1?', answer='2', turns=()), None)
    """
    if isinstance(example, str):
        return InstructionRow(source, None, example)
    if isinstance(example, tuple):
        return InstructionRow(source, *example)
    turns = tuple((message["role"], message["content"]) for message in example)
    return InstructionRow(source, "", "", turns)


def read_files(
    settings: FinetuneSettings, names: Sequence[str], beside: bool = False
) -> list[InstructionRow]:
    """The rows of files, or of data sets on the hub, one after another.

    Files that are read `beside` the training data may lack its column of sources.
    """
    rows: list[InstructionRow] = []
    for name in names:
        named = (settings.prompt, settings.answer, settings.messages)
        rows += read_rows(name, named, settings.source, beside or settings.source_is_usual)
    return rows


def read_rows(
    path: str | Path,
    named: tuple[str | None, str | None, str | None] = (None, None, None),
    source: str | None = None,
    may_lack_source: bool = False,
) -> list[InstructionRow]:
    """The rows of a file, by the columns that are named (prompt, answer, messages) or usual.

    Without a column of sources all rows are of one: `all`, or the file's name where that column may
    be missing. A data set of the Hugging Face hub is named as for `uniproto curate`.
    """
    path = Path(local_data(str(path), cache_folder() / "datasets"))
    examples = read_examples(path, named=named)
    wrong = [
        (row, reason)
        for row, example in enumerate(examples)
        if (reason := what_is_wrong_with(example)) is not None
        and not (reason == NO_ANSWER and isinstance(example, tuple))  # it learns to end at once
    ]
    if wrong:
        raise InputFileError(
            f"{path}: every row must hold an example to train on. Got {in_words(wrong)} instead. "
            "Fix or drop those rows."
        )
    sources = _sources(examples, source, may_lack_source)
    rows = [as_row(example, label) for example, label in zip(examples, sources, strict=True)]
    if not rows:
        raise InputFileError(f"{path}: the file must hold training examples. It is empty.")
    return rows


def _sources(examples: Examples, source: str | None, may_lack: bool) -> list[str]:
    """Where each row comes from."""
    if source is None:
        return ["all"] * len(examples)
    if may_lack and source not in examples.table.column_names:
        return [examples.path.name.partition(".")[0]] * len(examples)
    require_column(examples.table, source, "--source", examples.path)
    labels = examples.table.column(source).to_pylist()
    if None in labels:
        raise InputFileError(
            f"{examples.path}: column {source!r} must say of every row where it comes from. Row "
            f"{labels.index(None)} does not. Fill it in, or pass --no-source."
        )
    return list(map(str, labels))
