"""Rows of a pool that repeat an earlier row.

Two rows are copies where prompts and answers have the same letters and digits; and near-copies
where they have the same numbers, in the same order, and at least 95 % of the runs of three words of
the shorter prompt and of the shorter answer are in the other: that is what remains of a row with
another prefix, suffix or spelling. Runs are weighed by how few rows have them, so that rows with a
passage or a template in common are compared by the rest; where each ends with a sentence that the
other does not have, these must be alike. The same question with another answer is no copy: there is
something else to learn from it.

Of every row nine hashes are kept: of its letters, and of eight of its rarest runs. A million rows
take some hundred megabytes. Rows that have one in common are then compared run by run.
"""

from __future__ import annotations

from array import array
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.lm.curation.overlap import Repeat, last_sentence
from uniproto.lm.curation.words import (
    Batch,
    Hashes,
    WordHashes,
    Words,
    numbers_in,
    prompt_and_answer,
    run_hashes,
)

SAME = "same question and answer"
_RUN = 3  # words
_KEYS = 8  # hashes of a row's runs
_COMPARED = 8  # rows before it with the same hash that a row is compared with
_COPIED = 0.95
_LONGER = 12  # words that one text may have more, or a quarter
_SHARED = 5  # rows whose common text is no evidence by itself
_ADDED = 0.25  # of the rare words of such rows, which one may have more than the other
_SAME_WORDS = 0.7  # of two sentences that ask the same
_BITS = 26  # of the table of counts


class Copies:
    """Finds the rows of a pool that repeat earlier ones.

    Pass all batches of the pool to `count`, then all of them to `look`, then each row of `rows` to
    `keep`.
    """

    def __init__(self, hashes: WordHashes) -> None:
        self._hashes = hashes
        self._counts = np.zeros(2**_BITS, np.uint8)  # about how many rows have a run
        self._keys, self._lengths = array("Q"), array("q")
        self._compared: dict[int, _Compared] = {}

    def count(self, batch: Batch) -> None:
        """Count the runs of some rows."""
        rows, runs = batch.runs(_RUN)
        places = _places(runs)
        order = np.lexsort((places, rows))
        rows, places = rows[order], places[order]
        first = np.ones(len(rows), bool)
        first[1:] = (rows[1:] != rows[:-1]) | (places[1:] != places[:-1])
        found, counts = np.unique(places[first], return_counts=True)
        self._counts[found] = np.minimum(255, self._counts[found] + counts.astype(np.int64))

    @cached_property
    def _pairs(self) -> NDArray[np.int64]:
        """Rows that may be copies, the earlier first."""
        return _candidates(
            np.frombuffer(self._keys, np.uint64), np.frombuffer(self._lengths, np.int64)
        )

    @cached_property
    def rows(self) -> set[int]:
        """The rows to pass to `keep`."""
        return set(np.unique(self._pairs).tolist())

    def keep(self, row: int, example: Any) -> None:
        """Store the words by which a row is compared."""
        self._compared[row] = _Compared(self._hashes, example)

    def found(self) -> list[Repeat]:
        """The rows that repeat an earlier one."""
        different = {each.letters: each for each in self._compared.values()}.values()
        every = np.concatenate([runs for each in different for runs in each.parts] or [_NONE])
        known, shared = np.unique(every, return_counts=True)
        first: dict[int, int] = {}
        for earlier, later in self._pairs.tolist():
            if later in first or earlier in first:
                continue
            if self._compared[later].repeats(self._compared[earlier], known, shared):
                first[later] = earlier
        return [
            Repeat(row, of, SAME, self._compared[row].shown) for row, of in sorted(first.items())
        ]

    def look(self, batch: Batch) -> None:
        """Store the keys of some rows: hashes that copies share."""
        size = len(batch.lengths)
        letters, numbers = np.zeros(size, np.uint64), np.zeros(size, np.uint64)
        for place, (prompt, answer) in enumerate(zip(batch.prompts, batch.answers, strict=True)):
            letters[place] = self._hashes["\n".join(batch.letters[place])]
            numbers[place] = self._hashes[" ".join(numbers_in([*prompt, *answer]))]
        rows, runs = batch.runs(_RUN)
        common = np.searchsorted([_SHARED, 10 * _SHARED], self._counts[_places(runs)])
        order = np.lexsort((runs, common, rows))
        rows, runs = rows[order], runs[order]
        again = np.zeros(len(rows), bool)
        again[1:] = (runs[1:] == runs[:-1]) & (rows[1:] == rows[:-1])
        rows, runs = rows[~again], runs[~again]
        begins = np.searchsorted(rows, np.arange(size))
        few = np.arange(len(rows)) - begins[rows] < _KEYS
        rows, runs = rows[few], runs[few] ^ numbers[rows[few]]
        asked = np.flatnonzero([bool(prompt) for prompt in batch.prompts])
        rows, keys = np.concatenate([rows, asked]), np.concatenate([runs, letters[asked]])
        self._keys.frombytes(keys[np.argsort(rows, kind="stable")].tobytes())
        self._lengths.frombytes(np.bincount(rows, minlength=size).astype(np.int64).tobytes())


