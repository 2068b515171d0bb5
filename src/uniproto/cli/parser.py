"""How options are read: help that fits the terminal, short errors, the nearest name."""

from __future__ import annotations

import argparse
import difflib
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from uniproto.errors import unknown_name

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


def parse_int(text: str) -> int:
    """Parse a whole number.

    >>> parse_int("1000")
    1000
    """
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, not {text!r}") from None


def seconds(text: str) -> float:
    """Parse a number of seconds above 0.

    >>> seconds("2.5")
    2.5
    """
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not 0 < limit < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {text!r}")
    return limit


def number(text: str) -> float:
    """Parse a number.

    >>> number("2e-5")
    2e-05
    """
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a number, not {text!r} (POOL goes before the options)"
        ) from None


def gradient_kind(text: str) -> str:
    """Which gradients: of the value projection, or of LoRA layers.

    >>> gradient_kind("lora")
    'lora'
    """
    if text not in ("value", "lora"):
        raise argparse.ArgumentTypeError(f"must be value or lora, not {text!r}")
    return text


def names(text: str) -> list[str]:
    """A list such as a,b,c.

    >>> names("uniproto, random,")
    ['uniproto', 'random']
    """
    return [part.strip() for part in text.split(",") if part.strip()]


def parse_ints(text: str) -> list[int]:
    """A list such as 10,20,50."""
    try:
        return [int(part) for part in names(text)]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be whole numbers such as 10,20,50, not {text!r}"
        ) from None


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
    """The folder that results go to; `default` says in words where, if nobody names one."""
    parser.add_argument(
        "-o",
        "--out",
        dest="output",
        metavar="OUT",
        required=required,
        help="folder for the results" + (f" (default: {default})" if default else ""),
    )
