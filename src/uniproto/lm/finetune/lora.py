"""LoRA adapters for fine-tuning."""

from __future__ import annotations

import warnings
from importlib.util import find_spec
from typing import Any

from uniproto.errors import InvalidInputError
from uniproto.lm.finetune.settings import FinetuneSettings
from uniproto.lm.models import OLD_NAME

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
    """The model with LoRA adapters, the only trainable parameters."""
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
    """Refuse --quantize if bitsandbytes is not installed."""
    if settings.quantize and find_spec("bitsandbytes") is None:
        raise InvalidInputError(
            "needs the package bitsandbytes. Run: pip install bitsandbytes; or leave "
            "the option out.",
            parameter="quantize",
        )


def lora_targets(model: Any, targets: str | None = None) -> list[str]:
    """The layers to adapt: the given ones (`a,b,c`), or the usual ones of the architecture.

    `phi` is the paper's choice for all Phi models. For architectures that are not listed, the
    attention projections.
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
            "must name layers of the model, which has no "
            f"{', '.join(missing) or 'linear layers to adapt'}, "
            f"but {', '.join(present)}. Name those to adapt: --lora-targets q_proj,v_proj.",
            parameter="lora_targets",
        )
    return wanted


def _has(model: Any, name: str) -> bool:
    return any(each.rpartition(".")[2] == name for each, _ in model.named_modules())
