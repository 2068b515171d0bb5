"""The inputs of a saved result, read again from files that must not have changed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.inputs import Inputs, file_rows, has_skipped_rows, read_inputs
from uniproto.cli.option_values import with_bandwidth
from uniproto.cli.recorded_paths import ChangedInputError, input_path
from uniproto.errors import InputFileError, UniprotoError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.data.tables import InputData
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection

_KINDS = ("text", "images")


def add_moved(parser: argparse.ArgumentParser) -> None:
    """Where the input files of a result are now."""
    parser.add_argument(
        "--input",
        dest="moved",
        action="append",
        metavar="FILE",
        help="where an input file of OUT has moved to; it must have the digest on record, by which "
        "it is known (repeat it for the target)",
    )


def recorded_inputs(
    folder: Path,
    manifest: Mapping[str, Any],
    moved: Sequence[str] | None = None,
    *,
    remedy: str = "Run 'uniproto select'.",
) -> Inputs:
    """Read the files that a saved result was made from; they must not have changed.

    `moved` are where some of them are now, as a person says. A file is known by its digest, never
    by its name. `remedy` is what to do about a result without a record of its files.
    """
    from uniproto.features.models import OtherModelError
    from uniproto.selection.storage import damaged

    if "inputs" not in manifest or "arguments" not in manifest:
        raise InputFileError(
            f"{folder}: the folder must be written by 'uniproto select', which records the input "
            f"files. Got a result saved from Python or by another command instead. {remedy}"
        )
    try:
        options, records = argparse.Namespace(**manifest["arguments"]), manifest["inputs"]
        places = manifest.get("places") or {}
        for role, option in (("source", "pool"), ("target", "target")):
            if records[role]:
                path = input_path(folder, records[role], places.get(role), moved or ())
                if getattr(options, option):  # a sample of the pool is drawn from it again
                    setattr(options, option, str(path))
        if getattr(options, "engine", "local") == "ray":
            options.prepare = False  # shards are compared as they are
        options.memory = None  # what may be taken is not for a record to say
        _embed_as_recorded(options, records["source"].get("embedding"))
        inputs = read_inputs(options)
        for role, found in inputs.identities().items():
            said = records[role]
            if found != (said and {**said, "path": found and found["path"]}):
                raise ChangedInputError(
                    f"{folder}: the {role} must be what the folder was made from, with the same "
                    "rows, columns, texts, pictures and model. It is not. Restore it, or run the "
                    "selection again."
                )
    except OtherModelError as error:
        raise ChangedInputError(
            f"the model {options.model} must be the one that {folder} was made with. Got another "
            "instead, which was not loaded. Restore it, or run the selection again."
        ) from error
    except UniprotoError:
        raise
    except Exception as error:  # a record that somebody has edited can hold anything
        raise damaged(folder, error) from error
    return _with_skipped_rows(inputs)


def _embed_as_recorded(options: argparse.Namespace, embedding: Mapping[str, Any] | None) -> None:
    """Embed again with the recorded options, but from any folder and on any device.

    A record is a stranger's word: the model must be on this machine and have the digest it had,
    and vectors come from our own cache or are computed.
    """
    if embedding is None:
        if any(getattr(options, kind, None) is not None for kind in (*_KINDS, "gradients")):
            raise ValueError("it embeds its input, and its record of that is missing")
        return
    for kind in _KINDS:
        setattr(options, kind, embedding["named"] if kind == embedding["kind"] else None)
    options.model, options.device = embedding["model"], "auto"
    options.model_digest = str(embedding["model_digest"])
    options.cache, options.no_cache = None, False


def require_same_problem(folder: Path, selection: Selection, problem: Problem) -> None:
    """Refuse a result whose rows cannot be an answer to the problem of its inputs."""
    from uniproto.selection.storage import damaged

    if (selection.shape, selection.k) != (problem.costs.shape, problem.k):
        raise damaged(folder, ValueError("its files belong to another problem than its inputs"))


def numbered_as_in_files(inputs: Inputs, selection: Selection) -> Selection:
    """The selection with rows numbered as in the files, where embedding skipped some.

    A skipped target has an empty column in the plan, and the price 0.
    """
    source, aim = inputs.pool, inputs.target or inputs.pool
    if not (has_skipped_rows(source) or has_skipped_rows(aim)):
        return selection
    (rows, m), (columns, n) = file_rows(source), file_rows(aim)
    return selection.renumbered(rows, columns, (m, n))


def _with_skipped_rows(inputs: Inputs) -> Inputs:
    """The same inputs with rows numbered as in the files, as a saved result numbers them.

    Skipped rows may not be chosen and have no weight; they get the values of the first row that
    has any, on which then nothing depends.
    """
    pool, target = inputs.pool, inputs.target
    aim = target or pool
    if not (has_skipped_rows(pool) or has_skipped_rows(aim)):
        return inputs
    import numpy as np

    arguments, problem = inputs.arguments, inputs.problem()
    (rows, m), (columns, n) = file_rows(pool), file_rows(aim)

    def widened(values: Any, numbers: NDArray[Any], count: int) -> Any:
        if values is None:
            return None
        wide = np.repeat(np.asarray(values)[:1], count, axis=0)
        wide[numbers] = values
        return wide

    weights = np.zeros(n)
    weights[columns] = problem.masses.weights
    skipped = np.setdiff1d(np.arange(m), rows)
    excluded = [] if arguments["exclude"] is None else rows[arguments["exclude"]].tolist()
    include, groups, limits = (arguments[name] for name in ("include", "groups", "limits"))
    source = widened(arguments["source"], rows, m)
    targets = widened(arguments["target"], columns, n)
    return replace(
        inputs,
        given=replace(inputs.given, source=None, target=None),
        pool=_with_features(pool, source),
        target=target and _with_features(target, targets),
        arguments={
            **arguments,
            "source": source,
            "target": targets,
            "metric": with_bandwidth(problem.costs.metric, problem.costs.bandwidth),
            "target_weights": weights,
            "groups": groups
            and replace(
                groups,
                labels=widened(groups.labels, rows, m),
                target=widened(groups.target, columns, n),
            ),
            "limits": limits and replace(limits, labels=widened(limits.labels, rows, m)),
            "include": None if include is None else rows[include].tolist(),
            "exclude": [*excluded, *skipped.tolist()],
            "min_distance": problem.twin_distance,
        },
    )


def _with_features(data: InputData, features: Any) -> InputData:
    """An input with every row of its file."""
    if not has_skipped_rows(data):
        return data
    from uniproto.data.tables import InputData

    items = data.items  # type: ignore[attr-defined]
    return InputData(data.path, data.sha256, features, items.table, data.feature_columns)
