"""Rows of a pool that repeat a benchmark or a target in words, found without a model.

What must not be trained on is a benchmark's question. Instruction data share text: templates,
system prompts, worked examples, passages. A stretch of words that many rows of the benchmark or of
the pool have is no evidence, and is taken out; what is left of a prompt is its question. It is
looked for in the whole of an example, prompt and answer, by runs of five words (letters and digits,
without case, accents and punctuation). A row repeats a question, or a long answer, where

- its prompt has the same letters and digits; or
- it holds 80 % of the runs of the question, every number of it (many questions differ in nothing
  else), and all of it but a few words in a row; or
- it is itself such a part of the benchmark's example.

The pool is read three times: to count the runs of the reference, to find rows that may repeat
something by a few runs of each question, and to compare those rows.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.lm.curation.words import (
    Batch,
    Hashes,
    WordHashes,
    Words,
    numbers_in,
    prompt_and_answer,
    run_hashes,
    words_of,
)

RUN, _SHORTEST = 5, 3  # words
_SHARE, _APART = 0.8, 0.5  # of the runs; where every word is there, in pieces
_GAP = 4  # words in a row that may be missing
_LONG = 26  # words of an answer that is looked for, and of a text whose ends may be missing
_SHORT = 8  # words of a question that must be a sentence of its own, with no other numbers
_TINY = 5  # words of a question that needs the text around it
_PART = 13  # words of a question that a row is a part of
_SENTENCE = 30  # words of a sentence that is taken whole where little of it is not common
_AROUND = 6  # words that a sentence may have around a short question
# Common text: at least eight words, in three times as many rows of the reference as what is left,
# or in five times as many rows of the pool, but no fewer than twenty.
_COMMON_WORDS, _OF_REFERENCE, _OF_POOL, _FEW = 8, 3, 5, 20
_AFFIX = 0.5  # of all prompts that begin or end with the same word, which says nothing then
_ANCHORS = 24  # runs of a question by which it is looked for
_QUESTION, _ANSWER, _INSIDE = "same question", "same answer", "part of the example"
_NO_END = "".join(rf"(?<!\b{word})" for word in ("St", "Mr", "Ms", "Mrs", "Dr"))
_SENTENCES = re.compile(_NO_END + r"[.:;?!]+(?=\s|$)|\n+|\((?=[^\W\d]{2})|(?<=[^\W\d])\)")


@dataclass(frozen=True)
class Repeat:
    """A row of the pool, the row of a reference that it repeats, by which rule, in what words."""

    row: int
    of: int
    rule: str
    words: str = ""


@dataclass(frozen=True)
class _Own:
    """The part of a prompt or an answer that is not common text: stretches of words."""

    of: int  # the row of the reference
    rule: str
    stretches: list[Words]
    anchors: int = 0  # how many runs it is looked for by
    step: int = 1  # and one of how many each is

    def __len__(self) -> int:
        return sum(map(len, self.stretches))


class Reference:
    """The examples that no row of a pool may repeat.

    Pass all batches of the pool to `count`, then all of them to `look`; `judge` returns what each
    row of `rows` repeats.
    """

    def __init__(self, examples: Iterable[Any], hashes: WordHashes) -> None:
        self._hashes = hashes
        examples = [prompt_and_answer(example) for example in examples]
        self._starts = [_sentence_starts(prompt) for prompt, _ in examples]
        batch = hashes.batch(examples)
        self._prompts, self._answers = batch.prompts, batch.answers
        self._letters: dict[str, list[int]] = {}  # of prompts
        for number, (prompt, _) in enumerate(batch.letters):
            if prompt:
                self._letters.setdefault(prompt, []).append(number)
        texts, runs = batch.runs(RUN)
        self._runs, ids = np.unique(runs, return_inverse=True)
        counts = np.bincount(texts, minlength=len(batch.lengths))
        self._ids = np.split(ids, np.cumsum(counts)[:-1])  # of each text, in order
        pairs = np.unique(texts * max(1, len(self._runs)) + ids)
        self._in_reference = np.bincount(pairs % max(1, len(self._runs)), minlength=len(self._runs))
        self._in_pool = np.zeros(len(self._runs), np.int64)
        self._known = _Known(self._runs)
        self._same: dict[int, str] = {}  # rows whose prompt is one of the reference's
        self._times: Counter[str] = Counter()
        self._owns: list[_Own] = []
        self._anchors: dict[int, _Known] = {}  # by the length of runs
        self._holders: dict[int, list[list[int]]] = {}  # places in _owns, of each anchor
        self._likely: dict[int, list[int]] = {}  # of a row, places in _owns

    # --- first: how many rows of the pool have each run ----------------------------------------

    def count(self, batch: Batch) -> None:
        """Count the runs of some rows."""
        for row, (prompt, _) in enumerate(batch.letters, batch.first):
            if prompt in self._letters:
                self._same[row] = prompt
                self._times[prompt] += 1
        rows, ids = self._known.among(*batch.runs(RUN))
        if len(ids):
            keys = np.unique(rows * len(self._runs) + ids)
            self._in_pool += np.bincount(keys % len(self._runs), minlength=len(self._runs))

    # --- then: rows that may repeat something ---------------------------------------------------

    def look(self, batch: Batch) -> None:
        """Look for a few runs of each question in some rows."""
        if not self._owns:
            self._prepare()
        seen: Counter[tuple[int, int]] = Counter()
        for length, anchors in self._anchors.items():
            rows, ids = anchors.among(*batch.runs(length))
            for row, place in {*zip(rows.tolist(), ids.tolist(), strict=True)}:
                seen.update((row, own) for own in self._holders[length][place])
        for (row, place), times in seen.items():
            own = self._owns[place]
            is_part = 2 * (times + 1) * own.step >= batch.lengths[row] - RUN
            if 3 * times >= own.anchors or is_part:
                self._likely.setdefault(batch.first + row, []).append(place)

    def _prepare(self) -> None:
        """Find what is each text's own, and the runs by which it is looked for."""
        first, last = (_common_ends(self._prompts, end) for end in (0, -1))
        self._end = re.compile(
            rf"\W*\b{' '.join(last[::-1])}\W*$".replace(" ", r"\W+"), re.IGNORECASE
        )
        owns: list[_Own] = []
        for number, (prompt, answer) in enumerate(zip(self._prompts, self._answers, strict=True)):
            ids, size = self._ids[number], len(prompt)
            begin = next(
                (at for at, word in enumerate(prompt) if word not in first[at : at + 1]), 0
            )
            end = next(
                (at for at, word in enumerate(reversed(prompt)) if word not in last[at : at + 1]), 0
            )
            bare = np.zeros(size, bool)
            bare[:begin], bare[size - end :] = True, True
            asked = self._own(prompt, ids[: max(0, size - RUN + 1)], bare, self._starts[number])
            answered = self._own(answer, ids[size:], np.zeros(len(answer), bool))
            enough = _LONG if sum(map(len, asked)) >= _TINY else _SHORT
            owns.append(_Own(number, _QUESTION, asked))
            # An answer that is quoted from a passage is found wherever the passage is.
            quoted = answer and _found(prompt, _runs(answer)).mean() >= _APART
            if sum(map(len, answered)) >= enough and not quoted:
                owns.append(_Own(number, _ANSWER, answered))
        self._anchor(owns)

    def _own(
        self,
        words: Words,
        ids: NDArray[np.intp],
        bare: NDArray[np.bool_],
        starts: tuple[int, ...] = (),
    ) -> list[Words]:
        """The stretches of a text that are not common; `bare` are words that say nothing.

        Where a sentence starts just before, common text and sentence begin with the same words.
        """
        ends = bare
        if len(ids):
            in_reference, in_pool = self._in_reference[ids], self._in_pool[ids]
            most = max(_FEW / 2, 0.01 * len(self._prompts))
            shared = (in_reference > most) | (in_pool >= _FEW)
            common = (in_reference >= _OF_REFERENCE * in_reference.min()) & (in_reference > 1)
            common |= shared & (in_reference >= _OF_REFERENCE)
            bare = bare | _long_stretches(common, len(words))
            inside = ~np.convolve(bare, np.ones(RUN, bool), "valid").astype(bool)
            if inside.any():
                lowest = 1 + in_pool[inside].min()
                common = inside & (in_pool >= max(_FEW, _OF_POOL * lowest))
                bare = bare | _long_stretches(common, len(words))
        for begin, end in _stretches(~bare):
            first = max((at for at in starts if at <= begin), default=begin)
            last = min((at for at in starts if at >= end), default=end)
            most = _SENTENCE if end - begin < _SHORT else end - begin + RUN - 1
            if last - first <= most:
                bare[first:last] = False
        own = [(begin, end) for begin, end in _stretches(~(bare | ends))]
        if own and starts:  # the last sentence by itself: what is asked of a passage
            begin, end = own.pop()
            at = max(begin, max((at for at in starts if at < end), default=begin))
            own += [(begin, at), (at, end)] if at > begin else [(begin, end)]
        return [words[begin:end] for begin, end in own]

    def _anchor(self, owns: list[_Own]) -> None:
        """Choose the runs by which each text is looked for: of its rarest ones, here and there."""
        runs: list[list[tuple[int, int]]] = []
        for own in owns:
            length = RUN if len(own) >= _PART else _SHORTEST
            least = min(_SHORTEST, len(own)) if _is_number(own.stretches) else _SHORTEST
            long = [words for words in own.stretches if len(words) >= least]
            every = [run for words in long for run in _runs(words, length)]
            runs.append([(len(run), _hash(self._hashes, run)) for run in every])
        held = Counter(run for these in runs for run in set(these))
        holders: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for place, (own, these) in enumerate(zip(owns, runs, strict=True)):
            lowest = min((held[run] for run in these), default=0)
            rare = [run for run in these if held[run] <= 2 * lowest]
            step = -(-len(rare) // _ANCHORS) or 1
            for size, run in set(rare[::step]):
                holders[size][run].append(place)
            anchors = len(set(rare[::step]))
            self._owns.append(replace(own, anchors=anchors, step=-(-len(these) // max(1, anchors))))
        for size, known in holders.items():
            order = sorted(known)
            self._anchors[size] = _Known(np.array(order, np.uint64))
            self._holders[size] = [known[run] for run in order]

    # --- last: those rows are compared -----------------------------------------------------------

    @property
    def rows(self) -> set[int]:
        """The rows to pass to `judge`."""
        return {*self._same, *self._likely}

    @cached_property
    def _questions(self) -> dict[int, list[Words]]:
        return {own.of: own.stretches for own in self._owns if own.rule == _QUESTION}

    def judge(self, row: int, example: Any) -> Repeat | None:
        """What a row repeats, if anything."""
        if row in self._same and (of := self._same_prompt(self._same[row])) is not None:
            asked = [*chain(*self._questions[of])]
            return Repeat(row, of, _QUESTION, _shown(asked or self._prompts[of]))
        likely = [self._owns[place] for place in self._likely.get(row, ())]
        if not likely:
            return None
        prompt, answer = prompt_and_answer(example)
        text = self._end.sub("", prompt), answer
        words = [*words_of(text[0]), *words_of(text[1])]
        for own in likely:
            if (held := self._holds(words, text, own)) is not None:
                return Repeat(row, own.of, own.rule, _shown(held))
        for own in likely:
            if (held := self._is_part(words, own, text[0])) is not None:
                return Repeat(row, own.of, _INSIDE, _shown(held))
        return None

    def _same_prompt(self, letters: str) -> int | None:
        """A prompt is no question where rows of the reference with other answers have it, too, and
        many of the pool."""
        of = self._letters[letters]
        differ = len({tuple(self._answers[number]) for number in of}) > 1
        return None if differ and self._times[letters] > _FEW else of[0]

    def _holds(self, words: Words, text: tuple[str, str], own: _Own) -> Words | None:
        """The words that a row holds of what is a text's own, if they are enough."""
        size = len(own)
        if size < _SHORT:
            texts = (*text, " ".join(text))
            enough = size >= _SHORTEST or _is_number(own.stretches)
            if not enough or not any(_asks(part, own.stretches) for part in texts):
                return None
            asked = [*chain(*own.stretches)]
            around = _runs([*self._prompts[own.of], *self._answers[own.of]])
            alone = size >= _TINY or bool(numbers_in(asked)) or len(around) <= size
            return asked if alone or _found(words, around).mean() >= 0.5 else None
        there = [_found(words, _runs(stretch)) for stretch in own.stretches]
        held: Words = []
        last = own.stretches[-1] if own.rule == _QUESTION else None
        for stretch, found in zip(own.stretches, there, strict=True):
            missing = ~_covered(found, len(stretch))
            if not _may_miss(stretch, missing, ends=size >= _LONG and stretch is not last):
                return None
            held += [word for word, gone in zip(stretch, missing, strict=True) if not gone]
        share = sum(map(np.sum, there)) / sum(map(len, there))
        return held if share >= (_APART if len(held) == size else _SHARE) else None

    def _is_part(self, words: Words, own: _Own, prompt: str) -> Words | None:
        """The words of a row that is itself, nearly all of it, in an example of the reference.

        Its last sentence must be, which may be a question about a passage that both have.
        """
        if len(words) < _PART or len(own) < _PART:
            return None
        whole = [*self._prompts[own.of], *self._answers[own.of]]
        found = _found(whole, _runs(words))
        missing = ~_covered(found, len(words))
        if found.mean() < _SHARE or not _may_miss(words, missing, ends=False):
            return None
        asked = len(words_of(prompt))
        if missing[asked - len(last_sentence(prompt)) : asked].any():
            return None
        its_own = sum(
            int(_covered(_found(words, _runs(stretch)), len(stretch)).sum())
            for stretch in own.stretches
        )
        return words if its_own >= max(_PART, _SHARE * len(words)) else None


class _Known:
    """A set of runs, found among many."""

    def __init__(self, runs: Hashes) -> None:
        self._runs = runs  # in rising order
        self._maybe = np.zeros(2**20, bool)
        self._maybe[_top(runs)] = True

    def among(
        self, rows: NDArray[np.int64], runs: Hashes
    ) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Which rows have a run of the set, and its place in it."""
        maybe = self._maybe[_top(runs)]
        rows, runs = rows[maybe], runs[maybe]
        if not len(runs):
            return rows, rows.astype(np.intp)
        places = np.minimum(np.searchsorted(self._runs, runs), len(self._runs) - 1)
        known = self._runs[places] == runs
        return rows[known], places[known]


def _top(runs: Hashes) -> NDArray[np.intp]:
    return (runs >> np.uint64(44)).astype(np.intp)


def _hash(hashes: WordHashes, words: Words) -> int:
    values = np.array([hashes[word] for word in words], np.uint64)
    return int(run_hashes(values, len(words))[0])


def _runs(words: Words, length: int = RUN) -> list[Words]:
    """All runs of `length` words; of a shorter text, the text itself."""
    return [words[at : at + length] for at in range(max(1, len(words) - length + 1))]


def _found(words: Words, runs: list[Words]) -> NDArray[np.bool_]:
    """Which runs are among the words."""
    text = f" {' '.join(words)} "
    return np.array([f" {' '.join(run)} " in text for run in runs], bool)


def _covered(found: NDArray[np.bool_], length: int) -> NDArray[np.bool_]:
    """Which of `length` words are in a run that was found.

    >>> _covered(np.array([True, False, False]), 7).tolist()
    [True, True, True, True, True, False, False]
    """
    return np.convolve(found, np.ones(min(RUN, length), bool)).astype(bool)[:length]


def _may_miss(words: Words, missing: NDArray[np.bool_], *, ends: bool) -> bool:
    """Whether a text without these words is still itself: no number, and few in a row."""
    places = np.flatnonzero(missing)
    if any(words[at][0].isdigit() for at in places):
        return False
    if not ends and (missing[:2].any() or missing[-2:].any()):
        return False
    return all(end - begin <= _GAP for begin, end in _stretches(missing))


def _stretches(marked: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where stretches that are true begin and end.

    >>> _stretches(np.array([True, False, True, True]))
    [(0, 1), (2, 4)]
    """
    steps = np.diff(np.concatenate(([0], marked.astype(np.int8), [0])))
    begins, ends = np.flatnonzero(steps > 0).tolist(), np.flatnonzero(steps < 0).tolist()
    return list(zip(begins, ends, strict=True))


def _long_stretches(common: NDArray[np.bool_], length: int) -> NDArray[np.bool_]:
    """The words of a text in long series of common runs, which are no phrase."""
    marked = np.zeros(length, bool)
    for begin, end in _stretches(common):
        if end - begin + RUN - 1 >= _COMMON_WORDS:
            marked[begin : end + RUN - 1] = True
    return marked


def _common_ends(texts: list[Words], end: int) -> Words:
    """The words that most texts begin with (`end` 0) or, from behind, end with (-1).

    >>> _common_ends([["q", "why", "is", "a"], ["q", "who", "was", "a"], list("qxya")], -1)
    ['a']
    """
    found: Words = []
    texts = [text for text in texts if len(text) > 3]
    while len(found) < 3 and len(texts) >= 3:
        at = len(found) if end == 0 else -1 - len(found)
        word, count = Counter(text[at] for text in texts).most_common(1)[0]
        if count <= _AFFIX * len(texts):
            break
        found.append(word)
        texts = [text for text in texts if text[at] == word]
    return found


def _is_number(stretches: list[Words]) -> bool:
    """Whether a text is nothing but two numbers or more, as sums are."""
    words = [*chain(*stretches)]
    return len(words) > 1 and len(numbers_in(words)) == len(words)


def _shown(words: Words, most: int = 30) -> str:
    return " ".join(words[:most])


def _sentence_starts(text: str) -> tuple[int, ...]:
    """The words that sentences start with, by number, and the number of words."""
    lengths = [len(words_of(part)) for part in _SENTENCES.split(text)]
    return tuple(np.cumsum([0, *lengths]).tolist())


def last_sentence(text: str) -> Words:
    """The words of the last sentence: of a text about a passage, what is asked.

    >>> last_sentence("Ann has a cat. Who has a cat?\\n")
    ['who', 'has', 'a', 'cat']
    """
    sentences = filter(None, map(words_of, reversed(_SENTENCES.split(text))))
    return next(sentences, [])


def _asks(text: str, question: list[Words]) -> bool:
    """Whether some sentences ask a short question, and have no other numbers and few other words.

    >>> _asks("Exercise 12 on page 7: what is 3 + 4?", [["what", "is", "3", "4"]])
    True
    >>> _asks("What is 3 + 4 + 5?", [["what", "is", "3", "4"]])
    False
    """
    asked = [*chain(*question)]
    if not all(_found(words_of(text), question)):
        return False
    sentences = [words_of(part) for part in _SENTENCES.split(text)]
    for begin in range(len(sentences)):
        window: Words = []
        for sentence in sentences[begin : begin + 4]:
            window = [*window, *sentence]
            if len(window) > len(asked) + _AROUND:
                break
            if numbers_in(window) == numbers_in(asked) and all(_found(window, question)):
                return True
    return False
