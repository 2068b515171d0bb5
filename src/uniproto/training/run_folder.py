"""The folder of a fine-tuning run: claimed by its settings, gone on with from a checkpoint."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from uniproto.data.tables import file_digest
from uniproto.errors import OutputError
from uniproto.same_settings import require_same
from uniproto.training.finetune_settings import FinetuneSettings
from uniproto.whole_files import write_json

SETTINGS, RESULT, MODEL = "finetune.json", "result.json", "model"
MAY_CHANGE = ("out", "quiet", "save_steps", "report_to", "device")  # without being another run
_CHECKPOINT = "checkpoint-"


def claim(out: Path, settings: FinetuneSettings, fresh: bool) -> None:
    """Make the folder, or find in it a run of the same settings to go on with."""
    wanted = {k: v for k, v in asdict(settings).items() if k not in MAY_CHANGE}
    data = Path(settings.data)
    wanted["data_sha256"] = file_digest(data) if data.is_file() else None
    wanted = json.loads(json.dumps(wanted))
    try:
        if fresh and (out / SETTINGS).exists():
            for name in (RESULT, SETTINGS, "metrics.jsonl"):
                (out / name).unlink(missing_ok=True)
            for folder in out.glob(f"{_CHECKPOINT}*"):
                shutil.rmtree(folder)
        out.mkdir(parents=True, exist_ok=True)
        begun = (out / RESULT).exists() or last_checkpoint(out) is not None
        if begun and not (out / SETTINGS).exists():  # nothing of ours stands without it
            raise OutputError(
                f"{out}: the folder must be new, or hold a run of this command. It holds results "
                f"of something else, without {SETTINGS}. Choose another one with --out."
            )
        if begun:
            there = json.loads((out / SETTINGS).read_text(encoding="utf-8"))
            require_same(there, wanted, out, "a run of the same settings")
            return
        write_json(out / SETTINGS, wanted)
    except (OSError, json.JSONDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(
            f"{out}: the results must go to a folder that can be written. It cannot be used "
            f"({reason}). Choose another one with --out, or start over with --fresh."
        ) from error


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
