"""The question a command asks: from its options, or from the record a manifest keeps of them."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.errors import InputFileError, UniprotoError, invalid, unknown_name

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

    label_column = getattr(options, "labels", None)  # older records know no labels
    weight_column = None if _is_word(options.weights) else options.weights
    named = [name for name in (options.id, options.groups, weight_column, label_column) if name]
    pool = read_input(options.pool, options.column, named)
    target = read_input(options.target, options.column, named, pool) if options.target else None
    aim = target or pool
    weights = _weights(options.weights, label_column, pool, aim)
    labels = aim.column(label_column, "--labels") if label_column else None
    groups = pool.column(options.groups, "--groups") if options.groups else None
    asked = {
        "source": pool.features,
        "k": options.k,
        "target": target.features if target else None,
        "metric": options.metric,
        "target_weights": weights,
        "target_labels": labels if isinstance(weights, str) else None,
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


def _is_word(text: str | None) -> bool:
    """Whether --weights asks for weights by a word: balanced, density or density:options."""
    from uniproto.weights import WEIGHTS

    return text is not None and text.partition(":")[0] in WEIGHTS


def _weights(text: str | None, labels: str | None, pool: InputData, aim: InputData) -> Any:
    """A column of the target, or what a word stands for."""
    from uniproto.weights import WEIGHTS, density_from

    if text is None:
        return None
    columns = [] if aim.table is None else aim.table.column_names
    if not _is_word(text):
        if text not in columns and difflib.get_close_matches(text, WEIGHTS, cutoff=0.7):
            raise unknown_name("--weights", text, [*columns, *WEIGHTS])
        return aim.column(text, "--weights")
    for data in (pool, aim):
        if data.table is not None and text in data.table.column_names:
            raise invalid(
                "--weights",
                "must be the name of a column, or a word that is none",
                f"{text!r}, which is both, because {data.path.name} has such a column",
                "Rename the column, or leave it out of the file.",
            )
    if text.startswith("density"):
        return density_from(text, "--weights")
    if text != "balanced":
        raise invalid("--weights", "takes no options for balanced", repr(text), "Drop them.")
    if labels is None:
        raise invalid(
            "--labels", "must be given with --weights balanced", "none", "Name the classes' column."
        )
    return text


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
