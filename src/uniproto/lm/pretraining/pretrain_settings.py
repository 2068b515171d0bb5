"""The settings of pretraining, each declared once, and checked when they are made.

The options of `uniproto pretrain` are made from `PretrainSettings`. Nothing here imports JAX, so
that `--help` is quick.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import partial

from uniproto.errors import InvalidInputError, require_int, require_name, require_positive
from uniproto.runtime.settings import setting

METHODS = ("uniproto", "colm", "greats", "gradnorm", "maxloss", "random", "full")
PLANS = ("extend", "entropic")
FEATURES = ("sketch", "exact")
SCHEDULES = ("constant", "cosine")
DTYPES = ("bfloat16", "float32")
# `hidden` is 3.5 × `width` and a key serves 4 heads, both as in LLaMA-3 8B.
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"width": 64, "layers": 2, "heads": 4, "kv_heads": 1, "hidden": 224},
    "60m": {"width": 512, "layers": 8, "heads": 8, "kv_heads": 2, "hidden": 1792},
    "500m": {"width": 1280, "layers": 20, "heads": 20, "kv_heads": 5, "hidden": 4480},
}
VOCAB_SIZE = 32_000  # of a tokenizer that is trained here
VALIDATION_SHARE = 0.05
COLM_WIDTH = 2560  # coordinates of a gradient that CoLM compares
# Sums of masses are computed as float32 products, which are exact below 2^24.
_LARGEST_MASS = 2**24


_common = partial(setting, common=True)
_data = partial(setting, group="data")
_choice = partial(setting, group="choice")
_training = partial(setting, group="training")
_records = partial(setting, group="records")


@dataclass(frozen=True)
class TokenPreparation:
    """The options of a folder of tokens. None means: as in the folder, if it is complete.

    >>> TokenPreparation(data="corpus.jsonl").with_defaults().vocab_size
    32000
    """

    data: str | None = _common(None, "the corpus: file, folder or pattern", metavar="CORPUS")
    column: str | None = _data(
        None, "column of the texts in JSONL and Parquet (text)", metavar="COLUMN"
    )
    tokenizer: str | None = _data(None, "a tokenizer.json, or a folder with one", metavar="PATH")
    vocab_size: int | None = _data(
        None, f"vocabulary of a new tokenizer ({VOCAB_SIZE}; fewer for a small corpus)"
    )
    validation: float | None = _data(
        None, f"share of the documents held out ({VALIDATION_SHARE})", metavar="SHARE"
    )

    def with_defaults(self) -> TokenPreparation:
        size = VOCAB_SIZE if self.vocab_size is None else self.vocab_size
        return dataclasses.replace(
            self,
            column=self.column or "text",
            vocab_size=size if self.tokenizer is None else None,
            validation=VALIDATION_SHARE if self.validation is None else self.validation,
        )


@dataclass(frozen=True)
class StepSettings:
    """How a compiled step chooses its batch and learns from it. docs/pretraining.md lists which
    defaults are the paper's, and which are not.

    The methods: `uniproto`; `colm` (medoids of the L1 distance between gradients, in the 2,560
    coordinates of largest mean magnitude: random sketches do not preserve L1 distances); `greats`
    (largest expected fall of the loss of `anchors`, random sequences of the pool in place of a
    validation set; none is its own anchor); `gradnorm` (longest gradients); `maxloss` (largest
    losses); `random`; `full` (the whole pool, whatever `keep` is).

    With `plan="extend"` each pick claims its fill, in integer masses; `entropic` is Algorithm 1 as
    printed, which solves the entropic plan of all picks before every pick (`reg`, `iterations`).

    Exact `features` add twice the work of the output projection, all of it on each device.

    Args:
        steps: of the whole run; used by `schedule="cosine"` only.
        sketch: rows and columns of a sequence's sketch. More make inner products more accurate.
        dtype: of products and activations. Parameters and optimizer are always float32.
        tokens_per_slice: logits are computed for about this many tokens at a time.

    >>> StepSettings(method="full").trained
    128
    """

    method: str = _common("uniproto", "how sequences are chosen (uniproto)", choices=METHODS)
    pool: int = _common(128, "sequences scored per step")
    keep: int = _common(64, "sequences trained on per step")
    plan: str = _choice("extend", "uniproto: entropic is as in the paper (extend)", choices=PLANS)
    reg: float = _choice(1e-2, "entropic plan: strength of the entropy, λ", metavar="STRENGTH")
    iterations: int = _choice(20, "entropic plan: number of solver steps")
    features: str = _choice(
        "sketch", "gradients of the output projection (sketch)", choices=FEATURES
    )
    anchors: int = _choice(8, "greats: sequences in place of a validation set")
    learning_rate: float = _common(1e-4, "peak learning rate of Adam", metavar="RATE")
    schedule: str = _training(
        "constant", "schedule of the learning rate (constant)", choices=SCHEDULES
    )
    warmup: int = _training(0, "warm-up steps of the learning rate")
    weight_decay: float = _training(0.0, "weight decay of matrices, as in AdamW", metavar="DECAY")
    clip: float | None = _training(None, "largest gradient norm (unlimited)", metavar="NORM")
    recompute: bool = _training(False, "recompute activations: less memory, a third more work")
    steps: int | None = None
    sketch: tuple[int, int] = (128, 128)
    dtype: str = "bfloat16"
    tokens_per_slice: int = 8192

    def __post_init__(self) -> None:
        known = {"method": METHODS, "plan": PLANS, "features": FEATURES, "schedule": SCHEDULES}
        for name, valid in {**known, "dtype": DTYPES}.items():
            require_name(name, getattr(self, name), valid)
        for name in ("pool", "keep", "iterations", "anchors", "tokens_per_slice"):
            require_int(name, getattr(self, name))
        require_int("warmup", self.warmup, least=0)
        if self.keep > self.pool:
            raise InvalidInputError(
                f"must not exceed pool={self.pool} (got {self.keep}).", parameter="keep"
            )
        if self.pool * self.keep >= _LARGEST_MASS:
            raise InvalidInputError(
                f"times keep must be below {_LARGEST_MASS}. Lower it.", parameter="pool"
            )
        if self.method == "greats" and self.anchors > self.pool:
            raise InvalidInputError(
                f"must not exceed pool={self.pool} (got {self.anchors}).", parameter="anchors"
            )
        for name in ("reg", "learning_rate", "clip"):
            if (value := getattr(self, name)) is not None:
                require_positive(name, value)
        if not 0 <= self.weight_decay < math.inf:
            raise InvalidInputError("must be at least 0.", parameter="weight_decay")
        if self.schedule == "cosine" and (self.steps is None or self.steps <= self.warmup):
            raise InvalidInputError(
                "is 'cosine', which needs steps, above warmup: those of the whole run.",
                parameter="schedule",
            )

    @property
    def trained(self) -> int:
        """How many sequences a step trains on."""
        return self.pool if self.method == "full" else self.keep

    @property
    def scores(self) -> bool:
        """Whether the step scores the pool before it chooses."""
        return self.method not in ("random", "full")

    @property
    def compares(self) -> bool:
        """Whether it compares gradients, not only losses."""
        return self.scores and self.method != "maxloss"


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(StepSettings, TokenPreparation):
    """Everything that `uniproto pretrain` takes. docs/pretraining.md lists which defaults are the
    paper's, and which are not.

    `data` may be left out if `tokens` names a prepared folder. With a constant learning rate,
    `steps` may be raised later to continue the run.
    """

    out: str = _common(help="folder for the results", flags=("-o",), metavar="DIR")
    size: str = _common("60m", "size of the model (60m)", choices=tuple(SIZES))
    length: int = _common(512, "tokens per sequence")
    steps: int = _common(20_000, "steps of the optimizer")
    seed: int = _common(0, "seed of split, weights and order")
    tokens: str | None = _common(
        None, "folder of prepared tokens, made from CORPUS if missing (OUT/tokens)", metavar="DIR"
    )
    quiet: bool = _common(False, "no progress bar and no summary")
    float32: bool = _training(False, "float32 arithmetic on a GPU too, instead of bfloat16")
    devices: int = _training(1, "devices that share the pool")
    eval_steps: int = _records(100, "steps between validations")
    eval_sequences: int = _records(512, "sequences per validation")
    save_steps: int = _records(500, "steps between checkpoints")
    logging_steps: int = _records(10, "steps between rows of metrics")

    def __post_init__(self) -> None:
        super().__post_init__()
        counts = ("length", "steps", "devices", "eval_steps", "eval_sequences", "save_steps")
        for name in (*counts, "logging_steps"):
            require_int(name, getattr(self, name))
        if not 0 <= self.seed < 2**32:  # JAX would use the last 32 bits only
            raise InvalidInputError("must be from 0 to 2^32 - 1.", parameter="seed")
        if self.data is None and self.tokens is None:
            raise InvalidInputError(
                "must name the corpus (a file, a folder or a pattern), unless there are --tokens.",
                parameter="data",
            )
        for name in ("pool", "keep"):
            if getattr(self, name) % self.devices:
                raise InvalidInputError(
                    f"must be a multiple of the {self.devices} devices, not {getattr(self, name)}.",
                    parameter=name,
                )
