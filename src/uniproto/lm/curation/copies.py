"""Copies and near-copies inside a pool, by their words.

Two rows are copies where prompts and answers have the same letters and digits; and near-copies
where they have the same numbers, in the same order, and at least 95 % of the runs of three words of
the shorter prompt and of the shorter answer are in the other: that is what remains of a row with
another prefix, suffix or spelling. The same question with another answer is no copy: there is
something else to learn from it.

Of every row nine hashes are kept: of its letters, and the eight smallest of its runs. A million
rows take tens of megabytes. Rows that have one in common are then compared run by run.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.lm.curation.overlap import (
    Words,
    found_rows,
    letters_in,
    numbers_in,
    prompt_and_answer,
    words_of,
)
from uniproto.problem.near import NearRows

Hashes = NDArray[np.uint64]
_RUN = 3  # words
_KEPT = 8  # hashes of a row's runs
_COMPARED = 8  # rows before it with the same hash that a row is compared with
_SHARE = 0.95
_LONGER = 12  # words that one text may have more, or a quarter
_MOST_WORDS = 2**20  # remembered
_ODD = 0x9E3779B97F4A7C15  # spreads the bits of a product


def repeated_in_itself(pool: Iterable[Any]) -> NearRows:
    """The rows of a pool that an earlier one says in the same words, more or less.

    `pool` is gone through twice.

    >>> pool = [("What is 3 + 4?", "7"), ("Please solve: what is 3 + 4", "7."), ("Why?", "7")]
    >>> found = repeated_in_itself(pool)
    >>> found.rows, found.nearest
    (array([1]), array([0]))
    """
    hashed = _Hashed()
    keys, counts = array("Q"), array("q")
    for example in pool:
        found = _keys(hashed, *_words(example))
        keys.frombytes(found.tobytes())
        counts.append(len(found))
    pairs = _candidates(np.frombuffer(keys, np.uint64), np.frombuffer(counts, np.int64))
    wanted = set(np.unique(pairs).tolist())
    compared = {
        row: _Compared(hashed, *_words(example))
        for row, example in enumerate(pool if wanted else ())
        if row in wanted
    }
    first: dict[int, int] = {}
    for earlier, later in pairs.tolist():
        if later in first or earlier in first:
            continue
        if compared[later].repeats(compared[earlier]):
            first[later] = earlier
    return found_rows(list(first), list(first.values()), ("same prompt and answer",) * len(first))


class _Hashed:
    """Words and their runs as numbers, the same on every machine."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def runs(self, words: Words) -> Hashes:
        """Every run of so many words, or all of a shorter text; each once, in rising order."""
        hashes = np.array([self.text(word) for word in words], np.uint64)
        count = max(1, len(hashes) - _RUN + 1) if words else 0
        total = np.zeros(count, np.uint64)
        for place in range(min(_RUN, len(hashes))):
            total = total * np.uint64(_ODD) + hashes[place : place + count]
        total = (total ^ (total >> np.uint64(31))) * np.uint64(_ODD)
        return np.unique(total ^ (total >> np.uint64(29)))

    def text(self, text: str) -> int:
        known = self._known.get(text)
        if known is None:
            digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            known = int.from_bytes(digest, "little")
            if len(self._known) < _MOST_WORDS and len(text) < 32:
                self._known[text] = known
        return known


class _Compared:
    """What two rows are compared by."""

    def __init__(self, hashed: _Hashed, prompt: Words, answer: Words) -> None:
        self.letters = _letters(prompt, answer)
        self.numbers = numbers_in([*prompt, *answer])
        self.parts = (hashed.runs(prompt), hashed.runs(answer))

    def repeats(self, other: _Compared) -> bool:
        if self.letters == other.letters:
            return True
        return self.numbers == other.numbers and all(map(_alike, self.parts, other.parts))


def _words(example: Any) -> tuple[Words, Words]:
    prompt, answer = prompt_and_answer(example)
    return words_of(prompt), words_of(answer)


def _letters(prompt: Words, answer: Words) -> str:
    return f"{letters_in(prompt)}\n{letters_in(answer)}"


def _keys(hashed: _Hashed, prompt: Words, answer: Words) -> Hashes:
    """What a row has in common with its copies: its letters, or its numbers and a few runs."""
    if not prompt:
        return np.empty(0, np.uint64)
    letters = np.uint64(hashed.text(_letters(prompt, answer)))
    numbers = np.uint64(hashed.text(" ".join(numbers_in([*prompt, *answer]))))
    return np.append(hashed.runs(prompt)[:_KEPT] ^ numbers, letters)


def _candidates(hashes: Hashes, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pairs of rows that have a key in common, the earlier row first, in the order of the later.

    Where many rows have it, each is paired with the first of them and with those just before it.
    """
    rows = np.repeat(np.arange(len(counts)), counts)
    order = np.lexsort((rows, hashes))
    hashes, rows = hashes[order], rows[order]
    place = np.arange(len(hashes))
    begin = np.maximum.accumulate(np.where(np.diff(hashes, prepend=~hashes[:1]) != 0, place, 0))
    found = [np.stack((rows, rows[begin]), axis=1)[place > begin]]
    for back in range(1, _COMPARED + 1):
        here = place[place - back > begin]
        found.append(np.stack((rows[here], rows[here - back]), axis=1))
    return np.unique(np.concatenate(found), axis=0)[:, ::-1]


def _alike(one: Hashes, other: Hashes) -> bool:
    """Whether the runs of the shorter text are in the longer, which is hardly longer."""
    shorter, longer = sorted((len(one), len(other)))
    if longer - shorter > max(_LONGER, longer // 4):
        return False
    common = len(np.intersect1d(one, other, assume_unique=True))
    return common >= _SHARE * shorter if shorter else longer == 0
