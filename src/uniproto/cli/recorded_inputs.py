"""The inputs of a saved result, read again from files that must not have changed."""

from __future__ import annotations

import argparse
import atexit
import glob
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uniproto.cli.inputs import Inputs, file_rows, has_skipped_rows, read_inputs
from uniproto.cli.option_values import with_bandwidth
from uniproto.cli.spec import SelectSpec
from uniproto.errors import InputFileError, UniprotoError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from uniproto.data.tables import InputData
    from uniproto.problem.problem import Problem
    from uniproto.selection.selection import Selection


class ChangedInputError(InputFileError):
    """An input file is no longer the one that a result was made from."""


def add_moved(parser: argparse.ArgumentParser) -> None:
    """Where the input files of a result are now."""
    parser.add_argument(
        "--input",
        dest="moved",
        action="append",
        metavar="FILE",
        help="where an input file of OUT is now, if it has moved; recognised by its digest (repeat "
        "it for the target)",
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
        spec, records = _recorded_spec(folder, manifest, moved or ()), manifest["inputs"]
        inputs = read_inputs(spec)
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
            f"the model {spec.model} must be the one that {folder} was made with. It is another, "
            "which was not loaded. Restore it, or run the selection again."
        ) from error
    except UniprotoError:
        raise
    except Exception as error:  # a record that somebody has edited can hold anything
        raise damaged(folder, error) from error
    return _with_skipped_rows(inputs)


def _recorded_spec(folder: Path, manifest: Mapping[str, Any], moved: Sequence[str]) -> SelectSpec:
    """What was asked, of the files where they are now, on whatever machine this is.

    A record is a stranger's word: it does not say how much memory may be taken; the model must be
    on this machine and have the digest it had; vectors come from our own cache or are computed.
    """
    spec, records = SelectSpec.of(manifest["arguments"]), manifest["inputs"]
    spec = replace(spec, memory=None, device="auto", lists="exact", cache=None, no_cache=False)
    spec = replace(spec, metric=spec.metric or manifest["metric"])  # whatever the default becomes
    places = manifest.get("places") or {}
    pool, target = (
        records[role] and str(input_path(folder, records[role], places.get(role), moved))
        for role in ("source", "target")
    )
    if spec.target:  # else it is a sample of the pool, drawn from it again
        spec = replace(spec, target=target or spec.target)
    spec = replace(spec, pool=pool)
    if spec.engine == "ray":
        spec = replace(spec, prepare=False)  # shards are compared as they are
    embedding = records["source"].get("embedding")
    if embedding is None:
        if spec.embeds:
            raise ValueError("it embeds its input, and its record of that is missing")
        return spec
    named, kind = embedding["named"], embedding["kind"]
    return replace(
        spec,
        text=named if kind == "text" else None,
        images=named if kind == "images" else None,
        model=embedding["model"],
        model_digest=str(embedding["model_digest"]),
    )


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

    from uniproto.problem.problem import Problem

    arguments, problem = inputs.arguments, inputs.problem.with_k(inputs.spec.k)
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
    limits = arguments["limits"]
    groups = arguments["groups"] and replace(
        arguments["groups"],
        labels=widened(arguments["groups"].labels, rows, m),
        target=widened(arguments["groups"].target, columns, n),
    )
    source = widened(arguments["source"], rows, m)
    targets = widened(arguments["target"], columns, n)
    wide = Problem(
        source,
        targets,
        metric=with_bandwidth(problem.costs.metric, problem.costs.bandwidth),
        target_weights=weights,
        groups=groups,
        limits=limits and replace(limits, labels=widened(limits.labels, rows, m)),
        include=rows[arguments["include"]].tolist(),
        exclude=[*rows[arguments["exclude"]].tolist(), *skipped.tolist()],
        min_distance=problem.twin_distance,
        seed=problem.seed,
    )
    assert problem.given is not None
    return replace(
        inputs,
        arguments={**arguments, "groups": groups},
        problem=wide.changed(given=replace(problem.given, source=None, target=None)),
        pool=_with_features(pool, source),
        target=target and _with_features(target, targets),
    )


def _with_features(data: InputData, features: Any) -> InputData:
    """An input with every row of its file."""
    if not has_skipped_rows(data):
        return data
    from uniproto.data.tables import InputData

    items = data.items  # type: ignore[attr-defined]
    return InputData(data.path, data.sha256, features, items.table, data.feature_columns)


# Where files are


def places_of(identities: Mapping[str, Any], output: Path) -> dict[str, Any]:
    """Where a record's inputs lie, seen from the result: one that moves along with them finds them.

    >>> places_of({"source": {"path": "/data/pool.npy"}, "target": None}, Path("/data/out"))
    {'source': {'relative': '../pool.npy'}, 'target': None}
    """
    return {
        role: identity and {"relative": _relative(identity["path"], output)}
        for role, identity in identities.items()
    }


def _relative(path: str, output: Path) -> str | None:
    try:
        return None if "://" in path else os.path.relpath(path, output.resolve())
    except ValueError:  # on another drive
        return None


def input_path(
    folder: Path, record: Mapping[str, Any], place: Mapping[str, Any] | None, moved: Sequence[str]
) -> Path:
    """The input that a person or a record names; it is known by its digest, never by its name.

    `place` is what `places_of` wrote, `moved` what a person says. Files in a store are copied here,
    to a folder that is removed when the process ends.
    """
    from uniproto.features.files import input_digest

    said = record["path"].removeprefix("file://")
    named = [_copied(text) if "://" in text else Path(text) for text in moved]
    if "://" in said and not named:
        raise InputFileError(
            f"{said}: an address in a store is read only where a person names it, not where a "
            f"record does. If it is right, name it, and it is fetched: --input {shlex.quote(said)}."
        )
    if place and place["relative"] is not None:
        named.append(Path(os.path.normpath(folder.resolve() / place["relative"])))
    there = [path for path in (Path(said), *named) if _is_there(path)]
    for path in there:
        if input_digest(path, record.get("embedding")) == record["sha256"]:
            return path
    if there:
        raise ChangedInputError(
            f"{there[0]}: the input must be the file that {folder} was made from. It has changed "
            "since. Restore it, or run the selection again."
        )
    raise InputFileError(
        f"{said}: the input must be the file that {folder} was made from. It could not be opened "
        "(there is no such file). If it has moved, name the place where it is now: --input FILE "
        "(once for each input file that has moved)."
    )


@cache
def _copied(address: str) -> Path:
    from uniproto.scale.fetch import fetched

    folder = tempfile.mkdtemp(prefix="uniproto-inputs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return fetched(address, Path(folder))


def _is_there(path: Path) -> bool:
    """Whether there is a file, a folder, or something that matches a pattern."""
    from uniproto.data.disk import is_pattern

    if is_pattern(path):
        return next(glob.iglob(str(path), recursive=True), None) is not None
    return path.exists()
