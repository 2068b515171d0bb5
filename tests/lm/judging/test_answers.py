"""Answers: the same number however it is written, and no text that harms the judge."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.processes import running

from uniproto.errors import InvalidInputError, SolverError
from uniproto.lm.judging.answers import extract_answer, helpers, program_answer, same_answer
from uniproto.lm.judging.answers.equivalence import exact_value
from uniproto.lm.judging.answers.helpers import HelperProcess
from uniproto.lm.judging.answers.parser import NotAFormulaError, parse_formula
from uniproto.lm.judging.answers.tokens import tokens_of

DATASETS = ("gsm8k", "math", "numglue", "svamp", "deepmind", "simuleq", "some other")

rationals = st.builds(Fraction, st.integers(-10_000, 10_000), st.integers(1, 400))
datasets = st.sampled_from(DATASETS)


def _ways_to_write(value: Fraction) -> list[str]:
    above, below = value.numerator, value.denominator
    sign, size = ("-" if value < 0 else ""), abs(value)
    ways = [
        f"{above}/{below}",
        rf"\frac{{{above}}}{{{below}}}",
        rf"{sign}\dfrac{{{abs(above)}}}{{{below}}}",
        rf"$\tfrac{{{3 * above}}}{{{3 * below}}}$",
        f"−{abs(above)}/{below}" if value < 0 else f"+{above}/{below}",
        repr(above / below),
        f"({above})/({below})",
        f"Fraction({above}, {below})",
        f"x = {above}/{below}",
        f"{above}/{below} apples",
    ]
    if below == 1:
        ways += [f"{above:,}", f"{above}.0", f"[{above}]", f"{sign}${size}", f"{above:,} dollars"]
    if size > 1 and below > 1:
        whole, rest = divmod(abs(above), below)
        ways += [f"{sign}{whole} {rest}/{below}" if not sign else f"-({whole} {rest}/{below})"]
        ways += [rf"{sign}({whole}\frac{{{rest}}}{{{below}}})"]
    return ways


@given(value=rationals, dataset=datasets, data=st.data())
@settings(deadline=None)
def test_one_rational_in_two_forms_is_the_same(
    value: Fraction, dataset: str, data: st.DataObject
) -> None:
    ways = st.sampled_from(_ways_to_write(value))
    said, gold = data.draw(ways), data.draw(ways)
    assert same_answer(said, gold, dataset)


@given(one=rationals, other=rationals, dataset=datasets, data=st.data())
@settings(deadline=None)
def test_two_rationals_are_not_the_same(
    one: Fraction, other: Fraction, dataset: str, data: st.DataObject
) -> None:
    assume(one != other)
    exact = slice(0, 5)  # the forms without a decimal point
    said = data.draw(st.sampled_from(_ways_to_write(one)[exact]))
    gold = data.draw(st.sampled_from(_ways_to_write(other)[exact]))
    assert not same_answer(said, gold, dataset)


@given(value=rationals, dataset=datasets)
@settings(deadline=None)
def test_floating_point_noise_is_forgiven_and_no_more(value: Fraction, dataset: str) -> None:
    gold = f"{value.numerator}/{value.denominator}"
    noisy = float(value) * (1 + 1e-12)
    assert same_answer(f"{noisy:.17f}", gold, dataset)
    # Golds of these two may be rounded to two decimals: 38/25 is 1.52, and so is 1.523.
    least = 0.02 if dataset in ("numglue", "simuleq") else 0.002
    off = float(value) + least * max(1.0, abs(value))
    assert not same_answer(f"{off:.17f}", gold, dataset)


@given(roots=st.lists(st.integers(-9, 9), min_size=1, max_size=3), shift=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_a_product_is_its_expansion(roots: list[int], shift: int) -> None:
    coefficients = [1]
    for root in roots:
        grown = [0, *coefficients]
        for at, coefficient in enumerate(coefficients):
            grown[at] -= root * coefficient
        coefficients = grown
    factored = "".join(f"(x - ({root}))" for root in roots)
    expanded = " + ".join(f"({c})x^{{{power}}}" for power, c in enumerate(coefficients))
    assert same_answer(factored, expanded, "math", time_limit=30)
    assert not same_answer(f"{factored} + {shift}", expanded, "math", time_limit=30)


@given(items=st.lists(st.integers(-50, 50), min_size=2, max_size=6, unique=True), data=st.data())
@settings(deadline=None)
def test_lists_have_no_order_and_points_do(items: list[int], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(items))
    gold, said = (", ".join(map(str, each)) for each in (items, mixed))
    assert same_answer(said, gold, "math")
    assert same_answer(f"({said})", f"({gold})", "math") is (mixed == items)
    assert not same_answer(said, f"{gold}, 51", "math")


PIECES = r"""
\frac \sqrt \boxed \text \left \right \cup \pm \infty \pi \begin{pmatrix} \end{pmatrix} \\ & { } ( )
[ ] \{ \} ^ _ ** * / + - = < > , ; : . ! % $ \$ ° 0 1 2 17 3.5 1e9 9**9**9 x y i e m cm pi sin log
oo and or the answer is ####
"""
pieces = st.sampled_from(PIECES.split())
mathematical = st.lists(pieces, max_size=30).map(" ".join) | st.lists(pieces, max_size=30).map(
    "".join
)


@pytest.mark.slow
@given(text=st.text(max_size=300) | mathematical, gold=mathematical | st.text(), dataset=datasets)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@example(text="\\boxed", gold="\\", dataset="math")
@example(text="\\frac", gold="\\frac1", dataset="math")
@example(text="²½", gold="٣", dataset="gsm8k")
@example(text="x_", gold="x_{", dataset="math")
@example(text="2 1/0", gold="1/0", dataset="svamp")
@example(text="0^{-1}", gold="0^0", dataset="math")
@example(text="5_1", gold="1_0", dataset="math")
def test_any_text_is_judged(text: str, gold: str, dataset: str) -> None:
    for said in (text, extract_answer(text, dataset), program_answer(text, dataset)):
        assume(gold.strip())
        same_answer(said, gold, dataset, time_limit=0.3)


HOSTILE = [
    "9**9**9**9",
    "9^{9^{9^{9}}}",
    "((((99999!)!)!)!)",
    "1e999999999",
    "9" * 1900,
    "x" * 1900,
    "(" * 900 + "1" + ")" * 900,
    "2^" * 900 + "2",
    "-" * 1900 + "1",
    r"\frac" * 300,
    r"\sqrt{" * 300 + "2" + "}" * 300,
    "((((((x+1)^{99}+y)^{99}+z)^{99}+1)^{99}+y)^{99}+1)^{99}",
    "+".join(f"(x+{n})^{{{n}00}}(y-{n})^{{{n}00}}" for n in range(2, 40)),
    r"\sin " * 200 + "x",
    "(1+x+y+z)^{400}(1-x-y-z)^{400}",
    "2^{0.5}" * 200,
    "1000000^{1000000^{0.5}}",
    "__import__('os').system('touch hacked')",
    "().__class__.__bases__[0].__subclasses__()",
    "\x00\x01\ud800"[:2],
    "," * 1900,
    "1," * 900,
    "=" * 1900,
    r"\text{" * 300,
    "a" * 3_000_000,
]


@pytest.mark.parametrize(
    ("text", "gold"),
    list(zip(HOSTILE, itertools.cycle(["x+1", r"\sqrt{2}", "(1+x+y+z)^{401}"]), strict=False)),
    ids=range(len(HOSTILE)),
)
def test_hostile_text_is_wrong_and_harmless(text: str, gold: str, inside) -> None:
    assert not same_answer(text, gold, "math", time_limit=0.3)
    assert not list(inside.iterdir())


@pytest.mark.parametrize("text", ["1 " * 60_000, "the answer is " * 10_000, "\\boxed{" * 10_000])
def test_long_outputs_are_read(text: str, ends: None) -> None:
    for dataset in DATASETS:
        extract_answer(text, dataset)
        program_answer(text, dataset)


def _formula(text: str):
    return parse_formula(tokens_of(text))


def test_a_late_worker_is_replaced() -> None:
    hard = _formula("(1+x+y+z)^{400}(1-x-y-z)^{401}"), _formula("(1-x-y-z)^{400}(1+x+y+z)^{401}")
    before = helpers.ALGEBRA.pid
    assert not helpers.ask_algebra("same", *hard, seconds=0.2)
    assert helpers.ALGEBRA.pid != before
    assert helpers.ask_algebra("same", _formula("(x+1)^2"), _formula("x^2+2x+1"), seconds=30)


def test_a_killed_worker_is_replaced() -> None:
    pair = _formula("(x+1)^2"), _formula("x^2+2x+1")
    assert helpers.ask_algebra("same", *pair, seconds=30)
    before = helpers.ALGEBRA.pid
    os.kill(before, signal.SIGKILL)
    while running([before]):
        time.sleep(0.01)
    assert helpers.ask_algebra("same", *pair, seconds=30)
    assert helpers.ALGEBRA.pid != before


@pytest.mark.slow
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks for processes in /proc")
def test_no_worker_outlives_a_killed_judge() -> None:
    code = (
        "import time; from uniproto.lm.judging.answers import helpers, same_answer;"
        "same_answer('(x+1)^2', 'x^2+2x+1', 'math', time_limit=30);"
        "print(helpers.ALGEBRA.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as judge:
        assert judge.stdout is not None
        worker = int(judge.stdout.readline())
        judge.kill()
    while running([worker]):  # for ever, if nobody ends it
        time.sleep(0.05)


def test_a_worker_that_cannot_start_is_an_error_not_a_verdict(monkeypatch, tmp_path) -> None:
    broken = tmp_path / "worker.py"
    broken.write_text("raise SystemExit(1)")
    monkeypatch.setattr(helpers, "ALGEBRA", HelperProcess("compares formulas", str(broken)))
    with pytest.raises(SolverError, match="did not start"):
        helpers.ask_algebra("same", _formula("x"), _formula("y"), seconds=1)


@pytest.mark.slow
def test_the_judge_itself_never_loads_sympy() -> None:
    code = (
        "import sys; from uniproto.lm.judging.answers import same_answer;"
        "assert same_answer('(x+1)^2', 'x^2+2x+1', 'math', time_limit=30);"
        "assert 'sympy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("gold", ["", "  ", None])
def test_an_empty_gold_is_refused(gold) -> None:
    with pytest.raises(InvalidInputError, match="gold"):
        same_answer("3", gold, "math")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 + 3 * 4", 14),
        ("-2^2", -4),
        ("2^3^2", 512),
        ("8/4/2", 1),
        ("2(3)(4)", 24),
        (r"\frac12", Fraction(1, 2)),
        (r"2\frac{1}{3}", Fraction(7, 3)),
        (r"\frac{1}{2} \cdot 4", 2),
        ("5!", 120),
        (r"\sqrt[3]{27}", 3),
        ("√16", 4),
        ("|", None),
        ("1 2", None),
        ("2 3/2", None),
        ("x +", None),
    ],
)
def test_the_grammar(text: str, value: Fraction | int | None) -> None:
    if value is None:
        with pytest.raises(NotAFormulaError):
            _formula(text)
    else:
        assert exact_value(_formula(text)) == value


@pytest.mark.parametrize(
    ("said", "gold", "same"),
    [
        ("25%", "25", True),
        ("25%", "0.25", True),
        ("0.25", "25%", True),
        ("25", "25%", True),
        ("0.25", "25", False),
        ("25%", "0.25%", False),
        ("0.25%", "0.25", False),
        ("100%", "1", True),
        ("1%", "1", False),
    ],
)
def test_when_a_percent_is_a_share(said: str, gold: str, same: bool) -> None:
    assert same_answer(said, gold, "math") is same


@pytest.mark.parametrize("dataset", ["svamp", "math", "simuleq"])
def test_of_a_text_that_was_cut_off_only_an_announcement_counts(dataset):
    on_the_way = "There are 27 cookies left, and we can find this by dividing 27 by 17"
    assert extract_answer(on_the_way, dataset) is not None
    assert extract_answer(on_the_way, dataset, cut_off=True) is None
    announced = "The answer is 10.\nNow let us check this: 27 divided by"
    assert extract_answer(announced, dataset, cut_off=True) == "10"
