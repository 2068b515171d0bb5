"""A saved result and its inputs, read again from files that must not have changed."""

from __future__ import annotations

import argparse
import atexit
import glob
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from uniproto.cli.inputs import Inputs, read_inputs
from uniproto.cli.spec import SelectSpec, recorded_command
from uniproto.errors import ChangedInputError, InputFileError, UniprotoError
from uniproto.problem.keep import keep_all_but
from uniproto.selection.selection import Selection

if TYPE_CHECKING:
    from uniproto.problem.problem import Problem


class Result(NamedTuple):
    """A saved result and what it was made from."""

    manifest: dict[str, Any]
    saved: Selection  # rows numbered as in the files
    selection: Selection  # rows numbered as in the problem
    inputs: Inputs
    problem: Problem


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

    manifest, saved = load_manifest(folder), Selection.load(folder)
    inputs = recorded_inputs(folder, manifest, moved, remedy=remedy)
    problem, selection = inputs.problem.with_k(inputs.spec.k), inputs.in_use(saved)
    if saved.details.updated is not None:
        earlier = saved.details.updated.found
        if earlier.max(initial=-1) >= inputs.pool.count:
            raise damaged(folder, ValueError("its earlier prototypes are not rows of its input"))
        rows = inputs.places(earlier[earlier >= 0])
        keep = keep_all_but(saved.details.updated.allowed, rows, problem.k, problem.m)
        problem = problem.changed(keep=keep)
    is_skipped = selection.indices.min() < 0
    if is_skipped or (selection.details.shape, selection.k) != (problem.costs.shape, problem.k):
        raise damaged(folder, ValueError("its files belong to another problem than its inputs"))
    return Result(manifest, saved, selection, inputs, problem)


def recorded_inputs(
    folder: Path,
    manifest: Mapping[str, Any],
    moved: Sequence[str] | None = None,
    *,
    remedy: str = "Run 'uniproto select'.",
) -> Inputs:
    """Read the files that a saved result was made from; they must not have changed."""
    from uniproto.selection.storage import damaged

    if "inputs" not in manifest or "arguments" not in manifest:
        raise InputFileError(
            f"{folder}: the folder must be written by 'uniproto select', which records the input "
            f"files. Got a result saved from Python or by another command instead. {remedy}"
        )
    try:
        inputs = read_inputs(_recorded_spec(folder, manifest, moved or ()))
        inputs.spec.chosen_method()  # which refuses options that it does not have
        recorded_command(manifest["arguments"])  # which fails where no command line has said it
        for role, found in inputs.identities().items():
            said = manifest["inputs"][role]
            if found != (said and {**said, "path": found and found["path"]}):
                raise ChangedInputError(
                    f"{folder}: the {role} must be what the folder was made from, with the same "
                    "rows, columns, texts, pictures and model. It is not. Restore it, or run the "
                    "selection again."
                )
    except UniprotoError:
        raise
    except Exception as error:  # a record that somebody has edited can hold anything
        raise damaged(folder, error) from error
    return inputs


def _recorded_spec(folder: Path, manifest: Mapping[str, Any], moved: Sequence[str]) -> SelectSpec:
    """What was asked, of the files where they are now, on whatever machine this is.

    A record is a stranger's word: it does not say how much memory may be taken; the model must be
    on this machine and have the digest it had; vectors come from our own cache or are computed.
    """
    spec, records = SelectSpec.of(manifest["arguments"]), manifest["inputs"]
    # A file without a digest on record could be any file of this machine: none is opened.
    if spec.target and records["target"] is None:
        raise ValueError("its record of the target is missing")
    if spec.exclude_near and spec.near_rows is None:
        raise ValueError("its record of the rows that --exclude-near excluded is missing")
    places = manifest.get("places") or {}
    pool, target = (
        records[role] and str(_input_path(folder, records[role], places.get(role), moved))
        for role in ("source", "target")
    )
    usual: dict[str, Any] = {each.name: each.default for each in fields(spec)}
    ignored = {name: usual[name] for name in spec.not_on_ray()} if spec.engine == "ray" else {}
    spec = replace(spec, **ignored)  # `verify` says no to a record with such options
    spec = replace(
        spec,
        pool=pool,
        target=spec.target and target,  # else it is a sample of the pool
        metric=manifest["metric"]
        if spec.metric == "auto"
        else spec.metric,  # whatever the default becomes
        prepare=False if spec.engine == "ray" else spec.prepare,  # shards are compared as they are
        memory=None,
        device="auto",
        neighbours="exact",
        cache=None,
        no_cache=False,
    )
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


# Where files are


def places_of(identities: Mapping[str, Any], output: Path) -> dict[str, Any]:
    """Where a record's inputs lie, seen from the result: one that moves along with them finds them.

    >>> places_of({"source": {"path": "/data/pool.npy"}, "target": None}, Path("/data/out"))
    {'source': {'relative': '../pool.npy'}, 'target': None}
    """

    def relative(path: str) -> str | None:
        with suppress(ValueError):  # on another drive
            return None if "://" in path else os.path.relpath(path, output.resolve())
        return None

    return {role: one and {"relative": relative(one["path"])} for role, one in identities.items()}


def _input_path(
    folder: Path, record: Mapping[str, Any], place: Mapping[str, Any] | None, moved: Sequence[str]
) -> Path:
    """The input that a person or a record names; it is known by its digest, never by its name.

    `place` is what `places_of` wrote, `moved` what a person says. Files in a store are copied here,
    to a folder that is removed when the process ends.
    """
    from uniproto.features.files import input_digest

    said = record["path"].removeprefix("file://")
    if "://" in said and not moved:
        raise InputFileError(
            f"{said}: an address in a store is read only where a person names it, not where a "
            f"record does. If it is right, name it, and it is fetched: --input {shlex.quote(said)}."
        )
    recorded = [said]
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
        f"{said}: the input must be the file that {folder} was made from. It could not be opened "
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
