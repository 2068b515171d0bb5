"""The words of examples, and runs of them as numbers, many examples at a time."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.examples import as_text
from uniproto.lm.features.number_words import in_digits

Words = list[str]
Hashes = NDArray[np.uint64]
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")
_EXAMPLES_AT_ONCE = 1024
_MOST_WORDS = 2**20  # remembered
_ODD = np.uint64(0x9E3779B97F4A7C15)  # spreads the bits of a product


def words_of(text: str) -> Words:
    """The words and numbers of a text, without case, accents and punctuation; numbers in digits.

    >>> words_of("Solve: x² + 1.5 = Élan!"), words_of("twenty-five boys and one girl")
    (['solve', 'x', '2', '1.5', 'elan'], ['25', 'boys', 'and', '1', 'girl'])
    """
    return in_digits(_spelled(text))


def _spelled(text: str) -> Words:
    """The words of a text as they are written."""
    if not text.isascii():
        apart = unicodedata.normalize("NFKD", text)
        text = "".join(each for each in apart if not unicodedata.combining(each))
    return _WORD.findall(text.lower())


def letters_of(text: str) -> str:
    """The letters and digits of a text: texts that differ in other things have the same.

    >>> letters_of("What is 1.5 + 2?") == letters_of("what is 15 2")
    True
    """
    return _letters_in(_spelled(text))


def _letters_in(words: Words) -> str:
    return "".join(words).replace(".", "").replace(",", "")


def numbers_in(words: Words) -> tuple[str, ...]:
    return tuple([word for word in words if word < ":"])


def prompt_and_answer(example: Any) -> tuple[str, str]:
    """What is asked and what is answered; a plain text is asked and not answered.

    >>> prompt_and_answer([{"role": "user", "content": "1 + 1?"}]), prompt_and_answer(("Hi", "Yes"))
    (('1 + 1?', ''), ('Hi', 'Yes'))
    """
    if isinstance(example, tuple):
        prompt, answer = example[0], example[-1]
        return str(prompt or ""), str(answer or "")
    if isinstance(example, list):
        turns = [each for each in example if isinstance(each, Mapping)]
        answers = [each for each in turns if each.get("role") == "assistant"]
        asked = [each for each in turns if each.get("role") != "assistant"]
        return str(as_text(asked)), str(as_text(answers))
    return str(example or ""), ""


@dataclass(frozen=True)
class Batch:
    """The words of some examples, and their hashes one after another."""

    first: int  # the number of its first example
    prompts: list[Words]
    answers: list[Words]
    letters: list[tuple[str, str]]  # of prompt and answer
    hashes: Hashes
    lengths: NDArray[np.int64]

    def runs(self, length: int) -> tuple[NDArray[np.int64], Hashes]:
        """All runs of `length` words: the example that each is in, from 0, and its hash."""
        found = run_hashes(self.hashes, length)
        rows = np.repeat(np.arange(len(self.lengths)), self.lengths)
        inside = rows[: len(found)] == rows[len(rows) - len(found) :]
        return rows[: len(found)][inside], found[inside]


def run_hashes(words: Hashes, length: int) -> Hashes:
    """The hash of every run of `length` words."""
    count = max(0, len(words) - length + 1)
    total = np.full(count, length, np.uint64)
    for place in range(length):
        total = total * _ODD + words[place : place + count]
    total = (total ^ (total >> np.uint64(31))) * _ODD
    return total ^ (total >> np.uint64(29))


class WordHashes(dict[str, int]):
    """The hash of each word, the same on every machine."""

    def __missing__(self, word: str) -> int:
        digest = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        found = int.from_bytes(digest, "little")
        if len(self) < _MOST_WORDS and len(word) < 32:
            self[word] = found
        return found

    def batch(self, examples: Iterable[Any], first: int = 0) -> Batch:
        texts = [tuple(map(_spelled, prompt_and_answer(example))) for example in examples]
        letters = [(_letters_in(prompt), _letters_in(answer)) for prompt, answer in texts]
        prompts, answers = ([in_digits(text[part]) for text in texts] for part in (0, 1))
        every = chain.from_iterable(chain.from_iterable(zip(prompts, answers, strict=True)))
        hashes = np.fromiter(map(self.__getitem__, every), np.uint64)
        lengths = [len(one) + len(other) for one, other in zip(prompts, answers, strict=True)]
        return Batch(first, prompts, answers, letters, hashes, np.array(lengths, np.int64))

    def batches(self, examples: Iterable[Any]) -> Iterator[Batch]:
        remaining, first = iter(examples), 0
        while some := list(islice(remaining, _EXAMPLES_AT_ONCE)):
            yield self.batch(some, first)
            first += len(some)
