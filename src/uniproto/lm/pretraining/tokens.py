"""The tokenizer, files of tokens, and the sequences read from them.

A folder of tokens is made once from a corpus (`preparation.py`), mapped into memory, and shared by
any number of runs. It holds `train.bin` and `validation.bin` (the tokens of all documents one after
another, each followed by the end-of-text token), `tokenizer.json`, and `tokens.json`, which
describes them and is written last: a folder without it is incomplete. Sequences are cut when they
are read, so that one folder serves any length.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from uniproto.errors import InputFileError, InvalidInputError
from uniproto.lm.pretraining.pretrain_settings import VOCAB_SIZE
from uniproto.runs.atomic import write_text

HEADER, TRAIN, VALIDATION = "tokens.json", "train.bin", "validation.bin"
FORMAT = 1
TOKENIZER = "tokenizer.json"
TOKENIZER_FILES = ("tokenizer_config.json", TOKENIZER)
END_OF_TEXT = "<|endoftext|>"
# Usual names of the end-of-text token, for tokenizers without a configuration.
_USUAL_ENDS = (END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]")
_LEAST_SIZE = 320  # all bytes, the end-of-text token, and some merges
_TEXT_PER_TOKEN = 64  # characters of the corpus per token of a new vocabulary
_IDENTITY = ("corpus", "column", "tokenizer", "vocab", "validation", "seed", "train_tokens")
_AHEAD = 2  # batches read while a step runs


@dataclass(frozen=True)
class Vocabulary:
    """A tokenizer and the token that ends a text.

    >>> v = learn_vocabulary(lambda: iter(["the cat sat on the mat. " * 40] * 20), 300)
    >>> v.encode(["the cat"])[0] == v.encode(["the cat"])[0], v.decode(v.encode(["the cat"])[0])
    (True, 'the cat')
    """

    tokenizer: Any
    end: int

    @property
    def size(self) -> int:
        """Token ids are below this."""
        return 1 + max(self.tokenizer.get_vocab(with_added_tokens=True).values())

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The tokens of every text, without special ones; on all cores."""
        found = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [each.ids for each in found]

    def decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False))


