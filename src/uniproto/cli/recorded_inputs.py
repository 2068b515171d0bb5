"""A saved result and its inputs, read again from files that must not have changed."""

from __future__ import annotations

import argparse
import atexit
import glob
import inspect
import operator
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uniproto.cli.inputs import kinds_of_examples, recorded_command
from uniproto.errors import ChangedInputError, InputFileError, UniprotoError
from uniproto.features.model_features import Images, ModelFeatures, Text
from uniproto.methods import as_method
from uniproto.problem.near import NearRows
from uniproto.problem.problem import Problem
from uniproto.problem.values import TargetSample
from uniproto.selection.call import called, on_any_machine, require_record
from uniproto.selection.selection import Selection

_ARGUMENTS = {*inspect.signature(Problem).parameters, "k", "method", "certify"}


class Result(NamedTuple):
    """A saved result and what it was made from."""

    manifest: dict[str, Any]
    selection: Selection
    problem: Problem
    call: dict[str, Any]  # the recorded arguments of `select`


def add_result(parser: argparse.ArgumentParser) -> None:
    """The folder of a result, and where its input files are now."""
    parser.add_argument("folder", metavar="OUT", help="a folder that 'uniproto select' has written")
    parser.add_argument(
        "--input",
        dest="moved",
        action="append",
        metavar="FILE",
        help="where an input file of OUT is now, if it has moved; recognised by its digest (repeat "
        "it for the target)",
    )


def read_result(folder: Path, moved: Sequence[str] | None = None, *, remedy: str) -> Result:
    """Read a saved result and the files that it was made from, which must belong together.

    `moved` are where some of them are now, as a person says; `remedy` is what to do about a result
    without a record of its files.
    """
    from uniproto.selection.storage import damaged, load_manifest

    manifest, selection = load_manifest(folder), Selection.load(folder)
    problem, call = recorded_problem(folder, manifest, moved, remedy=remedy)
    problem = problem.with_k(call["k"])
    if selection.details.updated is not None:
        rows = selection.details.updated.found
        if rows.max(initial=-1) >= problem.m:
            raise damaged(folder, ValueError("its earlier prototypes are not rows of its input"))
        problem = problem.changed(keep=selection.details.updated.rule(problem))
    if (selection.details.shape, selection.k) != (problem.costs.shape, problem.k):
        raise damaged(folder, ValueError("its files belong to another problem than its inputs"))
    return Result(manifest, selection, problem, call)


def recorded_problem(
    folder: Path,
    manifest: Mapping[str, Any],
    moved: Sequence[str] | None = None,
    *,
    remedy: str = "Run 'uniproto select'.",
) -> tuple[Problem, dict[str, Any]]:
    """The problem of a saved result, whose files must not have changed, and the recorded call."""
    from uniproto.selection.storage import damaged

    require_record(folder, manifest, remedy)
    try:
        call = recorded_call(manifest)
        as_method(call["method"])  # which refuses what is none
        recorded_command(call, manifest, str(folder))  # which people will read
        problem = Problem(**_of_files(folder, manifest, call, moved or ()))
        for role, found in (problem.identities() or {}).items():
            record = manifest["inputs"][role]
            if found != (record and {**record, "path": found and found["path"]}):
                raise ChangedInputError(
                    f"{folder}: the {role} must be what the folder was made from, with the same "
                    "rows, columns, texts, pictures and model. It is not. Restore it, or run the "
                    "selection again."
                )
        for path, near in _excluded(manifest):
            if near.rows.max(initial=-1) >= problem.m or near.rows.min(initial=0) < 0:
                raise ValueError("its excluded rows are not rows of its input")
            problem = problem.excluding(path, near)
    except UniprotoError:
        raise
    except Exception as error:  # a record that somebody has edited can hold anything
        raise damaged(folder, error) from error
    return problem, call


