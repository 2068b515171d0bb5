"""What a pretraining run will do, and what that costs: told before it begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.pretraining.architecture import ModelConfig
from uniproto.pretraining.flops import step_flops
from uniproto.pretraining.sequences import Sequences
from uniproto.pretraining.step_settings import StepSettings


@dataclass(frozen=True)
class Plan:
    """What a run does.

    `validation` is int32[batches, size, length + 1]. `configuration` is what must be the same for
    a run to go on from its checkpoint. `shown` is as in `Progress`; False: say nothing.
    """

    config: ModelConfig
    step: StepSettings
    mesh: Any
    training: Sequences
    validation: NDArray[np.int32]
    steps: int
    seed: int
    eval_steps: int
    save_steps: int
    logging_steps: int
    configuration: Mapping[str, Any]
    shown: bool | None = None

    @property
    def tokens_per_step(self) -> int:
        """Tokens trained on; those of the pool that are only looked at do not count."""
        return self.step.trained * self.config.length

    @property
    def selection_share(self) -> float:
        """Of a step's FLOPs, those of scoring the pool and comparing its sequences."""
        flops = step_flops(self.config, self.step)
        return 1 - flops["training"] / flops["total"]

    def is_logged(self, step: int) -> bool:
        return step % self.logging_steps == 0 or self.is_validated(step)

    def is_validated(self, step: int) -> bool:
        return step % self.eval_steps == 0 or step == self.steps

    def words(self, done: int) -> str:
        """Size, work and data of the run."""
        left = self.steps - done
        flops = step_flops(self.config, self.step)
        read = left * self.step.pool * self.config.length
        epochs = left * self.step.pool / len(self.training)
        times = f"{epochs:.2g}" if epochs < 10 else f"{epochs:,.0f}"
        lines = [
            f"{self.step.method}: {self.step.trained} of {self.step.pool} sequences of "
            f"{self.config.length} tokens per step, {self.step.dtype}",
            f"  model        {self.config.parameters:,} parameters, a vocabulary of "
            f"{self.config.vocab:,}",
            f"  a step       {_amount(flops['total'])}FLOP, {self.selection_share:.0%} of it to "
            "score and compare the pool",
            f"  in all       {left:,} steps{f' after {done:,}' if done else ''}, "
            f"{_amount(left * flops['total'])}FLOP",
            f"  tokens       {left * self.tokens_per_step:,} to train on, of {read:,} looked at: "
            f"{times} epochs of {len(self.training):,} sequences",
        ]
        return "\n".join(lines)

    def time_words(self, seconds_per_step: float, compiling: float, left: int) -> str:
        """How long the run will take, by its first steps."""
        rate = self.tokens_per_step / seconds_per_step
        work = step_flops(self.config, self.step)["total"] / seconds_per_step
        return (
            f"  time         about {timedelta(seconds=round(left * seconds_per_step))} to go, "
            f"without validation: {seconds_per_step:.3g} s a step, {rate:,.0f} tokens/s, "
            f"{_amount(work)}FLOP/s (compiled in {compiling:.0f} s)"
        )


def _amount(number: float) -> str:
    """Three digits and a prefix.

    >>> _amount(18_800_000_000_000), _amount(950)
    ('18.8 T', '950 ')
    """
    for size, letter in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g} "
