"""The loop of a pretraining run: batches in, rows of metrics and checkpoints out.

Steps are started without waiting for their results, so that the device always has work: losses are
looked at when a row of metrics is due, all those since the last row at once. Every step is a
function of the state before it and of its number, so a run that goes on from a checkpoint does
what it would have done.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.errors import MissingExtraError, UniprotoError
from uniproto.pretraining.checkpoints import Checkpoint, Checkpoints
from uniproto.pretraining.run_plan import Plan
from uniproto.pretraining.sequences import batch_numbers, read_ahead
from uniproto.pretraining.train_step import initial_state, make_step, make_validation
from uniproto.runs.metrics import MetricsFile
from uniproto.runtime.progress import Progress

try:
    import jax
    from jax.sharding import NamedSharding, PartitionSpec
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Pretraining", "jax") from error

NAN_BATCH = "nan_batch.npz"
_TIMED_STEPS = 5  # from which the time of the whole run is foretold


class NonFiniteLossError(UniprotoError, ArithmeticError):
    """A step ended with NaN or infinity."""


@dataclass
class Run:
    """Where a run stands: what a checkpoint holds beside the state."""

    step: int = 0
    seconds: float = 0.0  # of training; compiling, validating and saving do not count
    since_row: list[dict[str, float | None]] = field(default_factory=list)  # one per step


def train(
    plan: Plan,
    checkpoints: Checkpoints,
    saved: Checkpoint | None,
    metrics: MetricsFile,
    out: Path,
) -> dict[str, Any]:
    """Train to the end, from a checkpoint where there is one; returns how long things took."""
    state = initial_state(plan.config, plan.step, plan.seed)
    if plan.mesh is not None:  # where the steps will leave it: the same program serves them all
        state = jax.device_put(state, NamedSharding(plan.mesh, PartitionSpec()))
    run = Run()
    if saved is not None:
        state = checkpoints.restore(saved, state)
        run = Run(saved.step, saved.record["seconds"], saved.record["since_row"])
    if run.step >= plan.steps:  # killed after the last step: only the results are left to write
        return {}
    _say(plan, None, plan.words(run.step))
    validate = _validation(plan)
    if saved is None:
        metrics.add(_row(plan, run, validate(state.params)))
    began = time.perf_counter()
    step = _compiled(plan, state)
    compiling = time.perf_counter() - began
    first = run.step

    with _bar(plan, first) as bar, _interruptible() as interrupted:
        pending = _Pending(plan, run, out, bar)
        batches = read_ahead(plan.training, range(first, plan.steps), plan.step.pool, plan.seed)
        for tokens in batches:
            state, report = step(state, tokens)
            pending.add(report)
            if run.step == first + _TIMED_STEPS:
                pending.settle()
                each = pending.seconds / _TIMED_STEPS
                _say(plan, bar, plan.time_words(each, compiling, plan.steps - run.step))
            if plan.is_logged(run.step):
                pending.settle()
                loss = validate(state.params) if plan.is_validated(run.step) else None
                metrics.add(_row(plan, run, loss))
                run.since_row.clear()
                pending.restart_clock()
            stopping = interrupted.is_set()
            if run.step % plan.save_steps == 0 or run.step == plan.steps or stopping:
                pending.settle()  # a state after a loss of NaN is never kept
                checkpoints.save(run.step, state, _record(plan, run))
                pending.restart_clock()
            if stopping:
                raise KeyboardInterrupt
    return {
        "compile_seconds": compiling,
        "seconds_per_step": pending.seconds / (run.step - first),
    }


class _Pending:
    """Steps that were started and not yet looked at, and the time that training takes."""

    def __init__(self, plan: Plan, run: Run, out: Path, bar: Any) -> None:
        self.plan, self.run, self.out, self.bar = plan, run, out, bar
        self.reports: list[Any] = []
        self.seconds = 0.0  # in this session
        self.restart_clock()

    def restart_clock(self) -> None:
        """What happened since the last look was not training."""
        self.began = time.perf_counter()

    def add(self, report: Any) -> None:
        self.reports.append(report)
        self.run.step += 1

    def settle(self) -> None:
        """Wait for the steps, and take over their numbers; the first without a finite loss stops.

        Such a step has left the state as it was, so nothing that came after it matters.
        """
        if not self.reports:
            return
        found = jax.device_get(self.reports)
        self.reports = []
        now = time.perf_counter()
        took = now - self.began
        self.seconds += took
        self.run.seconds += took
        first = self.run.step - len(found)
        for place, report in enumerate(found):
            if not report.finite:
                self._stop(first + place, report)
            self.run.since_row.append(
                {
                    "train_loss": float(report.loss),
                    "pool_loss": _known(report.pool_loss),
                    "selection_cost": _known(report.cost),
                    "gradient_norm": float(report.gradient_norm),
                    "left_out": int(report.left_out),
                }
            )
        self.began = now
        if self.bar is not None:
            self.bar.update(len(found))
            rate = len(found) * self.plan.tokens_per_step / took
            self.bar.set_postfix_str(
                f"loss {float(found[-1].loss):.3f}, {rate:,.0f} tokens/s, selection "
                f"{self.plan.selection_share:.0%} of FLOPs"
            )

    def _stop(self, step: int, report: Any) -> None:
        """Keep the pool of a step, which its number alone gives again, and end the run."""
        plan = self.plan
        numbers = batch_numbers(step, plan.step.pool, len(plan.training), plan.seed)
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
            kept = f"is in {path}"
        except OSError as error:  # which must not hide what has happened
            kept = f"could not be written to {path} ({error.strerror or error})"
        raise NonFiniteLossError(
            f"The loss of every step must be finite. Step {step + 1:,} has loss "
            f"{float(report.loss)} and gradient norm {float(report.gradient_norm)}, with "
            f"{int(report.left_out)} sequences of its pool without finite scores. Its pool "
            f"{kept}; the last checkpoint is from before it. Lower "
            "--learning-rate, raise --warmup, or set --clip 1, in another folder or with --fresh."
        )


def _record(plan: Plan, run: Run) -> dict[str, Any]:
    return {
        "configuration": dict(plan.configuration),
        "seconds": run.seconds,
        "since_row": run.since_row,
    }


def _row(plan: Plan, run: Run, val_loss: float | None) -> dict[str, Any]:
    """A row of metrics: means over the steps since the row before it."""

    def mean(name: str) -> float | None:
        values = [each[name] for each in run.since_row]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    return {
        "step": run.step,
        "train_loss": mean("train_loss"),
        "val_loss": val_loss,
        "seconds": run.seconds,
        "tokens": run.step * plan.tokens_per_step,
        "kept": plan.step.trained,
        "pool": plan.step.pool,
        "pool_loss": mean("pool_loss"),
        "selection_cost": mean("selection_cost"),
        "gradient_norm": mean("gradient_norm"),
        "left_out": sum(each["left_out"] or 0 for each in run.since_row),
    }


def _validation(plan: Plan) -> Callable[[Any], float]:
    total: Any = make_validation(plan.config, plan.step.dtype, plan.mesh)

    def validate(params: Any) -> float:
        found = jax.device_get([total(params, batch) for batch in plan.validation])
        return sum(float(loss) for loss, _ in found) / sum(int(count) for _, count in found)

    return validate


def _compiled(plan: Plan, state: Any) -> Any:
    """The step, compiled: it runs once on a copy of the state, which a step uses up."""
    step: Any = make_step(plan.config, plan.step, plan.mesh)
    tokens = plan.training.read(batch_numbers(0, plan.step.pool, len(plan.training), plan.seed))
    jax.block_until_ready(step(jax.tree.map(jax.numpy.copy, state), tokens))
    return step


@contextmanager
def _bar(plan: Plan, done: int) -> Iterator[Any]:
    """A bar of steps where a person is watching, else None."""
    if not Progress(plan.shown).shown:
        yield None
        return
    from tqdm import tqdm

    with tqdm(total=plan.steps, initial=done, unit="step", file=sys.stderr) as bar:
        yield bar


def _say(plan: Plan, bar: Any, words: str) -> None:
    """Print, without tearing the bar, unless nothing is to be shown."""
    if plan.shown is False:
        return
    if bar is None:
        print(words, flush=True)
    else:
        bar.write(words, file=sys.stdout)


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Ctrl-C lets the step at hand end, so that it can be kept; a second one stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked  # signals are the main thread's
        return

    def ask(number: int, frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def _known(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None
