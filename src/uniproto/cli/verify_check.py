"""One claim of a saved result, and what the checks of claims share."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uniproto.cli.select import OWN_OPTIONS, chosen_method

if TYPE_CHECKING:
    from uniproto.methods import Method
    from uniproto.problem.problem import Group, Problem

SUMS = 1e-12  # how far rounding puts sums off, as a share of them
_NO_OPTIONS = dict.fromkeys(name for names in OWN_OPTIONS.values() for name in names)


@dataclass(frozen=True)
class Check:
    """One thing a result claims, whether it holds, and what was found."""

    claim: str
    holds: bool
    found: str = ""


def recorded_options(manifest: dict[str, Any]) -> argparse.Namespace:
    """The options of the command that made a result."""
    return argparse.Namespace(**_NO_OPTIONS | manifest["arguments"])


def recorded_method(manifest: dict[str, Any]) -> Method:
    """The method that made a result, with its options."""
    return chosen_method(recorded_options(manifest))


def groups_by_label(problem: Problem) -> list[tuple[Any, Group]]:
    """The groups, by their labels as a manifest writes them."""
    from uniproto.runs.records import plain

    return [(plain(group.label), group) for group in problem.groups]


def same(said: Any, found: Any, share: float = SUMS) -> bool:
    """Equal, or as near as numbers computed on another machine are."""
    if isinstance(said, float) and isinstance(found, float):
        return math.isclose(said, found, rel_tol=share)
    if isinstance(said, dict) and isinstance(found, dict):
        return said.keys() == found.keys() and all(
            same(said[name], found[name], share) for name in said
        )
    if isinstance(said, list) and isinstance(found, list):
        return len(said) == len(found) and all(
            same(one, other, share) for one, other in zip(said, found, strict=True)
        )
    return bool(said == found)
