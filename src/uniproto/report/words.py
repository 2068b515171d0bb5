"""Text for the page: short, printable text of any value."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from uniproto.errors import printable

ELLIPSIS = "…"
_LOOK = 4  # characters scanned per byte allowed, so that long texts are not scanned whole
# Control characters, lone surrogates (bytes that were no UTF-8) and what XML calls non-characters.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
_ESCAPED = frozenset("<>&\"'\u2028\u2029\\")
_LONGEST_LIST = 6
LONGEST_NAME = 60  # of a class, an id or a column, in bytes
NO_DATA = (
    "A selection read back from a folder no longer holds its data. Run 'uniproto report' on a "
    "folder that 'uniproto select' wrote, which finds the input files again."
)


def page_text(value: Any) -> str:
    """Any value as text that every encoding and every parser takes.

    >>> page_text(b"caf\\xe9"), page_text("a\\x00b\\udcff"), page_text(0.30000000000000004)
    ('caf�', 'a�b�', '0.3')
    """
    return _UNPRINTABLE.sub("\ufffd", _as_text(value)).replace("\r\n", "\n").replace("\r", "\n")


def cut(value: Any, most: int) -> str:
    """Printable text of at most `most` bytes on the page, escapes counted, and an ellipsis.

    >>> cut("abcdef", 100), cut("abcdef", 3), cut("<b>", 8)
    ('abcdef', 'abc…', '<b…')
    """
    text = _as_text(value)
    complete = len(text) <= most * _LOOK
    text = page_text(text if complete else text[: most * _LOOK])
    if complete and 6 * len(text) <= most:
        return text
    used = 0
    for place, letter in enumerate(text):
        used += 6 if letter in _ESCAPED else len(letter.encode())
        if used > most:
            return text[:place] + ELLIPSIS
    return text if complete else text + ELLIPSIS


def full_length(value: Any) -> int:
    """How many characters (or bytes, where it is bytes) a value has as text."""
    return len(value) if isinstance(value, str | bytes) else len(_as_text(value))


def figure(value: float | None, digits: int = 4) -> str:
    """A number for people.

    >>> figure(0.0700430), figure(1234.0), figure(None), figure(float("inf"))
    ('0.07004', '1,234', '–', 'infinite')
    >>> figure(151.7, 2)  # whole numbers are never cut
    '152'
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "infinite"
    if value == 0:
        return "0"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    places = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return f"{value:.{places}f}" if places <= 8 else f"{value:.{digits - 1}e}"


def percent(share: float) -> str:
    """A share for people.

    >>> percent(0.314), percent(0.0042), percent(0.0001), percent(0.0)
    ('31%', '0.4%', '<0.1%', '0%')
    """
    if 0 < share < 0.0005:
        return "<0.1%"
    return f"{share:.0%}" if share >= 0.0995 or share == 0 else f"{share:.1%}"


def seconds(value: float) -> str:
    """A duration for people.

    >>> seconds(0.00031), seconds(0.0123), seconds(8.4), seconds(754.0)
    ('0.31 ms', '12 ms', '8.4 s', '12 min 34 s')
    """
    if value < 1:
        return f"{figure(value * 1000, 2)} ms"
    if value < 60:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "class", "classes"), counted(2500, "target")
    ('1 class', '2,500 targets')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if value is None:
        return "–"
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list) and value and all(isinstance(part, int | float) for part in value):
        first = ", ".join(_as_text(part) for part in value[:_LONGEST_LIST])
        return (
            f"[{first}]" if len(value) <= _LONGEST_LIST else f"[{first}, … {len(value):,} numbers]"
        )
    return str(value)


def mean_and_spread(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """The mean, and the sample standard deviation where there are two values or more.

    >>> mean_and_spread([1.0, 2.0, 3.0]), mean_and_spread([2.0]), mean_and_spread([None])
    ((2.0, 1.0), (2.0, None), (None, None))
    >>> mean_and_spread([1e200, 1e200, 1e200])
    (1e+200, 0.0)
    """
    known = [value for value in values if value is not None]
    if not known:
        return None, None
    unit = 2.0 ** (math.frexp(max(map(abs, known)))[1] - 1)  # changes no digits, nor overflows
    known = [value / unit for value in known]
    mean = math.fsum(known) / len(known)
    if len(known) == 1 or math.isinf(mean):
        return mean * unit, None
    variance = math.fsum((value - mean) ** 2 for value in known) / (len(known) - 1)
    return mean * unit, math.sqrt(variance) * unit


# --- tables of numbers ----------------------------------------------------------------------------

_MOST_PLACES = 8


def number_column(
    values: Sequence[tuple[float | None, float | None]], *, places: int | None = None
) -> list[str]:
    """Numbers with their spreads, aligned, with the same number of decimals.

    `places` is that number; by default, the smallest number has four significant digits.

    >>> number_column([(0.123456, 0.00321), (0.0514, None), (None, None)])
    ['0.12346 ± 0.00321', '0.05140          ', '–          ']
    """
    sizes = [abs(mean) for mean, _ in values if mean and math.isfinite(mean)]
    if places is None:
        places = 3 - math.floor(math.log10(min(sizes))) if sizes else 0
    form = f".{max(0, places)}f" if places <= _MOST_PLACES else ".3e"
    spreads = ["" if spread is None else f" ± {spread:{form}}" for _, spread in values]
    width = max(map(len, spreads), default=0)
    return [
        ("–" if mean is None else f"{mean:{form}}") + spread.ljust(width)
        for (mean, _), spread in zip(values, spreads, strict=True)
    ]


def aligned(columns: Mapping[str, Sequence[str]]) -> str:
    """A text table from columns by title; the first is aligned left, the others right."""
    parts = []
    for place, (title, cells) in enumerate(columns.items()):
        title, cells = printable(title), [printable(cell) for cell in cells]
        # Titles are aligned with the numbers, not with their spreads.
        blank = max((len(cell) - len(cell.rstrip()) for cell in cells), default=0)
        width = max(map(len, (title, *cells)))
        if place == 0:
            parts.append([cell.ljust(width) for cell in (title, *cells)])
        else:
            head = title.rjust(max(0, width - blank)).ljust(width)
            parts.append([head, *(cell.rjust(width) for cell in cells)])
    return "\n".join("  ".join(line).rstrip() for line in zip(*parts, strict=True))


def html_table(title: str, columns: Mapping[str, Sequence[str]], notes: Sequence[str]) -> str:
    """The same table for notebooks."""
    cell = "<t{0} style='text-align:{1}'>{2}</t{0}>"
    sides = ["left" if place == 0 else "right" for place in range(len(columns))]
    lines = [("h", list(columns)), *(("d", row) for row in zip(*columns.values(), strict=True))]
    rows = [
        "".join(
            cell.format(kind, side, escape(text)) for side, text in zip(sides, row, strict=True)
        )
        for kind, row in lines
    ]
    below = "".join(f"<p style='margin:.2em 0'>{escape(note)}</p>" for note in notes)
    table = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<div><strong>{escape(title)}</strong><table>{table}</table>{below}</div>"
