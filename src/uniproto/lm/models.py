"""Language models and adapters, loaded from where `uniproto.features.models` finds them.

No code that comes with a model is ever run.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers

from uniproto.errors import InputFileError, InvalidInputError, MissingExtraError
from uniproto.features.models import (
    find_model,
    identity_digest,
    loading,
    model_identity,
    read_settings,
    require_weights,
)
from uniproto.lm.features.language import CHAT
from uniproto.lm.finetune.folder import CHATS, MODEL, SETTINGS
from uniproto.lm.finetune.settings import FinetuneSettings

ADAPTER = "adapter_config.json"  # in the folder of an adapter
OLD_NAME = "`is_gradient_checkpointing` is deprecated"  # peft asks transformers by it
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
    if "gguf_file" in options:  # plain numbers now; marked as quantised, they could not be saved
        model.hf_quantizer, model.quantization_method, model.is_quantized = None, None, False
        del model.config.quantization_config
    model.config.use_cache = False
    return model, tokenizer


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a model alone."""
    options = place_of(name)
    with loading(name, "the model must come with its tokenizer"):
        return transformers.AutoTokenizer.from_pretrained(**options)


def load_config(name: str) -> Any:
    """The settings of a model alone."""
    options = place_of(name)
    with loading(name, _WHOLE):
        return transformers.AutoConfig.from_pretrained(**options)


def place_of(name: str) -> dict[str, Any]:
    """What `from_pretrained` must know to find a model on this machine.

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
    # Transformers would load an adapter with its model, and the next adapter take its place.
    if (path / ADAPTER).is_file() and not (path / "config.json").is_file():
        raise InputFileError(
            f"{name}: this is an adapter, not a whole model. Name the model that it belongs to, or "
            "one that it was merged into (uniproto finetune --merge)."
        )
    return {"pretrained_model_name_or_path": str(path), **options}


def with_adapter(model: Any, adapter: Path, remedy: str, *, trainable: bool = False) -> Any:
    """The model with LoRA weights from a folder, which must all have their place in it.

    An adapter of a model with more layers, or with fewer, would otherwise be put on in part.
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


# --- what a folder of a model is -----------------------------------------------------------------


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
    tuned = read_settings(run / SETTINGS)
    if run == folder:
        folder = run / MODEL
        if not folder.is_dir():
            raise InputFileError(
                f"{run}: the tuning run is not finished: there is no {MODEL}/ in it. Let `uniproto "
                "finetune` come to its end, or name one of its checkpoints."
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


# --- LoRA adapters of a model that is fine-tuned --------------------------------------------------


_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
# By config.model_type. Phi-2 has separate projections, Phi-3 fused ones.
_TARGETS = {
    "phi": ("q_proj", "k_proj", "v_proj", "fc1", "fc2"),
    "phi3": ("qkv_proj", "gate_up_proj", "down_proj"),
    "stablelm": _ATTENTION,
    "gpt2": ("c_attn",),
    "gpt_neox": ("query_key_value",),
    "falcon": ("query_key_value",),
}


def with_lora(model: Any, settings: FinetuneSettings) -> Any:
    """The model with LoRA adapters, which alone are trained."""
    import peft

    if settings.quantize:
        model = peft.prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=settings.gradient_checkpointing
        )
    layers = peft.LoraConfig(
        task_type="CAUSAL_LM",
        r=settings.lora_r,
        lora_alpha=settings.usual_lora_alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=lora_targets(model, settings.lora_targets),
        fan_in_fan_out=getattr(model.config, "model_type", "") == "gpt2",
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", OLD_NAME, FutureWarning)
        return peft.get_peft_model(model, layers)


def require_quantisation(settings: FinetuneSettings) -> None:
    """Refuse --quantize where bitsandbytes, which does it, is not installed."""
    if settings.quantize and find_spec("bitsandbytes") is None:
        raise InvalidInputError(
            "--quantize needs the package bitsandbytes. Run: pip install bitsandbytes; or leave "
            "the option out."
        )


def lora_targets(model: Any, targets: str | None = None) -> list[str]:
    """The layers LoRA adapts: the given ones (`a,b,c`), or the usual ones of the architecture.

    `phi` means the paper's choice for Phi models, whichever of them this is. Where the
    architecture is not listed, attention projections.
    """
    kind = getattr(getattr(model, "config", None), "model_type", "")
    if targets and targets != "phi":
        wanted = [part.strip() for part in targets.split(",") if part.strip()]
    elif targets == "phi" and kind not in ("phi", "phi3"):
        wanted = [*_ATTENTION[:3], "gate_proj", "up_proj", "down_proj", "fc1", "fc2"]
        wanted = [name for name in wanted if _has(model, name)]
    else:
        wanted = list(_TARGETS.get(kind, _ATTENTION))
    missing = [name for name in wanted if not _has(model, name)]
    if missing or not wanted:
        present = sorted(
            {
                name.rpartition(".")[2]
                for name, module in model.named_modules()
                if getattr(module, "weight", None) is not None and module.weight.ndim == 2
            }
        )
        raise InvalidInputError(
            f"--lora-targets: the model has no {', '.join(missing) or 'linear layers to adapt'}, "
            f"but {', '.join(present)}. Name those to adapt: --lora-targets q_proj,v_proj."
        )
    return wanted


def _has(model: Any, name: str) -> bool:
    return any(each.rpartition(".")[2] == name for each, _ in model.named_modules())
