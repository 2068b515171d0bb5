"""The model that is judged: a folder, an adapter, a tuning run, a .gguf file or a hub's name."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pickle import UnpicklingError
from typing import Any

from uniproto.errors import InputFileError, MissingExtraError
from uniproto.judging.asking import Completion
from uniproto.judging.inference import Batches, complete, label_scores
from uniproto.judging.model_files import ModelPlace, unreadable_weights

try:
    import torch
    import transformers
    from safetensors import SafetensorError

    from uniproto.training.tuned_model import load_model
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Judging a model", "judge") from error

# What reading damaged weights raises, besides what `load_model` explains itself.
_DAMAGED = (
    SafetensorError,
    RuntimeError,
    AssertionError,
    IndexError,
    TypeError,
    OverflowError,
    EOFError,
    UnpicklingError,
    struct.error,
)


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
    try:
        model, tokenizer = load_model(place.base, half=bf16 and place.adapter is None)
    except _DAMAGED as error:
        raise unreadable_weights(place.base, error) from error
    name = place.base
    if place.adapter is not None:
        import peft

        try:
            model = peft.PeftModel.from_pretrained(model, str(place.adapter)).merge_and_unload()
        except SafetensorError as error:
            raise unreadable_weights(place.adapter, error) from error
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