def learn_vocabulary(documents: Callable[[], Iterator[str]], size: int) -> Vocabulary:
    """A byte-level BPE of at most `size` tokens: every text can be written with it.

    A small corpus does not have enough text for many tokens: the vocabulary has at most one token
    per 64 characters.
    """
    if size < _LEAST_SIZE - 63:
        raise InvalidInputError(
            f"must be at least {_LEAST_SIZE - 63}, one for every byte and the end of "
            f"a text; {VOCAB_SIZE:,} is usual.",
            parameter="vocab_size",
        )
    characters = 0
    for document in documents():
        characters += len(document)
        if characters >= size * _TEXT_PER_TOKEN:
            break
    size = min(size, max(_LEAST_SIZE, characters // _TEXT_PER_TOKEN // 64 * 64))
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(documents(), trainer)
    return _vocabulary(tokenizer, END_OF_TEXT)


def load_vocabulary(place: str | Path) -> Vocabulary:
    """A tokenizer.json, or a folder with one (and with tokenizer_config.json, if there is one)."""
    path = Path(place)
    file = path / TOKENIZER if path.is_dir() else path
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare exceptions
        raise InputFileError(
            f"{file}: the tokenizer could not be read ({str(error).splitlines()[0]}). Name a "
            "complete tokenizer.json; tokenizer.save_pretrained of transformers writes one."
        ) from error
    end = _configured_end(file.parent / "tokenizer_config.json")
    known = tokenizer.get_vocab(with_added_tokens=True)
    for name in (end, *_USUAL_ENDS):
        if name in known:
            return _vocabulary(tokenizer, name)
    raise InvalidInputError(
        f"{file.name} has no token that ends a text, such as {END_OF_TEXT}. Name it as "
        "eos_token in a tokenizer_config.json next to it.",
        parameter="tokenizer",
    )


def save_vocabulary(vocabulary: Vocabulary, folder: Path) -> None:
    """Write tokenizer.json, and which token ends a text, each file complete or not at all."""
    end = vocabulary.tokenizer.id_to_token(vocabulary.end)
    config = json.dumps({"eos_token": end}, ensure_ascii=False) + "\n"
    contents = (config, vocabulary.tokenizer.to_str(pretty=True))
    for name, content in zip(TOKENIZER_FILES, contents, strict=True):
        write_text(folder / name, content)


def _vocabulary(tokenizer: Any, end: str) -> Vocabulary:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # a text that holds "<|endoftext|>" does not end there
    return Vocabulary(tokenizer, tokenizer.token_to_id(end))


def _configured_end(path: Path) -> str | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8")).get("eos_token")
    except (OSError, ValueError, AttributeError):
        return None
    return found.get("content") if isinstance(found, dict) else found


@dataclass(frozen=True)
class TokenFiles:
    """A complete folder of tokens."""

    folder: Path
    header: dict[str, Any]

    @property
    def vocab(self) -> int:
        return int(self.header["vocab"])

    def identity(self) -> dict[str, Any]:
        """What makes two runs see the same tokens."""
        return {name: self.header[name] for name in _IDENTITY}

    def sequences(self, part: str, length: int) -> Sequences:
        """The sequences of `train.bin` or `validation.bin`."""
        return Sequences(self.folder / part, np.dtype(self.header["dtype"]), length)


def load_tokens(folder: str | Path) -> TokenFiles:
    """A folder of tokens that is complete."""
    folder = Path(folder)
    try:
        header = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        if header["format"] != FORMAT:
            raise ValueError(f"{HEADER} must be of format {FORMAT}")
        itemsize = np.dtype(header["dtype"]).itemsize
        for name, count in (
            (TRAIN, header["train_tokens"]),
            (VALIDATION, header["validation_tokens"]),
        ):
            if (folder / name).stat().st_size != count * itemsize:
                raise ValueError(f"{name} has another size than {count:,} tokens")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputFileError(
            f"{folder}: no complete folder of tokens ({error}). Name the corpus with --data "
            "to prepare it; delete a damaged folder first."
        ) from error
    return TokenFiles(folder, header)


class Sequences:
    """A file of tokens as sequences of length + 1: the last token is only predicted.

    Sequence i begins where the predictions of the one before it end, so every token but the first
    is predicted once. The rest at the end, shorter than a sequence, is dropped.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], length: int) -> None:
        self.length = length
        size = path.stat().st_size // dtype.itemsize
        # An empty file cannot be mapped.
        self.tokens = np.memmap(path, dtype, mode="r") if size else np.empty(0, dtype)

    def __len__(self) -> int:
        return max(0, (len(self.tokens) - 1) // self.length)

    def read(self, numbers: NDArray[np.int64]) -> NDArray[np.int32]:
        """int32[number of sequences, length + 1]."""
        places = numbers[:, None] * self.length + np.arange(self.length + 1)
        return self.tokens[places].astype(np.int32)


def batch_numbers(step: int, size: int, count: int, seed: int) -> NDArray[np.int64]:
    """The sequences of a step's batch: those of `count` in an order drawn again for every epoch.

    A function of the step and the seed only, so that a resumed run sees the same batches.

    >>> batch_numbers(0, 4, 6, seed=0), batch_numbers(1, 4, 6, seed=0)
    (array([3, 2, 5, 4]), array([0, 1, 1, 4]))
    """
    places = step * size + np.arange(size)
    return np.array([_epoch_order(int(p) // count, count, seed)[int(p) % count] for p in places])


@lru_cache(maxsize=2)  # a batch may reach from one epoch into the next
def _epoch_order(epoch: int, count: int, seed: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, epoch]).permutation(count)


def read_ahead(
    sequences: Sequences, steps: range, size: int, seed: int
) -> Iterator[NDArray[np.int32]]:
    """The batches of these steps in order, read by a thread while earlier ones are used."""

    def read(step: int) -> NDArray[np.int32]:
        return sequences.read(batch_numbers(step, size, len(sequences), seed))

    waiting: deque[Future[NDArray[np.int32]]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="batches") as reader:
        for step in steps:
            waiting.append(reader.submit(read, step))
            if len(waiting) > _AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
