"""Numbers, amounts, dates and times as people write them in texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from uniproto.data.columns import GAPS

DAY = 86_400.0  # seconds
_SAMPLED = 200  # texts that show whether the others are worth reading
_WORTH = 0.5  # of them

_CURRENCY = (
    r"(?:(?:US|A|C|R)?\$|[€£¥₹₩₽]|kr\.?"
    r"|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|BRL|SEK|NOK|DKK|PLN|CZK)"
)
_TIME = r"(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2}(?:[.,]\d+)?))?\s*(?P<p>[AaPp])?(?:\.?[Mm]\.?)?"
_NUMBER = (
    r"^(?P<open>\()?(?P<sign>[+\-−])?\s*(?P<before>" + _CURRENCY + r")?\s*(?P<minus>[\-−])?"
    r"(?P<body>\d[\d.,'’\x{a0}\x{202f} ]*|[.,]\d+)(?P<e>[eE][+\-]?\d+)?"
    r"(?P<after>\s*(?:[%‰°$€£¥₹]|"
    + _CURRENCY
    + r"|[A-Za-zµ°²³/%]{2,12})|\s+[A-Za-zµ°²³/%]{1,12})?\)?$"
)
_CLOCK = f"^{_TIME}$"
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NAME = r"(?P<m>[A-Za-z]{3,9})\.?"
_ZONE = r"(?P<z>Z|UTC|GMT|[+\-]\d{2}(?::?\d{2})?)"
_AT = rf"(?:(?:[T,]\s*|\s+(?:at\s+)?){_TIME})?\s*{_ZONE}?(?:/.*)?$"  # a period has an end
_WEEKDAY = r"^(?:[A-Za-z]{3,9},? )?"
_DATES = (  # forms whose texts all mean one day; the last needs a day that is no month
    r"^(?P<y>\d{4})-(?P<m>\d{1,2})(?:-(?P<d>\d{1,2}))?",
    r"^(?P<y>\d{4})[./](?P<m>\d{1,2})[./](?P<d>\d{1,2})",
    r"^(?P<d>\d{1,2})\.\s?(?P<m>\d{1,2})\.\s?(?P<y>\d{4})",
    rf"{_WEEKDAY}(?P<d>\d{{1,2}})(?:st|nd|rd|th|\.)?[-/ ]\s?{_NAME}[-/, ]\s?(?P<y>\d{{4}}|\d{{2}})",
    rf"{_WEEKDAY}{_NAME} (?P<d>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y>\d{{4}})",
    rf"^{_NAME}[-/ ](?P<y>\d{{4}})",
    r"^(?P<y>\d{4})[- ]?Q(?P<q>[1-4])",
    r"^(?P<a>\d{1,2})[-/](?P<b>\d{1,2})[-/](?P<y>\d{4}|\d{2})",
)


CURRENCY = re.compile(_CURRENCY)


class Written(NamedTuple):
    """The values of texts: NaN for gaps, and for texts that are `odd`, of no such form.

    `form` tells texts apart that could mean several: the decimal mark, or which of two numbers is
    the day. New texts are read in the same form.
    """

    values: NDArray[np.float64]
    odd: NDArray[np.bool_]
    form: str


def written_numbers(texts: Sequence[str | None], form: str = "") -> Written | None:
    """Numbers, amounts with one currency or unit, and times of day (in seconds).

    None where most texts are something else; all are odd where decimal marks contradict each other.

    >>> written_numbers(["$1,643.00", "$20", "?", None]).values
    array([1643.,   20.,   nan,   nan])
    >>> written_numbers(["7.882,5 €", "30,5 €"]).values, written_numbers(["1:30 PM"]).values
    (array([7882.5,   30.5]), array([48600.]))
    """
    known, gaps = _known(texts)
    if not _is_worth(known, gaps, [_NUMBER, _CLOCK]):
        return None
    parts = _parts(known, _NUMBER)
    bodies = pc.replace_substring_regex(parts["body"], r"[\s'’\x{a0}\x{202f}]+$", "")
    form = form or _decimal_mark(bodies)
    if form not in (".", ","):
        return _written(np.full(len(texts), np.nan), gaps, "")
    group = "." if form == "," else ","
    whole = rf"(\d+|\d{{1,3}}([{group}'’\x{{a0}}\x{{202f}} ]\d{{3}})+)"
    mark = re.escape(form)
    fits = _true(pc.match_substring_regex(bodies, rf"^({whole}({mark}\d*)?|{mark}\d+)$"))
    fits &= _one_affix(parts["before"]) & _one_affix(parts["after"])
    plain = pc.replace_substring_regex(bodies, rf"[{group}'’\x{{a0}}\x{{202f}} ]", "")
    plain = pc.binary_join_element_wise(
        pc.replace_substring(plain, form, "."),
        pc.fill_null(parts["e"], ""),
        pa.scalar("", plain.type),
    )
    values = _cast(plain, fits)
    below = [pc.not_equal(pc.fill_null(parts[name], ""), "") for name in ("open", "minus")]
    below.append(pc.is_in(pc.fill_null(parts["sign"], ""), pa.array(["-", "−"], plain.type)))
    values = np.where(np.any([_true(each) for each in below], axis=0), -values, values)
    if np.isnan(values).any():
        clock = _parts(known, _CLOCK)
        values = np.where(np.isnan(values), _seconds(clock, _true(clock["H"].is_valid())), values)
    return _written(values, gaps, form)


def written_dates(texts: Sequence[str | None], form: str = "") -> Written | None:
    """Days since 1970 of texts that are all written in one form, such as 04-Jun-2014.

    None where most are something else; all are odd where nothing tells the day from the month.

    >>> written_dates(["1970-01-02", "-"]).values, written_dates(["Feb 1, 1970"]).values
    (array([ 1., nan]), array([31.]))
    >>> written_dates(["01/02/1970"]).odd, written_dates(["01/02/1970", "01/13/1970"]).values
    (array([ True]), array([ 1., 12.]))
    """
    known, gaps = _known(texts)
    for pattern in _DATES:
        if not _is_worth(known, gaps, [pattern + _AT]):
            continue
        parts = _parts(known, pattern + _AT)
        if "a" in parts:
            form = form or _day_place(parts)
            if not form:
                return _written(np.full(len(texts), np.nan), gaps, "")
            day, month = ("a", "b") if form == "day first" else ("b", "a")
            parts |= {"d": parts[day], "m": parts[month]}
        return _written(_days(parts), gaps, form)
    return None


def _known(texts: Sequence[str | None]) -> tuple[pa.Array, NDArray[np.bool_]]:
    """The texts without the spaces around them, and which of them stand for a gap."""
    given = pc.utf8_trim_whitespace(pa.array(texts, pa.large_string()))
    missing = pc.is_in(pc.utf8_lower(given), pa.array(sorted({g.lower() for g in GAPS})))
    gaps = _true(pc.or_(given.is_null(), pc.fill_null(missing, True)))
    return given, gaps


def _is_worth(texts: pa.Array, gaps: NDArray[np.bool_], patterns: Sequence[str]) -> bool:
    """Whether most of a few texts have one of these forms."""
    rows = np.flatnonzero(~gaps)
    some = texts.take(pa.array(rows[:: max(1, len(rows) // _SAMPLED)]))
    found = [_true(pc.match_substring_regex(some, pattern)) for pattern in patterns]
    return bool(len(some)) and float(np.any(found, axis=0).mean()) > _WORTH


def _parts(texts: pa.Array, pattern: str) -> dict[str, Any]:
    """What each named group of a pattern holds; null where a text does not match."""
    found = pc.extract_regex(texts, pattern)
    names = [found.type.field(place).name for place in range(found.type.num_fields)]
    return dict(zip(names, found.flatten(), strict=True))


def _decimal_mark(bodies: pa.Array) -> str:
    """The mark before the decimals, by texts in which it can be nothing else; "" in conflict."""

    def any_has(pattern: str) -> bool:
        return pc.any(pc.match_substring_regex(bodies, pattern)).as_py() is True

    point, comma = (
        any_has(
            rf"[{mark}](\d{{0,2}}|\d{{4,}})$|^0?[{mark}]|^\d{{4,}}[{mark}]|[{other}]\d{{3}}[{mark}]"
            rf"|[{other}]\d{{3}}[{other}]"
        )
        for mark, other in ((".", ","), (",", "."))
    )
    return "" if point and comma else "," if comma else "."


def _one_affix(affixes: pa.Array) -> NDArray[np.bool_]:
    """Which texts have no affix, or the one that most others have; km and kms are one."""
    plain = pc.utf8_rtrim(pc.utf8_lower(pc.utf8_trim_whitespace(affixes)), "s")
    used = plain.filter(pc.fill_null(pc.not_equal(plain, ""), False))
    if not len(used):
        return np.ones(len(affixes), bool)
    most = pc.mode(used.dictionary_encode().indices)[0].as_py()["mode"]
    usual = used.dictionary_encode().dictionary[most].as_py()
    return _true(pc.or_(pc.equal(plain, ""), pc.equal(plain, usual)))


def _day_place(parts: dict[str, Any]) -> str:
    """Which of two numbers is the day, by those above 12; "" where that is not known."""
    first, second, year = (_integers(parts[name]) for name in "aby")
    with np.errstate(invalid="ignore"):
        day_first, month_first = (first > 12).any(), (second > 12).any()
        short = day_first and not (year > 31).any()  # 20/12/31 may begin with the year
    if day_first == month_first or short:
        return ""
    return "day first" if day_first else "month first"


def _days(parts: dict[str, Any]) -> NDArray[np.float64]:
    count = len(next(iter(parts.values())))
    year = _integers(parts["y"])
    year = np.where(year < 100, year + np.where(year < 69, 2000, 1900), year)
    month = _integers(parts["q"]) * 3 - 2 if "q" in parts else _months(parts["m"])
    day = np.nan_to_num(_integers(parts["d"]), nan=1.0) if "d" in parts else np.ones(count)
    fits = (month >= 1) & (month <= 12) & (day >= 1) & (year >= 1)
    months = np.where(fits, (year - 1970) * 12 + month - 1, 0).astype(np.int64).astype("M8[M]")
    length = ((months + 1).astype("M8[D]") - months.astype("M8[D]")).astype(np.int64)
    days = months.astype("M8[D]").astype(np.int64) + day - 1
    days = np.where(fits & (day <= length), days, np.nan)
    timed = _true(pc.not_equal(pc.fill_null(parts["H"], ""), ""))
    spent = np.where(timed, _seconds(parts, timed), 0.0)
    zone = pc.replace_substring(pc.fill_null(parts["z"], ""), ":", "")
    if pc.any(pc.match_substring_regex(zone, r"\d")).as_py():
        hours = _integers(pc.utf8_slice_codeunits(zone, 0, 3))
        minutes = np.nan_to_num(_integers(pc.utf8_slice_codeunits(zone, 3, 5)))
        shift = np.nan_to_num(hours) * 3600 + np.copysign(minutes * 60, hours)
        spent = spent - np.where(np.isnan(hours), 0.0, shift)
    return days + spent / DAY


def _months(names: pa.Array) -> NDArray[np.float64]:
    numbers = _integers(names)
    short = pc.utf8_slice_codeunits(pc.utf8_lower(names), 0, 3)
    place = pc.index_in(short, pa.array(_MONTHS, short.type))
    named = place.cast(pa.float64()).to_numpy(zero_copy_only=False) + 1
    return np.where(np.isnan(numbers), named, numbers)


def _seconds(parts: dict[str, Any], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The seconds of a day that a time means; NaN where there is none, or no such time."""
    hour, minute = _integers(parts["H"]), _integers(parts["M"])
    second = pc.replace_substring(pc.fill_null(parts["S"], ""), ",", ".")
    after = pc.utf8_lower(pc.fill_null(parts["p"], ""))
    noon, halves = _true(pc.equal(after, "p")), _true(pc.not_equal(after, ""))
    hour = np.where(halves, hour % 12 + 12 * noon, hour)
    with np.errstate(invalid="ignore"):
        fits = known & (hour <= 24) & (minute < 60)
    spent = hour * 3600 + minute * 60 + np.nan_to_num(_cast(second, known))
    return np.where(fits, spent, np.nan)


def _integers(texts: pa.Array) -> NDArray[np.float64]:
    return _cast(texts, _true(pc.match_substring_regex(texts, r"^[+-]?\d+$")))


def _cast(texts: pa.Array, fits: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The numbers of texts; NaN where they do not fit, or are empty."""
    usable = pc.and_(pa.array(fits), pc.not_equal(pc.fill_null(texts, ""), ""))
    kept = pc.if_else(usable, texts, pa.scalar(None, texts.type))
    return kept.cast(pa.float64()).to_numpy(zero_copy_only=False)


def _true(found: Any) -> NDArray[np.bool_]:
    return pc.fill_null(found, False).to_numpy(zero_copy_only=False)


def _written(values: NDArray[np.float64], gaps: NDArray[np.bool_], form: str) -> Written:
    values = np.where(gaps | np.isinf(values), np.nan, values)
    return Written(values, np.isnan(values) & ~gaps, form)
