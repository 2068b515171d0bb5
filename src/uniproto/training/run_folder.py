"""The folder of a fine-tuning run: claimed by its settings, gone on with from a checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from uniproto.data.tables import file_digest
from uniproto.errors import OutputError
from uniproto.runs.atomic import require_writable, write_json
from uniproto.runs.lock import locked
from uniproto.runs.settings import require_same
from uniproto.training.finetune_settings import FinetuneSettings

SETTINGS, RESULT, MODEL = "finetune.json", "result.json", "model"
MAY_CHANGE = ("out", "quiet", "save_steps", "report_to", "device")  # without being another run
_CHECKPOINT = "checkpoint-"


def require_usable(out: Path, settings: FinetuneSettings, fresh: bool) -> None:
    """Refuse a folder of something else, of other settings, or that cannot be written.

    Nothing is written yet, and with `fresh` nothing forgotten: the rest of the command may be
    refused, too.
    """
    begun = (out / RESULT).exists() or last_checkpoint(out) is not None
    if begun and not (out / SETTINGS).exists():  # nothing of ours stands without it
        raise OutputError(
            f"{out}: the folder must be new, or hold a run of this command. It holds results "
            f"of something else, without {SETTINGS}. Choose another one with --out."
        )
    if begun and not fresh:
        try:
            there = json.loads((out / SETTINGS).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _unusable(out, error) from error
        require_same(there, _wanted(settings), out, "a run of the same settings")
    require_writable(out)


@contextmanager
def claimed(out: Path, settings: FinetuneSettings, fresh: bool) -> Iterator[None]:
    """Make the folder of a run, or forget the run in it, and keep other runs out of it."""
    with locked(out):
        try:
            if fresh:
                _forget(out)
            if not (out / SETTINGS).exists() or last_checkpoint(out) is None:
                write_json(out / SETTINGS, _wanted(settings))
        except OSError as error:
            raise _unusable(out, error) from error
        yield


def _wanted(settings: FinetuneSettings) -> dict[str, Any]:
    """What must be the same for a run to go on as if it had never stopped."""
    wanted = {k: v for k, v in asdict(settings).items() if k not in MAY_CHANGE}
    data = Path(settings.data)
    wanted["data_sha256"] = file_digest(data) if data.is_file() else None
    return dict(json.loads(json.dumps(wanted)))


def _forget(out: Path) -> None:
    for name in (RESULT, SETTINGS, "metrics.jsonl"):
        (out / name).unlink(missing_ok=True)
    for folder in out.glob(f"{_CHECKPOINT}*"):
        shutil.rmtree(folder)


def _unusable(out: Path, error: OSError | ValueError) -> OutputError:
    return OutputError(
        f"{out}: the results must go to a folder that can be written. It cannot be used "
        f"({getattr(error, 'strerror', None) or error}). Choose another one with --out, or start "
        "over with --fresh."
    )


def last_checkpoint(out: Path) -> Path | None:
    """The newest complete checkpoint: its state is the last file that is written."""
    found = []
    for folder in out.glob(f"{_CHECKPOINT}*"):
        try:
            state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
            if state["global_step"] == step_of(folder):
                found.append(folder)
        except (OSError, ValueError, KeyError):
            continue
    return max(found, key=step_of, default=None)


def step_of(folder: Path) -> int:
    number = folder.name.removeprefix(_CHECKPOINT)
    return int(number) if number.isdigit() else -1
