"""Where a model's files are, and a digest that tells one model from another."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError
from uniproto.features.models import identity_digest, model_identity
from uniproto.lm.features.language import CHAT
from uniproto.lm.finetune.folder import CHATS, MODEL, SETTINGS

_ADAPTER = "adapter_config.json"


@dataclass(frozen=True)
class ModelPlace:
    """Where a model is: its files, an adapter on top of them, and its prompt template."""

    base: str
    adapter: Path | None = None
    template: str | None = None

    def fingerprint(self) -> str | None:
        """What the files of the model and its adapter are.

        None for a name on the hub, which is no file yet; of an adapter on one, the adapter counts.
        """
        places = [Path(self.base), *([self.adapter] if self.adapter else [])]
        found = [model_identity(place) for place in places if place.exists()]
        return identity_digest(" ".join(found)) if found else None


def locate(model: str | Path, base: str | None = None) -> ModelPlace:
    """Find the files that a path or name means; nothing is loaded yet.

    A folder that `uniproto finetune` wrote knows its base model and its template.
    """
    folder = Path(model)
    if not folder.is_dir():
        return ModelPlace(str(model))
    run = folder if (folder / SETTINGS).is_file() else folder.parent
    tuned = _json(run / SETTINGS) if (run / SETTINGS).is_file() else {}
    if run == folder:
        folder = run / MODEL
        if not folder.is_dir():
            raise InputFileError(
                f"{run}: the tuning run must be finished. There is no {MODEL}/ in it yet. Let "
                "`uniproto finetune` come to its end, or name one of its checkpoints."
            )
    template = CHAT if tuned.get(CHATS) else tuned.get("template")
    if not (folder / _ADAPTER).is_file():
        return ModelPlace(str(folder), None, template)
    known = base or tuned.get("model") or _json(folder / _ADAPTER).get("base_model_name_or_path")
    if not known:
        raise InputFileError(
            f"{folder}: the adapter must say which model it belongs to. It does not. Name it with "
            "--base."
        )
    return ModelPlace(str(known), folder, template)


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputFileError(
            f"{path}: the file must say how the model was made. It cannot be read ({error}). "
            "Name the model's own folder."
        ) from error
