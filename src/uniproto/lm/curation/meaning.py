"""Rows of a pool that ask what a benchmark asks, in other words.

A prompt is compared by what is its own: sentences that many rows have (templates, worked examples,
passages) are left out. Two prompts ask the same where they hold the same numbers, in digits or in
words, and their sentence embeddings have a cosine of at least 0.8; without numbers at least 0.9,
since different questions about one passage resemble each other, and 0.78 if there is no question
mark either. The thresholds were measured by `python -m benchmarks leaks`. Questions that differ in
a number are different ones, so that only rows with the numbers of some question need a vector. A
sentence model does not see every operator of a formula.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.lm.curation.overlap import Repeat
from uniproto.lm.curation.words import WordHashes, numbers_in, prompt_and_answer, words_of

MEANING = "same meaning"
_WITH_NUMBERS, _QUESTION, _OTHER = 0.8, 0.9, 0.78  # least cosines
_COMMON = 3  # times as many rows as the rarest sentence of a prompt
_LONGEST = 128  # words that are compared, from the end: what sentence models read
_FEWEST = 3  # words to compare
_SENTENCES = re.compile(r"(?<=[.?!])\s+|\n+")
_BITS = 26  # of the table of counts
_PAIRS_AT_ONCE = 2**24

Embed = Callable[[Sequence[str]], NDArray[np.float32]]
Numbers = tuple[str, ...]


def same_meaning(
    pool: Iterable[Any], reference: Iterable[Any], embed: Embed, *, but: Collection[int] = ()
) -> list[Repeat]:
    """The rows that ask what a row of the reference asks; those of `but` are not looked at.

    Both are iterated twice. `embed` returns vectors of length 1.

    >>> axis = lambda texts: np.eye(2)[[int("many" in text) for text in texts]]
    >>> pool = [("Ann has two cats. How many?", ""), ("Ann has 3 cats. How many?", "")]
    >>> same_meaning(pool, [("How many cats are Ann's 2?", "2")], axis)
    [Repeat(row=0, of=0, rule='same meaning', words='Ann has two cats. How many?')]
    """
    counts = _Counts()
    for examples in (reference, pool):
        for example in examples:
            counts.add(example)
    asked: dict[Numbers, list[tuple[int, str]]] = defaultdict(list)
    for of, example in enumerate(reference):
        if own := counts.own(example):
            asked[_numbers(own)].append((of, own))
    rows: dict[Numbers, list[tuple[int, str]]] = defaultdict(list)
    for row, example in enumerate(pool):
        if row in but or not (own := counts.own(example)):
            continue
        if (numbers := _numbers(own)) in asked:
            rows[numbers].append((row, own))
    texts = dict.fromkeys(text for some in (asked, rows) for key in rows for _, text in some[key])
    place = {text: number for number, text in enumerate(texts)}
    vectors = embed(list(texts)) if texts else np.empty((0, 1), np.float32)
    found = []
    for numbers, those in rows.items():
        questions = asked[numbers]
        against = vectors[[place[text] for _, text in questions]]
        step = max(1, _PAIRS_AT_ONCE // len(questions))
        for begin in range(0, len(those), step):
            some = those[begin : begin + step]
            cosines = vectors[[place[text] for _, text in some]] @ against.T
            nearest = cosines.argmax(axis=1)
            least = [_least(numbers, text) for _, text in some]
            enough = cosines.max(axis=1) >= np.array(least, np.float32)
            found += [
                Repeat(some[at][0], questions[nearest[at]][0], MEANING, some[at][1])
                for at in np.flatnonzero(enough)
            ]
    return sorted(found, key=lambda each: each.row)


def sentence_vectors(texts: Sequence[str], **options: Any) -> NDArray[np.float32]:
    """Sentence embeddings of length 1; `options` are those of `embed_text`."""
    from uniproto.features.text import embed_text

    vectors = embed_text(texts, **options).vectors
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _least(numbers: Numbers, text: str) -> float:
    return _WITH_NUMBERS if numbers else _QUESTION if "?" in text else _OTHER


def _numbers(text: str) -> Numbers:
    """The numbers of a text in rising order, without 1, which is often no number ("this one")."""
    return tuple(sorted(number for number in numbers_in(words_of(text)) if number != "1"))


class _Counts:
    """About how many rows have each sentence."""

    def __init__(self) -> None:
        self._hashes = WordHashes()
        self._table = np.zeros(2**_BITS, np.uint16)

    def add(self, example: Any) -> None:
        places = np.unique(self._places(_sentences(example)))
        self._table[places] += self._table[places] < np.iinfo(np.uint16).max

    def own(self, example: Any) -> str:
        """The sentences of a prompt that are not common, as far as a model reads them."""
        sentences = _sentences(example)
        if not sentences:
            return ""
        counts = self._table[self._places(sentences)].astype(np.int64)
        own = np.flatnonzero(counts < _COMMON * counts.min())
        words = " ".join(sentences[at] for at in own).split()[-_LONGEST:]
        return " ".join(words) if len(words) >= _FEWEST else ""

    def _places(self, sentences: list[str]) -> NDArray[np.intp]:
        values = [self._hashes[" ".join(words_of(sentence))] for sentence in sentences]
        return (np.array(values, np.uint64) >> np.uint64(64 - _BITS)).astype(np.intp)


def _sentences(example: Any) -> list[str]:
    """The sentences and lines of a prompt that have words."""
    prompt, _ = prompt_and_answer(example)
    return [each for each in _SENTENCES.split(prompt) if each and words_of(each)]
