"""The question a command asks: from its options, or from the record a manifest keeps of them."""

from __future__ import annotations

import argparse
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.errors import InputFileError, UniprotoError, invalid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.data.tables import InputData


class ChangedInputError(InputFileError):
    """An input file is no longer the one that a result was made from."""


@dataclass(frozen=True)
class Question:
    """The input files, and what is asked about them: arguments of `select` and `make_problem`."""

    pool: InputData
    target: InputData | None
    asked: dict[str, Any]

    def identities(self) -> dict[str, Any]:
        """What a manifest says about the input files."""
        return {
            "source": self.pool.identity(),
            "target": self.target.identity() if self.target else None,
        }


def read_question(options: argparse.Namespace) -> Question:
    """Read the files that options name. Every command goes through here, so that none drifts."""
    from uniproto.data.tables import read_input

    named = [name for name in (options.id, options.groups, options.weights) if name]
    pool = read_input(options.pool, options.column, named)
    target = read_input(options.target, options.column, named, pool) if options.target else None
    aim = target or pool
    groups = pool.column(options.groups, "--groups") if options.groups else None
    asked = {
        "source": pool.features,
        "k": options.k,
        "target": target.features if target else None,
        "metric": options.metric,
        "target_weights": aim.column(options.weights, "--weights") if options.weights else None,
        "groups": groups,
        "target_groups": target.column(options.groups, "--groups")
        if target and options.groups
        else None,
        "budgets": _budgets(options.budgets, groups),
        "initial": _rows(options.initial, "--initial"),
        "exclude": _rows(options.exclude, "--exclude"),
        "distinct": options.distinct,
        "seed": options.seed,
    }
    return Question(pool, target, asked)


def recorded_question(folder: Path, manifest: Mapping[str, Any]) -> Question:
    """The question that a saved result answers, from its inputs, which must not have changed."""
    from uniproto.data.tables import content_digest
    from uniproto.storage import damaged

    if "inputs" not in manifest or "arguments" not in manifest:
        raise InputFileError(
            f"{folder}: the folder must be written by 'uniproto select', which records the input "
            "files. Got a result saved from Python or by another command instead. Run "
            "'uniproto select', or certify in Python with selection.certify()."
        )
    try:
        options = argparse.Namespace(**manifest["arguments"])
        inputs = {role: manifest["inputs"][role] for role in ("source", "target")}
        if bool(options.target) != bool(inputs["target"]):
            raise ValueError("its record of the target contradicts itself")
        for role, option in (("source", "pool"), ("target", "target")):
            if inputs[role]:
                path = inputs[role]["path"]
                if content_digest(Path(path)) != inputs[role]["sha256"]:
                    raise ChangedInputError(
                        f"{path}: the input must be the file that {folder} was made from. It has "
                        "changed since. Restore it, or run the selection again."
                    )
                setattr(options, option, path)
        question = read_question(options)
        for role, found in question.identities().items():
            if found and {**inputs[role], "path": found["path"]} != found:
                raise ValueError(f"its record of the {role} is not what the file holds")
    except UniprotoError:
        raise
    except Exception as error:  # a record that somebody has edited can hold anything
        raise damaged(folder, error) from error
    return question


def _budgets(text: str | None, groups: NDArray[Any] | None) -> str | dict[Hashable, int]:
    if text is None:
        return "proportional"
    if groups is None:
        raise invalid("--budgets", "needs --groups", repr(text), "Name the column of groups.")
    if "=" not in text:
        return text
    labels = {str(label): label for label in groups.tolist()}
    budgets: dict[Hashable, int] = {}
    for part in text.split(","):
        label, _, count = part.rpartition("=")
        try:
            budgets[labels.get(label.strip(), label.strip())] = int(count)
        except ValueError:
            raise invalid(
                "--budgets",
                "must give each group a whole number",
                repr(part),
                "Write it as label=count,label=count.",
            ) from None
    return budgets


def _rows(text: str | None, parameter: str) -> list[int] | None:
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise invalid(
            parameter, "must be row numbers", repr(text), "Write them as 3,17,40."
        ) from None
