"""What a pretraining run is told, checked when it is made."""

from __future__ import annotations

from dataclasses import dataclass

from uniproto.errors import MissingExtraError, invalid, require_count
from uniproto.pretraining.step_settings import StepSettings
from uniproto.pretraining.token_preparation import Preparation

try:
    import jax
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Pretraining", "jax") from error


@dataclass(frozen=True)
class PretrainSettings:
    """Everything that `uniproto pretrain` can be told; the defaults are the paper's.

    `data` may be left out where `tokens` names a prepared folder. With a constant learning rate,
    `steps` may be raised later: the run then goes on from where it ended.
    """

    out: str
    data: str | None = None
    size: str = "60m"
    method: str = "uniproto"
    pool: int = 128
    keep: int = 64
    length: int = 512
    steps: int = 20_000
    seed: int = 0
    # selection
    plan: str = "extend"
    reg: float = 1e-2
    iterations: int = 20
    features: str = "sketch"
    anchors: int = 8
    # training
    learning_rate: float = 1e-4
    schedule: str = "constant"
    warmup: int = 0
    weight_decay: float = 0.0
    clip: float | None = None
    recompute: bool = False
    float32: bool = False
    devices: int = 1
    # data
    tokens: str | None = None
    column: str | None = None
    tokenizer: str | None = None
    vocab_size: int | None = None
    validation: float | None = None
    # what is recorded
    eval_steps: int = 100
    eval_sequences: int = 512
    save_steps: int = 500
    logging_steps: int = 10
    quiet: bool = False

    def __post_init__(self) -> None:
        counts = ("pool", "keep", "length", "steps", "devices")
        for name in (*counts, "eval_steps", "eval_sequences", "save_steps", "logging_steps"):
            require_count(f"--{name.replace('_', '-')}", getattr(self, name))
        if not 0 <= self.seed < 2**32:  # JAX would look at the last 32 bits alone
            raise invalid("--seed", "must be from 0 to 2^32 - 1", self.seed, "Pass a small number.")
        if self.data is None and self.tokens is None:
            raise invalid(
                "--data",
                "must name the corpus where no --tokens are given",
                "none",
                "Name a file, a folder or a pattern.",
            )
        for name in ("pool", "keep"):
            if getattr(self, name) % self.devices:
                raise invalid(
                    f"--{name}",
                    f"must be a multiple of the {self.devices} devices",
                    getattr(self, name),
                    "Every device takes an equal part.",
                )

    def preparation(self) -> Preparation:
        """What the tokens are made from."""
        return Preparation(
            data=self.data,
            column=self.column,
            tokenizer=self.tokenizer,
            vocab_size=self.vocab_size,
            validation=self.validation,
        )

    def step_settings(self) -> StepSettings:
        """What the compiled step has to know; bfloat16 where the hardware has units for it."""
        slow = self.float32 or jax.default_backend() == "cpu"
        return StepSettings(
            method=self.method,
            pool=self.pool,
            keep=self.keep,
            plan=self.plan,
            reg=self.reg,
            iterations=self.iterations,
            features=self.features,
            learning_rate=self.learning_rate,
            schedule=self.schedule,
            warmup=self.warmup,
            weight_decay=self.weight_decay,
            clip=self.clip,
            anchors=self.anchors,
            recompute=self.recompute,
            steps=self.steps,
            dtype="float32" if slow else "bfloat16",
        )
