"""One declaration per setting: a dataclass field that carries its default and its help.

The options of a command are made from the fields (`cli/parser.py`), and so is what a
manifest records, so that a setting is written down in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from typing import Any, TypeVar

_Settings = TypeVar("_Settings")


def setting(
    default: Any = MISSING,
    help: str = "",
    *,
    common: bool = False,
    group: str | None = None,
    choices: Sequence[str] | Callable[[], Sequence[str]] | None = None,
    metavar: str | tuple[str, ...] | None = None,
    flags: Sequence[str] = (),
    off: tuple[str, str] | None = None,
    parse: Callable[[str], Any] | None = None,
    bare: Any = None,
    repeated: bool = False,
) -> Any:
    """A field of a settings dataclass that also describes the option of the command.

    Args:
        default: its value where it is not given; none for a setting that must be given.
        help: one line for people; the command adds the default in brackets.
        common: shown first; every other setting is listed under "more options".
        group: a heading inside "more options".
        choices: the values it may have, or a function that lists them (for a registry).
        metavar: what the help calls its value; several names, where it takes several values.
        flags: short forms, such as `-o`.
        off: a flag that sets it to None, and its help: `("--no-source", "no sources")`.
        parse: reads its value from the text of the command line. Default: its type.
        bare: what it is where the option is given without a value.
        repeated: whether the option may be given again, which makes it a list.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     steps: int = setting(2048, "optimizer steps", common=True)
    >>> Settings().steps, described(Settings)[0].metadata["help"]
    (2048, 'optimizer steps')
    """
    described = {
        "help": help,
        "common": common,
        "group": group,
        "choices": choices,
        "metavar": metavar,
        "flags": tuple(flags),
        "off": off,
        "parse": parse,
        "bare": bare,
        "repeated": repeated,
    }
    return field(default=default, metadata=described)


def setting_of(settings: type[Any], name: str, **changes: Any) -> Any:
    """A setting of another dataclass, so that its default and help are written down once.

    `changes` replaces arguments of `setting`, for a field that differs.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Choice:
    ...     pool: int = setting(128, "examples per step")
    >>> @dataclass(frozen=True)
    ... class Run:
    ...     pool: int = setting_of(Choice, "pool", common=True)
    >>> Run().pool, described(Run)[0].metadata["help"]
    (128, 'examples per step')
    """
    (original,) = (each for each in described(settings) if each.name == name)
    return setting(**{"default": original.default, **original.metadata, **changes})


def described(settings: type[Any]) -> list[Field[Any]]:
    """The fields of a settings dataclass that are options of its command."""
    return [each for each in fields(settings) if "help" in each.metadata]


def made_of(settings: type[_Settings], given: Mapping[str, Any]) -> _Settings:
    """Settings from what is given, as far as they are among it; the rest has its defaults.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Choice:
    ...     pool: int = 128
    >>> made_of(Choice, {"pool": 64, "quiet": True})
    Choice(pool=64)
    """
    names = [each.name for each in fields(settings)]  # type: ignore[arg-type]
    return settings(**{name: given[name] for name in names if name in given})
