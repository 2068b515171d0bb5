"""The model that is tuned: loaded with its tokenizer, and given adapters."""

from __future__ import annotations

from typing import Any

from uniproto.errors import InputFileError, MissingExtraError
from uniproto.training.finetune_settings import FinetuneSettings
from uniproto.training.model_place import find_model
from uniproto.training.presets import lora_targets

try:
    import torch
    import transformers
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Fine-tuning", "train") from error


def load_model(name: str, half: bool = False) -> tuple[Any, Any]:
    """A model and its tokenizer: a folder, a .gguf file, or a name on the Hugging Face hub."""
    options: dict[str, Any] = {"dtype": torch.bfloat16} if half else {"dtype": torch.float32}
    place, more = find_model(name)
    transformers.utils.logging.disable_progress_bar()  # its bars are about files, not about work
    model: Any
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, **more)
        model = transformers.AutoModelForCausalLM.from_pretrained(place, **more, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputFileError(
            f"{name}: the model must be a causal language model with its tokenizer, in a folder or "
            f"on the hub. It could not be loaded ({reason}). Check what is there, or the network."
        ) from error
    if (
        "gguf_file" in more
    ):  # the weights are plain numbers now; marked as quantised, they could not be saved
        model.hf_quantizer, model.quantization_method, model.is_quantized = None, None, False
        del model.config.quantization_config
    model.config.use_cache = False
    return model, tokenizer


def with_lora(model: Any, settings: FinetuneSettings) -> Any:
    """The model with LoRA adapters, which alone are trained."""
    import peft

    return peft.get_peft_model(
        model,
        peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=settings.lora_r,
            lora_alpha=settings.lora_alpha,
            lora_dropout=settings.lora_dropout,
            target_modules=lora_targets(model, settings.lora_targets),
            fan_in_fan_out=getattr(model.config, "model_type", "") == "gpt2",
        ),
    )


def padding_token(tokenizer: Any) -> int:
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0
