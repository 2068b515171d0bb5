r"""Formulas in answers: a small parser of arithmetic and LaTeX into a tree.

The text comes from a language model, so nothing in it is ever evaluated as code: what the grammar
below does not know is no formula.

    sum      →  [±] product (± product)* [\over or \choose sum]
    product  →  signed ((*, / or nothing) signed)*
    signed   →  [-] power
    power    →  atom [!] [°] [^ exponent]
    atom     →  number, mixed number, symbol, constant, ( sum ), { sum }, \frac, \binom, C(5, 2),
                \sqrt, function
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from uniproto.lm.judging.answers.tokens import Token


@dataclass(frozen=True)
class Formula:
    """A node: ``head`` is number, decimal, symbol, constant, sum, product, power or call.

    A decimal is a number written with a point: it may be rounded, a number never is.
    """

    head: str
    atom: Fraction | str | None = None
    parts: tuple[Formula, ...] = ()

    def walk(self) -> Iterator[Formula]:
        """Every node, this one first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.parts)

    @property
    def symbols(self) -> frozenset[str]:
        """The names of its variables; ``i`` and ``e`` are constants."""
        return frozenset(str(node.atom) for node in self.walk() if node.head == "symbol")

    @property
    def is_rounded(self) -> bool:
        """Whether it holds a number with a decimal point."""
        return any(node.head == "decimal" for node in self.walk())

    def as_json(self) -> list[Any]:
        """Nested lists, for the process that does algebra."""
        atom = None if self.atom is None else str(self.atom)
        return [self.head, atom, [part.as_json() for part in self.parts]]


def number(value: Fraction | int) -> Formula:
    """A number known exactly."""
    return Formula("number", Fraction(value))


def total(*parts: Formula) -> Formula:
    """A sum."""
    return parts[0] if len(parts) == 1 else Formula("sum", None, parts)


def product(*parts: Formula) -> Formula:
    """A product."""
    return parts[0] if len(parts) == 1 else Formula("product", None, parts)


def power(base: Formula, exponent: Formula) -> Formula:
    """A power; roots and quotients are powers too."""
    return Formula("power", None, (base, exponent))


def negative(part: Formula) -> Formula:
    """−part."""
    if part.head in ("number", "decimal"):
        assert isinstance(part.atom, Fraction)
        return Formula(part.head, -part.atom)
    return product(number(-1), part)


def quotient(above: Formula, below: Formula) -> Formula:
    """above / below."""
    return product(above, power(below, number(-1)))


def binomial(of: Formula, draws: Formula) -> Formula:
    """The binomial coefficient."""
    return Formula("call", "binomial", (of, draws))


MAX_DEPTH = 60  # of brackets and exponents inside one another; people write fewer than ten
MAX_EXPONENT_OF_TEN = 2000  # 1e999999999 would fill the memory


class NotAFormulaError(ValueError):
    """The tokens are no formula of this grammar; answers then compare as words."""


def parse_formula(tokens: Sequence[Token]) -> Formula:
    """Parse all of the tokens as one formula.

    >>> from uniproto.lm.judging.answers.tokens import tokens_of
    >>> parse_formula(tokens_of("2x")).symbols
    frozenset({'x'})
    """
    parser = _Parser(tokens)
    formula = parser.sum()
    if parser.peek() is not None:
        raise NotAFormulaError(f"{parser.peek()} does not continue a formula")
    return formula


_CLOSES = {"(": ")", "{": "}"}
_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan"}


