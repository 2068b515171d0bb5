"""Make a folder of tokens from a corpus: learn or load a tokenizer, split, encode, write.

Documents stream through, so the memory needed does not grow with the corpus. A folder is complete
or not there: the file that vouches for the others comes last.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.errors import InputFileError, InvalidInputError, OutputError, invalid
from uniproto.pretraining.corpus import corpus_files, corpus_identity, read_documents
from uniproto.pretraining.token_files import (
    FORMAT,
    HEADER,
    TRAIN,
    VALIDATION,
    TokenFiles,
    load_tokens,
)
from uniproto.pretraining.token_folder import alone_in
from uniproto.pretraining.vocabulary import (
    TOKENIZER,
    USUAL_SIZE,
    Vocabulary,
    learn_vocabulary,
    load_vocabulary,
    save_vocabulary,
)
from uniproto.runs.atomic import atomic_write, write_json
from uniproto.runtime.progress import Progress

_BEGUN = "preparing.json"  # what a tokenizer found beside it was learned for
_AT_ONCE = 4_000_000  # characters encoded in one go: some hundred megabytes of memory
_SPLIT_STREAM = 5  # keeps the draws of the split apart from other draws with the same seed


@dataclass(frozen=True)
class Preparation:
    """What a folder of tokens is made from. None means: whatever a complete folder has.

    >>> Preparation(data="corpus.jsonl").with_defaults().vocab_size
    32000
    """

    data: str | None = None
    column: str | None = None
    tokenizer: str | None = None
    vocab_size: int | None = None
    validation: float | None = None

    def __post_init__(self) -> None:
        if self.tokenizer is not None and self.vocab_size is not None:
            raise invalid(
                "--vocab-size",
                "must be left out where --tokenizer names a tokenizer, which has its own",
                self.vocab_size,
                "Name one of the two.",
            )

    def with_defaults(self) -> Preparation:
        own_size = USUAL_SIZE if self.tokenizer is None else None
        return dataclasses.replace(
            self,
            column=self.column or "text",
            vocab_size=own_size if self.vocab_size is None else self.vocab_size,
            validation=0.05 if self.validation is None else self.validation,
        )


def prepare_tokens(
    folder: str | Path,
    preparation: Preparation,
    seed: int = 0,
    shown: bool | None = None,
    *,
    replace: bool = False,
) -> TokenFiles:
    """The tokens of a corpus: those in the folder, or made there from `preparation.data`.

    A complete folder must have been made from what is asked for; its split stays the one of the
    seed it was made with; with `replace`, one made from something else is made anew. A run killed
    while it prepares leaves no complete folder; the next one keeps the tokenizer, and writes the
    rest anew.
    """
    folder = Path(folder)
    if preparation.data is None:
        tokens = load_tokens(folder)
        _require_same(tokens, preparation)
        return tokens
    try:
        with alone_in(folder):
            made = (folder / HEADER).exists()
            if made and replace and _differences(load_tokens(folder), preparation):
                (folder / HEADER).unlink()
                made = False
            if not made:
                _prepare(folder, preparation.with_defaults(), seed, Progress(shown))
    except OSError as error:
        if isinstance(error, InputFileError):
            raise
        raise OutputError(
            f"{folder}: the tokens must go to a folder that can be written. Writing failed "
            f"({error.strerror or error}). Choose another one with --tokens, or free some space."
        ) from error
    tokens = load_tokens(folder)
    _require_same(tokens, preparation)
    return tokens


def held_out(share: float, seed: int, few: int | None = None) -> Iterator[bool]:
    """For document after document, whether it is held out for validation.

    Of every 1/share documents one is drawn, so that the share is kept in small corpora and in
    every part of a large one. If there are but a `few` documents, fewer than that, one of them is.

    >>> from itertools import islice
    >>> [sum(islice(held_out(0.05, seed), 1000)) for seed in range(3)]
    [50, 50, 50]
    """
    draws = np.random.default_rng([seed, _SPLIT_STREAM])
    cell, document = 0, 0
    drawn = int(draws.random() * (1 / share if few is None else few))
    while True:
        held = document == drawn
        yield held
        if held:
            cell += 1
            drawn = max(document + 1, int((cell + draws.random()) / share))
        document += 1


@dataclass(frozen=True)
class _Corpus:
    """The documents of some files, and which of them are held out."""

    files: list[Path]
    column: str
    share: float  # held out
    seed: int

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.files)

    @cached_property
    def few(self) -> int | None:
        """How many documents there are, where the share alone might hold none of them out."""
        cell = math.ceil(1 / self.share)
        documents = read_documents(self.files, self.column, lambda _: None)
        count = sum(1 for _ in itertools.islice(documents, cell))
        return count if 1 < count < cell else None

    def documents(self, advance: Callable[[int], None]) -> Iterator[tuple[bool, str]]:
        """Whether it is held out, and the text, of one after the other."""
        texts = read_documents(self.files, self.column, advance)
        return zip(
            held_out(self.share, self.seed, self.few), texts, strict=False
        )  # the first has no end

    def training_texts(self, advance: Callable[[int], None]) -> Iterator[str]:
        return (text for held, text in self.documents(advance) if not held)


def _prepare(folder: Path, asked: Preparation, seed: int, progress: Progress) -> None:
    share = asked.validation
    assert share is not None
    if not 0 < share <= 0.5:
        raise invalid(
            "--validation", "must be above 0 and at most 0.5", share, "Pass 0.05 for 5 %."
        )
    corpus = _Corpus(corpus_files(str(asked.data)), str(asked.column), share, seed)
    made_from = {
        "corpus": corpus_identity(corpus.files),
        "column": asked.column,
        "tokenizer": None if asked.tokenizer is None else _tokenizer_identity(asked.tokenizer),
        "vocab_size": asked.vocab_size,
        "validation": share,
        "seed": seed,
    }
    vocabulary = _vocabulary(folder, asked, made_from, corpus, progress)
    dtype = np.dtype(np.uint16 if vocabulary.size <= 2**16 else np.uint32)
    header = {
        "format": FORMAT,
        **made_from,
        "files": [path.name for path in corpus.files],
        "vocab": vocabulary.size,
        "end_of_text": vocabulary.end,
        "dtype": dtype.name,
        **_write_tokens(folder, corpus, vocabulary, dtype, progress),
    }
    write_json(folder / HEADER, header)
    (folder / _BEGUN).unlink(missing_ok=True)


def _write_tokens(
    folder: Path, corpus: _Corpus, vocabulary: Vocabulary, dtype: np.dtype[Any], progress: Progress
) -> dict[str, int]:
    """Encode all documents; how many there were, and how many tokens."""
    documents = {"train": 0, "validation": 0}
    tokens = {"train": 0, "validation": 0}
    with (
        progress.stage("tokens", corpus.size) as advance,
        atomic_write(folder / TRAIN) as train,
        atomic_write(folder / VALIDATION) as validation,
    ):
        for batch in _in_batches(corpus.documents(advance)):
            encoded = vocabulary.encode([text for _, text in batch])
            for (is_held, _), ids in zip(batch, encoded, strict=True):
                part = "validation" if is_held else "train"
                documents[part] += 1
                tokens[part] += len(ids) + 1
                values = np.array([*ids, vocabulary.end], dtype)
                (validation if is_held else train).write(values.tobytes())
    return {f"{part}_documents": count for part, count in documents.items()} | {
        f"{part}_tokens": count for part, count in tokens.items()
    }


def _vocabulary(
    folder: Path,
    asked: Preparation,
    made_from: dict[str, Any],
    corpus: _Corpus,
    progress: Progress,
) -> Vocabulary:
    """The tokenizer asked for; or one that was learned here before; or a new one."""
    if asked.tokenizer is not None:
        vocabulary = load_vocabulary(asked.tokenizer)
        save_vocabulary(vocabulary, folder)
        return vocabulary
    begun = folder / _BEGUN
    if (
        begun.exists()
        and (folder / TOKENIZER).exists()
        and json.loads(begun.read_text(encoding="utf-8")) == made_from
    ):
        return load_vocabulary(folder)
    (folder / TOKENIZER).unlink(missing_ok=True)
    write_json(begun, made_from)
    with progress.stage("tokenizer", corpus.size) as advance:
        told = iter([lambda count: None, advance])  # the first, short look is not worth a bar
        vocabulary = learn_vocabulary(
            lambda: corpus.training_texts(next(told)), int(asked.vocab_size or 0)
        )
    save_vocabulary(vocabulary, folder)
    return vocabulary


def _differences(tokens: TokenFiles, asked: Preparation) -> list[str]:
    """In what a folder was made from something else than what is asked for."""
    wanted = {
        "column": asked.column,
        "tokenizer": None if asked.tokenizer is None else _tokenizer_identity(asked.tokenizer),
        "vocab_size": asked.vocab_size,
        "validation": asked.validation,
        "corpus": None if asked.data is None else corpus_identity(corpus_files(asked.data)),
    }
    return [
        f"{name} = {tokens.header[name]!r} in the folder, {value!r} now"
        for name, value in wanted.items()
        if value is not None and tokens.header[name] != value
    ]


def _require_same(tokens: TokenFiles, asked: Preparation) -> None:
    different = _differences(tokens, asked)
    if different:
        raise InvalidInputError(
            f"{tokens.folder}: the folder must hold tokens made from the same corpus and options. "
            f"Got {'; '.join(different)} instead. Choose another folder with --tokens, or delete "
            "this one."
        )


def _tokenizer_identity(place: str) -> str:
    from uniproto.data.tables import file_digest

    path = Path(place)
    return file_digest(path / TOKENIZER if path.is_dir() else path)


def _in_batches(documents: Iterator[tuple[bool, str]]) -> Iterator[list[tuple[bool, str]]]:
    batch: list[tuple[bool, str]] = []
    characters = 0
    for held, text in documents:
        batch.append((held, text))
        characters += len(text)
        if characters >= _AT_ONCE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch
