"""Make a folder of tokens from a corpus: learn or load a tokenizer, split, encode, write.

Documents are streamed, so that memory does not grow with the corpus. The file that describes the
others is written last and marks a folder as complete. One run at a time prepares a folder; a run
that is refused leaves nothing behind.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.data.tables import file_digest
from uniproto.errors import InvalidInputError, OutputError, UniprotoError
from uniproto.lm.pretraining.corpus import corpus_files, corpus_identity, read_documents
from uniproto.lm.pretraining.pretrain_settings import TokenPreparation
from uniproto.lm.pretraining.tokens import (
    FORMAT,
    HEADER,
    TOKENIZER,
    TOKENIZER_FILES,
    TRAIN,
    VALIDATION,
    TokenFiles,
    Vocabulary,
    learn_vocabulary,
    load_tokens,
    load_vocabulary,
    save_vocabulary,
)
from uniproto.runs.atomic import atomic_write, remove_partials, write_json, writing
from uniproto.runs.folder import differences
from uniproto.runs.lock import locked
from uniproto.runtime.progress import Progress

_BEGUN = "preparing.json"  # the options of an unfinished preparation
_AT_ONCE = 4_000_000  # characters encoded at a time: some hundred megabytes of memory
_SPLIT_STREAM = 5  # makes the split independent of other draws with the same seed


def prepare_tokens(
    folder: str | Path,
    preparation: TokenPreparation,
    seed: int = 0,
    shown: bool | None = None,
    *,
    replace: bool = False,
) -> TokenFiles:
    """The tokens of a corpus: those in the folder, or made there from `preparation.data`.

    A complete folder must have been made from the same corpus and options; it keeps the split of
    the seed it was made with. With `replace`, one made from something else is replaced. After a
    kill, the next run reuses the tokenizer and writes the rest again.
    """
    folder = Path(folder)
    if preparation.data is not None:
        with writing(folder, "the tokens"), exclusive_folder(folder):
            made = (folder / HEADER).exists()
            if made and replace and _differences(load_tokens(folder), preparation):
                write_json(folder / _BEGUN, {})  # marks the other files as ours
                (folder / HEADER).unlink()
                made = False
            if not made:
                _require_own_files(folder)
                _prepare(folder, preparation.with_defaults(), seed, Progress(shown))
    tokens = load_tokens(folder)
    if different := _differences(tokens, preparation):
        raise InvalidInputError(
            f"{folder}: the folder holds tokens made otherwise ({different}). Choose another with "
            "--tokens, or delete this one."
        )
    return tokens


def _require_own_files(folder: Path) -> None:
    """Refuse to overwrite files that this command did not write."""
    if (folder / _BEGUN).exists():
        return
    foreign = [name for name in (*TOKENIZER_FILES, TRAIN, VALIDATION) if (folder / name).exists()]
    if foreign:
        raise OutputError(
            f"{folder}: the folder of tokens must be new, or made by this command. Got a "
            f"{foreign[0]} without {HEADER} instead. Choose another folder with --tokens."
        )


def held_out(share: float, seed: int, few: int | None = None) -> Iterator[bool]:
    """For document after document, whether it is held out for validation.

    One of every 1/share documents is drawn, so that the share holds in small corpora and in every
    part of a large one. If there are fewer, only a `few`, one of them is drawn.

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
        """Each document's text, and whether it is held out."""
        texts = read_documents(self.files, self.column, advance)
        return zip(
            held_out(self.share, self.seed, self.few), texts, strict=False
        )  # the first has no end


def _prepare(folder: Path, options: TokenPreparation, seed: int, progress: Progress) -> None:
    share = options.validation
    assert share is not None
    if not 0 < share <= 0.5:
        raise InvalidInputError(
            "must be above 0 and at most 0.5; pass 0.05 for 5 %.", parameter="validation"
        )
    corpus = _Corpus(corpus_files(str(options.data)), str(options.column), share, seed)
    made_from = {**_made_from(options), "seed": seed}
    vocabulary = _vocabulary(folder, options, made_from, corpus, progress)
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
    """Encode all documents; returns the numbers of documents and of tokens."""
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
    options: TokenPreparation,
    made_from: dict[str, Any],
    corpus: _Corpus,
    progress: Progress,
) -> Vocabulary:
    """The tokenizer of this folder; if there is none, the given one, or a new one."""
    begun = folder / _BEGUN
    if (
        begun.exists()
        and (folder / TOKENIZER).exists()
        and json.loads(begun.read_text(encoding="utf-8")) == made_from
    ):
        return load_vocabulary(folder)
    (folder / TOKENIZER).unlink(missing_ok=True)
    write_json(begun, made_from)
    if options.tokenizer is not None:
        vocabulary = load_vocabulary(options.tokenizer)
    else:
        with progress.stage("tokenizer", corpus.size) as advance:
            callbacks = iter([lambda count: None, advance])  # no bar for the short first pass

            def texts() -> Iterator[str]:
                documents = corpus.documents(next(callbacks))
                return (text for held, text in documents if not held)

            vocabulary = learn_vocabulary(texts, int(options.vocab_size or 0))
    save_vocabulary(vocabulary, folder)
    return vocabulary


def _differences(tokens: TokenFiles, options: TokenPreparation) -> str:
    """The given options that differ from those of the folder of tokens."""
    wanted = {name: value for name, value in _made_from(options).items() if value is not None}
    return differences({name: tokens.header[name] for name in wanted}, wanted)


def _made_from(options: TokenPreparation) -> dict[str, Any]:
    """The part of the header that says what tokens are made from."""
    tokenizer = None if options.tokenizer is None else Path(options.tokenizer)
    if tokenizer is not None and tokenizer.is_dir():
        tokenizer /= TOKENIZER
    return {
        "corpus": None if options.data is None else corpus_identity(corpus_files(options.data)),
        "column": options.column,
        "tokenizer": None if tokenizer is None else file_digest(tokenizer),
        "vocab_size": options.vocab_size,
        "validation": options.validation,
    }


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


@contextmanager
def exclusive_folder(folder: Path) -> Iterator[None]:
    """Hold a folder that several runs may prepare at once: one does, the others wait.

    The folder is created if necessary; a run that is refused leaves nothing in it.
    """
    with locked(folder, "a preparation", wait=math.inf):
        remove_partials(folder)
        before = set(folder.iterdir())
        try:
            yield
        except UniprotoError:
            for file in set(folder.iterdir()) - before:
                file.unlink()
            raise
