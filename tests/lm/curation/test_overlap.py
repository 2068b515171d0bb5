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

from uniproto.lm.curation.curate import as_near_rows
from uniproto.lm.curation.repeats import repeats

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
    "numbers before": lambda prompt, answer: (f"Exercise 12 from page 7. {prompt}", answer),
    "numbers after": lambda prompt, answer: (f"{prompt} (exercise 12 from page 7)", answer),
    "in the answer": lambda prompt, answer: ("Write a question.", f"Sure: {prompt} So: {answer}"),
}


def repeated(pool, reference):
    return repeats(pool, [reference])[0]


def copies(pool):
    return repeats(pool, itself=True)[0]


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
    assert [found.of for found in repeated(planted, reference)] == list(range(100))


def test_other_questions_of_the_same_form_are_left_alone() -> None:
    every = questions(4_000)
    assert repeated(every[1_000:], every[:1_000]) == []


def test_a_long_answer_is_found_under_another_prompt() -> None:
    answer = " ".join(f"step {n} adds {n * n} to the sum" for n in range(12))
    (found,) = repeated(
        [("Another question?", f"Well, {answer}!"), ("Yes?", "42")], [("Q", answer)]
    )
    assert (found.row, found.rule) == (0, "same answer")
    assert found.words.startswith("step 0 adds 0 to the sum step 1")


def test_rows_of_the_pool_that_repeat_each_other() -> None:
    chat = [{"role": "user", "content": "Hi!"}, {"role": "assistant", "content": "Hello."}]
    pool = [("1 + 1?", "2"), ("1+1", "2."), ("1 + 1?", "a pair"), chat, ("hi", "hello"), None, ""]
    assert [(found.row, found.of) for found in copies(pool)] == [(1, 0), (4, 3)]


COPIES = [name for name in EDITS if not name.endswith("answer") and "numbers" not in name]


@pytest.mark.parametrize("edit", COPIES)
def test_every_edit_of_a_row_of_the_pool_is_found(edit: str) -> None:
    pool = questions(400)
    edited = [EDITS[edit](*example) for example in pool[:100]]
    found = copies([*edited, *pool])
    assert [(one.row - 100, one.of) for one in found] == [(n, n) for n in range(100)]


def test_other_answers_and_other_questions_of_one_form_are_no_copies() -> None:
    pool = questions(4_000)
    others = [(prompt, f"{answer} apples") for prompt, answer in pool[:100]]
    assert copies([*pool, *others]) == []


def test_what_is_inside_a_long_text_is_no_copy_of_it() -> None:
    sentence = "the rain in spain stays mainly in the plain"
    long = f"{sentence} " + " ".join(f"{word} and so on" for word in "abcdefghijkl")
    assert len(copies([sentence, long, f"Indeed: {sentence}"])) == 1


def test_instructions_that_differ_in_a_word_of_their_input_are_no_copies() -> None:
    form = "Say whether the following review of a film that somebody wrote is kind or unkind: {}"
    pool = [(form.format(word), "kind") for word in ("lovely", "brilliant", "a joy to watch")]
    assert copies(pool) == []


def test_matches_among_the_rows_that_are_kept() -> None:
    found = as_near_rows(repeated(["a b", "c d", "e f"], ["e f", "c d"])).only(np.array([0, 2]))
    assert (found.rows.tolist(), found.nearest.tolist(), found.words) == ([2], [0], ("e f",))


# --- shared text is no evidence -------------------------------------------------------------------

WORDS = [
    f"{first}{rest}" for first in "bdfgklmnprst" for rest in ("ale", "ine", "oth", "under", "ays")
]


def sentences(count: int, length: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=length)) for _ in range(count)]


def shared_text(length: int) -> str:
    return sentences(1, length, seed=9)[0] + ".\n\n"


@pytest.mark.parametrize("length", [10, 20, 30, 40, 156, 300])
@pytest.mark.parametrize("targets", [3, 30])
def test_rows_under_one_template_differ(length: int, targets: int) -> None:
    template = shared_text(length)
    asked = [(f"{template}{text}?", "yes") for text in sentences(targets, 10, seed=1)]
    others = [(f"{template}{text}?", "yes") for text in sentences(300, 10, seed=2)]
    assert repeated(others, asked) == copies(others) == []
    planted = [(f"{template}Well: {asked[n][0][len(template) :]}", "no") for n in range(3)]
    planted += [("Write one.", asked[n][0][len(template) :]) for n in range(3)]
    found = repeated([*others, *planted], asked)
    assert [one.of for one in found if one.row >= 300] == [0, 1, 2, 0, 1, 2]
    assert len(found) == 6


def test_questions_about_one_passage_differ() -> None:
    passages = sentences(12, 200, seed=3)
    asked = [
        (f"{passages[n % 12]}.\n\nWho is {text}?", "x")
        for n, text in enumerate(sentences(60, 6, 4))
    ]
    others = [
        (f"{passages[n % 12]}.\n\nWho is {text}?", "x")
        for n, text in enumerate(sentences(60, 6, 5))
    ]
    assert repeated(others, asked) == []
    assert copies([*asked, *others]) == []
    planted = [(prompt.partition("\n\n")[2], "x") for prompt, _ in asked]
    assert [one.of for one in repeated([*others, *planted], asked)] == list(range(60))


