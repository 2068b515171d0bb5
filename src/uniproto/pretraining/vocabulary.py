"""The tokenizer: given, or a byte-level BPE learned from the corpus."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, MissingExtraError, invalid
from uniproto.runs.atomic import write_text

try:
    import tokenizers
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Pretraining", "jax") from error

TOKENIZER = "tokenizer.json"
END_OF_TEXT = "<|endoftext|>"
USUAL_SIZE = 32_000
# What tokenizers call the token that ends a text, where no configuration says it.
_USUAL_ENDS = (END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "<|im_end|>", "[SEP]")
_LEAST_SIZE = 320  # every byte, the end of a text, and some merges
_TEXT_PER_TOKEN = 64  # characters of corpus that a token of the vocabulary needs to be learned


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
        """Token numbers are below this."""
        return 1 + max(self.tokenizer.get_vocab(with_added_tokens=True).values())

    def encode(self, texts: list[str]) -> list[list[int]]:
        """The tokens of every text, without special ones; on all cores."""
        found = self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [each.ids for each in found]

    def decode(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False))


def learn_vocabulary(documents: Callable[[], Iterator[str]], size: int) -> Vocabulary:
    """A byte-level BPE of at most `size` tokens: every text can be written with it.

    A small corpus has not enough text to learn many tokens from, and rare tokens would only make
    the model larger: it gets one token per 64 characters.
    """
    if size < _LEAST_SIZE - 63:
        raise invalid(
            "--vocab-size",
            f"must be at least {_LEAST_SIZE - 63}: one for every byte, and the end of a text",
            size,
            f"{USUAL_SIZE:,} is usual.",
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
    return _ready(tokenizer, END_OF_TEXT)


def load_vocabulary(place: str | Path) -> Vocabulary:
    """A tokenizer.json, or a folder with one (and with tokenizer_config.json, if there is one)."""
    path = Path(place)
    file = path / TOKENIZER if path.is_dir() else path
    if not file.is_file():
        raise InputFileError(
            f"{place}: the tokenizer must be a {TOKENIZER}, or a folder with one. Got none there "
            "instead. Check the path; tokenizer.save_pretrained of transformers writes one."
        )
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare exceptions
        raise InputFileError(
            f"{file}: the file must hold a tokenizer of the library tokenizers. It could not be "
            f"read ({str(error).splitlines()[0]}). Check that it is complete."
        ) from error
    end = _configured_end(file.parent / "tokenizer_config.json")
    known = tokenizer.get_vocab(with_added_tokens=True)
    for name in (end, *_USUAL_ENDS):
        if name in known:
            return _ready(tokenizer, name)
    raise invalid(
        "--tokenizer",
        f"must have a token that ends a text, such as {END_OF_TEXT}",
        f"{file.name} without one",
        "Name it as eos_token in a tokenizer_config.json beside it.",
    )


def save_vocabulary(vocabulary: Vocabulary, folder: Path) -> None:
    """Write tokenizer.json, and which token ends a text, each file complete or not at all."""
    end = vocabulary.tokenizer.id_to_token(vocabulary.end)
    contents = {
        "tokenizer_config.json": json.dumps({"eos_token": end}, ensure_ascii=False) + "\n",
        TOKENIZER: vocabulary.tokenizer.to_str(pretty=True),
    }
    for name, content in contents.items():
        write_text(folder / name, content)


def _ready(tokenizer: Any, end: str) -> Vocabulary:
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
