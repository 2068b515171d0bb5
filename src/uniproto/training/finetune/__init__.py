"""Fine-tune a causal language model on chosen examples: `uniproto finetune` as a function.

from uniproto.training.finetune import FinetuneSettings, finetune

finetune(FinetuneSettings(model="./my-model", data="train.jsonl", out="run"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uniproto.training.finetune.settings import FinetuneSettings

if TYPE_CHECKING:
    from uniproto.training.finetune.run import finetune

__all__ = ["FinetuneSettings", "finetune"]


def __getattr__(name: str) -> Any:
    if name == "finetune":  # imported on first use: it needs torch, the settings do not
        from uniproto.training.finetune.run import finetune

        return finetune
    raise AttributeError(f"module 'uniproto.training.finetune' has no attribute {name!r}")
