"""The model that is judged: a folder, an adapter, a tuning run, a .gguf file or a hub's name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, MissingExtraError
from uniproto.judging.answering_model import Completion
from uniproto.judging.batches import Batches
from uniproto.judging.generation import complete
from uniproto.judging.likelihood import label_scores

try:
    import torch
    import transformers

    from uniproto.training.finetune.folder import MODEL, SETTINGS
    from uniproto.training.finetune.model import load_model
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Judging a model", "judge") from error

_ADAPTER = "adapter_config.json"
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")
_TAIL = 2**20


@dataclass(frozen=True)
class ModelPlace:
    """Where a model is: the weights, an adapter on top of them, and how it was asked in tuning."""

    base: str
    adapter: Path | None = None
    template: str | None = None

    def fingerprint(self) -> str | None:
        """Different weights under the same name differ here; None for a name on the hub.

        The end of every file of weights and its length: all of it would take minutes to read.
        """
        place = Path(self.adapter or self.base)
        files = [place] if place.is_file() else sorted(p for g in _WEIGHTS for p in place.glob(g))
        if not files:
            return None
        whole = hashlib.sha256()
        for file in files:
            size = file.stat().st_size
            with file.open("rb") as handle:
                handle.seek(max(0, size - _TAIL))
                whole.update(f"{file.name} {size} ".encode() + handle.read())
        return whole.hexdigest()


def locate(model: str | Path, base: str | None = None) -> ModelPlace:
    """Find out what a path or name stands for; nothing is loaded yet.

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
    template = tuned.get("template")
    if not (folder / _ADAPTER).is_file():
        return ModelPlace(str(folder), None, template)
    known = base or tuned.get("model") or _json(folder / _ADAPTER).get("base_model_name_or_path")
    if not known:
        raise InputFileError(
            f"{folder}: the adapter must say which model it belongs to. It does not. Name it with "
            "--base."
        )
    return ModelPlace(str(known), folder, template)


class LanguageModel:
    """A causal language model with its tokenizer, ready to answer in batches."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        name: str = "model",
        batch_size: int = 16,
        max_new_tokens: int = 2048,
        stops: Sequence[str] = (),
        tell: Callable[[str], None] = print,
    ) -> None:
        self.model, self.tokenizer, self.name = model.eval(), tokenizer, name
        self.batches = Batches(batch_size, tell)
        self.max_new_tokens, self.stops = max_new_tokens, list(stops)
        # Sampling that a model recommends for chatting has no place in a test.
        ends = model.generation_config.eos_token_id
        model.generation_config = transformers.GenerationConfig(eos_token_id=ends)

    def generate(self, prompts: Sequence[str]) -> list[Completion]:
        return complete(
            self.model,
            self.tokenizer,
            prompts,
            batches=self.batches,
            max_new_tokens=self.max_new_tokens,
            stops=self.stops,
        )

    def label_scores(
        self, prompts: Sequence[str], words: Sequence[Sequence[str]]
    ) -> list[list[float]]:
        return label_scores(self.model, self.tokenizer, prompts, words, batches=self.batches)


def load_language_model(
    place: ModelPlace, *, bf16: bool = False, device: str = "auto", **options: Any
) -> LanguageModel:
    """Load the weights, melt an adapter into them, and put them on the device."""
    model, tokenizer = load_model(place.base, half=bf16 and place.adapter is None)
    name = place.base
    if place.adapter is not None:
        import peft

        try:
            model = peft.PeftModel.from_pretrained(model, str(place.adapter)).merge_and_unload()
        except (ValueError, RuntimeError, KeyError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputFileError(
                f"{place.adapter}: the adapter must fit the model {place.base}. It does not "
                f"({reason}). Name the model it was made for with --base."
            ) from error
        name = f"{place.base} + {place.adapter}"
    if bf16:  # only now: merged in full precision, and rounded once
        model = model.to(torch.bfloat16)
    model.config.use_cache = True
    on_gpu = device == "auto" and torch.cuda.is_available()
    model = model.to("cuda" if on_gpu else "cpu")
    return LanguageModel(model, tokenizer, name=name, **options)


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputFileError(
            f"{path}: the file must say how the model was made. It cannot be read ({error}). "
            "Name the model's own folder."
        ) from error
