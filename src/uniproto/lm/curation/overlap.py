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

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from uniproto.data.examples import as_text
from uniproto.problem.near import NearRows

Words = list[str]
Run = tuple[str, ...]
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


@dataclass(frozen=True)
class Match:
    """A row of the pool, the row of the reference that it repeats, and in what."""

    row: int
    of: int
    part: str  # "prompt" or "answer"


class Overlap:
    """Finds the rows of a pool that repeat prompts or answers of a reference.

    >>> reference = Overlap([("What is 3 + 4?", "7")])
    >>> pool = [("please solve: what is 3 + 4", "It is 7."), ("What is 3 + 5?", "8")]
    >>> list(reference.matches(pool))
    [Match(row=0, of=0, part='prompt')]
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

    def matches(self, pool: Iterable[tuple[str, str]]) -> Iterator[Match]:
        """Each row that repeats something, with the first thing found."""
        for row, (prompt, answer) in enumerate(pool):
            words = words_of(prompt)
            found = self._letters.get(letters_in(words))
            if found is None:
                found = self._short_match(words)
            if found is None:
                found = self._long_match("prompt", words)
            if found is not None:
                yield Match(row, found, "prompt")
                continue
            if self._runs["answer"]:
                found = self._long_match("answer", words_of(answer))
                if found is not None:
                    yield Match(row, found, "answer")

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
        for run in set(_runs(words, _LONG_RUN)):
            there.update(known.get(run, ()))
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
    return _as_rows(Overlap(map(prompt_and_answer, others)).matches(map(prompt_and_answer, pool)))


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


def _as_rows(matches: Iterable[Match]) -> NearRows:
    found = list(matches)
    return found_rows(
        [match.row for match in found],
        [match.of for match in found],
        tuple(f"same {match.part}" for match in found),
    )


def found_rows(rows: Sequence[int], of: Sequence[int], why: tuple[str, ...]) -> NearRows:
    """Rows that repeat others, for what drops rows near to others."""
    return NearRows(
        distance=0.0,
        rows=np.array(rows, np.intp),
        nearest=np.array(of, np.intp),
        distances=np.full(len(rows), np.nan),
        why=why,
    )