_NONE = np.empty(0, np.uint64)


class _Compared:
    """The words of a row, for comparison with others."""

    def __init__(self, hashes: WordHashes, example: Any) -> None:
        batch = hashes.batch([example])
        prompt, answer = batch.prompts[0], batch.answers[0]
        self.letters = batch.letters[0]
        self.numbers = numbers_in([*prompt, *answer])
        self.parts = tuple(_runs(hashes, words) for words in (prompt, answer))
        self.prompt = f" {' '.join(prompt)} "
        self.last = last_sentence(prompt_and_answer(example)[0])
        self.shown = " ".join([*prompt[-20:], *answer[:10]])  # a prompt may begin with a template

    def repeats(self, other: _Compared, known: Hashes, shared: NDArray[np.int64]) -> bool:
        if self.letters == other.letters:
            return True
        if self.numbers != other.numbers or self.asks_otherwise(other):
            return False
        return all(
            _alike(one, another, known, shared)
            for one, another in zip(self.parts, other.parts, strict=True)
        )

    def asks_otherwise(self, other: _Compared) -> bool:
        """Whether both end with a sentence of their own, of which few words are the same."""
        if self.ends_in(other) or other.ends_in(self):
            return False
        same = len({*self.last} & {*other.last})
        return same < _SAME_WORDS * max(len({*self.last}), len({*other.last}))

    def ends_in(self, other: _Compared) -> bool:
        return f" {' '.join(self.last)} " in other.prompt


def _alike(one: Hashes, other: Hashes, known: Hashes, shared: NDArray[np.int64]) -> bool:
    """Whether the runs of the shorter text are in the longer, which is hardly longer."""
    shorter, longer = (one, other) if len(one) <= len(other) else (other, one)
    if len(longer) - len(shorter) > max(_LONGER, len(longer) // 4):
        return False
    if not len(shorter):
        return not len(longer)

    def weights(runs: Hashes) -> NDArray[np.float64]:
        weighed: NDArray[np.float64] = 1 / np.maximum(1, shared[np.searchsorted(known, runs)] - 1)
        return weighed

    common = np.intersect1d(one, other, assume_unique=True)
    held = weights(common).sum()
    if held < _COPIED * weights(shorter).sum():
        return False
    if held * _SHARED >= len(common):  # their own text
        return True
    added = weights(np.setdiff1d(longer, shorter, assume_unique=True)).sum()
    return bool(added <= _ADDED * held)


def _runs(hashes: WordHashes, words: Words) -> Hashes:
    """Every run of three words, or all of a shorter text; each once, in rising order."""
    values = np.array([hashes[word] for word in words], np.uint64)
    return np.unique(run_hashes(values, min(_RUN, len(words))))


def _places(runs: Hashes) -> NDArray[np.intp]:
    return (runs >> np.uint64(64 - _BITS)).astype(np.intp)


def _candidates(hashes: Hashes, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Pairs of rows that have a key in common, the earlier row first, in the order of the later.

    Where many rows have it, each is paired with the first of them and with those just before it.
    """
    order = np.argsort(hashes, kind="stable")
    hashes = hashes[order]
    shared = np.zeros(len(hashes) + 1, bool)
    shared[1:-1] = hashes[1:] == hashes[:-1]
    shared = shared[1:] | shared[:-1]
    rows = np.repeat(np.arange(len(counts)), counts)[order[shared]]
    hashes = hashes[shared]
    place = np.arange(len(hashes))
    begin = np.maximum.accumulate(np.where(np.diff(hashes, prepend=~hashes[:1]) != 0, place, 0))
    found = [np.stack((rows, rows[begin]), axis=1)[place > begin]]
    for back in range(1, _COMPARED + 1):
        here = place[place - back > begin]
        found.append(np.stack((rows[here], rows[here - back]), axis=1))
    return np.unique(np.concatenate(found), axis=0)[:, ::-1]
