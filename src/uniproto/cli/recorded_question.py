"""The question that a saved result answers: asked again, of files that must not have changed."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uniproto.cli.left_out_rows import with_every_row
from uniproto.cli.question import Question, read_question
from uniproto.errors import InputFileError, UniprotoError

_KINDS = ("text", "images")


class ChangedInputError(InputFileError):
    """An input file is no longer the one that a result was made from."""


def recorded_question(folder: Path, manifest: Mapping[str, Any]) -> Question:
    """The question that a saved result answers, from its inputs, which must not have changed."""
    from uniproto.features.files import input_digest
    from uniproto.selection.storage import damaged

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
        _embed_as_recorded(options, inputs["source"].get("embedding"))
        question = _asked_again(options, folder)
        for role, found in question.identities().items():
            _require_same_embedding(inputs[role], found, folder)
            if found and {**inputs[role], "path": found["path"]} != found:
                raise ValueError(f"its record of the {role} is not what the file holds")
    except UniprotoError:
        raise
    except Exception as error:  # a record that somebody has edited can hold anything
        raise damaged(folder, error) from error
    return with_every_row(question)


def _embed_as_recorded(options: argparse.Namespace, embedding: Mapping[str, Any] | None) -> None:
    """Embed again as it was asked, but from anywhere, and on whatever this machine has.

    A record is a stranger's word: the model must be on this machine and have the digest it had,
    and vectors come from our own cache or are computed.
    """
    if embedding is None:
        if any(getattr(options, kind, None) is not None for kind in _KINDS):
            raise ValueError("it embeds its input, and its record of that is missing")
        return
    if embedding["kind"] not in _KINDS:
        raise ValueError("its record of what was embedded contradicts itself")
    for kind in _KINDS:
        setattr(options, kind, embedding["named"] if kind == embedding["kind"] else None)
    options.model, options.device = embedding["model"], "auto"
    options.model_digest = str(embedding["model_digest"])
    options.cache, options.no_cache = None, False


def _asked_again(options: argparse.Namespace, folder: Path) -> Question:
    from uniproto.features.models import OtherModelError

    try:
        return read_question(options)
    except OtherModelError as error:
        raise ChangedInputError(
            f"the model {options.model} must be the one that {folder} was made with. Got another "
            "instead, which was not loaded. Restore it, or run the selection again."
        ) from error


def _require_local(path: str) -> None:
    """What lies in a store is read by Ray's tasks; this machine's commands read files."""
    if "://" in path:
        raise InputFileError(
            f"{path}: the input must be a file of this machine. Got an address in a store instead. "
            "Mount the store, and select from the mounted files."
        )


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
