"""Tokens of an answer: LaTeX, plain mathematics and English in one notation.

Nothing is evaluated here; a text of any content becomes a list, in time linear in its length.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from uniproto.lm.judging.answers.words import is_unit

FUNCTIONS = frozenset(
    {
        "sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh", "arcsin", "arccos",
        "arctan", "asin", "acos", "atan", "ln", "log", "exp", "abs",
    }
)  # fmt: skip


class Token(NamedTuple):
    """A token of an answer; ``kind`` is number, digits (2112_6), symbol, constant, function, word
    or mark. The text of a number may end with digits that repeat: 0.1(6) is a sixth."""

    kind: str
    text: str


_CHARACTERS = str.maketrans(
    {
        "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "－": "-",
        "×": "*", "·": "*", "⋅": "*", "∗": "*", "÷": "/", "∕": "/", "⁄": "/",
        "π": r"\pi ", "∞": r"\infty ", "∪": r"\cup ", "∈": r"\in ", "√": r"\sqrt ", "±": r"\pm ",
        "≤": r"\le ", "≥": r"\ge ", "⩽": r"\le ", "⩾": r"\ge ", "≠": r"\ne ",
        "≈": "=", "°": r"^\circ ",
        "²": "^2", "³": "^3", "⁴": "^4", "½": r"\frac12 ", "⅓": r"\frac13 ", "⅔": r"\frac23 ",
        "¼": r"\frac14 ", "¾": r"\frac34 ", "€": "", "£": "", "¥": "", "\u00a0": " ", "\u202f": " ",
        "∅": r"\emptyset ", "“": '"', "”": '"', "’": "'", "‘": "'", "⟨": "(", "⟩": ")",
    }
)  # fmt: skip

_COMMANDS = {  # LaTeX's name → the mark it stands for
    "cdot": "*", "times": "*", "ast": "*", "div": "/",
    "le": "<=", "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=",
    "lt": "<", "gt": ">", "ne": "!=", "neq": "!=", "approx": "=", "in": "in",
    "cup": "union", "pm": "±", "circ": "°", "degree": "°", "langle": "(", "rangle": ")",
    "lbrace": "\\{", "rbrace": "\\}", "lbrack": "[", "rbrack": "]",
    "over": "over", "choose": "choose", "\\": "newrow", "%": "%",
}  # fmt: skip
_PAIRED = {  # LaTeX's name for a thing of two arguments → ours
    "frac": "frac", "dfrac": "frac", "tfrac": "frac", "cfrac": "frac",
    "binom": "binom", "dbinom": "binom", "tbinom": "binom",
}  # fmt: skip
_TEXT_GROUPS = frozenset(
    {
        "text", "mbox", "textbf", "textit", "textrm", "texttt", "mathrm", "mathbf", "mathit",
        "mathbb", "mathsf", "operatorname", "emph",
    }
)  # fmt: skip
_INVISIBLE = frozenset(
    {
        "left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr",
        "displaystyle", "textstyle", "limits", "quad", "qquad", "overline", "mathord", "boxed",
        "fbox", "hspace",
    }
)  # fmt: skip
_GREEK = frozenset(
    {
        "alpha", "beta", "gamma", "delta", "epsilon", "varepsilon", "zeta", "eta", "theta",
        "vartheta", "kappa", "lambda", "mu", "nu", "xi", "rho", "sigma", "tau", "phi", "varphi",
        "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Sigma", "Phi", "Psi",
        "Omega",
    }
)  # fmt: skip
_SPACING = frozenset(" ,;:!()[]$#&|'\"\n")  # \, and \! are spaces, \( and \[ only surround
_CONSTANTS = {"pi": "pi", "oo": "oo", "inf": "oo", "infinity": "oo", "infty": "oo"}
_TOKENS = {  # LaTeX's name for something that is one token
    **{name: Token("function", ours) for name, ours in _PAIRED.items()},
    **{name: Token("function", name) for name in ("sqrt", *FUNCTIONS)},
    **{name: Token("constant", ours) for name, ours in _CONSTANTS.items()},
    **{name: Token("mark", ours) for name, ours in _COMMANDS.items()},
    **{name: Token("symbol", name) for name in _GREEK},
}
_SCALES = {
    "hundred": "100", "thousand": "1000", "million": "1000000", "billion": "1000000000",
    "trillion": "1000000000000",
}  # fmt: skip
_PARTS = {  # not quarter: three quarters may be coins
    "half": "2", "third": "3", "fourth": "4", "fifth": "5", "sixth": "6", "seventh": "7",
    "eighth": "8", "ninth": "9", "tenth": "10", "hundredth": "100", "thousandth": "1000",
}  # fmt: skip
_AFTER_A_NUMBER = {  # words that change the number before them: 5 million, 3 fourths, 5 squared
    **{word: ("*", number) for word, number in _SCALES.items()},
    **{word: ("/", number) for word, number in _PARTS.items()},
    **{f"{word}s": ("/", number) for word, number in _PARTS.items()},
    "halves": ("/", "2"), "squared": ("^", "2"), "cubed": ("^", "3"),
}  # fmt: skip
_BETWEEN_NUMBERS = {"times": "*", "plus": "+", "minus": "-", "over": "/"}  # 5 times 3; not 5 times
_MARK_WORDS = {"and": "and", "or": "or", "percent": "%", "degrees": "°", "degree": "°"}

_THOUSANDS_GLUE = re.compile(r"(?<=\d)\s*(?:,\s*\\!|\{,\}|\\,)\s*(?=\d{3})")
_GROUPED_NUMBER = re.compile(r"\d{1,3}(?:,\d{3}){1,12}(?!,?\d)(?:\.\d+)?")
_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")
_REPEATING = re.compile(  # 0.1\overline{6}; 0.1\dot{6}; 0.\dot{1}42\dot{3}; 0.(6), but 2.5(6) is 15
    r"(\d*\.\d*)\s*(?:\\(?:overline|bar)\s*(?:\{\s*(\d+)\s*\}|(\d))"
    r"|\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?|(?<=\d\.)\((\d+)\))"
)
_OVER_DIGITS = re.compile(r"\s*\{?\s*\d")
_DIGITS_IN_A_BASE = re.compile(r"([0-9][0-9A-F]*(?:\.[0-9A-F]+)?)_(?:\{\s*(\d+)\s*\}|(\d+))")
_CLOCK_HALF = re.compile(r"\b([apAP])\.\s?[mM]\b\.?")
_MATHEMATICS = re.compile(r"[\d+*/^=<>\\_(\[]")
_LETTERS = re.compile(r"[A-Za-z]{2,}(?:[-'][A-Za-z]+)+|[A-Za-z]+")
_COMMAND = re.compile(r"\\([A-Za-z]+|.)", re.DOTALL)
_TEXT_BODY = re.compile(r"\s*\{([^{}]*)\}")
_ENVIRONMENT = re.compile(r"\s*\{([a-z]+)\*?\}(?:\{[clr|]*\})?")


def tokens_of(text: str) -> list[Token]:
    r"""The tokens of an answer.

    >>> [token.text for token in tokens_of(r"\dfrac{1}{2}\text{ cm}^2")]
    ['frac', '{', '1', '}', '{', '2', '}', 'cm', '^', '2']
    >>> [token.text for token in tokens_of("x**2 <= 15,600")]
    ['x', '^', '2', '<=', '15600']
    """
    return _Lexer(text).run()


class _Lexer:
    def __init__(self, text: str, *, letters_are_words: bool = False) -> None:
        plain = unicodedata.normalize("NFC", text).translate(_CHARACTERS)
        self.text = _CLOCK_HALF.sub(r"\1m", _THOUSANDS_GLUE.sub("", plain))
        # Inside \text{…}, and where nothing is mathematics, letters are never variables.
        self.letters_are_words = letters_are_words
        self.prose = _MATHEMATICS.search(self.text) is None
        self.at = 0
        self.depth = 0  # of brackets, where "1,234" is two numbers and not one
        self.quoted = False
        self.tokens: list[Token] = []

    def run(self) -> list[Token]:
        while self.at < len(self.text):
            character = self.text[self.at]
            if character == "'":
                self._quote()
            elif character.isspace() or character in '$~"`?':
                self.at += 1
            elif character == "\\":
                self._command()
            elif character.isascii() and (character.isdigit() or self._starts_decimal()):
                self._number()
            elif character.isascii() and character.isalpha():
                self._letters()
            else:
                self._mark()
        return self.tokens

    def _add(self, kind: str, text: str) -> None:
        self.tokens.append(Token(kind, text))

    def _quote(self) -> None:
        """Quotes are ignored, but f'(x) is not f(x)."""
        after_symbol = self.at > 0 and self.text[self.at - 1].isalpha() and bool(self.tokens)
        if after_symbol and self.tokens[-1].kind == "symbol" and not self.quoted:
            self._add("mark", "'")
        else:
            self.quoted = not self.quoted
        self.at += 1

    def _starts_decimal(self) -> bool:
        if self.text[self.at] != ".":
            return False
        return bool(_NUMBER.match(self.text, self.at) or _REPEATING.match(self.text, self.at))

    def _number(self) -> None:
        repeating = _REPEATING.match(self.text, self.at)
        if repeating:
            period = "".join(filter(None, repeating.groups()[1:]))
            self._add("number", f"{repeating[1]}({period})")
            self.at = repeating.end()
            return
        based = _DIGITS_IN_A_BASE.match(self.text, self.at)
        if based:
            self._add("digits", f"{based[1]}_{based[2] or based[3]}")
            self.at = based.end()
            return
        grouped = _GROUPED_NUMBER.match(self.text, self.at) if self.depth == 0 else None
        match = grouped or _NUMBER.match(self.text, self.at)
        assert match is not None  # the caller saw a digit
        number = match[0].replace(",", "")
        self.at = match.end()
        self._add("number", number.removesuffix("."))  # the point of "18." ends a sentence

    def _command(self) -> None:
        match = _COMMAND.match(self.text, self.at)
        if match is None:  # a backslash at the very end
            self.at += 1
            return
        name, self.at = match[1], match.end()
        if name in _TEXT_GROUPS:
            body = _TEXT_BODY.match(self.text, self.at)
            if body:
                self.at = body.end()
                self.tokens += _Lexer(body[1], letters_are_words=True).run()
        elif name in _TOKENS:
            self.tokens.append(_TOKENS[name])
        elif name == "not" and self.text[self.at :].lstrip().startswith("="):
            self.at = self.text.index("=", self.at) + 1
            self._add("mark", "!=")
        elif name in ("begin", "end"):
            environment = _ENVIRONMENT.match(self.text, self.at)
            self.at = environment.end() if environment else self.at
            self._add("mark", name)
        elif name in ("{", "}"):
            self.depth += 1 if name == "{" else -1
            self._add("mark", "\\" + name)
        elif name.isalpha() and name not in _INVISIBLE:
            self._add("word", name)
        elif name == "overline" and _OVER_DIGITS.match(self.text, self.at):
            self._add("word", name)  # 12\overline{3} is no product
        elif name not in _INVISIBLE and name not in _SPACING:
            self.at = match.start() + 1  # a stray backslash: what follows stands for itself

    def _letters(self) -> None:
        match = _LETTERS.match(self.text, self.at)
        assert match is not None  # the caller saw a letter
        run, start, self.at = match[0], self.at, match.end()
        lower = run.lower()
        previous = self.tokens[-1] if self.tokens else Token("mark", "")
        following = self.text[self.at : self.at + 20].lstrip()[:1]
        if lower in _MARK_WORDS:
            self._add("mark", _MARK_WORDS[lower])
        elif lower in _AFTER_A_NUMBER and previous.kind == "number":
            sign, number = _AFTER_A_NUMBER[lower]
            self._add("mark", sign)
            self._add("number", number)
        elif lower in _BETWEEN_NUMBERS and previous.kind == "number" and following.isdigit():
            self._add("mark", _BETWEEN_NUMBERS[lower])
        elif self.letters_are_words:
            self._add("word", run)
        elif lower in FUNCTIONS or lower == "sqrt":
            self._add("function", lower)
        elif lower in _CONSTANTS:
            self._add("constant", _CONSTANTS[lower])
        elif run == "U" and previous.text in (")", "]", "\\}") and following in ("(", "[", "\\"):
            self._add("mark", "union")
        elif run == "in" and previous.kind == "symbol" and following in ("(", "[", "\\"):
            self._add("mark", "in")
        elif lower == "x" and previous.kind == "number" and self._is_times_sign(start):
            self._add("mark", "*")
        elif run == "j" and previous.kind == "number":
            self._add("symbol", "i")  # Python's imaginary unit
        elif self._is_word(run, start, previous):
            self._add("word", run)
        else:
            for letter in run:
                self._add("symbol", letter)

    def _is_word(self, run: str, start: int, previous: Token) -> bool:
        """Long runs are words; of the short ones those in prose, and what follows a number."""
        if len(run) == 1:
            return previous.kind == "word" and run.islower()  # four of a kind
        spaced = self.text[start - 1 : start].isspace()
        counted = previous.kind == "number" and (spaced or is_unit(run))  # 12 men, 5cm; not 3qr
        measured = previous.text in (")", "}", "pi", ".") and is_unit(run)  # sq. ft
        return len(run) > 3 or self.prose or counted or measured or previous.kind == "word"

    def _is_times_sign(self, start: int) -> bool:
        """1.5 x 10^3"""
        return self.text[start - 1] == " " and re.match(r" \d", self.text[self.at :]) is not None

    def _mark(self) -> None:
        for mark in ("**", "<=", ">=", "!=", "=="):
            if self.text.startswith(mark, self.at):
                self._add("mark", {"**": "^", "==": "="}.get(mark, mark))
                self.at += 2
                return
        character = self.text[self.at]
        self.at += 1
        if character in "([":
            self.depth += 1
        elif character in ")]":
            self.depth -= 1
        self._add("mark", character)
