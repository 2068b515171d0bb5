"""The options of a command, made from the fields of its settings dataclass."""

from __future__ import annotations

import argparse
import types
from collections.abc import Iterable
from dataclasses import MISSING, Field
from typing import Any, Union, get_args, get_origin, get_type_hints

from uniproto.runtime.settings import described

MORE = "more options"


def add_settings(
    parser: argparse.ArgumentParser,
    settings: type[Any],
    *,
    required: Iterable[str] = (),
    defaults: bool = False,
) -> None:
    """Add an option for every described field: common ones first, the rest under "more options".

    Options that are not given are not in the namespace, so that defaults and presets stay in one
    place; with `defaults` they are there with their defaults. `required` names the fields that
    must be given on the command line.

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
    required = set(required)
    kinds = get_type_hints(settings)
    headings: dict[str, Any] = {}
    for each in sorted(described(settings), key=lambda each: not each.metadata["common"]):
        place: Any = parser
        if not each.metadata["common"]:
            heading = MORE if not each.metadata["group"] else f"{MORE}: {each.metadata['group']}"
            if heading not in headings:
                headings[heading] = parser.add_argument_group(heading)
            place = headings[heading]
        option = _add_option(place, each, kinds[each.name], each.name in required)
        if defaults and each.default is not MISSING:
            option.default = each.default


def _add_option(place: Any, each: Field[Any], kind: Any, required: bool) -> argparse.Action:
    about = each.metadata
    kind = str if about["parse"] else _bare(kind)
    options: dict[str, Any] = {
        "dest": each.name,
        "default": argparse.SUPPRESS,
        "required": required,
        "help": about["help"] + _shown_default(each),
    }
    names = [*about["flags"], f"--{each.name.replace('_', '-')}"]
    if kind is bool:
        optional = each.default is not False
        options["action"] = argparse.BooleanOptionalAction if optional else "store_true"
        option: argparse.Action = place.add_argument(*names, **options)
        return option
    if about["off"]:
        place = place.add_mutually_exclusive_group()
    choices = about["choices"]
    if choices is not None:
        options["choices"] = tuple(choices() if callable(choices) else choices)
    elif about["metavar"]:
        options["metavar"] = about["metavar"]
    elif kind is int:
        options["metavar"] = "N"
    if about["bare"] is not None:
        options |= {"nargs": "?", "const": about["bare"]}
    if about["repeated"]:
        options["action"] = "append"
    option = place.add_argument(*names, type=about["parse"] or kind, **options)
    if about["off"]:
        flag, text = about["off"]
        unset = {"action": "store_const", "const": None, "default": argparse.SUPPRESS}
        place.add_argument(flag, dest=each.name, help=text, **unset)
    return option


def _bare(kind: Any) -> Any:
    """The type of a value that is given: `int` of `int | None`."""
    if get_origin(kind) in (Union, types.UnionType):
        (kind,) = (part for part in get_args(kind) if part is not type(None))
    return kind


def _shown_default(each: Field[Any]) -> str:
    """The default in brackets, unless the help has its own word for it."""
    default = each.default
    if default is MISSING or default is None or default is False or default == "":
        return ""
    if each.metadata["help"].endswith(")"):
        return ""
    return f" ({'yes' if default is True else default})".replace("%", "%%")
