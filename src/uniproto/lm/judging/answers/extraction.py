r"""The final answer in what a model wrote, or in what its program printed.

An answer is announced by \boxed{…}, by "#### …" or by "the answer is …"; of several announcements
the last counts, for models correct themselves. Without one, it is what the last line says something
is, or else its last amount that does not say of how many or in how long. What a model writes after
its own turn, such as a next question, does not count.
"""

from __future__ import annotations

import re

from uniproto.lm.features.number_words import in_digits, number_in_words
from uniproto.lm.judging.answers.comparison import NUMBER_SETS, restatements
from uniproto.lm.judging.answers.reading import (
    Answer,
    Digits,
    Listing,
    Quantity,
    Relation,
    Row,
    Words,
    read_answer,
)
from uniproto.lm.judging.answers.words import (
    denies,
    is_unit,
    option_letter,
    option_said,
    options_of,
)

AMOUNT = re.compile(
    r"(?<![A-Za-z_^\d])(?:(?<![\w.)\]}])-\s?)?(?:\\?\$\s?)?-?(?<![A-Za-z_.])"
    r"(?:\d*\s?\\[dt]?frac\s?\{[^{}\n]{1,40}\}\{[^{}\n]{1,40}\}"
    r"|\d*\.\d*\\(?:overline|bar|dot)\s?\{\d{1,40}\}"
    r"|\d{1,3}(?:,\d{3}){1,12}(?!,?\d)(?:\.\d+)?|\d{1,9}\s+\d{1,9}/\d{1,9}|\d{1,15}/\d{1,15}"
    r"|\d*\.\d+(?:[eE][+-]?\d+)?|\d+(?:[eE][+-]?\d+)?)(?:\s?\\?%"
    r"|\s(?:(?:hundred|thousand|million|billion|trillion)|halves|(?:third|fourth|fifth|sixth|seventh"
    r"|eighth|ninth|tenth)s)\b)?"
)
_RATIO_OR_CLOCK = re.compile(r"\d+(?:\s?:\s?\d+)+(?:\s?[ap]\.?\s?m\.?)?", re.IGNORECASE)
_WORKED_OUT = re.compile(r"=|\b(?:is|are|equals?|so|gives)\b", re.IGNORECASE)
# After the first amount: more is to be done with it.
_GOES_ON = re.compile(
    r"\s?[-+*/×÷:x']\s?[\d(]|\s+and\s+(?:a|one)\s+(?:half|third|quarter)\b|\s+(?:more|less|fewer)\s+(?:\w+\s+)?than\b|\s+(?:less|of|to)\s+\d"
    r"|\s+(?:times|plus|minus|divided|multiplied|is\s+(?:not|wrong|incorrect))\b",
    re.IGNORECASE,
)
# Before the last amount: it is not the answer.
_UNSTATED = re.compile(
    r"\b(?:not|never|between|(?:more|less|fewer|greater|larger|smaller) than|half|twice|double"
    r"|triple|(?:third|fourth|fifth|quarter|sum|product|difference|square|cube|root) of)\b",
    re.IGNORECASE,
)
_TWO_MEASURES = re.compile(rf"{AMOUNT.pattern}\s?([a-z]+)[\s,]+{AMOUNT.pattern}\s?([a-z]+)")


def amount_of(statement: str, dataset: str) -> str | None:
    """The amount a statement gives: all of it if it is one, else its first or last number.

    >>> amount_of("18 dollars", "gsm8k"), amount_of("18, for 20 - 2 = 18", "gsm8k")
    ('18 dollars', '18')
    >>> amount_of("less than 10", "gsm8k")
    """
    if dataset == "deepmind" and statement.lower() in ("true", "false"):
        return statement
    if dataset == "numglue":
        letter = option_letter(statement, loose=True)
        if letter is not None:
            return letter
    if _is_amount(read_answer(statement, brackets_are_lists=True)) or _RATIO_OR_CLOCK.fullmatch(
        statement
    ):
        return statement
    amounts = list(AMOUNT.finditer(statement))
    if not amounts:
        denied = _UNSTATED.match(statement) is not None
        return statement if dataset == "numglue" and not denied else None
    first, last = amounts[0], amounts[-1]
    if _are_two_measures(statement):
        return None
    if first.start() == 0:
        if not _GOES_ON.match(statement, first.end()):
            return first[0].strip()
        worked_out = _WORKED_OUT.search(statement, first.end(), last.start())
        return last[0].strip() if worked_out else None
    unstated = _UNSTATED.search(statement, 0, last.start())
    if unstated and not _WORKED_OUT.search(statement, unstated.end(), last.start()):
        return None
    return last[0].strip()


