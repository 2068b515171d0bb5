"""Monitoring of a fine-tuning run: validation, metrics, progress and curves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from uniproto.features.models import loading
from uniproto.lm.batches.trainer import SelectionTrainer
from uniproto.lm.features.losses import NO_LABEL, example_losses
from uniproto.runs.journal import MetricsFile
from uniproto.runtime.progress import Advance

OVERALL = "(all sources)"
_FIRST_SAVED = 8  # step of the first checkpoint; then 16, 32, …
_MOST_SOURCES = 24  # panels of the figure


# --- validation -------------------------------------------------------------------------------


def log_perplexities(trainer: Any) -> tuple[float, dict[str, float]]:
    """Σ losses / Σ answer tokens of the evaluation data, overall and for each source.

    Every process evaluates its share of the rows, and the sums are reduced. An example without a
    finite loss makes the value of its source NaN.
    """
    rows, args = trainer.eval_dataset, trainer.args
    sources = sorted({row["source"] for row in rows})
    place = {source: number for number, source in enumerate(sources)}
    sums = torch.zeros(len(sources), 2, dtype=torch.float64)
    share = range(args.process_index, len(rows), args.world_size)
    mine = sorted(share, key=lambda row: len(rows[row]["input_ids"]))
    for first in range(0, len(mine), args.eval_batch_size):
        some = [rows[row] for row in mine[first : first + args.eval_batch_size]]
        plain = [{k: v for k, v in each.items() if k != "source"} for each in some]
        batch = trainer.data_collator(plain)
        losses = example_losses(trainer.model, batch).double().cpu()
        tokens = batch["labels"][:, 1:].ne(NO_LABEL).sum(dim=1).double().cpu()
        for each, loss, count in zip(some, losses, tokens, strict=True):
            sums[place[each["source"]]] += torch.stack((loss * count, count))
    if args.world_size > 1:
        sums = trainer.accelerator.gather(sums[None].to(args.device)).sum(dim=0).cpu()
    total = sums.sum(dim=0)
    of_source = (sums[:, 0] / sums[:, 1]).tolist()
    return float(total[0] / total[1]), dict(zip(sources, of_source, strict=True))


class ValidateLastStep(TrainerCallback):
    """Validates after the last step, and saves early checkpoints.

    Checkpoints are saved at steps 8, 16, 32, …: a run that is killed before the first of
    `save_steps` loses at most half of its work.
    """

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        step = state.global_step
        if _FIRST_SAVED <= step < args.save_steps and step & (step - 1) == 0:
            control.should_save = True
        if state.global_step >= state.max_steps and args.eval_strategy != "no":
            control.should_evaluate = True


class ValidatingTrainer(SelectionTrainer):
    """Evaluates by log-perplexity, overall and per source, and names damaged checkpoint files."""

    before_saving: Any = None  # called before each checkpoint is saved

    def _save_checkpoint(self, *given: Any, **named: Any) -> None:
        if self.before_saving is not None:
            self.before_saving()
        super()._save_checkpoint(*given, **named)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with _report_damaged_checkpoint(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with _report_damaged_checkpoint(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with _report_damaged_checkpoint(checkpoint):
            super()._load_rng_state(checkpoint)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        overall, by_source = log_perplexities(self)
        metrics = {
            "eval_loss": overall,
            "eval_mean_of_sources": sum(by_source.values()) / len(by_source),
            **{f"eval_loss/{name}": value for name, value in by_source.items()},
        }
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics


def _report_damaged_checkpoint(checkpoint: str | None) -> AbstractContextManager[None]:
    """Explains errors of loading a checkpoint; without one, nothing is loaded."""
    if checkpoint is None:
        return nullcontext()
    return loading(
        checkpoint,
        "the run must resume from a complete checkpoint",
        "Move this folder away to resume from the one before it, or start over with --fresh.",
    )


# --- metrics and progress, as the run goes on -------------------------------------------------


class StepMetrics(TrainerCallback):
    """Writes OUT/metrics.jsonl during training, and continues it after a kill.

    The row of a step is written after its validation, and before its checkpoint
    (`before_saving`). Only one process writes.
    """

    def __init__(self, folder: Path, resumed_at: int | None, writes: bool = True) -> None:
        self.file = MetricsFile(folder, resumed_at) if writes else None
        self.row: dict[str, Any] | None = None
        rows = self.file.rows if self.file else []
        self.seconds_before = rows[-1]["seconds"] if rows else 0.0
        self.began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Training time so far, including that before a resume."""
        return self.seconds_before + time.perf_counter() - self.began

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.began = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not logs or not {"loss", "eval_loss"} & logs.keys():
            return
        row = self._at(state.global_step)
        if "eval_loss" in logs:
            row["val_loss"] = logs["eval_loss"]
            row["val_loss_mean_of_sources"] = logs["eval_mean_of_sources"]
            row["val_loss_by_source"] = {
                name.partition("/")[2]: value
                for name, value in logs.items()
                if name.startswith("eval_loss/")
            }
            row["seconds"] = self.seconds
            return
        row |= {
            "train_loss": logs["loss"],
            "learning_rate": logs.get("learning_rate"),
            "grad_norm": logs.get("grad_norm"),
            "epoch": logs.get("epoch"),
        }
        for name, value in logs.items():
            kind, _slash, rest = name.partition("/")
            if kind == "selection":
                row[rest if rest in ("kept", "pool", "left_out") else f"selection_{rest}"] = value
            elif kind == "selected":
                row.setdefault("selected", {})[rest] = value

    def _at(self, step: int) -> dict[str, Any]:
        if self.row is None or self.row["step"] != step:
            self.flush()
            self.row = {
                "step": step,
                "train_loss": None,
                "val_loss": None,
                "seconds": self.seconds,
            }
        return self.row

    def flush(self, *_: Any, **__: Any) -> None:
        """Write the row of a completed step."""
        if self.row is None:
            return
        row, self.row = self.row, None
        if self.file is not None:
            self.file.add(row)

    on_step_begin = on_train_end = flush


