"""Options of a command from the fields of a settings dataclass."""

from __future__ import annotations

import argparse
import types
from collections.abc import Iterable
from dataclasses import MISSING, Field
from typing import Any, Union, get_args, get_origin, get_type_hints

from uniproto.cli.parser import flag_of
from uniproto.runtime.settings import described

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
        flag, text = about["off"]
        unset = {"action": "store_const", "const": None, "default": argparse.SUPPRESS}
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
