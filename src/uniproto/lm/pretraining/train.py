"""The training loop of a pretraining run, which writes metrics and checkpoints.

Steps are dispatched without waiting for their results, to keep the device busy: losses are read
when a row of metrics is due, all since the last row at once. Every step is a function of the state
and of its number, so that a resumed run gives the same results.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec
from numpy.typing import NDArray
from tqdm import tqdm

from uniproto.errors import UniprotoError, printable
from uniproto.lm.pretraining.checkpoints import Checkpoints, TrainingCheckpoint
from uniproto.lm.pretraining.model import ModelConfig, Params, logits
from uniproto.lm.pretraining.pretrain_settings import PretrainSettings
from uniproto.lm.pretraining.step import initial_state, make_step, make_validation
from uniproto.lm.pretraining.tokens import Sequences, Vocabulary, batch_numbers, read_ahead
from uniproto.report.words import mean_and_spread
from uniproto.runs.journal import MetricsFile
from uniproto.runtime.interrupts import sigterm_interrupts, uninterrupted
from uniproto.runtime.progress import Advance, Progress, unseen

NAN_BATCH = "nan_batch.npz"


class NonFiniteLossError(UniprotoError, ArithmeticError):
    """A step ended with NaN or infinity."""


@dataclass(frozen=True)
class RunPlan:
    """What a run will do, and what that costs.

    `validation` is int32[batches, size, length + 1]. `configuration` must be equal for a run to be
    resumed.
    """

    config: ModelConfig
    settings: PretrainSettings
    mesh: Any
    training: Sequences
    validation: NDArray[np.int32]
    configuration: Mapping[str, Any]
    vocabulary: Vocabulary | None = None  # to show sampled text; None: show none

    @property
    def tokens_per_step(self) -> int:
        """Tokens trained on; those of the pool that are only scored do not count."""
        return self.settings.trained * self.config.length

    def is_logged(self, step: int) -> bool:
        return step % self.settings.logging_steps == 0 or self.is_validated(step)

    def is_validated(self, step: int) -> bool:
        return step % self.settings.eval_steps == 0 or step == self.settings.steps

    def is_saved(self, step: int) -> bool:
        return step % self.settings.save_steps == 0 or step == self.settings.steps

    def summary(self, done: int) -> str:
        """Size, work and data of the run."""
        asked, left = self.settings, self.settings.steps - done
        read = left * asked.pool * self.config.length
        epochs = left * asked.pool / len(self.training)
        times = f"{epochs:.2g}" if epochs < 10 else f"{epochs:,.0f}"
        lines = [
            f"{asked.method}: {asked.trained} of {asked.pool} sequences of "
            f"{self.config.length} tokens per step, {asked.dtype}",
            f"  model        {self.config.parameters:,} parameters, a vocabulary of "
            f"{self.config.vocab:,}",
            f"  in all       {left:,} steps{f' after {done:,}' if done else ''}",
            f"  tokens       {left * self.tokens_per_step:,} to train on, of {read:,} looked at: "
            f"{times} epochs of {len(self.training):,} sequences",
        ]
        return "\n".join(lines)


def train(
    plan: RunPlan,
    checkpoints: Checkpoints,
    saved: TrainingCheckpoint | None,
    metrics: MetricsFile,
    out: Path,
) -> dict[str, Any]:
    """Train to the end, from a checkpoint where there is one; returns how long things took."""
    state = initial_state(plan.config, plan.settings, plan.settings.seed)
    if plan.mesh is not None:  # as the steps leave it, so that one compiled program serves all
        state = jax.device_put(state, NamedSharding(plan.mesh, PartitionSpec()))
    run = _Run(plan, out, saved)
    if saved is not None:
        state = checkpoints.restore(saved, state)
    if run.step >= plan.settings.steps:  # killed after the last step: only the results are missing
        return {}
    _print(plan, plan.summary(run.step))
    validate = _validation(plan)
    if saved is None:
        metrics.add(run.row(validate(state.params)))
    began = time.perf_counter()
    step = _compiled(plan, state)
    compiling = time.perf_counter() - began
    first = run.step

    progress = Progress(False if plan.settings.quiet else None)
    with progress.stage("steps", plan.settings.steps - first) as advance, sigterm_interrupts():
        run.advance = advance
        run.restart_clock()
        batches = read_ahead(
            plan.training, range(first, plan.settings.steps), plan.settings.pool, plan.settings.seed
        )

        def save() -> None:
            if run.step > run.saved:
                run.settle()  # a state after a loss of NaN is never saved
                checkpoints.save(run.step, state, run.record())
                run.saved = run.step
                run.restart_clock()

        try:
            for tokens in batches:
                with uninterrupted():
                    state, report = step(state, tokens)
                    run.add(report)
                    if plan.is_logged(run.step):
                        run.settle()
                        loss = validate(state.params) if plan.is_validated(run.step) else None
                        if loss is not None:
                            _print_sample(plan, state.params, run.step, loss)
                        metrics.add(run.row(loss))
                        run.since_row.clear()
                        run.restart_clock()
                    if plan.is_saved(run.step):
                        save()
        except KeyboardInterrupt:  # raised between two steps
            save()
            raise
    return {
        "compile_seconds": compiling,
        "seconds_per_step": run.session_seconds / (run.step - first),
    }


class _Run:
    """The progress of a run, the steps whose results have not been read yet, and the time."""

    def __init__(self, plan: RunPlan, out: Path, saved: TrainingCheckpoint | None) -> None:
        self.plan, self.out = plan, out
        self.advance: Advance = unseen
        self.step = self.saved = 0 if saved is None else saved.step
        before: dict[str, Any] = (
            {"seconds": 0.0, "since_row": []} if saved is None else saved.record
        )
        self.seconds: float = before["seconds"]  # of training; not of compiling and validating
        self.since_row: list[dict[str, float | None]] = before["since_row"]  # one per step
        self.session_seconds = 0.0
        self.reports: list[Any] = []

    def restart_clock(self) -> None:
        """The time since the last results was not training."""
        self.began = time.perf_counter()

    def add(self, report: Any) -> None:
        self.reports.append(report)
        self.step += 1

    def settle(self) -> None:
        """Wait for the steps, and record their numbers; the first without a finite loss stops.

        Such a step leaves the state unchanged, so that later steps do not matter.
        """
        if not self.reports:
            return
        found = jax.device_get(self.reports)
        now = time.perf_counter()
        took = now - self.began
        self.session_seconds += took
        self.seconds += took
        first = self.step - len(found)
        for place, report in enumerate(found):
            if not report.finite:
                self._stop(first + place, report)
            self.since_row.append(
                {
                    "train_loss": float(report.loss),
                    "pool_loss": _known(report.pool_loss),
                    "selection_cost": _known(report.cost),
                    "marginal_violation": _known(report.violation),
                    "gradient_norm": float(report.gradient_norm),
                    "left_out": int(report.left_out),
                }
            )
        self.reports, self.began = [], now
        rate = len(found) * self.plan.tokens_per_step / took
        self.advance(len(found), f"loss {float(found[-1].loss):.3f}, {rate:,.0f} tokens/s")

    def _stop(self, step: int, report: Any) -> None:
        """Save the pool of a step, which follows from its number alone, and end the run."""
        plan = self.plan
        numbers = batch_numbers(step, plan.settings.pool, len(plan.training), plan.settings.seed)
        path = self.out / NAN_BATCH
        try:
            np.savez(
                path,
                step=step + 1,
                tokens=plan.training.read(numbers),
                sequences=numbers,
                picks=report.picks,
                loss=report.loss,
                gradient_norm=report.gradient_norm,
            )
            place = f"is in {path}"
        except OSError as error:  # must not hide the original error
            place = f"could not be written to {path} ({error.strerror or error})"
        raise NonFiniteLossError(
            f"The loss of every step must be finite. Step {step + 1:,} has loss "
            f"{float(report.loss)} and gradient norm {float(report.gradient_norm)}, with "
            f"{int(report.left_out)} sequences of its pool without finite scores. Its pool "
            f"{place}; the last checkpoint is from before it. Lower "
            "--learning-rate, raise --warmup, or set --clip 1, in another folder or with --fresh."
        )

    def record(self) -> dict[str, Any]:
        """What a checkpoint holds besides the state."""
        return {
            "configuration": dict(self.plan.configuration),
            "seconds": self.seconds,
            "since_row": self.since_row,
        }

    def row(self, val_loss: float | None) -> dict[str, Any]:
        """A row of metrics: means over the steps since the row before it."""

        def mean(name: str) -> float | None:
            return mean_and_spread([each[name] for each in self.since_row])[0]

        return {
            "step": self.step,
            "train_loss": mean("train_loss"),
            "val_loss": val_loss,
            "seconds": self.seconds,
            "tokens": self.step * self.plan.tokens_per_step,
            "kept": self.plan.settings.trained,
            "pool": self.plan.settings.pool,
            "pool_loss": mean("pool_loss"),
            "selection_cost": mean("selection_cost"),
            "marginal_violation": mean("marginal_violation"),
            "gradient_norm": mean("gradient_norm"),
            "left_out": sum(each["left_out"] or 0 for each in self.since_row),
        }


def _validation(plan: RunPlan) -> Callable[[Any], float]:
    total: Any = make_validation(plan.config, plan.settings.dtype, plan.mesh)

    def validate(params: Any) -> float:
        found = jax.device_get([total(params, batch) for batch in plan.validation])
        return sum(float(loss) for loss, _ in found) / sum(int(count) for _, count in found)

    return validate


def _print_sample(plan: RunPlan, params: Any, step: int, loss: float) -> None:
    """A sample for the log: how the model continues a held-out text."""
    if plan.vocabulary is None:
        return
    start = plan.validation[0, 0]
    tokens = sampled(
        params, start, plan.config, plan.settings.dtype, seed=(plan.settings.seed, step)
    )
    text = printable(plan.vocabulary.decode(tokens).replace("\n", " ").strip())
    _print(plan, f"  step {step:,}   log-perplexity {loss:.3f}   {text}")


def _compiled(plan: RunPlan, state: Any) -> Any:
    """The step, compiled: it runs once on a copy of the state, which a step uses up."""
    step: Any = make_step(plan.config, plan.settings, plan.mesh)
    tokens = plan.training.read(
        batch_numbers(0, plan.settings.pool, len(plan.training), plan.settings.seed)
    )
    jax.block_until_ready(step(jax.tree.map(jax.numpy.copy, state), tokens))
    return step


def _print(plan: RunPlan, text: str) -> None:
    """Print a text, above a progress bar, unless nothing is to be shown."""
    if not plan.settings.quiet:
        tqdm.write(text)
        sys.stdout.flush()


def _known(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


# --- text from a model in training ----------------------------------------------------------------


_GIVEN, _DRAWN = 8, 24  # tokens
_TEMPERATURE = 0.8


def sampled(
    params: Params, start: Any, config: ModelConfig, dtype: str, seed: tuple[int, int]
) -> list[int]:
    """The first tokens of a text, and those that the model draws after them.

    >>> from uniproto.lm.pretraining.model import initial_params, model_config
    >>> config = model_config("tiny", vocab=50, length=16)
    >>> params = initial_params(config, jax.random.key(0))
    >>> found = sampled(params, np.arange(17), config, "float32", seed=(0, 1))
    >>> len(found), found[:8]
    (16, [0, 1, 2, 3, 4, 5, 6, 7])
    """
    length = min(config.length, _GIVEN + _DRAWN)
    given = min(_GIVEN, length // 2)
    window = np.zeros(length, np.int32)
    window[:given] = np.asarray(start)[:given]
    key = jax.random.fold_in(jax.random.PRNGKey(seed[0]), seed[1])
    drawn = _drawn(config, dtype, given, params, jnp.asarray(window), key)
    return [int(token) for token in jax.device_get(drawn)]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _drawn(
    config: ModelConfig, dtype: str, given: int, params: Params, window: Array, key: Array
) -> Array:
    """Fill the window from left to right; the whole of it is read again for every token."""

    def draw(place: int, tokens: Array) -> Array:
        scores = logits(params, tokens[None], config, dtype=jnp.dtype(dtype))[0, place - 1]
        token = jax.random.categorical(jax.random.fold_in(key, place), scores / _TEMPERATURE)
        return tokens.at[place].set(token.astype(tokens.dtype))

    return lax.fori_loop(given, len(window), draw, window)
