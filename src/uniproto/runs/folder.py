"""The folder of a run that can be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, InvalidInputError
from uniproto.runs.atomic import require_writable
from uniproto.runs.publish import refuse_inputs_inside, require_unused


def require_run_folder(
    folder: Path, settings: str, names: Iterable[str], inputs: Iterable[str]
) -> None:
    """Refuse a folder that holds an input or files of other programs, or cannot be written.

    A folder with the file `settings` is that of an earlier run; in any other, the `names` that a
    run writes must not exist.
    """
    refuse_inputs_inside(folder, inputs)
    if not (folder / settings).is_file():
        require_unused(folder, {settings, *names})
    require_writable(folder)


def require_same(
    there: Mapping[str, Any], wanted: Mapping[str, Any], folder: Path, what: str
) -> None:
    """Refuse to resume with other settings, and show the difference. The folder must hold `what`.

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
    """Settings that differ from those in the folder; an empty string if none do."""
    wanted = json.loads(json.dumps(wanted))  # as a file of settings would hold them
    return "; ".join(
        f"{name} = {there.get(name, 'nothing')!r} in the folder, "
        f"{wanted.get(name, 'nothing')!r} now"
        for name in {**there, **wanted}
        if there.get(name, "") != wanted.get(name, "")
    )


def read_record(path: Path) -> dict[str, Any]:
    """The JSON record of an earlier run."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise InputFileError(
            f"{path}: the file of an earlier run is damaged ({error}). Choose another folder with "
            "--out, or start over with --fresh."
        ) from error