def _is_amount(answer: Answer) -> bool:
    """Whether all of it is an amount, or a list."""
    if isinstance(answer, Listing | Row):
        first, *others = answer.items
        plain = isinstance(first, Quantity) and not first.formula.symbols
        return not any(isinstance(item, Words) for item in answer.items) and not (
            plain and any(map(_is_remark, others))
        )
    if isinstance(answer, Relation):
        return isinstance(answer.sides[-1], Quantity)
    return isinstance(answer, Quantity | Digits)


def _is_remark(item: Answer) -> bool:
    """What follows "18," without being a second amount: "so it is", "since 20 - 2 = 18"."""
    if isinstance(item, Relation):
        name = item.sides[0]
        worked_out = isinstance(name, Words) and any(map(str.isdigit, name.text))
        return worked_out and set(item.signs) == {"="}
    # Short words look like products of variables; -2, w, 5 is a list with a variable.
    return isinstance(item, Quantity) and item.text.isalpha() and len(item.formula.symbols) > 1


def _are_two_measures(statement: str) -> bool:
    """5 hours 30 minutes is neither 5 nor 30."""
    match = _TWO_MEASURES.match(statement.lower())
    return match is not None and is_unit(match[1]) and is_unit(match[2])


MAX_OUTPUT = 100_000  # characters, from the end
MAX_ANNOUNCEMENTS = 50  # looked at, from the end
MAX_BARE_ANSWER = 40  # characters of a line that is an answer and nothing else
MAX_OPTION = 150  # characters of a line that picks an option; longer ones discuss them
MAX_STATEMENT = 400  # characters; final answers are shorter
MAX_GROUP = 2000  # characters of LaTeX between braces, or after ####

