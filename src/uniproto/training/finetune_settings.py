"""Everything that `uniproto finetune` can be told, checked where a selection is made of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from uniproto.errors import invalid, whole_number
from uniproto.methods import UniProto
from uniproto.training.config import SelectionConfig
from uniproto.training.tuning_data import TEMPLATE

_AT_LEAST = {
    "steps": 1,
    "accumulate": 1,
    "eval_steps": 1,
    "save_steps": 1,
    "logging_steps": 1,
    "lora_r": 0,
    "lora_alpha": 1,
    "validation_least": 0,
    "seed": 0,
}
_BELOW = {  # what it must stay below, and what is usual
    "seed": (2**32, 0),  # what NumPy's seeds hold
    "learning_rate": (float("inf"), 2e-5),
    "warmup": (1, 0.03),
    "lora_dropout": (1, 0.05),
}


@dataclass(frozen=True)
class FinetuneSettings:
    """Everything that `uniproto finetune` can be told; `presets.py` holds the paper's."""

    model: str
    data: str
    out: str
    method: str = "uniproto"
    mode: str = "source"
    pool: int = 128
    keep: int = 64
    steps: int = 2048
    seed: int = 0
    # data
    prompt: str = "instruction"
    answer: str = "output"
    source: str | None = "source"
    template: str = TEMPLATE
    max_length: int = 512
    too_long: str = "truncate"
    validation: float = 0.02
    validation_least: int = 4
    # training
    learning_rate: float = 2e-5
    scheduler: str = "cosine"
    warmup: float = 0.03
    lora_r: int = 128
    lora_alpha: int = 512
    lora_dropout: float = 0.05
    lora_targets: str | None = None
    accumulate: int = 1
    micro_batch: int | None = None
    gradient_checkpointing: bool = False
    bf16: bool = False
    # selection
    plan: str = "extend"
    reg: float | None = None
    iterations: int | None = None
    metric: str | None = None
    features: str | None = None
    adam_aligned: bool | None = None
    layer: str | None = None
    width: int | None = None
    score_batch_size: int | None = None
    anchors: int = 8
    embedding_model: str | None = None
    # what is written
    eval_steps: int = 64
    save_steps: int = 64
    logging_steps: int = 1
    report_to: str = "none"
    device: str = "auto"
    quiet: bool = False

    def __post_init__(self) -> None:
        for name, least in _AT_LEAST.items():
            whole_number(_option(name), getattr(self, name), least)
        for name, (limit, usual) in _BELOW.items():
            value = getattr(self, name)
            if not 0 <= value < limit:  # NaN fails, too
                raise invalid(
                    _option(name),
                    f"must be a number from 0 to below {limit}",
                    value,
                    f"{usual} is usual.",
                )
        if not 0 <= self.validation < 1:
            raise invalid(
                "--validation", "must lie between 0 and 1", self.validation, "Pass 0.02 for 2 %."
            )

    def selection(self, embeddings: Any = None) -> SelectionConfig:
        return SelectionConfig(
            method=self._method(),
            mode=self.mode,
            pool=self.pool,
            keep=self.keep,
            metric=self.metric,
            features=self.features,
            adam_aligned=self.adam_aligned,
            layer=self.layer,
            width=self.width,
            score_batch_size=self.score_batch_size,
            micro_batch=self.micro_batch,
            anchors=self.anchors,
            embedding_model=self.embedding_model,
            embeddings=embeddings,
            seed=self.seed,
        )

    def _method(self) -> str | UniProto:
        if (self.plan, self.reg, self.iterations) == ("extend", None, None):
            return self.method
        if self.method != UniProto.name:
            raise invalid(
                "--plan",
                "is an option of --method uniproto, as are --reg and --iterations",
                f"--method {self.method}",
                "Leave it out.",
            )
        return UniProto(plan=self.plan, reg=self.reg, iterations=self.iterations)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
