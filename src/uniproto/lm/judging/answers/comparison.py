r"""Whether a predicted answer is the right one.

The rules, in the order in which they are applied:

- The same text is the same answer. An empty prediction is wrong.
- Whole numbers and fractions are exact. A decimal may differ from them by the noise of floating
  point only (relative 1e-6): 2.9999999999 is 3, but 0.3333 is not 1/3, and 17.6 is not 18.
- Digits that repeat make an exact fraction, a binomial is its number, and whole numbers may be
  written in words ("one hundred and five").
- NumGLUE and SimulEq have gold answers that were rounded without the question saying so (2/3 is
  0.6667 there, 100/7 is 14.29). There, numbers also agree when the longer one, rounded to the
  places of the shorter, is the shorter, which must have two decimals and three digits or more; a
  prediction shorter than the gold must also be within relative 1e-4.
- Where one side has a percent sign and the other has none, p% is p/100 or p; p alone only where
  the other side is above 1: 25% is 25 and 0.25, but 0.5% is not 0.5, and 0.25 is not 25.
- Units and currency may be left out. Where both sides name a known unit it must be the same one;
  nothing is converted. A time of day needs its am or pm.
- Lists and sets (9, -7; {2, 3}) compare in any order, points and vectors in theirs. Of a bracketed
  pair the brackets count too: [0, 1) is not [0, 1]. Where every unknown is named (x = 1, y = 2),
  names decide; where only the gold names them, their order; otherwise values in any order.
- SimulEq asks for several unknowns and keeps the first one asked for as gold: of a prediction with
  several values, the first is compared.
- Formulas compare as exact values, then as floating-point values at a few points, and at last by
  SymPy in a process with a time limit; what it cannot show in time is wrong. Equations are the
  same when one is a multiple of the other, `x = 5` and `5` are the same, and an inequality is the
  interval it describes.
- An answer in a base (2112_6) is compared by its digits; the base may be left out.
- An option is compared by its letter: "(B) apple" is B.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from uniproto.errors import InvalidInputError
from uniproto.lm.judging.answers.equivalence import float_value, same_equation, same_formula
from uniproto.lm.judging.answers.parser import Formula, negative, number, product
from uniproto.lm.judging.answers.reading import (
    Answer,
    Digits,
    Grid,
    Listing,
    Quantity,
    Relation,
    Row,
    Union,
    Words,
    read_answer,
)
from uniproto.lm.judging.answers.words import LETTER_UNITS, option_letter

MAX_LENGTH = 2000  # characters; a longer text is no final answer

NUMBER_SETS = frozenset({"gsm8k", "svamp", "numglue", "deepmind", "simuleq"})
_ROUNDED_GOLDS = frozenset({"numglue", "simuleq"})
_SAME_WORDS = {
    "yes": "true",
    "no": "false",
    "varnothing": "emptyset",
    "nosolution": "emptyset",
    "nosolutions": "emptyset",
    "\\{\\}": "emptyset",
}


def same_answer(predicted: str | None, gold: str, dataset: str, *, time_limit: float = 2.0) -> bool:
    r"""Whether ``predicted`` says what ``gold`` says, by the rules of the data set.

    >>> same_answer(r"\frac{1}{2}", "0.5", "math")
    True
    >>> same_answer("[0, 1]", "[0, 1)", "math")
    False
    >>> same_answer("14.285714285714286", "14.29", "numglue")
    True
    """
    if not isinstance(gold, str) or not gold.strip():
        raise InvalidInputError(
            f"gold must be a text that is not empty, not {gold!r}. Leave out questions without one."
        )
    if predicted is None or not predicted.strip() or len(predicted) > MAX_LENGTH:
        return False
    if predicted.split() == gold.split():
        return True
    if len(gold) > MAX_LENGTH:
        return False
    if option_letter(gold) is not None and (
        option_letter(predicted, loose=dataset == "numglue") == option_letter(gold)
    ):
        return True
    if (labelled := _WITH_LETTER.fullmatch(predicted)) is not None and option_letter(gold) is None:
        predicted = labelled[1]  # (A) 12 says 12
    if len(parts := restatements(predicted)) > 1:
        return any(same_answer(part, gold, dataset, time_limit=time_limit) for part in parts)
    brackets_are_lists = dataset in NUMBER_SETS
    judge = _Judge(dataset, time.monotonic() + time_limit)
    right = read_answer(gold, brackets_are_lists=brackets_are_lists)
    given = read_answer(predicted, brackets_are_lists=brackets_are_lists)
    is_number = isinstance(right, Quantity) and not right.formula.symbols
    if is_number and (isinstance(given, Words) or _only_letter_units(given)):  # 5 m, 5 km/h
        given = read_answer(predicted, brackets_are_lists=brackets_are_lists, letter_units=True)
    return judge.same(given, right)


_WITH_LETTER = re.compile(r"\s*\(?[A-E][).:]\s+(\S.*)")
_RESTATED = re.compile(
    r" ?(?:\\approx|≈|,? ?\bor (?:approximately|about|roughly|around|nearly)\b"
    r"|,? ?\(?\b(?:i\. ?e\.|that is|or equivalently|which is)(?: (?:about|approximately))?,?"
    r"|,? ?\bor\b) ?",
    re.IGNORECASE,
)
_ROUNDED = re.compile(r"approx|≈|\b(?:about|roughly|around|nearly)\b", re.IGNORECASE)


def restatements(text: str) -> list[str]:
    r"""The ways in which a text gives one number, such as 6\sqrt{2} \approx 8.49; else the text.

    >>> restatements("5/6 or approximately 0.833"), restatements("2, or 3")
    (['5/6', '0.833'], ['2, or 3'])
    """
    parts = [part.strip(" ()$") for part in _RESTATED.split(" ".join(text.split()))]
    values = [_float_of(part) for part in parts]
    if len(parts) < 2 or None in values:
        return [text]
    first, *others = [value for value in values if value is not None]
    for part, value in zip(parts[1:], others, strict=True):
        digits = part.rstrip("%\\").partition(".")[2]
        unit = 10.0 ** -len(digits) * (0.01 if part.endswith("%") else 1)
        unit = unit if digits or _ROUNDED.search(text) else 0.0
        if abs(first - value) > 0.5 * unit + 1e-9:
            return [text]
    return parts


def _float_of(text: str) -> float | None:
    answer = read_answer(text.replace("\\%", "%").replace("half a", "1/2")) if text else None
    if not isinstance(answer, Quantity) or answer.formula.symbols:
        return None
    value = float_value(answer.formula)
    return None if value is None or value.imag else value.real / (100 if answer.percent else 1)


def _only_letter_units(answer: Answer) -> bool:
    if not isinstance(answer, Quantity):
        return False
    symbols = answer.formula.symbols
    return 0 < len(symbols) < 3 and symbols <= LETTER_UNITS  # 5 m, 5 m/s


@dataclass(frozen=True)
class _Judge:
    dataset: str
    deadline: float

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    def same(self, given: Answer, gold: Answer) -> bool:
        """Whether two answers are the same, whatever their kinds."""
        if self.seconds_left <= 0:
            return False
        given, gold = _unwrapped(given), _unwrapped(gold)
        if isinstance(gold, Relation):
            return self._same_relation(given, gold)
        if isinstance(gold, Listing):
            return self._same_listing(given, gold)
        if isinstance(given, Relation):
            return self._relation_says(given, gold)
        if isinstance(gold, Grid):
            return self._same_grid(given, gold)
        if isinstance(gold, Union):
            if isinstance(given, Listing) and not given.braces:
                given = Union(given.items)  # x < 1 or x > 2
            return isinstance(given, Union) and self._in_any_order(given.parts, gold.parts)
        if isinstance(gold, Row):
            return self._same_row(given, gold)
        if isinstance(given, Listing | Row) and self.dataset == "simuleq":
            return self.same(_value_of(given.items[0]), gold)
        if isinstance(gold, Digits):
            return _same_digits(given, gold)
        if isinstance(given, Quantity) and isinstance(gold, Quantity):
            return self._same_quantity(given, gold)
        if isinstance(given, Quantity | Words) and isinstance(gold, Quantity | Words):
            # One of them is words: the other must be letters too, as the B of "option B" is.
            letters = given if isinstance(given, Quantity) else gold
            return (isinstance(letters, Words) or letters.text.isalpha()) and (
                _letters(given) == _letters(gold)
            )
        return False

    def _same_quantity(self, given: Quantity, gold: Quantity) -> bool:
        if given.unit is not None and gold.unit is not None and given.unit != gold.unit:
            return False
        halves_of_day = ("morning", "afternoon")
        if gold.unit is not None and gold.unit.name in halves_of_day and given.unit is None:
            return False
        hundredth = number(Fraction(1, 100))
        if given.percent == gold.percent:
            return self._same_formula(given.formula, gold.formula)
        shared, plain = (given, gold) if given.percent else (gold, given)
        scaled = replace(shared, formula=product(shared.formula, hundredth), percent=False)
        pairs = [(scaled, plain) if given.percent else (plain, scaled)]
        value = float_value(plain.formula)
        if not plain.formula.symbols and (value is None or value == 0 or abs(value) > 1):
            pairs.append((given, gold))
        return any(self._same_formula(one.formula, other.formula) for one, other in pairs)

    def _same_formula(self, given: Formula, gold: Formula) -> bool:
        return same_formula(
            given,
            gold,
            seconds=self.seconds_left,
            gold_may_be_rounded=self.dataset in _ROUNDED_GOLDS,
        )

    def _same_row(self, given: Answer, gold: Row) -> bool:
        if isinstance(given, Grid):
            given = _as_vector(given)
        if isinstance(given, Listing) and not given.braces:
            given = Row(given.items)
        if not isinstance(given, Row):
            return False
        if self.dataset == "simuleq":
            return self._in_any_order([_value_of(item) for item in given.items], gold.items)
        same_brackets = (given.opening, given.closing) == (gold.opening, gold.closing)
        # Brackets tell open ends from closed ones; around three coordinates they mean nothing.
        if len(gold.items) == 2 and "" not in (given.opening, gold.opening) and not same_brackets:
            return False
        return self._in_order(given.items, gold.items)

    def _same_listing(self, given: Answer, gold: Listing) -> bool:
        if isinstance(given, Grid):
            given = _as_vector(given)
        if isinstance(given, Relation) and len(gold.items) == 1:
            return self.same(given, gold.items[0])
        if not isinstance(given, Row | Listing) or len(given.items) != len(gold.items):
            return False
        names = [_name_of(item) for item in given.items], [_name_of(item) for item in gold.items]
        if None not in names[1] and sorted(map(str, names[0])) == sorted(map(str, names[1])):
            right = {name: _value_of(item) for name, item in zip(names[1], gold.items, strict=True)}
            return all(
                self.same(_value_of(item), right[name])
                for name, item in zip(names[0], given.items, strict=True)
            )
        if None not in names[1] and len({*names[1]}) == len(names[1]) and set(names[0]) == {None}:
            return self._in_order(given.items, [_value_of(item) for item in gold.items])
        if None not in names[0] or None not in names[1]:
            said_items = [_value_of(item) for item in given.items]
            return self._in_any_order(said_items, [_value_of(item) for item in gold.items])
        return self._in_any_order(given.items, gold.items)

    def _same_grid(self, given: Answer, gold: Grid) -> bool:
        rows = gold.rows
        if isinstance(given, Row | Listing):
            if all(isinstance(item, Row | Listing) for item in given.items):
                given = Grid(tuple(item.items for item in given.items))  # type: ignore[union-attr]
            elif all(len(row) == 1 for row in rows):
                given = Grid(tuple((item,) for item in given.items))  # a vector written in a line
        if not isinstance(given, Grid) or [len(r) for r in given.rows] != [len(r) for r in rows]:
            return False
        return all(self._in_order(one, other) for one, other in zip(given.rows, rows, strict=True))

    def _same_relation(self, given: Answer, gold: Relation) -> bool:
        if not isinstance(given, Relation):
            interval = _as_interval(gold)
            if interval is not None:
                return self.same(given, interval)
            return _name_of(gold) is not None and self.same(given, gold.sides[-1])
        if given.signs == gold.signs and self._in_order(given.sides, gold.sides):
            return True
        if given.signs == gold.signs == ("=",):
            sides = [s.formula for s in (*given.sides, *gold.sides) if isinstance(s, Quantity)]
            if len(sides) < 4:
                return False
            return same_equation(
                (sides[0], sides[1]), (sides[2], sides[3]), seconds=self.seconds_left
            )
        intervals = _as_interval(given), _as_interval(gold)
        same_variable = _symbols_of(given) == _symbols_of(gold)
        if intervals[0] is not None and intervals[1] is not None and same_variable:
            return self.same(intervals[0], intervals[1])
        return False

    def _relation_says(self, given: Relation, gold: Answer) -> bool:
        interval = _as_interval(given)
        if interval is not None:
            return self.same(interval, gold)
        # 5 * 3 = 15 says 15, and x = 5 says 5.
        return set(given.signs) == {"="} and self.same(given.sides[-1], gold)

    def _in_order(self, given: Sequence[Answer], gold: Sequence[Answer]) -> bool:
        if len(given) != len(gold):
            return False
        return all(self.same(one, other) for one, other in zip(given, gold, strict=True))

    def _in_any_order(self, given: Sequence[Answer], gold: Sequence[Answer]) -> bool:
        if len(given) != len(gold):
            return False
        waiting = list(gold)
        for item in given:
            match = next((at for at, other in enumerate(waiting) if self.same(item, other)), None)
            if match is None:
                return False
            waiting.pop(match)
        return True


def _same_digits(given: Answer, gold: Digits) -> bool:
    if isinstance(given, Digits):
        return given == gold
    return isinstance(given, Quantity) and given.text == gold.digits


def _letters(answer: Quantity | Words) -> str:
    text = answer.text
    if len(text) > 1:
        text = text.lower()
    return _SAME_WORDS.get(text, text)


def _unwrapped(answer: Answer) -> Answer:
    """A list of one thing is that thing: [3] is 3."""
    while isinstance(answer, Listing) and len(answer.items) == 1:
        answer = answer.items[0]
    return answer


def _name_of(answer: Answer) -> str | None:
    """The x of x = 5; the f(x) of f(x) = 2x."""
    if not isinstance(answer, Relation) or answer.signs != ("=",):
        return None
    left = answer.sides[0]
    if isinstance(left, Words):
        return left.text.lower()
    if not isinstance(left, Quantity) or not left.formula.symbols:
        return None
    simple = all(node.head in ("symbol", "product") for node in left.formula.walk())
    return left.text if simple else None


def _value_of(answer: Answer) -> Answer:
    """The 5 of x = 5; an answer without a name is its own value."""
    return answer.sides[-1] if isinstance(answer, Relation) and _name_of(answer) else answer


def _as_vector(grid: Grid) -> Answer:
    """A column as the row of its entries; a wider matrix stays what it is."""
    return Row(tuple(row[0] for row in grid.rows)) if all(len(r) == 1 for r in grid.rows) else grid


def _symbols_of(relation: Relation) -> frozenset[str]:
    """The variables that a relation speaks of."""
    sides = [side.formula.symbols for side in relation.sides if isinstance(side, Quantity)]
    return frozenset().union(*sides)


def _as_interval(relation: Relation) -> Row | None:
    """a ≤ x < b as [a, b); None for what describes no interval of one variable."""
    sides, signs = relation.sides, relation.signs
    if any(sign in (">", ">=") for sign in signs):
        sides, signs = sides[::-1], tuple(s.replace(">", "<") for s in reversed(signs))
    if not signs or any(sign not in ("<", "<=") for sign in signs):
        return None
    variables = [
        at for at, s in enumerate(sides) if isinstance(s, Quantity) and s.formula.head == "symbol"
    ]
    if len(variables) != 1 or len(sides) > 3:
        return None
    at = variables[0]
    infinity = Formula("constant", "oo")
    low: Answer = Quantity(negative(infinity), "-oo")
    high: Answer = Quantity(infinity, "oo")
    opening, closing = "(", ")"
    if at > 0:
        low, opening = sides[at - 1], "[" if signs[at - 1] == "<=" else "("
    if at < len(sides) - 1:
        high, closing = sides[at + 1], "]" if signs[at] == "<=" else ")"
    if len(sides) == 3 and at != 1:
        return None
    return Row((low, high), opening, closing)


_SIZE = re.compile(r"\\[dt](?=frac|binom)")
_FRACTION = re.compile(r"\\frac\{(-?\w+)\}\{(-?\w+)\}")
_DRAWN = re.compile(
    r"\\binom(?:\{(\w+)\}|(\d))(?:\{(\w+)\}|(\d))|\{?(\w{1,40})\\choose(\w{1,40})\}?"
)
_PERIOD = re.compile(r"\\(?:bar|dot)\{?(\d+)\}?|(?<=\d\.)\((\d+)\)")
_SPACING = re.compile(r"\\[,;!: ]|\\left|\\right|[\s$]+")
_BETWEEN = re.compile(r"[\s$,;]+")
_OPERATION = re.compile(r".[-+*/^(]|\\[a-zA-Z]")  # a sign in front is none


def repeats_the_question(predicted: str, question: str, gold: str) -> bool:
    r"""Whether an answer is an expression that stands in the question, still to be worked out.

    "What is $\sqrt{50}$?" is not answered by $\sqrt{50}$, though any algebra finds it equal to
    $5\sqrt{2}$. Where the gold itself stands in the question, choosing it is an answer.

    >>> repeats_the_question(r"\sqrt{50}", r"Simplify $\sqrt{50}$.", r"5\sqrt{2}")
    True
    >>> repeats_the_question("3/4", "Which is larger, 3/4 or 2/3?", r"\frac{3}{4}")
    False
    >>> repeats_the_question("-7", "Is it 3 or -7?", "-7.0")
    False
    >>> repeats_the_question(r"\binom{8}{6}", r"Compute $\dbinom{8}{6}$.", "28")
    True
    """
    given, text, right = map(_plain, (predicted, question, gold))
    choices = {_plain(word).rstrip("?") for word in _BETWEEN.split(question)}
    is_open = given != right and right not in choices
    return is_open and bool(_OPERATION.search(given)) and given in text


def _plain(text: str) -> str:
    """The text without spaces and sizes, its fractions, draws and periods in one notation each."""
    text = _SIZE.sub(r"\\", _SPACING.sub("", text))
    text = _DRAWN.sub(lambda m: "C({},{})".format(*filter(None, m.groups())), text)
    text = _PERIOD.sub(lambda m: f"\\overline{{{m[1] or m[2]}}}", text)
    return _FRACTION.sub(r"\1/\2", text).rstrip(".")
