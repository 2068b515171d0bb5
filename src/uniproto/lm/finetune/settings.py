"""The settings of a fine-tuning run, which are the options of `uniproto finetune`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from types import MappingProxyType
from typing import Any

from uniproto.errors import InvalidInputError, require_int, require_name
from uniproto.lm.batches.config import SelectionConfig
from uniproto.lm.features.language import TEMPLATE, require_template
from uniproto.methods.greedy import PLANS, Entropic, Greedy, plan_from
from uniproto.runtime.settings import setting, setting_of

SOURCE = "source"  # the default column of sources
TOO_LONG = ("truncate", "skip", "refuse")
QUANTISED = ("4bit",)
_AT_LEAST = {
    "steps": 1,
    "accumulate": 1,
    "eval_steps": 1,
    "save_steps": 1,
    "logging_steps": 1,
    "lora_r": 0,
    "lora_alpha": 1,
    "max_length": 2,
    "validation_least": 0,
    "seed": 0,
}
_BELOW = {  # an exclusive upper limit, and a usual value
    "seed": (2**32, 0),  # the range of NumPy's seeds
    "learning_rate": (float("inf"), 2e-5),
    "warmup": (1, 0.03),
    "lora_dropout": (1, 0.05),
}


def read_small(text: str) -> float | tuple[str, ...]:
    """Parse `--keep-small`: a share of the data, or names of sources.

    >>> read_small("0.01"), read_small("logic,law")
    (0.01, ('logic', 'law'))
    """
    try:
        return float(text)
    except ValueError:
        return tuple(part.strip() for part in text.split(",") if part.strip())


_common = partial(setting, common=True)
_data = partial(setting, group="data")
_selection = partial(setting, group="selection")
_training = partial(setting, group="training")
_files = partial(setting, group="files")


@dataclass(frozen=True)
class FinetuneSettings:
    """The settings of `uniproto finetune`; `PRESETS` holds the paper's."""

    model: str = _common(help="a folder, a .gguf file or a name on the hub", metavar="MODEL")
    data: str | tuple[str, ...] = _common(
        help=".jsonl(.zst), .json, .csv, .parquet, hub name (docs)",
        metavar="FILE",
        parse=str,
        repeated=True,
    )
    out: str = _common(help="folder for the results", metavar="DIR", flags=("-o",))
    method: str = setting_of(SelectionConfig, "method", common=True)
    # By default a SelectionConfig has no sources; the data of this command do.
    mode: str = setting_of(SelectionConfig, "mode", default="source", common=True)
    pool: int = setting_of(SelectionConfig, "pool", common=True)
    keep: int = setting_of(SelectionConfig, "keep", common=True)
    steps: int = _common(2048, "optimizer steps")
    epochs: float | None = _common(
        None, "passes over the data, instead of --steps", metavar="NUMBER"
    )
    learning_rate: float = _common(2e-5, "peak learning rate", metavar="RATE")
    lora_r: int = _common(128, "rank of adapters; 0: all weights")
    bf16: bool = _common(False, "bfloat16 arithmetic (float32)")
    seed: int = _common(0, "seed of split, order and sampling")
    quiet: bool = _common(False, "no progress bar and no summary")

    prompt: str | None = _data(None, "the question", metavar="COLUMN")
    answer: str | None = _data(None, "the answer to learn", metavar="COLUMN")
    source: str | None = _data(
        SOURCE,
        "the source of a row",
        metavar="COLUMN",
        off=("--no-source", "the data have no sources", None),
    )
    messages: str | None = _data(None, "chats, instead of --prompt and --answer", metavar="COLUMN")
    template: str = _data(
        TEMPLATE, "prompt with {instruction} in it, or chat (docs)", metavar="TEXT"
    )
    max_length: int = _data(512, "tokens per example")
    too_long: str = _data("truncate", "what to do with longer examples", choices=TOO_LONG)
    validation: float = _data(0.02, "share held out of every source", metavar="SHARE")
    validation_least: int = _data(4, "minimum held out of every source")
    validation_data: str | None = _data(
        None, "validate on these rows (default: held-out ones)", metavar="FILE"
    )

    mix: str | None = _data(None, "take half of the training data from FILE", metavar="FILE")

    plan: str = _selection(
        Greedy.plan, "greedy: how the plan is updated", choices=(*PLANS, "entropic")
    )
    reg: float | None = setting_of(Entropic, "reg", default=None, group="selection")
    iterations: int | None = setting_of(Entropic, "iterations", group="selection")
    loss: str | None = setting_of(SelectionConfig, "loss", group="selection")
    keep_small: bool | float | tuple[str, ...] | None = _selection(
        None, "small sources kept whole: a share, or A,B (docs)", metavar="SHARE", parse=read_small
    )
    metric: str | None = setting_of(SelectionConfig, "metric", group="selection")
    bandwidth: float | str | None = setting_of(SelectionConfig, "bandwidth", group="selection")
    coordinates: int | None = setting_of(SelectionConfig, "coordinates", group="selection")
    features: str | None = setting_of(SelectionConfig, "features", group="selection")
    adam_aligned: bool | None = setting_of(SelectionConfig, "adam_aligned", group="selection")
    moments: str | None = setting_of(SelectionConfig, "moments", group="selection")
    layer: str | None = setting_of(SelectionConfig, "layer", group="selection")
    width: int | None = setting_of(SelectionConfig, "width", group="selection")
    score_batch_size: int | None = setting_of(
        SelectionConfig, "score_batch_size", group="selection"
    )
    anchors: int = setting_of(SelectionConfig, "anchors", group="selection")
    embedding_model: str | None = setting_of(SelectionConfig, "embedding_model", group="selection")

    scheduler: str = _training("cosine", "learning rate schedule", metavar="NAME")
    warmup: float = _training(0.03, "share of warm-up steps", metavar="SHARE")
    lora_alpha: int | None = _training(None, "scale of the adapters (4 × rank)")
    lora_dropout: float = _training(0.05, "dropout of the adapters", metavar="SHARE")
    lora_targets: str | None = _training(
        None, "layers to adapt: q_proj,v_proj (by architecture)", metavar="A,B"
    )
    quantize: str | None = _training(None, "QLoRA: weights in 4 bits", choices=QUANTISED)
    merge: bool = _training(False, "save adapters merged into the model")
    accumulate: int = _training(1, "pools per step")
    micro_batch: int | None = setting_of(SelectionConfig, "micro_batch", group="training")
    gradient_checkpointing: bool = _training(False, "less memory, more time")
    device: str = _training("auto", "auto: a GPU if there is one", choices=("auto", "cpu"))

    eval_steps: int = _files(64, "steps between validations")
    save_steps: int = _files(64, "steps between checkpoints")
    logging_steps: int = _files(1, "steps between rows of metrics")
    report_to: str = _files("none", "also log to tensorboard, wandb, …", metavar="NAME")

    def __post_init__(self) -> None:
        if not isinstance(self.data, str):  # a list of one file is that file
            files = tuple(self.data)
            object.__setattr__(self, "data", files[0] if len(files) == 1 else files)
        if isinstance(self.keep_small, list):
            object.__setattr__(self, "keep_small", tuple(self.keep_small))
        if self.merge and (self.quantize or not self.lora_r):
            raise InvalidInputError(
                "needs adapters (--lora-r), and no --quantize.", parameter="merge"
            )
        require_template("template", self.template)
        for name, least in _AT_LEAST.items():
            if getattr(self, name) is not None:
                require_int(name, getattr(self, name), least)
        for name, (limit, usual) in _BELOW.items():
            value = getattr(self, name)
            if not 0 <= value < limit:  # NaN fails, too
                raise InvalidInputError(
                    f"{value} must be from 0 to below {limit}; {usual} is usual.", parameter=name
                )
        if self.epochs is not None and not 0 < self.epochs < float("inf"):
            raise InvalidInputError("must be above 0; 3 is usual.", parameter="epochs")
        if not 0 <= self.validation < 1:
            raise InvalidInputError(
                "must lie between 0 and 1; pass 0.02 for 2 %.", parameter="validation"
            )

    @property
    def usual_lora_alpha(self) -> int:
        """The scale of the adapters: the given one, or four times their rank, as in the paper."""
        return 4 * self.lora_r if self.lora_alpha is None else self.lora_alpha

    @property
    def source_is_usual(self) -> bool:
        """Whether the column of sources is the default one, which data may lack."""
        return self.source == SOURCE

    @property
    def data_files(self) -> tuple[str, ...]:
        return (self.data,) if isinstance(self.data, str) else self.data

    def selection(self) -> SelectionConfig:
        """The settings of the selection."""
        own = {each.name for each in fields(self)}
        shared = {
            n: getattr(self, n) for n in (e.name for e in fields(SelectionConfig)) if n in own
        }
        return SelectionConfig(**{**shared, "method": self._method()})

    def _method(self) -> str | Greedy:
        if (self.plan, self.reg, self.iterations) == (Greedy.plan, None, None):
            return self.method
        if self.method != Greedy.name:
            raise InvalidInputError(
                f"must be greedy for --plan, --reg and --iterations, not {self.method}.",
                parameter="method",
            )
        return Greedy(plan_from(self.plan, self.reg, self.iterations))


_PAPER = {
    "metric": "dot",
    "lora_r": 128,
    "lora_alpha": 512,
    "lora_dropout": 0.05,
    "learning_rate": 2e-5,
    "scheduler": "cosine",
    "warmup": 0.03,
    "max_length": 512,
}

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
            "lora_targets": "q_proj,k_proj,v_proj,o_proj",
        },
        # SST-2, CB and MultiRC: a quarter of pools of 32.
        "superglue": {**_PAPER, "steps": 512, "pool": 32, "keep": 8},
    }
)


def preset(name: str) -> Mapping[str, Any]:
    """The settings of the paper for one of its experiments.

    >>> preset("superglue")["keep"]
    8
    """
    require_name("preset", name, PRESETS)
    return PRESETS[name]
