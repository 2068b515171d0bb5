"""One declaration per setting: a dataclass field that carries its default and its help.

Command line options (`cli/parser.py`) and the record in a manifest are made from the fields, so
that each setting is declared in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from inspect import signature
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
    off: tuple[str, str, Any] | None = None,
    parse: Callable[[str], Any] | None = None,
    bare: Any = None,
    repeated: bool = False,
) -> Any:
    """A field of a settings dataclass that also describes the option of the command.

    Args:
        default: the default value; a setting without one is required.
        help: one line; the command appends the default in brackets.
        common: whether it is listed first, rather than under "more options".
        group: a heading under "more options".
        choices: the allowed values, or a function that returns them (for a registry).
        metavar: the name of its value in the help; several names for several values.
        flags: short forms, such as `-o`.
        off: a flag that sets another value, with its help: `("--no-source", "no sources", None)`.
        parse: converts the string of the command line. Default: the field's type.
        bare: the value of the option if it is given without one.
        repeated: whether the option may be given several times, for a list of values.

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


def setting_of(declaration: Callable[..., Any], name: str, **changes: Any) -> Any:
    """A field with the default of a dataclass's field or of a function's parameter.

    Where that is a setting, it has its help, too; `changes` replaces arguments of `setting`. No
    rows and no names are None.

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
    of_field: Mapping[str, Any] = {}
    if is_dataclass(declaration):
        (original,) = (each for each in fields(declaration) if each.name == name)
        default, of_field = original.default, original.metadata
    else:
        default = signature(declaration).parameters[name].default
    default = None if default in ((), MISSING) else default
    return setting(**{"default": default, **of_field, **changes})


def described(settings: type[Any]) -> list[Field[Any]]:
    """The fields of a settings dataclass that are options of its command."""
    return [each for each in fields(settings) if "help" in each.metadata]


def made_of(settings: type[_Settings], given: Mapping[str, Any]) -> _Settings:
    """Settings from those of the `given` values that are fields; the others have their defaults.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Choice:
    ...     pool: int = 128
    >>> made_of(Choice, {"pool": 64, "quiet": True})
    Choice(pool=64)
    """
    names = [each.name for each in fields(settings)]  # type: ignore[arg-type]
    return settings(**{name: given[name] for name in names if name in given})