def recorded_call(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `select` that a manifest holds."""
    record = manifest["arguments"]
    features = record.get("features")
    kind = features["kind"] if isinstance(features, Mapping) else None
    own = kinds_of_examples() if kind in ("Gradients", "HiddenStates") else ()
    call = called(record, *own)
    if unknown := sorted(call.keys() - _ARGUMENTS):
        raise ValueError(f"its record has an argument {unknown[0]!r}")
    return call


def _of_files(
    folder: Path, manifest: Mapping[str, Any], call: Mapping[str, Any], moved: Sequence[str]
) -> dict[str, Any]:
    """The recorded arguments of a `Problem`, of the files where they are now, on this machine.

    A record is a stranger's word: it does not say how much memory may be taken; the model must be
    on this machine and have the digest it had; vectors come from our own cache or are computed.
    """
    records, target = manifest["inputs"], call.get("target")
    asked: Any = target.of if isinstance(target, TargetSample) else target
    # A file without a digest on record could be any file of this machine: none is opened.
    if asked is not None and records["target"] is None:
        raise ValueError("its record of the target is missing")
    places = manifest.get("places") or {}
    source, aim = (
        records[role] and str(_input_path(folder, records[role], places.get(role), moved))
        for role in ("source", "target")
    )
    aim = asked and aim
    target = replace(target, of=aim) if isinstance(target, TargetSample) else aim
    features = call.get("features")
    embedding = records["source"].get("embedding")
    if isinstance(features, ModelFeatures):
        if embedding is None:
            raise ValueError("it embeds its input, and its record of that is missing")
        features = replace(
            on_any_machine(features),
            model=embedding["model"],
            model_digest=str(embedding["model_digest"]),
        )
        if isinstance(features, Text | Images):
            features = replace(features, column=embedding["named"])
    return {
        **{name: call[name] for name in call if name not in ("k", "method", "certify")},
        "source": source,
        "target": target,
        "features": features,
        "metric": manifest["metric"] if call.get("metric", "auto") == "auto" else call["metric"],
        "compute": None,
    }


def _excluded(manifest: Mapping[str, Any]) -> list[tuple[str, NearRows]]:
    """The rows that a record excludes; what they are near to is in a file for people."""
    if "excluded" not in manifest:
        return []
    record = manifest["excluded"]
    if "rows" not in record:
        raise ValueError("its record of the rows that are excluded is missing")
    rows = np.array([operator.index(row) for row in record["rows"]], np.intp)
    [(str(path), float(distance)) for path, distance in record["near"]]
    return [("", NearRows(0.0, rows, rows, np.zeros(len(rows))))]


# Where files are


def _input_path(
    folder: Path, record: Mapping[str, Any], place: Mapping[str, Any] | None, moved: Sequence[str]
) -> Path:
    """The input that a person or a record names; it is known by its digest, never by its name.

    `place` is what the record says of that, `moved` what a person says. Files in a store are
    copied here, to a folder that is removed when the process ends.
    """
    from uniproto.features.files import input_digest

    listed = record["path"].removeprefix("file://")
    if "://" in listed and not moved:
        raise InputFileError(
            f"{listed}: an address in a store is read only where a person names it, not where a "
            f"record does. If it is right, name it, and it is fetched: "
            f"--input {shlex.quote(listed)}."
        )
    recorded = [listed]
    if place and place["relative"] is not None:
        recorded.append(os.path.normpath(folder.resolve() / place["relative"]))
    by_person = [_copied(text) if "://" in text else text for text in moved]
    there = [Path(name) for name in recorded[:1] if _is_there(folder, name)]
    there += [
        Path(name) for name in by_person if os.path.exists(name) or glob.glob(name, recursive=True)
    ]
    there += [Path(name) for name in recorded[1:] if _is_there(folder, name)]
    for path in there:
        if input_digest(path, record.get("embedding")) == record["sha256"]:
            return path
    if there:
        raise ChangedInputError(
            f"{there[0]}: the input must be the file that {folder} was made from. It has changed "
            "since. Restore it, or run the selection again."
        )
    raise InputFileError(
        f"{listed}: the input must be the file that {folder} was made from. It could not be opened "
        "(there is no such file). If it has moved, name the place where it is now: --input FILE "
        "(once for each input file that has moved)."
    )


def _is_there(folder: Path, name: str) -> bool:
    """Whether a record's name leads to a file, to a folder, or to Parquet files of a folder.

    A pattern that looks into folders, or a folder around the result itself, could name everything
    there is on this machine: only a person may name those.
    """
    if os.path.isdir(name):
        return Path(name).resolve() not in folder.resolve().parents
    if os.path.exists(name):
        return True
    parent, pattern = os.path.split(name)
    if glob.has_magic(parent) or "**" in pattern or not pattern.endswith(".parquet"):
        return False
    return any(glob.iglob(name))


@cache
def _copied(address: str) -> str:
    from uniproto.scale.shards import fetched

    folder = tempfile.mkdtemp(prefix="uniproto-inputs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return str(fetched(address, Path(folder)))
