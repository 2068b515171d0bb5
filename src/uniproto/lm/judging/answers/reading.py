r"""The kinds of answers: quantities, lists, points and intervals, matrices, words …

``read_answer`` never fails: any other text is read as words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from uniproto.lm.features.number_words import number_in_words
from uniproto.lm.judging.answers.parser import Formula, NotAFormulaError, number, parse_formula
from uniproto.lm.judging.answers.tokens import Token, tokens_of
from uniproto.lm.judging.answers.words import LETTER_UNITS, Unit, is_unit, unit_of


@dataclass(frozen=True)
class Quantity:
    """A number or formula, perhaps with a unit or a percent sign."""

    formula: Formula
    text: str
    unit: Unit | None = None
    percent: bool = False


@dataclass(frozen=True)
class Words:
    """Anything that is compared by its letters: a name, an option, a time of day, a ratio 3:1."""

    text: str


@dataclass(frozen=True)
class Digits:
    """A number written in a base other than ten: 2112_6."""

    digits: str
    base: int


@dataclass(frozen=True)
class Row:
    """Things in an order: a point, an interval, a vector. ``opening`` is "" without brackets."""

    items: tuple[Answer, ...]
    opening: str = ""
    closing: str = ""


@dataclass(frozen=True)
class Listing:
    """Things in any order: solutions, a set. They stay in the order they were written in."""

    items: tuple[Answer, ...]
    braces: bool = False


@dataclass(frozen=True)
class Union:
    """Sets joined by ∪."""

    parts: tuple[Answer, ...]


@dataclass(frozen=True)
class Grid:
    """A matrix, row by row."""

    rows: tuple[tuple[Answer, ...], ...]


@dataclass(frozen=True)
class Relation:
    """Sides joined by =, <, ≤, …: ``signs[i]`` stands between sides i and i + 1."""

    sides: tuple[Answer, ...]
    signs: tuple[str, ...]


Answer = Quantity | Words | Digits | Row | Listing | Union | Grid | Relation


MAX_ITEMS = 64  # a longer list is no answer
MAX_NESTING = 8

_OPENING = frozenset({"(", "[", "{", "\\{", "begin"})
_CLOSING = frozenset({")", "]", "}", "\\}", "end"})
_RELATIONS = frozenset({"=", "<", ">", "<=", ">=", "!=", "in"})
_HEDGES = frozenset({"about", "approximately", "approx", "roughly", "exactly", "only", "just"})
_NO_UNITS = frozenset(  # words after which the number before them is not the answer
    {
        "not", "wrong", "incorrect", "false", "impossible", "never", "most", "least", "minus",
        "plus", "over", "factorial", "dots", "ldots", "cdots",
    }
)  # fmt: skip
_SPACED_NUMBERS = re.compile(r"[-+]?\d+(?:\.\d*)?(?:\s+[-+]?\d+(?:\.\d*)?)+")
_FULL_HOUR = re.compile(r":00(?=\s*[ap]\.?\s?m)", re.IGNORECASE)
_PYTHON_CALL = re.compile(r"\b(?:np|numpy|sympy|sp)\.\w+\(|\b(?:Matrix|array|Decimal|FiniteSet)\(")
_NUMPY_GAP = re.compile(r"(?<=[\d.\]])\s+(?=[-\d.\[])")
_PYTHON_FRACTION = re.compile(r"\b(?:Fraction|Rational)\((-?\d+),\s*(\d+)\)")


def read_answer(
    text: str, *, brackets_are_lists: bool = False, letter_units: bool = False
) -> Answer:
    r"""Read a text as an answer.

    ``brackets_are_lists``: [3, 5] is Python's list of two, not an interval.
    ``letter_units``: the m of "5 m" is metres, not a variable.

    >>> read_answer("[0, 1)").opening
    '['
    >>> read_answer(r"5\text{ cm}").unit
    Unit(name='centimetre', power=1)
    """
    text = _PYTHON_FRACTION.sub(r"(\1/\2)", _FULL_HOUR.sub("", text))
    if text.lstrip().startswith("[[") and "," not in text:
        text = _NUMPY_GAP.sub(", ", text)
    dollars = "\\$" in text or text.replace("\\$", "").count("$") % 2 == 1
    bare = text.strip(" \n.").removeprefix("[").removesuffix("]").strip()
    if _SPACED_NUMBERS.fullmatch(bare) and len(bare.split()) <= MAX_ITEMS:
        return Row(tuple(map(read_answer, bare.split())))  # "7 1 -1"; "7 - 1" is a difference
    reader = _Reader(brackets_are_lists, letter_units, dollars)
    return reader.listing(_trimmed(tokens_of(_PYTHON_CALL.sub("(", text))), 0)


@dataclass(frozen=True)
class _Reader:
    brackets_are_lists: bool
    letter_units: bool
    dollars: bool

    def listing(self, tokens: Sequence[Token], nesting: int) -> Answer:
        if nesting > MAX_NESTING:
            return Words(_joined(tokens))
        in_words = _in_words(tokens)
        if in_words is not None:  # the "and" of a hundred and five makes no list
            return in_words
        parts = [part for part in _split(tokens, {",", ";", "and", "or"})[0] if part]
        if not 2 <= len(parts) <= MAX_ITEMS:
            return self.union(tokens, nesting) if len(parts) < 2 else Words(_joined(tokens))
        items: list[Answer] = []
        for part in parts:
            items += self.with_both_signs(part, nesting)
        return Listing(tuple(items))

    def union(self, tokens: Sequence[Token], nesting: int) -> Answer:
        parts = _split(_trimmed(tokens), {"union"})[0]
        if 2 <= len(parts) <= MAX_ITEMS:
            return Union(tuple(self.relation(part, nesting) for part in parts))
        items = self.with_both_signs(tokens, nesting)
        return items[0] if len(items) == 1 else Listing(items)

    def with_both_signs(self, tokens: Sequence[Token], nesting: int) -> tuple[Answer, ...]:
        """1 ± √2 is two answers; anything else is one."""
        if _split(tokens, {"±"})[1]:
            return tuple(
                self.relation(
                    [Token("mark", sign) if t.text == "±" else t for t in tokens], nesting
                )
                for sign in "+-"
            )
        return (self.relation(tokens, nesting),)

    def relation(self, tokens: Sequence[Token], nesting: int) -> Answer:
        sides, signs = _split(_trimmed(tokens), _RELATIONS)
        if not signs or len(sides) > MAX_ITEMS:
            return self.single(_trimmed(tokens), nesting)
        if signs[-1] == "in":  # x ∈ [0, 1]
            return self.listing(sides[-1], nesting + 1)
        if any(not side for side in sides):
            bare = [t for side in sides for t in side]  # = 5 is 5, but > 5 is not
            return self.single(bare, nesting) if {*signs} == {"="} else Words(_joined(tokens))
        return Relation(tuple(self.single(side, nesting) for side in sides), tuple(signs))

    def single(self, tokens: Sequence[Token], nesting: int) -> Answer:
        if not tokens:
            return Words("")
        sign, last = "".join(token.text for token in tokens[:-1]), tokens[-1]
        if last.kind == "digits" and sign in ("", "-"):
            digits, _, base = last.text.partition("_")
            if base == "10" and digits.isdigit() and not sign:
                return self.single([Token("number", digits)], nesting)
            return Digits(sign + digits, int(base))
        return (
            self.grid(tokens, nesting)
            or self.bracketed(tokens, nesting)
            or self.quantity(tokens)
            or Words(_joined(tokens))
        )

    def grid(self, tokens: Sequence[Token], nesting: int) -> Grid | None:
        if len(tokens) < 3 or tokens[0].text != "begin" or tokens[-1].text != "end":
            return None
        lines = [line for line in _split(tokens[1:-1], {"newrow"})[0] if line]
        if not lines or len(lines) > MAX_ITEMS or nesting > MAX_NESTING:
            return None
        return Grid(
            tuple(
                tuple(
                    self.relation(cell, nesting + 1) for cell in _split(line, {"&"})[0][:MAX_ITEMS]
                )
                for line in lines
            )
        )

    def bracketed(self, tokens: Sequence[Token], nesting: int) -> Answer | None:
        if not _wraps(tokens):
            return None
        opening, closing, inside = tokens[0].text, tokens[-1].text, tokens[1:-1]
        if opening in ("{", "\\{"):
            pairs = [  # Python's {x: 3, y: 5} says what x = 3, y = 5 says
                Token("mark", "=") if token == Token("mark", ":") else token for token in inside
            ]
            if opening == "{" and len(_split(pairs, {",", "="})[0]) < 2:
                return None  # a group of LaTeX
            items = self.listing(pairs, nesting + 1)
            return Listing(items.items if isinstance(items, Listing) else (items,), braces=True)
        items = self.listing(inside, nesting + 1)
        if isinstance(items, Listing) and not items.braces:
            if len(items.items) == 1:
                return items
            if opening == "[" and closing == "]" and self.brackets_are_lists:
                return items
            return Row(items.items, opening, closing)
        if opening == "[" and closing == "]":
            return Listing((items,))
        if isinstance(items, Quantity):
            return items
        return items if opening == "(" and closing == ")" else None

    def quantity(self, tokens: Sequence[Token]) -> Quantity | None:
        in_words = _in_words(tokens)
        if in_words is not None:
            return in_words
        while tokens and tokens[0].text.lower() in _HEDGES:
            tokens = tokens[1:]
        if any(t.kind == "word" and t.text.lower() in _NO_UNITS for t in tokens):
            return None
        body, unit = _without_unit(tokens, self.letter_units)
        if self.dollars and unit is None:
            unit = Unit("dollar", 1)
        percent = bool(body) and body[-1] == Token("mark", "%")
        if percent:
            body = body[:-1]
        elif len(body) != len(body := _without_degrees(body)) and unit is None:
            unit = Unit("degree", 1)
        try:
            formula = parse_formula(body)
        except NotAFormulaError:
            return None
        return Quantity(formula, _joined(tokens), unit, percent)


def _in_words(tokens: Sequence[Token]) -> Quantity | None:
    """A number in words, perhaps with a unit: twenty-one, one hundred and five miles."""
    tokens = _trimmed(tokens)
    start, end = 0, len(tokens)
    while start < end and tokens[start].text.lower() in _HEDGES:
        start += 1
    minus = start < end and tokens[start].text.lower() in ("minus", "negative")
    start += minus
    percent = end > start and tokens[end - 1] == Token("mark", "%")
    end -= percent
    last = end
    while last > start and tokens[last - 1].kind == "word" and is_unit(tokens[last - 1].text):
        last -= 1
    spoken = tokens[start:last]
    if any(token.kind != "word" and token.text != "and" for token in spoken):
        return None
    value = number_in_words([token.text for token in spoken])
    if value is None:
        return None
    unit = unit_of([token.text for token in tokens[last:end]])
    return Quantity(number(-value if minus else value), _joined(tokens), unit, percent)


def _trimmed(tokens: Sequence[Token]) -> Sequence[Token]:
    """Without the points and commas that only end a sentence."""
    start, end = 0, len(tokens)
    while end > start and tokens[end - 1].text in (".", ",", ";", ":"):
        end -= 1
    while start < end and tokens[start].text in (":", ",", "."):
        start += 1
    return tokens[start:end]


def _split(
    tokens: Sequence[Token], marks: frozenset[str] | set[str]
) -> tuple[list[list[Token]], list[str]]:
    """The tokens between marks outside every bracket, and those marks."""
    parts: list[list[Token]] = [[]]
    found = []
    depth = 0
    for token in tokens:
        if token.kind == "mark":
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
            if depth == 0 and token.text in marks:
                parts.append([])
                found.append(token.text)
                continue
        parts[-1].append(token)
    return parts, found


def _wraps(tokens: Sequence[Token]) -> bool:
    """Whether the first token opens a bracket that the last one closes."""
    if len(tokens) < 3 or tokens[0].text not in _OPENING or tokens[-1].text not in _CLOSING:
        return False
    depth = 0
    for at, token in enumerate(tokens):
        if token.kind == "mark":
            depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if depth == 0:
            return at == len(tokens) - 1
    return False


def _without_unit(tokens: Sequence[Token], letters: bool) -> tuple[Sequence[Token], Unit | None]:
    """The tokens before the words at the end, and the unit those words name, if any."""
    end = len(tokens)
    power = 1
    raised = end > 2 and tokens[-2].text == "^" and tokens[-1].text in ("2", "3")
    if raised and _is_unit_word(tokens, end - 3, letters):
        power, end = int(tokens[-1].text), end - 2
    start = end
    while start > 1 and (
        _is_unit_word(tokens, start - 1, letters) or tokens[start - 1].text == "."
    ):
        start -= 1
        if start > 1 and tokens[start - 1].text == "/":
            start -= 1  # miles/hour
    if start == end:
        return tokens, None
    return tokens[:start], unit_of([token.text for token in tokens[start:end]], power)


def _is_unit_word(tokens: Sequence[Token], at: int, letters: bool) -> bool:
    if tokens[at].kind == "word":
        return True
    placed = at > 0 and (tokens[at - 1].kind == "number" or tokens[at - 1].text == "/")
    return letters and tokens[at].text in LETTER_UNITS and placed


def _without_degrees(tokens: Sequence[Token]) -> Sequence[Token]:
    """39° is 39, but the degrees of cos 58° are part of the formula."""
    if any(t.kind == "function" and t.text not in ("frac", "sqrt") for t in tokens):
        return tokens
    texts = [token.text for token in tokens]
    for ending in (["^", "°"], ["^", "{", "°", "}"], ["°"]):
        if texts[-len(ending) :] == ending:
            return tokens[: -len(ending)]
    return tokens


def _joined(tokens: Sequence[Token]) -> str:
    """The bare text, in which words are compared."""
    return "".join(token.text for token in tokens if token.text not in (".", "{", "}", "\\"))
