"""Numbers in other notations: digits that repeat, binomials, English words."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from uniproto.lm.features.number_words import in_digits, number_in_words
from uniproto.lm.judging.answers import extract_answer, program_answer, same_answer
from uniproto.lm.judging.answers.comparison import repeats_the_question
from uniproto.lm.judging.answers.equivalence import TooLargeError, exact_value
from uniproto.lm.judging.answers.parser import parse_formula
from uniproto.lm.judging.answers.tokens import tokens_of

SMALL = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
]  # fmt: skip
TENS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]


def _value(text: str) -> Fraction | None:
    return exact_value(parse_formula(tokens_of(text)))


def _written_out(value: Fraction) -> tuple[str, str]:
    """The decimal of a fraction, by long division: what comes once, and what repeats."""
    whole, rest = divmod(value.numerator, value.denominator)
    digits, seen = "", {}
    while rest and rest not in seen:
        seen[rest] = len(digits)
        digit, rest = divmod(10 * rest, value.denominator)
        digits += str(digit)
    once = seen[rest] if rest else len(digits)
    return f"{whole}.{digits[:once]}", digits[once:]


@given(value=st.builds(Fraction, st.integers(0, 5000), st.integers(1, 200)), data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_repeating_decimal_is_its_fraction(value: Fraction, data: st.DataObject) -> None:
    once, period = _written_out(value)
    assume(period)
    ways = [rf"{once}\overline{{{period}}}", rf"{once}\bar{{{period}}}"]
    if len(period) == 1:
        ways += [rf"{once}\dot{{{period}}}", rf"{once}\dot{period}"]
    else:
        ways += [rf"{once}\dot{{{period[0]}}}{period[1:-1]}\dot{{{period[-1]}}}"]
    if once.endswith("."):
        ways += [f"{once}({period})"]
    said = data.draw(st.sampled_from(ways))
    assert _value(said) == value
    if len(once.partition(".")[2]) < 3:  # with more digits it may be the same but for noise
        assert not same_answer(said, once, "math")


@given(of=st.integers(0, 300), draws=st.integers(0, 300), data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_binomial_is_its_number(of: int, draws: int, data: st.DataObject) -> None:
    ways = [
        rf"\binom{{{of}}}{{{draws}}}",
        rf"\dbinom{{{of}}}{{{draws}}}",
        rf"{{{of}\choose {draws}}}",
    ]
    if of >= draws:
        ways += [f"C({of},{draws})", f"C({of}, {draws})"]
    assert _value(data.draw(st.sampled_from(ways))) == math.comb(of, draws)


def test_a_binomial_too_large_is_not_computed(ends: None) -> None:
    with pytest.raises(TooLargeError):
        _value(r"\binom{10^{100}}{10^{50}}")
    assert _value(r"\binom{10^{100}}{1}") == 10**100
    assert _value(r"\binom{3}{10^{100}}") == 0
    assert not same_answer(r"\binom{x}{999999}", "x", "math", time_limit=0.5)


@pytest.mark.parametrize(
    "said", [r"\binom{8}{6}", r"\binom86", r"\tbinom{8}{6}", r"{8 \choose 6}", "C(8, 6)"]
)
def test_a_binomial_that_was_asked_for_is_no_answer(said: str) -> None:
    assert repeats_the_question(said, r"Compute $\dbinom{8}{6}$.", "28")
    assert not repeats_the_question(said, "How many groups of 6 are there of 8 people?", "28")


@pytest.mark.parametrize("said", [r"0.\overline{7}", r"0.\bar{7}", r"0.\dot7", "0.(7)"])
def test_a_decimal_that_was_to_be_a_fraction_is_no_answer(said: str) -> None:
    assert repeats_the_question(said, r"Express $0.\overline{7}$ as a fraction.", r"\frac{7}{9}")


def _in_words(value: int, joint: str, hyphen: str) -> str:
    for scale, name in ((10**9, "billion"), (10**6, "million"), (10**3, "thousand")):
        if value >= scale:
            rest = _in_words(value % scale, joint, hyphen) if value % scale else ""
            small = joint if 0 < value % scale < 100 else " "
            return f"{_in_words(value // scale, joint, hyphen)} {name}{small * bool(rest)}{rest}"
    if value >= 100:
        rest = joint + _in_words(value % 100, joint, hyphen) if value % 100 else ""
        return f"{SMALL[value // 100]} hundred{rest}"
    if value < 20:
        return SMALL[value]
    return TENS[value // 10] + (hyphen + SMALL[value % 10] if value % 10 else "")


@given(
    value=st.integers(0, 3000) | st.integers(0, 10**12 - 1),
    joint=st.sampled_from([" ", " and "]),
    hyphen=st.sampled_from("- "),
)
@settings(max_examples=50, deadline=None)
def test_words_are_their_number(value: int, joint: str, hyphen: str) -> None:
    words = _in_words(value, joint, hyphen)
    assert number_in_words(words.split()) == value
    parts = words.replace("-", " ").split()
    assert in_digits(["at", *parts, "or", "ten", "five"]) == ["at", str(value), "or", "10", "5"]
    assert same_answer(words.capitalize(), str(value), "gsm8k")
    assert not same_answer(words, str(value + 1), "gsm8k")


@pytest.mark.parametrize(
    "words",
    [
        "", "and", "hundred", "thousand", "and five", "five and", "two and three", "five six",
        "twenty ten", "twenty twenty", "twenty eleven", "ten five", "zero five", "five zero",
        "one hundred hundred", "two thousand three thousand", "two thousand five million",
        "one hundred and", "one hundred and two hundred", "one half", "one-half", "twenty-first",
        "two thirds", "one point five", "a", "fourty", "twenty hundred", "five-", "-five",
        "one hundred and twenty and five", "five thousand and three hundred",
    ],
)  # fmt: skip
def test_words_that_are_no_number(words: str) -> None:
    assert number_in_words(words.split()) is None


LONG = [
    "1" * 100_000, "1." * 50_000, "1,111" * 20_000, "0." + "1" * 99_000 + "\\overline{3}",
    "twenty " * 16_000, "one hundred and " * 6_000, "0.\\dot{1}" * 10_000, "C(5,2)" * 16_000,
    "\\binom" * 16_000, "5 hours 30 " * 9_000, "the answer isn't " * 6_000,
    "answer is\n" + "- " * 50_000, "answer is 5" + " half" * 20_000,
]  # fmt: skip


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_long_texts_in_these_notations_are_read(text: str, ends: None) -> None:
    for dataset in ("gsm8k", "math"):
        for said in (extract_answer(text, dataset), program_answer(text, dataset), text[:1990]):
            same_answer(said, "5", dataset, time_limit=0.5)