class _Parser:
    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = list(tokens)
        self.at = 0
        self.depth = 0

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One level of nesting deeper, up to a limit: a hostile text could exhaust the stack."""
        if self.depth == MAX_DEPTH:
            raise NotAFormulaError("too deep")
        self.depth += 1
        yield
        self.depth -= 1

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise NotAFormulaError("the formula ends too early")
        self.at += 1
        return token

    def take_mark(self, *marks: str) -> str | None:
        token = self.peek()
        if token is not None and token.kind == "mark" and token.text in marks:
            self.at += 1
            return token.text
        return None

    def sum(self) -> Formula:
        with self.deeper():
            self.take_mark("+")
            terms = [self.product()]
            while sign := self.take_mark("+", "-"):
                term = self.product()
                terms.append(negative(term) if sign == "-" else term)
            formula = total(*terms)
            stacked = self.take_mark("over", "choose")
            if stacked:
                pair = formula, self.sum()
                return quotient(*pair) if stacked == "over" else binomial(*pair)
        return formula

    def product(self, *, implicit_only: bool = False) -> Formula:
        factors = [self.signed()]
        while True:
            sign = None if implicit_only else self.take_mark("*", "/")
            if sign == "/":
                factors.append(power(self.signed(), number(-1)))
            elif sign == "*":
                factors.append(self.signed())
            elif self.continues():
                if implicit_only and self.tokens[self.at].kind == "function":
                    break  # sin x cos x is (sin x)(cos x)
                factors.append(self.power())
            else:
                break
        return product(*factors)

    def continues(self) -> bool:
        """Whether the next token is a factor without a sign before it, as in 2x or 3(4)."""
        token = self.peek()
        if token is None:
            return False
        return token.kind in ("symbol", "constant", "function") or token.text in ("(", "{")

    def signed(self) -> Formula:
        minus = False
        while sign := self.take_mark("-", "+"):
            minus ^= sign == "-"
        return negative(self.power()) if minus else self.power()

    def power(self) -> Formula:
        base = self.atom()
        if self.take_mark("!"):
            base = Formula("call", "factorial", (base,))
        if self.take_mark("°"):
            return self.in_degrees(base)
        if self.take_mark("^"):
            if self.take_mark("°"):
                return self.in_degrees(base)
            following = self.tokens[self.at : self.at + 3]
            if [token.text for token in following] == ["{", "°", "}"]:
                self.at += 3
                return self.in_degrees(base)
            return power(base, self.exponent())
        return base

    @staticmethod
    def in_degrees(angle: Formula) -> Formula:
        return product(angle, Formula("constant", "pi"), number(Fraction(1, 180)))

    def exponent(self) -> Formula:
        minus = self.take_mark("-") is not None
        with self.deeper():
            exponent = self.power()  # 2^3^2 is 2^(3^2)
        return negative(exponent) if minus else exponent

    def atom(self) -> Formula:
        token = self.take()
        if token.kind == "number":
            return self.number(token.text)
        if token.kind == "symbol":
            return self.symbol(token.text)
        if token.kind == "constant":
            return Formula("constant", token.text)
        if token.kind == "function":
            return self.function(token.text)
        if token.kind == "mark" and token.text in _CLOSES:
            inside = self.sum()
            if self.take_mark(_CLOSES[token.text]) is None:
                raise NotAFormulaError("a bracket is not closed")
            return inside
        raise NotAFormulaError(f"{token.text!r} starts no formula")

    def number(self, text: str) -> Formula:
        value = self.plain_number(text)
        share = self.share() if text.isdigit() else None
        return value if share is None else total(value, share)

    @staticmethod
    def plain_number(text: str) -> Formula:
        """A number without a fraction after it; one whose digits repeat is known exactly."""
        digits, _, exponent = text.lower().partition("e")
        if len(digits) > MAX_EXPONENT_OF_TEN or len(exponent) > 5:
            raise NotAFormulaError("a number too long to be an answer")
        if exponent and abs(int(exponent)) > MAX_EXPONENT_OF_TEN:
            raise NotAFormulaError("a number too large to be an answer")
        if text.isdigit():
            return number(int(text))
        if not text.endswith(")"):
            return Formula("decimal", Fraction(text))
        written, _, period = text[:-1].partition("(")
        place = Fraction(1, 10 ** len(written.partition(".")[2]))
        digits_before = int(written.replace(".", "") or "0")
        return number(place * (digits_before + Fraction(int(period), 10 ** len(period) - 1)))

    def share(self) -> Formula | None:
        r"""The fraction of a mixed number, where one follows: 2 1/2, 2\frac{1}{2}, 2\frac12."""
        start, first = self.at, self.peek()
        if first is not None and first.kind == "number":
            above, slash, below = ([t.text for t in self.tokens[start : start + 3]] + ["", ""])[:3]
            if slash != "/" or not (above + below).isdigit():
                raise NotAFormulaError("two numbers side by side")
            if int(above) >= int(below):
                raise NotAFormulaError("no mixed number")
            self.at += 3
            return number(Fraction(int(above), int(below)))
        if first is None or first.text != "frac":
            return None
        self.take()
        parts = [self.argument(), self.argument()]
        above, below = (str(part.atom) for part in parts)
        is_plain = all(part.head == "number" for part in parts) and (above + below).isdigit()
        if is_plain and int(above) < int(below):
            return number(Fraction(int(above), int(below)))
        self.at = start  # 2 \frac{5}{3} is a product
        return None

    def symbol(self, name: str) -> Formula:
        if self.take_mark("_"):
            if self.take_mark("{"):
                subscript = "".join(iter(lambda: self.take().text, "}"))
            else:
                subscript = self.take().text
            return Formula("symbol", f"{name}_{subscript}")
        if name == "C" and (drawn := self.drawn()) is not None:
            return drawn
        if name in ("i", "I", "e"):  # I is SymPy's imaginary unit
            return Formula("constant", name.lower())
        return Formula("symbol", name)

    def drawn(self) -> Formula | None:
        """The (5, 2) of C(5, 2): two of five. C(2, 5) is more like a point."""
        following = self.tokens[self.at : self.at + 5]
        texts = [token.text for token in following]
        if texts[::2] != ["(", ",", ")"] or not (texts[1] + texts[3]).isdigit():
            return None
        of, draws = (self.plain_number(text) for text in texts[1::2])
        if int(texts[1]) < int(texts[3]):
            return None
        self.at += 5
        return binomial(of, draws)

    def argument(self) -> Formula:
        r"""What LaTeX takes without braces is one character: \frac12 is a half."""
        token = self.peek()
        if token is not None and token.kind == "number" and len(token.text) > 1:
            if not token.text.isdigit():
                raise NotAFormulaError("a decimal without braces")
            self.tokens[self.at : self.at + 1] = [
                Token("number", token.text[0]),
                Token("number", token.text[1:]),
            ]
        if token is not None and token.kind == "number":
            return number(int(self.take().text))
        minus = self.take_mark("-") is not None
        with self.deeper():
            part = self.atom()
        return negative(part) if minus else part

    def function(self, name: str) -> Formula:
        if name == "frac":
            return quotient(self.argument(), self.argument())
        if name == "binom":
            return binomial(self.argument(), self.argument())
        if name == "sqrt":
            return self.root()
        exponent = base = None
        if self.take_mark("^"):
            exponent = self.exponent()
        if exponent == number(-1) and name in ("sin", "cos", "tan"):
            name, exponent = f"arc{name}", None
        if name == "log" and self.take_mark("_"):
            base = self.argument()
        value = Formula(
            "call", _NAMES.get(name, "ln" if name == "log" else name), (self.operand(),)
        )
        if base is not None:
            value = quotient(value, Formula("call", "ln", (base,)))
        return value if exponent is None else power(value, exponent)

    def operand(self) -> Formula:
        """What a function is of: the bracket after it, or the product that follows (sin 3x)."""
        token = self.peek()
        bracketed = token is not None and token.text in _CLOSES
        with self.deeper():
            return self.atom() if bracketed else self.product(implicit_only=True)

    def root(self) -> Formula:
        degree = number(2)
        if self.take_mark("["):
            degree = self.sum()
            if self.take_mark("]") is None:
                raise NotAFormulaError("the degree of a root is not closed")
        token = self.peek()
        is_number = token is not None and token.kind == "number"  # √10 and sqrt 2.5, plain text
        radicand = self.plain_number(self.take().text) if is_number else self.argument()
        if degree == number(2):
            return power(radicand, number(Fraction(1, 2)))
        return power(radicand, quotient(number(1), degree))
