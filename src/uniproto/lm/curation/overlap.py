"""Rows of a pool whose words are those of a benchmark or a target, whatever a model makes of them.

What must not be trained on is a benchmark's text. Two texts are compared by their words (letters
and digits, without case, accents and punctuation), prompts with prompts, answers with answers:

- Prompts with the same letters and digits are the same, however they are spaced and punctuated.
- A short prompt (fewer than 26 words) is found again where the numbers are the same, in the same
  order, and at least 80 % of its runs of five words.
- A long prompt or answer is found again where all its numbers and at least 80 % of its runs of 13
  words are.

Numbers must agree because many questions, generated ones above all, differ in nothing else.

The runs of the benchmark are held in a dictionary and the pool passes by once: counts are exact,
and memory does not grow with the pool. MinHash would estimate the same counts, in more time.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.examples import as_text
from uniproto.problem.near import NearRows

Words = list[str]
Run = tuple[str, ...]
Repeated = tuple[int, int, str]  # a row of the pool, the row that it repeats, and in what
_WORD = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")
_LONG_RUN, _SHORT_RUN = 13, 5
_LONG = 2 * _LONG_RUN  # words of a text that is compared by long runs
_SHARE = 0.8


def words_of(text: str) -> Words:
    """The words and numbers of a text, without case, accents and punctuation.

    >>> words_of("Solve: x² + 1.5 = Élan!")
    ['solve', 'x', '2', '1.5', 'elan']
    """
    if not text.isascii():
        apart = unicodedata.normalize("NFKD", text)
        text = "".join(each for each in apart if not unicodedata.combining(each))
    return _WORD.findall(text.lower())


class Overlap:
    """Finds the rows of a pool that repeat prompts or answers of a reference.

    >>> reference = Overlap([("What is 3 + 4?", "7")])
    >>> pool = [("please solve: what is 3 + 4", "It is 7."), ("What is 3 + 5?", "8")]
    >>> list(reference.matches(pool))
    [(0, 0, 'same prompt')]
    """

    def __init__(self, examples: Iterable[tuple[str, str]]) -> None:
        self._letters: dict[str, int] = {}  # prompts without anything between letters and digits
        self._short: dict[Run, list[tuple[int, frozenset[Run]]]] = defaultdict(list)  # by numbers
        self._runs: dict[str, dict[Run, list[int]]] = {"prompt": {}, "answer": {}}
        self._needs: dict[str, dict[int, tuple[float, Counter[str]]]] = {"prompt": {}, "answer": {}}
        for number, (prompt, answer) in enumerate(examples):
            words = words_of(prompt)
            if words:
                self._letters.setdefault(letters_in(words), number)
            if len(words) >= _LONG:
                self._add_long("prompt", number, words)
            elif words:
                self._short[numbers_in(words)].append((number, frozenset(_runs(words, _SHORT_RUN))))
            answered = words_of(answer)
            if len(answered) >= _LONG:
                self._add_long("answer", number, answered)

    def _add_long(self, part: str, number: int, words: Words) -> None:
        runs = set(_runs(words, _LONG_RUN))
        self._needs[part][number] = (_SHARE * len(runs), Counter(numbers_in(words)))
        for run in runs:
            self._runs[part].setdefault(run, []).append(number)

    def matches(self, pool: Iterable[tuple[str, str]]) -> Iterator[Repeated]:
        """Each row that repeats something, with the first thing found."""
        for row, (prompt, answer) in enumerate(pool):
            words = words_of(prompt)
            found = self._letters.get(letters_in(words))
            if found is None:
                found = self._short_match(words)
            if found is None:
                found = self._long_match("prompt", words)
            if found is not None:
                yield row, found, "same prompt"
                continue
            if self._runs["answer"]:
                found = self._long_match("answer", words_of(answer))
                if found is not None:
                    yield row, found, "same answer"

    def _short_match(self, words: Words) -> int | None:
        candidates = self._short.get(numbers_in(words))
        if not candidates:
            return None
        text = f" {' '.join(words)} "
        for number, runs in candidates:
            there = sum(f" {' '.join(run)} " in text for run in runs)
            if there >= _SHARE * len(runs):
                return number
        return None

    def _long_match(self, part: str, words: Words) -> int | None:
        known = self._runs[part]
        if len(words) < _LONG_RUN or not known:
            return None
        there: Counter[int] = Counter()
        for run in known.keys() & set(_runs(words, _LONG_RUN)):
            there.update(known[run])
        numbers = Counter(numbers_in(words)) if there else Counter()
        for number, seen in there.most_common():
            runs, its_numbers = self._needs[part][number]
            if seen >= runs and its_numbers <= numbers:
                return number
        return None


def letters_of(text: str) -> str:
    """The letters and digits of a text: texts that differ in other things have the same.

    >>> letters_of("What is 1.5 + 2?") == letters_of("what is 15 2")
    True
    """
    return letters_in(words_of(text))


def letters_in(words: Words) -> str:
    return "".join(words).replace(".", "").replace(",", "")


def numbers_in(words: Words) -> Run:
    return tuple(word for word in words if word[0].isdigit())


def _runs(words: Words, length: int) -> Iterator[Run]:
    """All runs of so many words; of a shorter text, the text itself."""
    for start in range(max(1, len(words) - length + 1)):
        yield tuple(words[start : start + length])


def repeated_rows(pool: Iterable[Any], others: Iterable[Any]) -> NearRows:
    """The examples of a pool that repeat others: which, which of them, and in what.

    >>> found = repeated_rows(["A b.", "c"], ["a, b!"])
    >>> found.rows, found.why
    (array([0]), ('same prompt',))
    """
    reference = Overlap(map(prompt_and_answer, others))
    return _near_rows(list(reference.matches(map(prompt_and_answer, pool))))


def prompt_and_answer(example: Any) -> tuple[str, str]:
    """What is asked and what is answered; a plain text is asked and not answered.

    >>> prompt_and_answer([{"role": "user", "content": "1 + 1?"}]), prompt_and_answer(("Hi", "Yes"))
    (('1 + 1?', ''), ('Hi', 'Yes'))
    """
    if isinstance(example, tuple):
        prompt, answer = example[0], example[-1]
        return str(prompt or ""), str(answer or "")
    if isinstance(example, list):
        said = [each for each in example if isinstance(each, Mapping)]
        answers = [each for each in said if each.get("role") == "assistant"]
        asked = [each for each in said if each.get("role") == "user"]
        return str(as_text(asked)), str(as_text(answers))
    return str(example or ""), ""


def _near_rows(found: Sequence[Repeated]) -> NearRows:
    """Rows that repeat others, for what drops rows near to others."""
    rows, of = (np.array([each[place] for each in found], np.intp) for place in (0, 1))
    why = tuple(each[2] for each in found)
    return NearRows(0.0, rows, of, distances=np.full(len(found), np.nan), why=why)


# --- copies inside a pool -------------------------------------------------------------------------
#
# Two rows are copies where prompts and answers have the same letters and digits; and near-copies
# where they have the same numbers, in the same order, and at least 95 % of the runs of three words
# of the shorter prompt and of the shorter answer are in the other: that is what remains of a row
# with another prefix, suffix or spelling. The same question with another answer is no copy: there
# is something else to learn from it.
#
# Of every row nine hashes are kept: of its letters, and the eight smallest of its runs. A million
# rows take tens of megabytes. Rows that have one in common are then compared run by run.


Hashes = NDArray[np.uint64]
_RUN = 3  # words
_KEPT = 8  # hashes of a row's runs
_COMPARED = 8  # rows before it with the same hash that a row is compared with
_COPIED = 0.95
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
    return _near_rows([(row, of, "same prompt and answer") for row, of in first.items()])


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
    return common >= _COPIED * shorter if shorter else longer == 0
