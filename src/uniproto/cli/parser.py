"""How options are read: help that fits the terminal, short errors, the nearest name."""

from __future__ import annotations

import argparse
import difflib
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

from uniproto.errors import require_seconds, unknown_name
from uniproto.runtime.settings import described

# What help calls an option that names a file or a folder.
_PLACES = frozenset({"POOL", "OUT", "FILE", "DIR", "FOLDER", "DATA", "CORPUS", "MODEL", "PATH"})


class Layout(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of examples and lists; wraps a description that has none."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=27)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)


class Parser(argparse.ArgumentParser):
    """A parser whose errors say what to do.

    >>> parser = Parser(prog="uniproto try")
    >>> _ = parser.add_argument("--metric")
    >>> parser.parse_args(["--metrik", "l1"])
    Traceback (most recent call last):
    SystemExit: 2
    """

    late: Callable[[Any], None] | None = None  # adds options that need imports of their own

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("formatter_class", Layout)
        super().__init__(*args, **options)
        self.register("type", int, parse_int)
        self.register("type", float, number)

    def error(self, message: str) -> NoReturn:
        """What is wrong, and where help is: the usage of a command alone fills a screen."""
        self.exit(2, f"uniproto: error: {message}\nSee '{self.prog} --help'.\n")

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Refuse what is left over here, where the options it may mean are known."""
        self.complete()
        known, left = super().parse_known_args(args, namespace)
        if left:
            options = [name for action in self._actions for name in action.option_strings]
            near = difflib.get_close_matches(left[0].partition("=")[0], options, n=1, cutoff=0.6)
            remedy = f" Did you mean {near[0]}?" if near else ""
            self.error(f"unknown arguments: {' '.join(left)}.{remedy}")
        for action in self._actions:  # an unset "$OUT" would otherwise be the current folder
            if action.metavar in _PLACES and getattr(known, action.dest, None) == "":
                self.error(f"{_name(action)} must name a file or a folder. Got '' instead.")
        return known, left

    def complete(self) -> None:
        """Add the options of a command once it is asked for."""
        if self.late is not None:
            late, self.late = self.late, None
            late(self)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            self.error(str(unknown_name(_name(action), value, map(str, action.choices))))


def _name(action: argparse.Action) -> str:
    return "/".join(action.option_strings) or str(action.metavar)


def flag_of(name: str) -> str:
    """How an option is written on the command line.

    >>> flag_of("at_most"), flag_of("k")
    ('--at-most', '-k')
    """
    return {"k": "-k", "output": "--out"}.get(name) or f"--{name.replace('_', '-')}"


def _parsed(read: Callable[[str], Any], text: str, wanted: str, hint: str = "") -> Any:
    try:
        return read(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be {wanted}, not {text!r}{hint}") from None


def parse_int(text: str) -> int:
    """Parse a whole number."""
    return int(_parsed(int, text, "a whole number"))


def number(text: str) -> float:
    """Parse a number."""
    return float(_parsed(float, text, "a number", " (POOL goes before the options)"))


def distance(text: str) -> float | str:
    """Parse a distance, or auto."""
    return text if text == "auto" else number(text)


def seconds(text: str) -> float:
    """Parse a number of seconds above 0."""

    def read(text: str) -> float:
        return require_seconds("seconds", float(text))

    return float(_parsed(read, text, "a number of seconds above 0"))


def names(text: str) -> list[str]:
    """A list such as a,b,c.

    >>> names("uniproto, random,")
    ['uniproto', 'random']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_ints(text: str) -> list[int]:
    """A list such as 10,20,50."""
    whole = _parsed(lambda text: [*map(int, names(text))], text, "whole numbers such as 10,20,50")
    return list(whole)


def seeds(text: str) -> int | list[int]:
    """How many seeds, or a list of them."""
    listed = parse_ints(text)
    return listed[0] if len(listed) == 1 and "," not in text else listed


def add_pool(parser: argparse.ArgumentParser, also: str = "") -> None:
    """The file to choose from. `also` says what else it may be."""
    parser.add_argument(
        "pool",
        metavar="POOL",
        help="rows to choose from: .npy, .npz, .parquet, .csv, .jsonl, or .parquet files as a "
        f"folder or a quoted pattern ('pool/*.parquet'){also}",
    )


def add_output(
    parser: argparse.ArgumentParser, *, default: str = "", required: bool = False
) -> None:
    """The folder that results go to; `default` describes the default in the help."""
    parser.add_argument(
        "-o",
        "--out",
        dest="output",
        metavar="OUT",
        required=required,
        help="folder for the results" + (f" (default: {default})" if default else ""),
    )


MORE = "more options"


def add_settings(
    parser: argparse.ArgumentParser,
    settings: type[Any],
    *,
    required: Iterable[str] = (),
    but: type[Any] | None = None,
) -> None:
    """Add an option for every described field: common ones first, the rest under "more options".

    Options that are not given are not in the namespace, so that defaults and presets stay in one
    place. `required` names the fields that must be given; those of `but` are left out.

    >>> from dataclasses import dataclass
    >>> from uniproto.runtime.settings import setting
    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     steps: int = setting(2048, "optimizer steps", common=True)
    ...     bf16: bool = setting(False, "bfloat16 arithmetic")
    >>> parser = argparse.ArgumentParser()
    >>> add_settings(parser, Settings)
    >>> vars(parser.parse_args(["--steps", "8"]))
    {'steps': 8}
    """
    required, left_out = set(required), {each.name for each in described(but)} if but else set()
    headings: dict[str, Any] = {}
    kinds = kinds_of(settings)
    for each in sorted(described(settings), key=lambda each: not each.metadata["common"]):
        if each.name in left_out:
            continue
        place: Any = parser
        if not each.metadata["common"]:
            heading = MORE if not each.metadata["group"] else f"{MORE}: {each.metadata['group']}"
            if heading not in headings:
                headings[heading] = parser.add_argument_group(heading)
            place = headings[heading]
        _add_option(place, each, kinds[each.name], each.name in required)


def _add_option(place: Any, each: Field[Any], kind: Any, required: bool) -> None:
    about = each.metadata
    options: dict[str, Any] = {
        "dest": each.name,
        "default": argparse.SUPPRESS,
        "required": required,
        "help": about["help"] + _shown_default(each),
    }
    names = [*about["flags"], flag_of(each.name)]
    if kind is bool:
        optional = each.default is not False
        options["action"] = argparse.BooleanOptionalAction if optional else "store_true"
        place.add_argument(*names, **options)
        return
    if about["off"]:
        place = place.add_mutually_exclusive_group()
    choices = about["choices"]
    if choices is not None:
        options["choices"] = tuple(choices() if callable(choices) else choices)
    if about["metavar"]:
        options["metavar"] = about["metavar"]
        if isinstance(about["metavar"], tuple):
            options["nargs"] = len(about["metavar"])
    elif kind is int and choices is None:
        options["metavar"] = "N"
    if about["bare"] is not None:
        options |= {"nargs": "?", "const": about["bare"]}
    if about["repeated"]:
        options["action"] = "append"
    place.add_argument(*names, type=about["parse"] or kind, **options)
    if about["off"]:
        flag, text, value = about["off"]
        unset = {"action": "store_const", "const": value, "default": argparse.SUPPRESS}
        place.add_argument(flag, dest=each.name, help=text, **unset)


def kinds_of(settings: type[Any]) -> dict[str, Any]:
    """The type of every setting where it is given: `int` of `int | None`; text, if it is parsed."""
    found = {}
    hints = get_type_hints(settings)
    for each in described(settings):
        kind = hints[each.name]
        if each.metadata["parse"]:
            kind = str
        elif get_origin(kind) in (Union, types.UnionType):
            (kind,) = (part for part in get_args(kind) if part is not type(None))
        found[each.name] = kind
    return found


def _shown_default(each: Field[Any]) -> str:
    """The default in brackets, unless the help has its own word for it."""
    default = each.default
    if default is MISSING or default is None or default is False or default == "":
        return ""
    if "default" in each.metadata["help"] or each.metadata["help"].endswith(")"):
        return ""
    return f" (default: {'yes' if default is True else default})".replace("%", "%%")
