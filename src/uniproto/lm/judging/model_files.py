"""Where a model's files are, and a digest that tells one model from another."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError
from uniproto.features.language import CHAT
from uniproto.lm.finetune.folder import MODEL, SETTINGS
from uniproto.runs.atomic import write_json
from uniproto.runs.records import sha256_of

_ADAPTER = "adapter_config.json"
_IGNORED = (".md", ".png", ".jpg")  # beside the model, and no part of it
_DIGESTS = "file_digests.json"
_MAX_DIGESTS = 4096  # files that are remembered


@dataclass(frozen=True)
class ModelPlace:
    """Where a model is: its files, an adapter on top of them, and its prompt template."""

    base: str
    adapter: Path | None = None
    template: str | None = None

    def fingerprint(self) -> str | None:
        """A digest of every file of the model, its adapter's base included.

        None for a name on the hub, which is no file yet; of an adapter on one, the adapter counts.
        """
        places = [Path(self.base), *([self.adapter] if self.adapter else [])]
        files = [file for place in places for file in _model_files(place)]
        if not files:
            return None
        digests = _digests(files)
        named = [[file.name, digests[file]] for file in files]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()


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
    template = CHAT if tuned.get("messages") else tuned.get("template")
    if not (folder / _ADAPTER).is_file():
        return ModelPlace(str(folder), None, template)
    known = base or tuned.get("model") or _json(folder / _ADAPTER).get("base_model_name_or_path")
    if not known:
        raise InputFileError(
            f"{folder}: the adapter must say which model it belongs to. It does not. Name it with "
            "--base."
        )
    return ModelPlace(str(known), folder, template)


def _model_files(place: Path) -> list[Path]:
    """The files of a model's folder; none for a name on the hub."""
    if not place.is_dir():
        return [place] if place.is_file() else []
    named = (path for path in place.iterdir() if path.is_file() and path.name[0] != ".")
    return sorted(path for path in named if path.suffix.lower() not in _IGNORED)


def _digests(files: Sequence[Path]) -> dict[Path, str]:
    """The SHA-256 of each file, read only where its path, size or time is new."""
    cache = _cache_file()
    known = _known_digests(cache)
    found = {}
    for file in files:
        status = file.stat()
        key = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"
        if key not in known:
            known[key] = sha256_of(file)
        found[file] = known[key]
    with contextlib.suppress(OSError):  # it only saves time: without it, files are read again
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_json(cache, dict(list(known.items())[-_MAX_DIGESTS:]))
    return found


def _cache_file() -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "uniproto"
    return folder / _DIGESTS


def _known_digests(cache: Path) -> dict[str, str]:
    try:
        known = json.loads(cache.read_text(encoding="utf-8")).items()
    except (OSError, ValueError, AttributeError):  # none yet, or damaged: it is written again
        return {}
    return {key: value for key, value in known if isinstance(value, str)}


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputFileError(
            f"{path}: the file must say how the model was made. It cannot be read ({error}). "
            "Name the model's own folder."
        ) from error