def test_a_passage_that_a_benchmark_has_once_is_no_evidence() -> None:
    passages = sentences(12, 200, seed=3)
    who = sentences(36, 6, seed=4)
    # An answer that quotes the passage is found wherever the passage is.
    answers = [" ".join(passage.split()[20:60]) for passage in passages]
    asked = [(f"{passages[n]}.\n\nWho is {who[n]}?", answers[n]) for n in range(12)]
    others = [(f"{passages[n % 12]}.\n\nWho is {who[n]}?", "x") for n in range(12, 36)]
    assert repeated(others, asked) == []
    planted = [(f"{passages[n]}.\n\nWell: who is {who[n]}?", "x") for n in range(12)]
    assert [one.of for one in repeated([*others, *planted], asked)] == list(range(12))


def test_questions_about_one_passage_with_one_answer_are_no_copies() -> None:
    passage = sentences(1, 200, seed=3)[0]
    pool = [(f"{passage}.\n\nWho is {text}?", "Ann") for text in sentences(3, 6, seed=4)]
    assert copies(pool) == []
    assert [one.of for one in copies([*pool, (f"{pool[0][0]} Think hard.", "Ann")])] == [0]


def test_the_words_of_a_repeated_question_are_its_own() -> None:
    template = "You are a kind teacher who answers every question of the pupils in one short line. "
    asked = [f"{template}Which animal of the {place} sleeps at night?" for place in PLACES]
    pool = [(question, "owl") for question in asked]
    (found,) = repeats(pool, [[(question, "cat") for question in asked]])
    assert [one.words for one in found] == [f"which animal of the {place}" for place in PLACES]


PLACES = ("forest", "desert", "river", "mountain", "island", "valley", "meadow")


def test_worked_examples_before_a_question_are_no_evidence() -> None:
    shots = "".join(f"Q: {text}?\nA: yes\n\n" for text in sentences(8, 12, seed=6))
    asked = [(f"{shots}Q: {text}?\nA:", "yes") for text in sentences(40, 12, seed=7)]
    others = [(f"{shots}Q: {text}?\nA:", "yes") for text in sentences(400, 12, seed=8)]
    assert repeated(others, asked) == []
    planted = [(prompt.replace(shots, "Please: "), "no") for prompt, _ in asked]
    assert [one.of for one in repeated([*others, *planted], asked)] == list(range(40))


def test_a_question_is_found_across_prompt_and_answer_and_as_a_part() -> None:
    first, last = sentences(2, 14, seed=11)
    reference = [(f"{first}. {last}?", "no idea")]
    assert len(repeated([(f"{first}.", f"{last}? Hm.")], reference)) == 1
    (part,) = repeated(
        [sentences(1, 40, seed=12)[0]], [(sentences(1, 40, seed=12)[0] + " " + first, "")]
    )
    assert part.rule == "part of the example"


def test_numbers_as_words_are_numbers() -> None:
    question = "Ann has {} red apples and gives {} of them to Bob who is late; how many are left?"
    reference = [(question.format(25, 3), "22")]
    assert len(repeated([(f"So: {question.format('twenty-five', 'three')}", "")], reference)) == 1
    assert repeated([(f"So: {question.format('twenty-six', 'three')}", "")], reference) == []


@pytest.mark.slow
@pytest.mark.skipif(not MATH.exists(), reason="needs the mathematics of the shared data")
def test_real_mathematics() -> None:
    """At least 99 % of every form are found, at most 0.3 % of other rows are dropped."""
    text = pa.input_stream(str(MATH), compression="zstd").read().decode()
    by_source: dict[str, list[Example]] = {}
    for line in filter(None, text.split("\n")):
        row = json.loads(line)
        by_source.setdefault(row["source"], []).append((row["instruction"], row["output"]))
    draw = random.Random(0)
    found, lost, clean = dict.fromkeys(EDITS, 0), 0, 0
    again = dict.fromkeys(COPIES, 0)
    for examples in by_source.values():
        draw.shuffle(examples)
        others = examples[100:3_100]
        planted = [(name, edit(*each)) for name, edit in EDITS.items() for each in examples[:20]]
        pool = [*others, *(example for _, example in planted)]
        for one in repeated(pool, examples[:100]):
            if one.row < len(others):
                lost += 1
            else:
                found[planted[one.row - len(others)][0]] += 1
        clean += len(others)
        pool = examples[:300]
        own = len(copies(pool))
        for name in COPIES:
            edited = [EDITS[name](*each) for each in pool[:20]]
            again[name] += len(copies([*pool, *edited])) - own
    assert min([*found.values(), *again.values()]) >= 0.95 * 20 * len(by_source), (found, again)
    assert lost <= 0.003 * clean