_NEXT_TURN = re.compile(
    r"\n[^\S\n]*(?:#+\s*(?:Instruction|Question|Input|Problem)\b"
    r"|(?:Question|Problem|Exercise|Q)\s*(?:\d+\s*)?:|Human:|User:|<\|)",
    re.IGNORECASE,
)
_ANNOUNCED = re.compile(
    r"(?:\b(?:wrong|incorrect)\s+)?\b(?:answers?|correct\s+(?:option|choice))\b[^.\n=:]{0,60}?"
    r"(?:\b(?:is|are|equals?|be|was)\b|\b(?:is|are|was)n['’]t\b|[:=])"
    r"(?:\s*(?:[:=]|equal to|therefore|thus|simply))*",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"wrong|incorrect|.*(?:n['’]t(?:\s+be)?|\b(?:cannot|not)\s+be)\W*$", re.IGNORECASE
)
_BULLET = re.compile(r"(?:[-*•]|\d+[.)])\s+")
_HASHES = re.compile(r"####(?!#)[ \t]*([^\n]*)")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_SENTENCE_END = re.compile(
    r"\n|(?<![ap]\.m)(?<!\bi\.e)(?<!\b[ap])(?<!\\)[.!?](?=\s|$)|(?<!\\);(?=\s)", re.IGNORECASE
)
_EMPHASIS = re.compile(r"(?<![\w)*])\*\*(?=\S)([^*\n]+)\*\*(?![\w(*])")
_MATHEMATICS = re.compile(r"\$\$?([^$\n]+)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)
_NO_ANSWER = re.compile(
    r"(?:correct\b|incorrect\b|right\b|wrong\b|reasonable\b|below\b|above\b|as follows|"
    r"given by|found\b|obtained\b|that\b|$)",
    re.IGNORECASE,
)
_PLAN = re.compile(  # "Step 2: Calculate the number of …" says what comes, not what came out
    r"\W*(?:step\s*)?\d+\s*[.:)]\W*(?:determine|calculate|find|compute|identify|convert|use)\b[^=]*",
    re.IGNORECASE,
)
_ITEM = re.compile(r"^\W*\d+[.)]\s")  # the number of a point in a list
_NAMED = re.compile(rf"\b[A-Za-z]\w{{0,20}}\s*=\s*{AMOUNT.pattern}(?!\w|\s*[*/+(-])")
_NAMED_LINE = re.compile(rf"[A-Za-z]\w{{0,20}}\s*[=:]\s*{AMOUNT.pattern}")
_VALUE_LINE = re.compile(rf"(?:[A-Za-z]\w{{0,20}}\s*[=:]\s*)?{AMOUNT.pattern}")
_LIST_BEGINS = re.compile(r"\b(?:is|are)[\s:(]*")  # "… are 5 and 3", "… is (5, 3)"
_LIST_GOES_ON = re.compile(r"\s*(?:,\s*and|,|and)\s*")
_STATED = re.compile(r".*(?:\b(?:is|are|equals?)|:)\s+(\S.*)")
_RATIO_IN_WORDS = re.compile(r"\bratio\b.*?\b(\d+)\s+to\s+(\d+)", re.IGNORECASE)
# Between two amounts: the later one says of how many, in how long, after what.
_PLAIN = (
    r"(?!(?:and|but|so|then|or|is|are|was|were|has|have|gets?|gives|makes|costs?|leaves|total"
    r"|plus|minus|times)\b)[a-z]+,?\s+"
)
_ASIDE = re.compile(
    rf",?\s(?:{_PLAIN}){{0,4}}?(for|in|out\s+of|of|when|where|if|at|on|after|before)\s+"
    rf"(?:{_PLAIN}){{0,3}}(?:[a-z]\s*=\s*)?",
    re.IGNORECASE,
)
_COMPARED = re.compile(
    r"\b(?:[A-Za-z]\s*(?:[<>≤≥]=?|\\[lg]eq?)|(?:more|less|fewer|greater)\s+than)\s*\$?\s?$"
)
_YEAR = re.compile(r"(?:19|20)\d\d")
_PRICE = re.compile(r"\\?\$|[\d.,]+\s+(?:dollars?|cents?|euros?|pounds?|each|in\s+total|total)\b")
_CHECKED = re.compile(r"\s*\((?:check|since|because|as|verif)[^()]*\)\W*$", re.IGNORECASE)
_SENTENCE = re.compile(r"[A-Z][a-z]+\s+[a-z]+\s")  # short words look like products of variables
_NO_NUMBER = re.compile(
    r"\b(?:the|this|that|which|no)\s+one\b|\bone\s+(?:of|can|must|should)\b"
    r"|\b\w+\s+(?:halves|thirds|quarters|\w+ths|dozen|times)\b",
    re.IGNORECASE,
)
_NO_SOLUTION = re.compile(r"no\s+(?:\w+\s+)?solutions?\b", re.IGNORECASE)
_LABELLED = re.compile(rf"[A-Za-z]\w*\s*[=:]\s*{AMOUNT.pattern}")
_LABEL = re.compile(r"[A-Za-z][\w ,'()-]*:\s*(?=\S)")
_NOTHING = frozenset({"", "none", "nan", "null", "error", "[]", "{}", "()", "set()", "emptyset"})


def extract_answer(
    output: str, dataset: str, question: str | None = None, *, cut_off: bool = False
) -> str | None:
    r"""The final answer in a model's text; None where there is none.

    With the ``question``, an answer in the words of one of its options becomes that letter. Of a
    text that was ``cut_off`` only an announced answer counts: its last number is a step on the way.

    >>> extract_answer("Each costs 3, so 6 * 3 = 18. The answer is 18 dollars.", "gsm8k")
    '18 dollars'
    >>> extract_answer(r"Hence $x = \boxed{\frac{1}{2}}$.", "math")
    '\\frac{1}{2}'
    """
    text = _in_plain_digits(_own_turn(output[-MAX_OUTPUT:]))
    statement, rest = _last_statement(text)
    options = options_of(question)
    if options:
        return _option(statement, text, options)
    if dataset not in NUMBER_SETS:
        if statement:
            return _amount_before_words(statement)
        return None if cut_off else _last_mathematics(text)
    unannounced = statement is None and not cut_off
    if dataset == "simuleq" and (unannounced or _NAMED_LINE.fullmatch(statement or "")):
        several = _unknowns(text)
        if several is not None:
            return several
    amount = amount_of(statement, dataset) if statement else None
    if amount is not None:
        return amount
    if cut_off:
        return None
    text = rest  # after "the answer is unknown", no number before it is the answer
    if dataset == "numglue":
        letter = option_letter(_last_line(text))
        if letter is not None:
            return letter
    return _last_amount(text)


def program_answer(printed: str, dataset: str, question: str | None = None) -> str | None:
    """The answer a program printed: the last line that is not empty.

    With the ``question``, the words of one of its options become that letter.

    >>> program_answer("computing\\n18.0\\n", "gsm8k")
    '18.0'
    """
    printed = printed[-MAX_OUTPUT:]
    if dataset == "simuleq" and (several := _unknowns(printed, bare=True)):
        return several
    line = _last_line(_joined_brackets(printed))
    if line.lower() in _NOTHING or len(line) > MAX_STATEMENT or _NO_SOLUTION.match(line):
        return None
    one_number = dataset in NUMBER_SETS and dataset != "simuleq"
    if one_number and len(_LABELLED.findall(line)) > 1:
        return None  # John: 5, Mary: 6
    statement, _ = _last_statement(line)
    if statement is None:
        statement = _LABEL.sub("", line, count=1) if _LABEL.match(line) else line
    statement = statement.strip().strip("'\"")
    options = options_of(question)
    if options:
        return _option(statement, line, options)
    if dataset not in NUMBER_SETS:
        return statement or None
    return amount_of(statement, dataset)


_SPACED = re.compile(r"(?<![\d.,/\w])[1-9]\d{0,2}(?:[ \u00a0\u202f]\d{3})+(?![\d/.,]*\d)")
_THOUSANDS = re.compile(r"(\$\s?)(\d{1,6}(?:\.\d{1,3})?)\s?([kKM])\b(?!\s?[$^+*/=\\-])")
_AND_A_HALF = re.compile(r"\b(\w+)\s+and\s+a\s+half\b", re.IGNORECASE)
_SIGNS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4"}


def _in_plain_digits(text: str) -> str:
    """Numbers without spaces between thousands, amounts of money without k, plain fractions.

    >>> _in_plain_digits("70 000 dollars or $1.5k"), _in_plain_digits("2½ or three and a half")
    ('70000 dollars or $1500', '2 1/2 or 3.5')
    """
    text = _SPACED.sub(lambda found: re.sub(r"\s", "", found[0]), text)
    text = re.sub(r"(\d?)([½⅓⅔¼¾])", lambda found: f"{found[1]} {_SIGNS[found[2]]}".strip(), text)
    text = _AND_A_HALF.sub(_with_half, text)
    scales = {"k": 1e3, "K": 1e3, "M": 1e6}
    return _THOUSANDS.sub(lambda m: f"{m[1]}{float(m[2]) * scales[m[3]]:.12g}", text)


def _with_half(found: re.Match[str]) -> str:
    value = found[1] if found[1].isdecimal() else number_in_words([found[1]])
    return found[0] if value is None else f"{value}.5"


_REMARK = re.compile(  # 12, because …; 12 apples for 4 children
    r",?\s+(?:(?!and\b|or\b|plus\b|minus\b|times\b|more\b|less\b|over\b)[a-z]{2,}\s+)?"
    r"(because|since|as|for|so|when|where|if|at|out of)\b"
)


def _amount_before_words(statement: str) -> str:
    """The amount that a sentence begins with, where the rest of it is words.

    >>> _amount_before_words("12, because 3 times 4 is 12"), _amount_before_words("12 < x")
    ('12', '12 < x')
    """
    first = AMOUNT.match(statement)
    rest = None if first is None else _REMARK.match(statement, first.end())
    return statement if rest is None else statement[: rest.start(1)].strip(" ,")


def _own_turn(text: str) -> str:
    for turn in _NEXT_TURN.finditer(text):
        if text[: turn.start()].strip():
            return text[: turn.start()].rstrip()
    return text


def _last_statement(text: str) -> tuple[str | None, str]:
    """What the text announces last as its answer, and the text after that announcement."""
    text = _EMPHASIS.sub(r"\1", text)
    matches = [*_ANNOUNCED.finditer(text), *_HASHES.finditer(text), *_BOX.finditer(text)]
    matches.sort(key=lambda match: match.start())
    for match in matches[: -MAX_ANNOUNCEMENTS - 1 : -1]:
        if match.re is _ANNOUNCED:
            raw = _sentence(text, match.end())
        else:
            raw = match[1] if match.re is _HASHES else _group(text, match.end())
            raw = raw if len(raw) <= MAX_GROUP else ""
        statement = _cleaned(raw)
        if match.re is _ANNOUNCED and _DENIED.match(match[0]):
            statement = f"not {statement}"
        if not _NO_ANSWER.match(statement):
            return statement, text[text.index(raw, match.start()) + len(raw) :]
    return None, text


def _sentence(text: str, start: int) -> str:
    after = text[start : start + MAX_STATEMENT]
    window = after.lstrip()
    if "\n" in after[: len(after) - len(window)]:  # an item of a list, not −5 or 1.
        window = _BULLET.sub("", window, count=1) if _BULLET.match(window) else window
    end = _SENTENCE_END.search(window)
    if window.startswith("\\[") and "\\]" in window:
        return window[2 : window.index("\\]")]
    return window[: end.start()] if end else window


def _group(text: str, start: int) -> str:
    """What stands between the braces at ``start``; nothing when they are never closed."""
    if text[start : start + 1] != "{":
        bare = re.match(r"[^\s$\\{}]+", text[start : start + 40])
        return bare[0] if bare else ""
    depth = 0
    for at in range(start, min(len(text), start + MAX_GROUP)):
        if text[at] == "\\" or text[at - 1] == "\\":
            continue
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return text[start + 1 : at]
    return ""


def _cleaned(statement: str) -> str:
    statement = statement.strip().strip('`"“”').strip()
    if statement.startswith("$") and statement.endswith("$") and statement.count("$") in (2, 4):
        statement = statement.strip("$")
    statement = re.sub(r"^\\[(\[]|\\[)\]]$", "", statement)
    while statement.endswith((".", ",", ":", "*")) and not statement.lower().endswith(".m."):
        statement = statement[:-1].rstrip()
    return statement.strip()


def _option(statement: str | None, text: str, options: dict[str, str]) -> str | None:
    for stated in (statement, _last_line(text)):
        if stated and len(stated) <= MAX_OPTION:
            # The words before the loose letter: "A dog" is the option that says dog.
            letter = option_letter(stated) or option_said(stated, options)
            letter = letter or option_letter(stated, loose=True) or _only_letter(stated)
            if letter in options:
                return letter
    return None


def _only_letter(text: str) -> str | None:
    letters = set() if denies(text) else set(re.findall(r"\(([A-E])\)", text))
    return letters.pop() if len(letters) == 1 else None


def _unknowns(text: str, *, bare: bool = False) -> str | None:
    """The values of several unknowns, where a text ends with them; None for fewer than two.

    They stand in its last sentence ("x = 5 and y = 3", "the numbers are 5 and 3", "(5, 3)") or
    each on a line of its own; without names only if `bare`, as programs print them.
    """
    lines = [line.strip(" .$") for line in text.split("\n") if line.strip(" .$")]
    pattern = _VALUE_LINE if bare else _NAMED_LINE
    on_lines = []
    for line in reversed(lines):
        if not pattern.fullmatch(line):
            break
        on_lines.append(line)
    if len(on_lines) > 1:
        return ", ".join(reversed(on_lines))
    last = re.split(r"(?<=\w)[.;]\s", lines[-1])[-1] if lines else ""
    named = [match[0] for match in _NAMED.finditer(last)]
    if len(named) > 1:
        return ", ".join(named)
    return _listed(last)


def _listed(sentence: str) -> str | None:
    """The amounts that a sentence ends with; None for fewer than two.

    Read from left to right without going back: one pattern for all of it would try two ways to
    read each sign, and 2^n ways to read n numbers.
    """
    begins = list(_LIST_BEGINS.finditer(sentence))
    at = begins[-1].end() if begins else len(sentence)
    amounts: list[str] = []
    while amount := AMOUNT.match(sentence, at):
        amounts.append(amount[0])
        more = _LIST_GOES_ON.match(sentence, amount.end())
        if more is None:
            is_end = sentence[amount.end() :].strip() in ("", ")")
            return ", ".join(amounts) if is_end and len(amounts) > 1 else None
        at = more.end()
    return None


def _last_amount(text: str) -> str | None:
    last = _last_line(text)
    if len(last) <= MAX_STATEMENT and AMOUNT.search(last) is None:
        if _NO_SOLUTION.search(last):
            return "no solution"
        if (named := _amount_in_words(last)) is not None:
            return named
    for line in reversed(text.split("\n")):
        line = "" if _PLAN.fullmatch(line) else _without_check(_ITEM.sub("", line))
        amounts = list(AMOUNT.finditer(line))
        if amounts:
            return _whole_amount(line, amounts)
    return None


def _without_check(line: str) -> str:
    """A line without the check in brackets at its end: x = 5 (because 5 + 2 = 7)."""
    return _CHECKED.sub("", line) if len(line) <= MAX_STATEMENT else line


def _whole_amount(line: str, amounts: list[re.Match[str]]) -> str | None:
    """The amount that a line gives, with what belongs to it: a ratio, other roots, an exact form.

    It is what the line says something is, or else its last amount; None for "more than 6".
    """
    last = amounts[-1]
    if len(line) > MAX_STATEMENT:
        return last[0].strip()
    for ratio in _RATIO_OR_CLOCK.finditer(line):
        if ratio.start() <= last.start() < ratio.end():
            return ratio[0]
    if (spoken := _RATIO_IN_WORDS.search(line)) and spoken.end() == last.end():
        return f"{spoken[1]}:{spoken[2]}"
    names = [match[0].partition("=") for match in _NAMED.finditer(line)]
    if len({name.strip() for name, _, _ in names}) == 1 < len({value for _, _, value in names}):
        return ", ".join(value.strip() for _, _, value in names)  # x = 2 and x = -3
    both = line[amounts[-2].start() : last.end()] if len(amounts) > 1 else ""
    if len(restatements(both)) > 1:
        return both
    if stated := _STATED.match(line):
        whole = _amount_before_words(_cleaned(_SENTENCE_END.split(stated[1])[0]))
        if _has_no_words(read_answer(whole)):
            return whole
    if compared := _COMPARED.search(line, 0, last.start()):
        is_range = "than" not in compared[0]
        return line[compared.start() : last.end()] if is_range else None
    aside = _ASIDE.fullmatch(line, amounts[-2].end(), last.start()) if both else None
    if aside is None or (aside[1] == "for" and _PRICE.match(line, last.start())):
        return last[0].strip()
    if aside[0].split() == ["in"] and not _YEAR.fullmatch(last[0].strip()):
        return both  # 3 in 8 is neither
    return amounts[-2][0].strip()


def _amount_in_words(line: str) -> str | None:
    """The only number of a line, in words: "She needs five boxes."

    >>> _amount_in_words("She needs five boxes."), _amount_in_words("two or three")
    ('5', None)
    >>> _amount_in_words("It is minus twenty-five degrees."), _amount_in_words("This is the one.")
    ('-25', None)
    """
    words = in_digits(re.findall(r"[a-z]+", line.lower()))
    places = [place for place, word in enumerate(words) if word.isdigit()]
    if len(places) != 1 or _UNSTATED.search(line) or denies(line) or _NO_NUMBER.search(line):
        return None
    before = words[max(0, places[0] - 1)]
    return ("-" if before in ("minus", "negative") else "") + words[places[0]]


def _last_mathematics(text: str) -> str | None:
    line = _cleaned(_without_check(_EMPHASIS.sub(r"\1", _last_line(text))))
    amounts = list(AMOUNT.finditer(line)) if len(line) <= MAX_STATEMENT else []
    if len(amounts) > 1 and (whole := _whole_amount(line, amounts)) != amounts[-1][0].strip():
        return whole
    short = 0 < len(line) <= MAX_BARE_ANSWER and "$" not in line.strip("$")
    # A line of mathematics, or the only line there is; "The" is a text that was cut off.
    if short and (line == text.strip() if not amounts else option_letter(line)):
        return line
    if short and not (amounts and _SENTENCE.match(line)) and _has_no_words(read_answer(line)):
        return line
    pieces = [next(filter(None, groups), "") for groups in _MATHEMATICS.findall(text[-5000:])]
    if pieces and pieces[-1].strip():
        return _cleaned(pieces[-1])
    return _last_amount(text)


def _has_no_words(answer: Answer) -> bool:
    items = answer.items if isinstance(answer, Listing | Row) else (answer,)
    return not any(isinstance(item, Words) for item in items)


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.split("\n")) if line.strip()), "")


def _joined_brackets(printed: str) -> str:
    """A matrix printed on several lines becomes one line."""
    lines = [line for line in printed.split("\n") if line.strip()]
    joined = ""
    for line in reversed(lines[-50:]):
        joined = f"{line.strip()} {joined}".strip()
        if joined.count("[") >= joined.count("]"):
            return joined
    return lines[-1] if lines else ""
