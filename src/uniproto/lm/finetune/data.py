"""Training and validation data, from files or data sets on the hub."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.data.examples import as_text
from uniproto.data.tables import require_column
from uniproto.errors import InputFileError, InvalidInputError
from uniproto.features.cache import local_path
from uniproto.features.embedded import in_words
from uniproto.lm.curation.words import letters_of
from uniproto.lm.features.examples import LanguageExamples, read_examples
from uniproto.lm.features.language import NO_ANSWER, what_is_wrong_with
from uniproto.lm.features.tokens import ANSWERS, SourcedExample, TokenisedRows, tokenise
from uniproto.lm.finetune.settings import FinetuneSettings


def read_files(
    settings: FinetuneSettings, names: Sequence[str], further: bool = False
) -> list[SourcedExample]:
    """The rows of files, or of data sets on the hub, concatenated.

    Files that are `further` to the training data may lack its column of sources.
    """
    rows: list[SourcedExample] = []
    for name in names:
        named = (settings.prompt, settings.answer, settings.messages)
        rows += read_rows(name, named, settings.source, further or settings.source_is_usual)
    return rows


def read_rows(
    path: str | Path,
    named: tuple[str | None, str | None, str | None] = (None, None, None),
    source: str | None = None,
    may_lack_source: bool = False,
) -> list[SourcedExample]:
    """The rows of a file, from the named columns (prompt, answer, messages) or the usual ones.

    Without a column of sources all rows have the same: `all`, or the file's name if the column may
    be missing. Data sets on the Hugging Face hub are named as for `uniproto curate`.
    """
    path = local_path(path)
    examples = read_examples(path, named)
    wrong = [
        (row, reason)
        for row, example in enumerate(examples)
        if (reason := what_is_wrong_with(example)) is not None
        and not (
            reason == NO_ANSWER and isinstance(example, tuple)
        )  # the model learns to end at once
    ]
    if wrong:
        raise InputFileError(
            f"{path}: no example to train on in {in_words(wrong)}. Fix or drop those rows."
        )
    sources = _sources(examples, source, may_lack_source)
    return [
        SourcedExample(source, example) for source, example in zip(sources, examples, strict=True)
    ]


def _sources(examples: LanguageExamples, source: str | None, may_lack: bool) -> list[str]:
    """The source of each row."""
    if source is None:
        return ["all"] * len(examples)
    if may_lack and source not in examples.table.column_names:
        return [examples.path.name.partition(".")[0]] * len(examples)
    require_column(examples.table, source, "source", examples.path)
    labels = examples.table.column(source).to_pylist()
    if None in labels:
        raise InputFileError(
            f"{examples.path}: row {labels.index(None)} has no {source!r}. Fill it in, or pass "
            "--no-source."
        )
    return list(map(str, labels))


@dataclass(frozen=True)
class TrainingData:
    """Training and validation rows, and the number of examples that were too long."""

    train: TokenisedRows
    validation: TokenisedRows | None
    too_long: int


def prepare_examples(
    settings: FinetuneSettings, rows: Sequence[SourcedExample], tokenizer: Any, model: Any
) -> TrainingData:
    """Tokenise the rows, then split them, then mix others in.

    Examples that are too long are skipped before the split, so that no source loses its validation
    rows.
    """
    most = getattr(model.config, "max_position_embeddings", None)
    if isinstance(most, int) and settings.max_length > most:
        raise InvalidInputError(
            f"{settings.max_length} must not exceed the model's context of {most} tokens.",
            parameter="max_length",
        )
    options = (tokenizer, settings.max_length, settings.too_long, settings.template)
    trained, too_long = tokenise(rows, *options)

    def further(name: str) -> TokenisedRows:
        nonlocal too_long
        tokens, more = tokenise(read_files(settings, [name], further=True), *options, name)
        too_long += more
        return tokens

    if settings.validation_data is not None:
        validation: TokenisedRows | None = further(settings.validation_data)
    else:
        train, held = split_places(
            [row.source for row in trained.rows],
            settings.validation,
            settings.validation_least,
            settings.seed,
            [letters_of(_question(row.example)) for row in trained.rows],
        )
        validation = trained.part(held) if held else None
        trained = trained.part(train)
    if settings.mix is not None:  # half of the training rows
        mixed = further(settings.mix)
        times = max(1, round(len(trained) / len(mixed)))
        trained = TokenisedRows(
            [*trained.rows, *[*mixed.rows] * times], [*trained.tokens, *[*mixed.tokens] * times]
        )
    if len(trained) < settings.pool:
        raise InvalidInputError(
            f"{settings.pool} must not exceed the {len(trained)} training examples. Lower "
            "it, or add data.",
            parameter="pool",
        )
    return TrainingData(trained, validation, too_long)


def _question(example: Any) -> str:
    """The prompt, the messages before the first answer of a chat, or the text."""
    if isinstance(example, list):
        return str(as_text([each for each in example if each["role"] != ANSWERS]))
    return str(example[0] if isinstance(example, tuple) else example)


def split_places(
    sources: Sequence[str],
    share: float,
    least: int,
    seed: int,
    questions: Sequence[str] | None = None,
) -> tuple[list[int], list[int]]:
    """Split rows into training and validation: a share of every source is held out.

    At least `least` rows of each source are held out, but at most half of a small one. Other rows
    with a held-out question are held out, too, unless many rows share one instruction.

    >>> train, validation = split_places(["a"] * 100 + ["b"] * 6, 0.02, least=4, seed=0)
    >>> len(train), [place < 100 for place in validation]
    (99, [True, True, True, True, False, False, False])
    """
    random = np.random.default_rng(seed)
    of_source: dict[str, list[int]] = {}
    for place, source in enumerate(sources):
        of_source.setdefault(source, []).append(place)
    held: set[int] = set()
    if share > 0:
        for source in sorted(of_source):
            places = of_source[source]
            count = min(max(least, round(share * len(places))), len(places) // 2)
            held.update(random.choice(places, count, replace=False).tolist())
    if questions is not None:
        asked = {questions[place] for place in held}
        asking = {place for place, question in enumerate(questions) if question in asked}
        if len(asking) <= 2 * len(held):  # else many rows share one instruction
            held = asking
    return [place for place in range(len(sources)) if place not in held], sorted(held)
