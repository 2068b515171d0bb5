"""Going on with a run that was stopped: only where everything it was told is the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uniproto.errors import InvalidInputError


def require_same(
    there: Mapping[str, Any], asked: Mapping[str, Any], folder: Path, what: str
) -> None:
    """Refuse to go on with other settings, and show the difference. `what` the folder must hold.

    >>> require_same({"keep": 4, "seed": 0}, {"keep": 8, "seed": 0}, Path("run"), "the same run")
    Traceback (most recent call last):
    uniproto.errors.InvalidInputError: run: the folder must hold the same run. Got keep = 4 in the
    folder, 8 now instead. Choose another folder with --out, or start over with --fresh.
    """
    different = [
        f"{name} = {there.get(name, 'nothing')!r} in the folder, {asked.get(name, 'nothing')!r} now"
        for name in {**there, **asked}
        if there.get(name, "") != asked.get(name, "")
    ]
    if different:
        raise InvalidInputError(
            f"{folder}: the folder must hold {what}. Got {'; '.join(different)} instead. Choose "
            "another folder with --out, or start over with --fresh."
        )