class ShownProgress(TrainerCallback):
    """Shows a progress bar with the time left."""

    def __init__(self, advance: Advance) -> None:
        self.advance = advance

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.advance(1)


# --- curves -----------------------------------------------------------------------------------


def curve_points(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tidy rows: step, source (`(all sources)` for every example together), log-perplexity."""
    points = []
    for row in rows:
        if row.get("val_loss") is None and not row.get("val_loss_by_source"):
            continue
        values = {OVERALL: row["val_loss"], **row.get("val_loss_by_source", {})}
        points += [
            {"step": row["step"], "seconds": row["seconds"], "source": name, "log_perplexity": x}
            for name, x in values.items()
        ]
    return points


def curves_chart(
    points: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    title: str,
    sizes: Mapping[str, int],
) -> Any:
    """Training and validation loss, then a small panel per source, largest first."""
    import altair as alt

    from uniproto.report.charts import GREY, curve, small_multiples, styled

    trained = [
        {"step": row["step"], "log_perplexity": row["train_loss"]}
        for row in rows
        if row.get("train_loss") is not None
    ]
    names = [name for name in sizes if any(point["source"] == name for point in points)]
    names = sorted(names, key=lambda name: -sizes[name])[:_MOST_SOURCES]
    both = alt.layer(curve(trained, colour=GREY, opacity=0.5), curve(_series(points, OVERALL)))
    titles = {name: f"{name} ({sizes[name]:,})" for name in names}
    panels = [
        both.properties(title="all (grey: loss on the chosen training examples)"),
        *(curve(_series(points, name)).properties(title=titles[name]) for name in names),
    ]
    panels = [panel.properties(width=230, height=150) for panel in panels]
    hidden = len(sizes) - len(names)
    below = "log-perplexity of held-out answers, by source (training rows in brackets)"
    return styled(
        small_multiples(panels, 4),
        title,
        below + (f"; {hidden} more in curves.csv" if hidden > 0 else ""),
    )


def _series(points: Sequence[Mapping[str, Any]], source: str) -> list[Mapping[str, Any]]:
    own = [point for point in points if point["source"] == source]
    return [point for point in own if point["log_perplexity"] is not None]
