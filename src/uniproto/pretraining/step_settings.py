"""What a training step is told, checked when it is made. Reads nothing of JAX."""

from __future__ import annotations

import math
from dataclasses import dataclass

from uniproto.errors import invalid, require_count, require_name, whole_number

METHODS = ("uniproto", "colm", "greats", "gradnorm", "maxloss", "random", "full")
PLANS = ("extend", "entropic")
FEATURES = ("sketch", "exact")
SCHEDULES = ("constant", "cosine")
DTYPES = ("bfloat16", "float32")
# Sums of masses are computed as float32 products, which are exact below 2^24.
_LARGEST_MASS = 2**24


@dataclass(frozen=True)
class StepSettings:
    """How a step chooses its batch and learns from it. The defaults are the paper's settings.

    Args:
        method: `uniproto`; `colm` (medoids of the L1 distance between gradients); `greats`
            (largest expected fall of the loss of `anchors`); `gradnorm` (longest gradients);
            `maxloss` (largest losses); `random`; `full` (the whole pool, whatever `keep` is).
        pool: sequences a step looks at.
        keep: how many of them it trains on.
        plan: of `uniproto`: `extend` (each pick claims its fill, in whole masses) or `entropic`
            (Algorithm 1 as printed: the entropic plan of all picks is solved anew each time).
        reg: λ of the entropic plan.
        iterations: of its solver.
        features: gradients of the output projection, as a random `sketch` or `exact`. Exact ones
            cost twice the work of the output projection more, and on several devices each of
            them does all of it.
        sketch: rows and columns of a sequence's sketch. Both make inner products more accurate.
        anchors: how many sequences of the pool, drawn at random, stand for the validation set of
            `greats`. No sequence is its own anchor.
        learning_rate: of Adam, at its highest.
        schedule: `constant`, or `cosine` from there to 0 at step `steps`.
        warmup: steps over which the learning rate rises from 0.
        steps: of the whole run; needed by `cosine` alone.
        weight_decay: of matrices, decoupled as in AdamW; norms have none.
        clip: largest norm of the gradient; None: any.
        dtype: of products and activations. Parameters and optimizer are always float32.
        recompute: keep only each layer's input for the backward pass, where memory is short.
        tokens_per_slice: logits exist for about this many tokens at a time.

    >>> StepSettings(method="full").trained
    128
    """

    method: str = "uniproto"
    pool: int = 128
    keep: int = 64
    plan: str = "extend"
    reg: float = 1e-2
    iterations: int = 20
    features: str = "sketch"
    sketch: tuple[int, int] = (128, 128)
    anchors: int = 8
    learning_rate: float = 1e-4
    schedule: str = "constant"
    warmup: int = 0
    steps: int | None = None
    weight_decay: float = 0.0
    clip: float | None = None
    dtype: str = "bfloat16"
    recompute: bool = False
    tokens_per_slice: int = 8192

    def __post_init__(self) -> None:
        named = {
            "method": METHODS,
            "plan": PLANS,
            "features": FEATURES,
            "schedule": SCHEDULES,
            "dtype": DTYPES,
        }
        for name, valid in named.items():
            require_name(name, getattr(self, name), valid)
        for name in ("pool", "keep", "iterations", "anchors", "tokens_per_slice"):
            require_count(name, getattr(self, name))
        whole_number("warmup", self.warmup, least=0)
        if len(self.sketch) != 2 or min(self.sketch) < 1:
            raise invalid("sketch", "must be two counts", self.sketch, "Try (128, 128).")
        if self.keep > self.pool:
            raise invalid("keep", "must be at most 'pool'", self.keep, f"The pool is {self.pool}.")
        if self.pool * self.keep >= _LARGEST_MASS:
            raise invalid(
                "pool",
                f"times 'keep' must be below {_LARGEST_MASS}",
                f"{self.pool} × {self.keep}",
                "Use a smaller pool.",
            )
        if self.method == "greats" and self.anchors > self.pool:
            raise invalid(
                "anchors", "must be at most 'pool'", self.anchors, f"The pool is {self.pool}."
            )
        for name in ("reg", "learning_rate", "clip"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise invalid(name, "must be a finite number above 0", value, "Try its default.")
        if not 0 <= self.weight_decay < math.inf:
            raise invalid("weight_decay", "must be at least 0", self.weight_decay, "Try 0.1.")
        if self.schedule == "cosine" and (self.steps is None or self.steps <= self.warmup):
            raise invalid(
                "steps",
                "must be above 'warmup' with schedule='cosine'",
                self.steps,
                "Give the number of steps of the whole run.",
            )

    @property
    def trained(self) -> int:
        """How many sequences a step trains on."""
        return self.pool if self.method == "full" else self.keep

    @property
    def scores(self) -> bool:
        """Whether the step looks at the pool before it chooses."""
        return self.method not in ("random", "full")

    @property
    def compares(self) -> bool:
        """Whether it looks at gradients, not only at losses."""
        return self.scores and self.method != "maxloss"
