"""The folder of a pretraining run: gone on with, or forgotten."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, InvalidInputError, OutputError
from uniproto.pretraining.checkpoints import CHECKPOINTS, Checkpoint
from uniproto.pretraining.training_loop import NAN_BATCH
from uniproto.runs.metrics import METRICS
from uniproto.runs.settings import require_same

RESULT = "result.json"


def finished_result(
    out: Path, steps: int, configuration: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The result of a run that has ended, unless it is to go on for more steps."""
    if not (out / RESULT).exists():
        return None
    try:
        result = dict(json.loads((out / RESULT).read_text(encoding="utf-8")))
        done, there = int(result["steps"]), dict(result["configuration"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{out / RESULT}: the file must hold the result of a pretraining run. It holds "
            f"something else ({error}). Choose another folder with --out, or start over with "
            "--fresh."
        ) from error
    require_continuing(there, configuration, done, out)
    return result if done == steps else None


def require_checkpoint(saved: Checkpoint | None, out: Path) -> None:
    """A run that ended cannot go on without a checkpoint: its results would be lost."""
    if saved is None and (out / RESULT).exists():
        raise InputFileError(
            f"{out / CHECKPOINTS}: the folder must hold the last checkpoint of a run that is to go "
            "on for more steps. Got none instead. Put it back, choose another folder with --out, "
            "or start over with --fresh."
        )


def require_continuing(
    there: Mapping[str, Any], wanted: Mapping[str, Any], done: int, out: Path
) -> None:
    """The same configuration; more steps are another one only where the schedule looks at them."""
    if wanted["schedule"] == "constant" and wanted["steps"] >= done:
        there = {**there, "steps": wanted["steps"]}
    require_same(there, wanted, out, "a run of the same configuration")


def forget(out: Path) -> None:
    """Remove an earlier run, but not its tokens."""
    try:
        for path in (out / METRICS, out / RESULT, out / NAN_BATCH, *out.glob("curves.*")):
            path.unlink(missing_ok=True)
        if (out / CHECKPOINTS).is_dir():
            shutil.rmtree(out / CHECKPOINTS)
    except OSError as error:
        raise unwritable(out, error) from error


def unwritable(out: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{out}: the results must go to a folder that can be written. Writing failed "
        f"({error.strerror or error}). Choose another one with --out, or free some space."
    )
