"""Fine-tune a causal language model on chosen examples: `uniproto finetune` as a function.

from uniproto.lm.finetune import FinetuneSettings, finetune

finetune(FinetuneSettings(model="./my-model", data="train.jsonl", out="run"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uniproto.lm.finetune.settings import FinetuneSettings
from uniproto.runtime.late import late_names

if TYPE_CHECKING:
    from uniproto.lm.finetune.run import finetune

__all__ = ["FinetuneSettings", "finetune"]

# Imported on first use: it needs torch, the settings do not.
__getattr__ = late_names(__name__, {"finetune": "uniproto.lm.finetune.run"}, extra="train")
