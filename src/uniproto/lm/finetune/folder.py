"""The folder of a fine-tuning run: its lock, where a run resumes, and the model in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uniproto.data.tables import file_digest
from uniproto.errors import InputFileError
from uniproto.features.models import identity_digest, model_identity, read_settings
from uniproto.lm.features.language import CHAT
from uniproto.lm.finetune.settings import FinetuneSettings
from uniproto.lm.models import ADAPTER
from uniproto.report.charts import CURVE_FILES
from uniproto.runs.atomic import write_json, writing
from uniproto.runs.folder import read_record, require_run_folder, require_same
from uniproto.runs.journal import METRICS
from uniproto.runs.lock import locked

SETTINGS, RESULT, MODEL = "finetune.json", "result.json", "model"
CHATS = "chats"  # in the file of settings: whether the data are conversations
MAY_CHANGE = ("out", "quiet", "save_steps", "report_to", "device")  # on resuming
_CHECKPOINT = "checkpoint-"
_WRITTEN = (RESULT, MODEL, METRICS, *CURVE_FILES)


def require_usable(out: Path, settings: FinetuneSettings, fresh: bool) -> None:
    """Refuse a folder that holds other files or a run of other settings, or cannot be written.

    Nothing is written or deleted yet, as the command may still fail for another reason.
    """
    checkpoints = [path.name for path in _checkpoints(out)]
    inputs = [*settings.data_files, settings.model]
    inputs += [path for path in (settings.validation_data, settings.mix) if path is not None]
    require_run_folder(out, SETTINGS, {*_WRITTEN, *checkpoints}, inputs)
    begun = (out / RESULT).exists() or last_checkpoint(out) is not None
    if begun and not fresh:
        recorded = read_record(out / SETTINGS)
        recorded.pop(CHATS, None)  # depends on the data
        require_same(recorded, _identity(settings), out, "a run of the same settings")


@contextmanager
def claimed(
    out: Path, settings: FinetuneSettings, fresh: bool, chats: bool = False
) -> Iterator[None]:
    """Create the folder of a run, or clear it with `fresh`, and lock it against other runs.

    `chats` records whether the model is trained on conversations, with its chat template.
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
    return identity


def _digest(name: str) -> str | None:
    """The digest of a file; None for a data set on the hub."""
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
    """The newest complete checkpoint: one with the file that is written last."""
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
    """Refuse an incomplete checkpoint, from which the Trainer would resume without a warning.

    The file of random states is named after the process.
    """
    own = f"rng_state_{process}.pth" if processes > 1 else "rng_state.pth"
    missing = [
        name for name in ("optimizer.pt", "scheduler.pt", own) if not (checkpoint / name).is_file()
    ]
    if missing:
        raise InputFileError(
            f"{checkpoint}: the checkpoint has no {', '.join(missing)} for {processes} processes. "
            "Restore the files, move this folder away to resume from the checkpoint before it, or "
            "start over with --fresh."
        )


def _checkpoints(out: Path) -> list[Path]:
    """The checkpoint folders of the trainer, which are recognised by their names."""
    return [path for path in out.glob(f"{_CHECKPOINT}*") if path.is_dir() and step_of(path) >= 0]


def step_of(folder: Path) -> int:
    number = folder.name.removeprefix(_CHECKPOINT)
    return int(number) if number.isdigit() else -1


@dataclass(frozen=True)
class ModelPlace:
    """Where a model is: its files, an adapter on top of them, and its prompt template."""

    base: str
    adapter: Path | None = None
    template: str | None = None

    def fingerprint(self) -> str | None:
        """A digest of the files of the model and its adapter.

        None for a name on the hub without local files; with an adapter, that of the adapter.
        """
        places = [Path(self.base), *([self.adapter] if self.adapter else [])]
        found = [model_identity(place) for place in places if place.exists()]
        return identity_digest(" ".join(found)) if found else None


def locate(model: str | Path, base: str | None = None) -> ModelPlace:
    """Find the files of a model, without loading them.

    A folder written by `uniproto finetune` records its base model and its template.
    """
    folder = Path(model)
    if not folder.is_dir():
        return ModelPlace(str(model))
    run = folder if (folder / SETTINGS).is_file() else folder.parent
    tuned = read_settings(run / SETTINGS)
    if run == folder:
        folder = run / MODEL
        if not folder.is_dir():
            raise InputFileError(
                f"{run}: the run is not finished: it has no {MODEL}/. Let `uniproto finetune` end, "
                "or name one of its checkpoints."
            )
    template = CHAT if tuned.get(CHATS) else tuned.get("template")
    if not (folder / ADAPTER).is_file():
        return ModelPlace(str(folder), None, template)
    known = (
        base or tuned.get("model") or read_settings(folder / ADAPTER).get("base_model_name_or_path")
    )
    if not known:
        raise InputFileError(
            f"{folder}: the adapter does not say which model it belongs to. Name it with --base."
        )
    return ModelPlace(str(known), folder, template)
