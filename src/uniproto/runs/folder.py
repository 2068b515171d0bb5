"""The folder of a run that goes on after a kill: whose it is, and what may be put into it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, InvalidInputError, UniprotoError
from uniproto.runs.atomic import require_writable, unwritable
from uniproto.runs.publish import refuse_inputs_inside, require_unused


def require_run_folder(
    folder: Path, settings: str, names: Iterable[str], inputs: Iterable[str]
) -> None:
    """Refuse a folder that holds an input, or somebody else's files, or cannot be written.

    A folder with the file `settings` is that of a run of ours; in any other, the `names` that a
    run writes must be unused.
    """
    refuse_inputs_inside(folder, inputs)
    if not (folder / settings).is_file():
        require_unused(folder, {settings, *names})
    require_writable(folder)


def require_same(
    there: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path, what: str
) -> None:
    """Refuse to go on with other settings, and show the difference. `what` the folder must hold.

    >>> require_same({"keep": 4, "seed": 0}, {"keep": 8, "seed": 0}, Path("run"), "the same run")
    Traceback (most recent call last):
    uniproto.errors.InvalidInputError: run: the folder must hold the same run. Got keep = 4 in the
    folder, 8 now instead. Choose another folder with --out, or start over with --fresh.
    """
    if different := differences(there, wanted):
        raise InvalidInputError(
            f"{folder}: the folder must hold {what}. Got {different} instead. Choose another "
            "folder with --out, or start over with --fresh."
        )


def differences(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """What is otherwise in a folder than it is wanted now, in words; empty where nothing is."""
    return "; ".join(
        f"{name} = {there.get(name, 'nothing')!r} in the folder, "
        f"{wanted.get(name, 'nothing')!r} now"
        for name in {**there, **wanted}
        if there.get(name, "") != wanted.get(name, "")
    )


@contextmanager
def writing(path: Path, what: str = "results") -> Iterator[None]:
    """What the system refuses to write becomes one message; errors of ours stay what they are."""
    try:
        yield
    except UniprotoError:
        raise
    except OSError as error:
        raise unwritable(path, error, what) from error


def read_record(path: Path) -> dict[str, Any]:
    """What an earlier run has written about itself, as JSON."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputFileError(
            f"{path}: the file of an earlier run is damaged ({error}). Choose another folder with "
            "--out, or start over with --fresh."
        ) from error
