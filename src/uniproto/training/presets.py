"""The paper's settings by name, and which layers LoRA adapts in each kind of model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from uniproto.errors import invalid, require_name

_PAPER = {
    "lora_r": 128,
    "lora_alpha": 512,
    "lora_dropout": 0.05,
    "learning_rate": 2e-5,
    "scheduler": "cosine",
    "warmup": 0.03,
    "max_length": 512,
}
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Phi-2 and Phi-3 on MathInstruct: LoRA on Q, K, V and the two MLP layers.
        "mathinstruct-phi": {
            **_PAPER,
            "model": "microsoft/Phi-3-mini-4k-instruct",
            "steps": 2048,
            "pool": 128,
            "keep": 64,
            "lora_targets": "phi",
        },
        # StableLM Zephyr 3B on MathInstruct: LoRA on Q, K, V and O.
        "mathinstruct-zephyr": {
            **_PAPER,
            "model": "stabilityai/stablelm-zephyr-3b",
            "steps": 2048,
            "pool": 128,
            "keep": 64,
            "lora_targets": ",".join(_ATTENTION),
        },
        # SST-2, CB and MultiRC: a quarter of pools of 32.
        "superglue": {**_PAPER, "steps": 512, "pool": 32, "keep": 8},
    }
)

# By config.model_type. Phi-2 has separate projections, Phi-3 fused ones.
_TARGETS = {
    "phi": ("q_proj", "k_proj", "v_proj", "fc1", "fc2"),
    "phi3": ("qkv_proj", "gate_up_proj", "down_proj"),
    "stablelm": _ATTENTION,
    "gpt2": ("c_attn",),
    "gpt_neox": ("query_key_value",),
    "falcon": ("query_key_value",),
}


def preset(name: str) -> Mapping[str, Any]:
    """The settings of the paper for one of its experiments.

    >>> preset("superglue")["keep"]
    8
    """
    require_name("preset", name, PRESETS)
    return PRESETS[name]


def lora_targets(model: Any, asked: str | None = None) -> list[str]:
    """The layers LoRA adapts: those asked for (`a,b,c`), or the usual ones of the architecture.

    `phi` stands for the paper's choice for Phi models, whichever of them this is. Where the
    architecture is not listed, attention projections.
    """
    kind = getattr(getattr(model, "config", None), "model_type", "")
    if asked and asked != "phi":
        wanted = [part.strip() for part in asked.split(",") if part.strip()]
    elif asked == "phi" and kind not in ("phi", "phi3"):
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
        raise invalid(
            "--lora-targets",
            f"must name layers of the model ({', '.join(present)})",
            ", ".join(missing) or "none",
            "Name those to adapt: --lora-targets q_proj,v_proj.",
        )
    return wanted


def _has(model: Any, name: str) -> bool:
    return any(each.rpartition(".")[2] == name for each, _ in model.named_modules())
