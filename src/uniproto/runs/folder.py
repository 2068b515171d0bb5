"""The folder of a run that goes on after a kill: whose it is, and what may be put into it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from uniproto.errors import InvalidInputError
from uniproto.runs.atomic import require_writable
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
    different = [
        f"{name} = {there.get(name, 'nothing')!r} in the folder, "
        f"{wanted.get(name, 'nothing')!r} now"
        for name in {**there, **wanted}
        if there.get(name, "") != wanted.get(name, "")
    ]
    if different:
        raise InvalidInputError(
            f"{folder}: the folder must hold {what}. Got {'; '.join(different)} instead. Choose "
            "another folder with --out, or start over with --fresh."
        )
