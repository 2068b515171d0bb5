"""Loading of language models and adapters. Code that comes with a model is never run."""

from __future__ import annotations

import re
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers

from uniproto.errors import InputFileError, MissingExtraError
from uniproto.features.models import find_model, loading, require_weights

ADAPTER = "adapter_config.json"  # in the folder of an adapter
OLD_NAME = "`is_gradient_checkpointing` is deprecated"  # a warning that peft causes
_LORA_WEIGHT = re.compile(r"\.lora_(embedding_)?[AB]\b")
_WHOLE = "the model must be a causal language model with its tokenizer"


def load_model(name: str, half: bool = False, quantize: str | None = None) -> tuple[Any, Any]:
    """A model and its tokenizer: a folder, a .gguf file, or a name on the Hugging Face hub.

    `quantize="4bit"` loads its weights in 4 bits (NF4), for QLoRA.
    """
    options = place_of(name)
    dtype = torch.bfloat16 if half else torch.float32
    model: Any
    with loading(name, _WHOLE):
        tokenizer = transformers.AutoTokenizer.from_pretrained(**options)
        if quantize is not None:
            options["quantization_config"] = transformers.BitsAndBytesConfig(
                load_in_4bit=True,
                bnb_4bit_quant_type="nf4",
                bnb_4bit_use_double_quant=True,
                bnb_4bit_compute_dtype=dtype,
            )
        loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(
            dtype=dtype, output_loading_info=True, **options
        )
        model, found = loaded
    require_weights(name, found["missing_keys"])
    if "gguf_file" in options:  # the weights are dequantised, but could not be saved as such
        model.hf_quantizer, model.quantization_method, model.is_quantized = None, None, False
        del model.config.quantization_config
    model.config.use_cache = False
    return model, tokenizer


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a model, without the model."""
    options = place_of(name)
    with loading(name, "the model must come with its tokenizer"):
        return transformers.AutoTokenizer.from_pretrained(**options)


def load_config(name: str) -> Any:
    """The configuration of a model, without its weights."""
    options = place_of(name)
    with loading(name, _WHOLE):
        return transformers.AutoConfig.from_pretrained(**options)


def place_of(name: str) -> dict[str, Any]:
    """The arguments of `from_pretrained` for a model on this machine.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp(), "tiny.gguf")
    >>> file.touch()
    >>> place_of(str(file))["gguf_file"]
    'tiny.gguf'
    """
    path = find_model(name)
    options = {"local_files_only": True, "trust_remote_code": False}
    if path.is_file():
        return {
            "pretrained_model_name_or_path": str(path.parent),
            "gguf_file": path.name,
            **options,
        }
    # Transformers would load the adapter's base model, too, and a second adapter would replace it.
    if (path / ADAPTER).is_file() and not (path / "config.json").is_file():
        raise InputFileError(
            f"{name}: this is an adapter, not a whole model. Name the model that it belongs to, or "
            "one that it was merged into (uniproto finetune --merge)."
        )
    return {"pretrained_model_name_or_path": str(path), **options}


def with_adapter(model: Any, adapter: Path, remedy: str, *, trainable: bool = False) -> Any:
    """The model with LoRA weights from a folder, all of which must fit.

    Otherwise an adapter of a model with more or fewer layers would be loaded in part.
    """
    if find_spec("peft") is None:
        raise MissingExtraError("An adapter", "train")
    import peft

    name = model.config.name_or_path
    with (
        loading(str(adapter), f"the adapter must fit the model {name}", remedy),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", OLD_NAME, FutureWarning)
        warnings.filterwarnings("error", "Found missing adapter keys")
        adapted = peft.PeftModel.from_pretrained(model, str(adapter), is_trainable=trainable)
        saved = peft.load_peft_weights(str(adapter), device="cpu")
        placed = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
        spare = sorted(key for key in saved if _LORA_WEIGHT.search(key) and key not in placed)
        if spare:
            raise InputFileError(
                f"{adapter}: the adapter does not fit the model {name}, which has no place for "
                f"{len(spare)} of its {len(saved)} weights, such as {spare[0]!r}. {remedy}"
            )
    return adapted


def padding_token(tokenizer: Any) -> int:
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0
