"""The question a command asks: from its options, or from the record a manifest keeps of them."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.unreadable import (
    is_word,
    refuse_other_separators,
    refuse_pictures,
    refuse_unknown_columns,
)
from uniproto.errors import (
    InputFileError,
    InvalidInputError,
    UniprotoError,
    invalid,
    unknown_name,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.data.tables import InputData
    from uniproto.features.files import EmbeddedData
    from uniproto.selection import Selection


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

    def in_file_rows(self, selection: Selection) -> Selection:
        """The selection with rows numbered as in the files, where embedding left some out.

        A target that was left out has an empty column in the plan, and the price 0.
        """
        source, aim = self.pool, self.target or self.pool
        if not (_left_out(source) or _left_out(aim)):
            return selection
        import numpy as np
        import scipy.sparse as sp

        from uniproto.selection import Selection
        from uniproto.transport.prototypes import Transport

        (rows, m), (columns, n) = _file_rows(source), _file_rows(aim)
        plan, certificate = selection.plan, selection.certificate
        if certificate is not None:
            prices = np.zeros(n)
            prices[columns] = certificate.prices
            certificate = replace(certificate, prices=prices)
        wide = sp.csr_array((plan.data, columns[plan.indices], plan.indptr), shape=(selection.k, n))
        return Selection(
            indices=rows[selection.indices],
            gains=selection.gains,
            weights=selection.weights,
            beta=selection.beta,
            shape=(m, n),
            metric=selection.metric,
            method=selection.method,
            options=selection.options,
            seed=selection.seed,
            timings=selection.timings,
            notes=selection.notes,
            transport=Transport(selection.cost, wide, selection.cost_is_exact),
            group_costs=selection.group_costs,
            certificate=certificate,
        )


def read_question(options: argparse.Namespace) -> Question:
    """Read the files that options name. Every command goes through here, so that none drifts."""
    label_column = getattr(options, "labels", None)  # older records know no labels
    weight_column = None if is_word(options.weights) else options.weights
    named = [name for name in (options.id, options.groups, weight_column, label_column) if name]
    pool = _read(options, options.pool, named, None)
    target = _read(options, options.target, named, pool) if options.target else None
    if (sample := getattr(options, "target_sample", None)) is not None:
        target = _sampled(target or pool, sample, options)
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
        "initial": _kept(row_numbers(options.initial, "--initial"), pool, "--initial"),
        "exclude": _kept(row_numbers(options.exclude, "--exclude"), pool, "--exclude"),
        "distinct": options.distinct,
        "seed": options.seed,
    }
    return Question(pool, target, asked)


def recorded_question(folder: Path, manifest: Mapping[str, Any]) -> Question:
    """The question that a saved result answers, from its inputs, which must not have changed."""
    from uniproto.features.files import input_digest
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
        sampled = getattr(options, "target_sample", None) is not None
        if bool(options.target or sampled) != bool(inputs["target"]):
            raise ValueError("its record of the target contradicts itself")
        for role, option in (("source", "pool"), ("target", "target")):
            if inputs[role]:
                path = inputs[role]["path"]
                embedding = inputs[role].get("embedding")
                _require_local(path)
                if input_digest(Path(path), embedding) != inputs[role]["sha256"]:
                    raise ChangedInputError(
                        f"{path}: the input must be the file that {folder} was made from. It has "
                        "changed since. Restore it, or run the selection again."
                    )
                setattr(options, option, path)
        if embedding := inputs["source"].get("embedding"):
            # As it was asked, but from anywhere, and on whatever this machine has.
            setattr(options, embedding["kind"], embedding["named"])
            options.model, options.device = embedding["model"], "auto"
        question = read_question(options)
        for role, found in question.identities().items():
            _require_same_embedding(inputs[role], found, folder)
            if found and {**inputs[role], "path": found["path"]} != found:
                raise ValueError(f"its record of the {role} is not what the file holds")
    except UniprotoError:
        raise
    except Exception as error:  # a record that somebody has edited can hold anything
        raise damaged(folder, error) from error
    return _with_every_row(question)


def _read(
    options: argparse.Namespace, path: str, named: list[str], like: InputData | None
) -> InputData:
    """One file: its features, or the vectors of the texts or pictures in it."""
    from uniproto.data.paths import possible_path
    from uniproto.data.tables import read_input

    possible_path(path)
    text, images = getattr(options, "text", None), getattr(options, "images", None)
    if text is None and images is None:
        refuse_pictures(Path(path))
        try:
            return read_input(path, options.column, named, like)
        except (InputFileError, InvalidInputError) as error:
            refuse_other_separators(Path(path), error)
            if isinstance(error, InvalidInputError):
                refuse_unknown_columns(options, path, like is None, error)
            raise
    from uniproto.features.files import read_embedded
    from uniproto.geometry.costs import MATRIX_METRICS

    option = "--text" if text is not None else "--images"
    if options.column is not None:
        raise invalid(option, "excludes --column", repr(options.column), "Drop one of the two.")
    if options.metric in MATRIX_METRICS:
        raise invalid(
            option, "needs a metric of vectors", f"--metric {options.metric}", "Use cosine."
        )
    return read_embedded(
        path,
        text,
        images,
        options.model,
        batch_size=getattr(options, "batch_size", None),
        device=options.device,
        cache=False
        if getattr(options, "no_cache", False)
        else getattr(options, "cache", None) or True,
        on_error=options.on_error,
        progress=False if getattr(options, "quiet", False) else None,
    )


def _sampled(data: InputData, size: int, options: argparse.Namespace) -> InputData:
    """Some rows of a target, drawn with the seed; all of them would have been too many."""
    from uniproto.data.samples import sampled_rows
    from uniproto.data.tables import SampledData
    from uniproto.geometry.costs import MATRIX_METRICS

    for option in ("text", "images"):
        if getattr(options, option, None) is not None:
            raise invalid("--target-sample", f"excludes --{option}", size, "Drop one of the two.")
    if options.metric in MATRIX_METRICS:
        raise invalid(
            "--target-sample", "needs a metric of vectors", f"--metric {options.metric}", "Drop it."
        )
    rows = sampled_rows(len(data.features), size, options.seed, "--target-sample")
    return SampledData(
        data.path,
        data.sha256,
        data.features[rows],
        None if data.table is None else data.table.take(rows),
        data.feature_columns,
        seed=options.seed,
    )


def _require_local(path: str) -> None:
    """What lies in a store is read by Ray's tasks; this machine's commands read files."""
    if "://" in path:
        raise InputFileError(
            f"{path}: the input must be a file of this machine. Got an address in a store instead. "
            "Mount the store, and select from the mounted files."
        )


def _left_out(data: InputData) -> bool:
    embedded = getattr(data, "embedded", None)
    return bool(embedded is not None and embedded.left_out)


def _file_rows(data: InputData) -> tuple[NDArray[Any], int]:
    """The numbers that rows of an input have in its file, and how many the file has."""
    import numpy as np

    if not _left_out(data):
        return np.arange(len(data.features)), len(data.features)
    embedded: EmbeddedData = data  # type: ignore[assignment]
    assert embedded.embedded is not None
    assert embedded.items is not None
    return embedded.embedded.rows, len(embedded.items)


def _kept(rows: list[int] | None, pool: InputData, parameter: str) -> list[int] | None:
    """Rows of a file as rows of the question, which does not have those that were left out."""
    if rows is None or not _left_out(pool):
        return rows
    numbers, count = _file_rows(pool)
    places = {int(row): place for place, row in enumerate(numbers)}
    for row in rows:
        if not 0 <= row < count:
            raise invalid(
                parameter, f"must hold row numbers from 0 to {count - 1}", row, "Count from 0."
            )
        if row not in places and parameter == "--initial":
            raise invalid(
                parameter, "must hold rows that have a vector", f"row {row}, left out", "Drop it."
            )
    return [places[row] for row in rows if row in places]


def _require_same_embedding(
    said: Mapping[str, Any] | None, found: Mapping[str, Any] | None, folder: Path
) -> None:
    """Pictures and models are inputs too: a result belongs to those it was made with."""
    if not (said and found and "embedding" in said and "embedding" in found):
        return
    before, now = said["embedding"], found["embedding"]
    for field, what in (
        ("content_sha256", "the texts or pictures"),
        ("left_out", "the rows that can be read"),
        ("model_digest", f"the model {now['model']}"),
    ):
        if before[field] != now[field]:
            raise ChangedInputError(
                f"{found['path']}: {what} must be those that {folder} was made from. Got others "
                "instead. Restore them, or run the selection again."
            )


def _with_every_row(question: Question) -> Question:
    """The same question with rows numbered as in the files, as a saved result numbers them.

    Rows that were left out may not be chosen and weigh nothing; they are given the values of the
    first row that was kept, on which then nothing depends.
    """
    pool, target = question.pool, question.target
    aim = target or pool
    if not (_left_out(pool) or _left_out(aim)):
        return question
    import numpy as np

    from uniproto.problem import make_problem

    asked = question.asked
    kept = make_problem(**asked)
    (rows, m), (columns, n) = _file_rows(pool), _file_rows(aim)

    def widened(values: Any, numbers: NDArray[Any], count: int) -> Any:
        if values is None:
            return None
        wide = np.repeat(np.asarray(values)[:1], count, axis=0)
        wide[numbers] = values
        return wide

    weights = np.zeros(n)
    weights[columns] = kept.masses.weights
    absent = np.setdiff1d(np.arange(m), rows)
    barred = [] if asked["exclude"] is None else rows[asked["exclude"]].tolist()
    whole = {
        **asked,
        "source": widened(asked["source"], rows, m),
        "target": widened(asked["target"], columns, n),
        "target_weights": weights,
        "target_labels": None,
        "groups": widened(asked["groups"], rows, m),
        "target_groups": widened(asked["target_groups"], columns, n),
        "initial": None if asked["initial"] is None else rows[asked["initial"]].tolist(),
        "exclude": [*barred, *absent.tolist()],
        "distinct": False if kept.twin_distance is None else kept.twin_distance,
    }
    return Question(
        _whole(pool, whole["source"]), target and _whole(target, whole["target"]), whole
    )


def _whole(data: InputData, features: Any) -> InputData:
    """An input with every row of its file."""
    if not _left_out(data):
        return data
    from uniproto.data.tables import InputData

    items = data.items  # type: ignore[attr-defined]
    return InputData(data.path, data.sha256, features, items.table, data.feature_columns)


def _weights(text: str | None, labels: str | None, pool: InputData, aim: InputData) -> Any:
    """A column of the target, or what a word stands for."""
    from uniproto.weights import WEIGHTS, density_from

    if text is None:
        return None
    columns = [] if aim.table is None else aim.table.column_names
    if not is_word(text):
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


def row_numbers(text: str | None, parameter: str) -> list[int] | None:
    """Rows as options name them.

    >>> row_numbers("3,17", "--exclude")
    [3, 17]
    """
    if text is None:
        return None
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise invalid(
            parameter, "must be row numbers", repr(text), "Write them as 3,17,40."
        ) from None
