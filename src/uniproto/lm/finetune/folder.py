"""The folder of a fine-tuning run: who may write to it, and where a run resumes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from uniproto.data.tables import file_digest
from uniproto.errors import InputFileError
from uniproto.lm.finetune.settings import FinetuneSettings
from uniproto.report.charts import CURVE_FILES
from uniproto.runs.atomic import write_json
from uniproto.runs.folder import read_record, require_run_folder, require_same, writing
from uniproto.runs.journal import METRICS
from uniproto.runs.lock import locked

SETTINGS, RESULT, MODEL = "finetune.json", "result.json", "model"
CHATS = "chats"  # in the settings' file: whether the data were conversations
MAY_CHANGE = ("out", "quiet", "save_steps", "report_to", "device")  # on resuming
_CHECKPOINT = "checkpoint-"
_WRITTEN = (RESULT, MODEL, METRICS, *CURVE_FILES)


def require_usable(out: Path, settings: FinetuneSettings, fresh: bool) -> None:
    """Refuse a folder that holds something else or other settings, or cannot be written.

    Nothing is written or deleted yet: the command may still fail for another reason.
    """
    checkpoints = [path.name for path in _checkpoints(out)]
    inputs = [*settings.data_files, settings.model]
    inputs += [path for path in (settings.validation_data, settings.mix) if path is not None]
    require_run_folder(out, SETTINGS, {*_WRITTEN, *checkpoints}, inputs)
    begun = (out / RESULT).exists() or last_checkpoint(out) is not None
    if begun and not fresh:
        recorded = read_record(out / SETTINGS)
        recorded.pop(CHATS, None)  # which the data decide
        require_same(recorded, _identity(settings), out, "a run of the same settings")


@contextmanager
def claimed(
    out: Path, settings: FinetuneSettings, fresh: bool, chats: bool = False
) -> Iterator[None]:
    """Create the folder of a run, or clear it with `fresh`, and lock it against other runs.

    `chats` notes that the model has learned from conversations, by its chat template.
    """
    with locked(out):
        with writing(out):
            if fresh:
                _clear(out)
            if not (out / SETTINGS).exists() or last_checkpoint(out) is None:
                write_json(out / SETTINGS, {**_identity(settings), CHATS: chats})
        yield


def _identity(settings: FinetuneSettings) -> dict[str, Any]:
    """The settings that must be equal for a run to be resumed."""
    identity = {k: v for k, v in asdict(settings).items() if k not in MAY_CHANGE}
    digests = [_digest(name) for name in settings.data_files]
    identity["data_sha256"] = digests[0] if len(digests) == 1 else digests
    if settings.validation_data is not None:
        identity["validation_sha256"] = _digest(settings.validation_data)
    return dict(json.loads(json.dumps(identity)))


def _digest(name: str) -> str | None:
    """Of a file; a data set on the hub is known by its name alone."""
    return file_digest(Path(name)) if Path(name).is_file() else None


def _clear(out: Path) -> None:
    if not (out / SETTINGS).is_file():
        return
    for name in (RESULT, METRICS):
        (out / name).unlink(missing_ok=True)
    for folder in _checkpoints(out):
        shutil.rmtree(folder)
    (out / SETTINGS).unlink()


def last_checkpoint(out: Path) -> Path | None:
    """The newest complete checkpoint: its state is the last file that is written."""
    found = []
    for folder in _checkpoints(out):
        try:
            state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
            if state["global_step"] == step_of(folder):
                found.append(folder)
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return max(found, key=step_of, default=None)


def require_complete(checkpoint: Path, process: int, processes: int) -> None:
    """Refuse a checkpoint without a state that the Trainer would go on without, as if new.

    Random states are named after the processes that saved them.
    """
    own = f"rng_state_{process}.pth" if processes > 1 else "rng_state.pth"
    missing = [
        name for name in ("optimizer.pt", "scheduler.pt", own) if not (checkpoint / name).is_file()
    ]
    if missing:
        raise InputFileError(
            f"{checkpoint}: the checkpoint has no {', '.join(missing)} for {processes} processes. "
            "Put the files back, move this folder away to go on from the checkpoint before it, or "
            "start over with --fresh."
        )


def _checkpoints(out: Path) -> list[Path]:
    """The folders that the trainer saves to: nothing else has such a name."""
    return [path for path in out.glob(f"{_CHECKPOINT}*") if path.is_dir() and step_of(path) >= 0]


def step_of(folder: Path) -> int:
    number = folder.name.removeprefix(_CHECKPOINT)
    return int(number) if number.isdigit() else -1
