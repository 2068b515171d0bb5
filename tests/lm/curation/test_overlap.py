"""Rows that repeat a benchmark are found by their words, and other rows are left alone."""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from uniproto.lm.curation.overlap import Overlap, repeated_in_itself, repeated_rows

Example = tuple[str, str]
MATH = Path(__file__).parents[4] / "shared" / "data" / "math" / "math_train.jsonl.zst"
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)

EDITS: dict[str, Callable[[str, str], Example]] = {
    "exact": lambda prompt, answer: (prompt, answer),
    "no punctuation": lambda prompt, answer: (prompt.translate(_NO_PUNCTUATION), answer),
    "other punctuation": lambda prompt, answer: (
        prompt.replace(",", " ;").replace("?", "!"),
        answer,
    ),
    "case": lambda prompt, answer: (prompt.upper(), answer),
    "prefix": lambda prompt, answer: (f"Please solve: {prompt}", answer),
    "suffix": lambda prompt, answer: (f"{prompt} Show your work step by step.", answer),
    "reworded answer": lambda prompt, answer: (prompt, f"After some thought: {answer[::-1]}"),
    "another answer": lambda prompt, answer: (prompt, "42"),
}


def questions(count: int) -> list[Example]:
    """Generated questions of a few forms, which differ in their numbers and names alone."""
    draw = random.Random(0)
    forms = (
        "What is {a} + {b}?",
        "Solve {a}*x - {b} = {c} for x.",
        "{name} has {a} apples and gives {b} to each of {c} friends. How many apples are left?",
        "Let f(x) = {a}x^2 - {b}x + {c}. What is the derivative of f at x = {d}, rounded to two "
        "places after the decimal point, if {name} computes it by hand with all steps written out?",
    )
    found = {}
    while len(found) < count:
        numbers = {key: draw.randint(2, 10_000) for key in "abcd"}
        prompt = draw.choice(forms).format(name=draw.choice(["Ann", "Bob", "Cleo"]), **numbers)
        found[prompt] = str(draw.randint(0, 999))
    return list(found.items())


@pytest.mark.parametrize("edit", EDITS)
def test_every_edit_of_a_benchmark_is_found(edit: str) -> None:
    reference = questions(400)
    planted = [EDITS[edit](*example) for example in reference[:100]]
    assert [of for _, of, _ in Overlap(reference).matches(planted)] == list(range(100))


def test_other_questions_of_the_same_form_are_left_alone() -> None:
    every = questions(4_000)
    assert list(Overlap(every[:1_000]).matches(every[1_000:])) == []


def test_a_long_answer_is_found_under_another_prompt() -> None:
    answer = " ".join(f"step {n} adds {n * n} to the sum" for n in range(12))
    found = repeated_rows(
        [("Another question?", f"Well, {answer}!"), ("Yes?", "42")], [("Q", answer)]
    )
    assert found.rows.tolist() == [0]
    assert found.why == ("same answer",)


def test_rows_of_the_pool_that_repeat_each_other() -> None:
    chat = [{"role": "user", "content": "Hi!"}, {"role": "assistant", "content": "Hello."}]
    pool = [("1 + 1?", "2"), ("1+1", "2."), ("1 + 1?", "two"), chat, ("hi", "hello"), None, ""]
    found = repeated_in_itself(pool)
    assert (found.rows.tolist(), found.nearest.tolist()) == ([1, 4], [0, 3])


COPIES = [name for name in EDITS if not name.endswith("answer")]


@pytest.mark.parametrize("edit", COPIES)
def test_every_edit_of_a_row_of_the_pool_is_found(edit: str) -> None:
    pool = questions(400)
    copies = [EDITS[edit](*example) for example in pool[:100]]
    found = repeated_in_itself([*copies, *pool])
    assert (found.rows - 100).tolist() == found.nearest.tolist() == list(range(100))


def test_other_answers_and_other_questions_of_one_form_are_no_copies() -> None:
    pool = questions(4_000)
    others = [(prompt, f"{answer} apples") for prompt, answer in pool[:100]]
    assert len(repeated_in_itself([*pool, *others])) == 0


def test_what_is_inside_a_long_text_is_no_copy_of_it() -> None:
    sentence = "the rain in spain stays mainly in the plain"
    long = f"{sentence} " + " ".join(f"{word} and so on" for word in "abcdefghijkl")
    assert len(repeated_in_itself([sentence, long, f"Indeed: {sentence}"])) == 1


def test_instructions_that_differ_in_a_word_of_their_input_are_no_copies() -> None:
    form = "Say whether the following review of a film that somebody wrote is kind or unkind: {}"
    pool = [(form.format(word), "kind") for word in ("lovely", "brilliant", "a joy to watch")]
    assert len(repeated_in_itself(pool)) == 0


def test_rows_are_numbered_by_those_that_are_kept() -> None:
    found = repeated_rows(["a b", "c d", "e f"], ["e f", "c d"]).only(np.array([0, 2]))
    assert (found.rows.tolist(), found.nearest.tolist(), len(found.why)) == ([1], [0], 1)


@pytest.mark.slow
@pytest.mark.skipif(not MATH.exists(), reason="needs the mathematics of the shared data")
def test_real_mathematics() -> None:
    """At least 95 % of every class are found, at most 0.1 % of the clean rows are lost."""
    text = pa.input_stream(str(MATH), compression="zstd").read().decode()
    by_source: dict[str, list[Example]] = {}
    for line in filter(None, text.split("\n")):
        row = json.loads(line)
        by_source.setdefault(row["source"], []).append((row["instruction"], row["output"]))
    draw = random.Random(0)
    found, lost, clean = dict.fromkeys(EDITS, 0), 0, 0
    copies = dict.fromkeys(COPIES, 0)
    for examples in by_source.values():
        draw.shuffle(examples)
        overlap = Overlap(examples[:100])
        for name, edit in EDITS.items():
            found[name] += len(list(overlap.matches(edit(*each) for each in examples[:20])))
        pool, others = examples[:300], examples[100:3_100]
        own = len(repeated_in_itself(pool))
        for name in COPIES:
            planted = [EDITS[name](*each) for each in pool[:20]]
            copies[name] += len(repeated_in_itself([*pool, *planted])) - own
        lost += len(list(overlap.matches(others)))
        clean += len(others)
    assert min([*found.values(), *copies.values()]) >= 0.95 * 20 * len(by_source)
    assert lost <= 0.001 * clean
