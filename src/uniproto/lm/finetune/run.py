"""Fine-tune a causal language model on chosen examples, from a file to curves.

Rows of a file → training and validation rows → tokens → pools → chosen
examples → steps. Settings and results are written to the folder OUT.
"""

from __future__ import annotations

import math
import sys
from contextlib import ExitStack
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers

from uniproto.errors import InvalidInputError, MissingExtraError, UniprotoError
from uniproto.lm.features.layers import unwrapped
from uniproto.lm.features.tokens import PaddingCollator, TokenisedRows
from uniproto.lm.finetune.data import TrainingData, prepare_examples, read_files
from uniproto.lm.finetune.folder import (
    MAY_CHANGE,
    MODEL,
    RESULT,
    claimed,
    last_checkpoint,
    require_complete,
    require_usable,
    step_of,
)
from uniproto.lm.finetune.lora import require_quantisation, with_lora
from uniproto.lm.finetune.monitoring import (
    ShownProgress,
    StepMetrics,
    ValidateLastStep,
    ValidatingTrainer,
    curve_points,
    curves_chart,
)
from uniproto.lm.finetune.settings import FinetuneSettings
from uniproto.lm.models import load_model, padding_token
from uniproto.report.charts import save_curves
from uniproto.report.words import mean_and_spread
from uniproto.runs.atomic import write_json
from uniproto.runs.folder import read_record
from uniproto.runs.journal import read_metrics
from uniproto.runtime.progress import Progress

# The name of the option in transformers, later versions first.
CHECKPOINTING = next(
    name
    for name in ("activation_checkpointing", "gradient_checkpointing")
    if name in transformers.TrainingArguments.__dataclass_fields__
)

_MANY_EPOCHS = 10


def finetune(settings: FinetuneSettings, fresh: bool = False) -> dict[str, Any]:
    """Run or resume a fine-tuning run; returns the content of OUT/result.json.

    `fresh` starts over if OUT holds an earlier run.
    """
    selection = settings.selection()  # refuses wrong options before anything is loaded
    if settings.lora_r > 0 and find_spec("peft") is None:
        raise MissingExtraError("LoRA", "train")
    require_quantisation(settings)
    out = Path(settings.out)
    args = training_arguments(settings)
    with args.main_process_first(desc="looking at the folder"):
        if args.process_index == 0:
            require_usable(out, settings, fresh)
    if not fresh and (out / RESULT).exists():
        return read_record(out / RESULT)
    rows = read_files(settings, settings.data_files)
    transformers.set_seed(settings.seed)
    half = settings.bf16 and settings.lora_r > 0
    model, tokenizer = load_model(settings.model, half, settings.quantize)
    examples = prepare_examples(settings, rows, tokenizer, model)
    train, validation = examples.train, examples.validation
    if selection.mode == "source" and settings.source is None:
        raise InvalidInputError(
            "source needs a column of sources. Name it with --source.", parameter="mode"
        )
    if settings.lora_r > 0:
        model = with_lora(model, settings)
    _require_sources(settings, train)
    _set_length(args, settings, len(train))
    checkpoint = None if fresh else last_checkpoint(out)
    args.eval_on_start = checkpoint is None and validation is not None
    args.eval_strategy = transformers.trainer_utils.IntervalStrategy(
        "no" if validation is None else "steps"
    )
    is_new = not out.exists()
    try:
        trainer = ValidatingTrainer(
            model=model,
            args=args,
            train_dataset=train,
            eval_dataset=validation,
            data_collator=PaddingCollator(padding_token(tokenizer)),
            processing_class=tokenizer,
            selection=selection,
        )
    except UniprotoError:
        if is_new and out.is_dir():
            out.rmdir()  # the Trainer has made it by then
        raise
    with ExitStack() as until_the_end:
        with args.main_process_first(desc="claiming the folder"):
            if args.process_index == 0:
                chats = any(isinstance(row.example, list) for row in rows)
                until_the_end.enter_context(claimed(out, settings, fresh, chats))
        _train(trainer, settings, checkpoint)
        if not settings.merge:
            trainer.save_model(str(out / MODEL))
        if args.process_index == 0:
            if settings.merge:
                unwrapped(trainer.model).merge_and_unload().save_pretrained(str(out / MODEL))
            tokenizer.save_pretrained(str(out / MODEL))
            return _publish(out, settings, examples)
    return {}


def _set_length(args: Any, settings: FinetuneSettings, rows: int) -> None:
    """Set the number of steps from the epochs, if given; warn of too many passes."""
    per_step = settings.pool * settings.accumulate * args.world_size
    if settings.epochs is not None:
        args.max_steps = max(1, math.ceil(settings.epochs * rows / per_step))
        args.warmup_steps = round(settings.warmup * args.max_steps)
    passes = args.max_steps * per_step / rows
    if passes > _MANY_EPOCHS and args.process_index == 0 and not settings.quiet:
        print(
            f"uniproto: warning: {args.max_steps} steps go {passes:.0f} times over the {rows:,} "
            "training rows. Set the number of passes with --epochs (3 is usual).",
            file=sys.stderr,
        )


def _train(trainer: ValidatingTrainer, settings: FinetuneSettings, checkpoint: Path | None) -> None:
    """Train from the last checkpoint, if there is one, to the last step."""
    args, done = trainer.args, 0 if checkpoint is None else step_of(checkpoint)
    metrics = StepMetrics(
        Path(settings.out), None if checkpoint is None else done, writes=args.process_index == 0
    )
    for callback in (transformers.PrinterCallback, transformers.ProgressCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(metrics)
    trainer.add_callback(ValidateLastStep())
    trainer.before_saving = metrics.flush
    if done >= args.max_steps:  # killed after the last step: only the results are missing
        trainer._load_from_checkpoint(str(checkpoint))
        return
    if checkpoint is not None:
        require_complete(checkpoint, args.process_index, args.world_size)
    progress = Progress(False if settings.quiet or args.process_index else None)
    with progress.stage("steps", args.max_steps - done) as advance:
        trainer.add_callback(ShownProgress(advance))
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))


def training_arguments(settings: FinetuneSettings) -> Any:
    """The Trainer's arguments."""
    trackers = [] if settings.report_to == "none" else settings.report_to.split(",")
    installed = transformers.integrations.get_available_reporting_integrations()
    for tracker in trackers:
        if tracker not in (*installed, "all"):
            raise InvalidInputError(
                f"must name a tracker that is installed, not {tracker!r} "
                f"({', '.join(installed) or 'none is'}). Install it (pip install {tracker}), or "
                "leave the option out.",
                parameter="report_to",
            )
    checkpointing: dict[str, Any] = {}
    if settings.gradient_checkpointing:
        checkpointing = {CHECKPOINTING: True, f"{CHECKPOINTING}_kwargs": {"use_reentrant": False}}
    try:
        args = transformers.TrainingArguments(
            output_dir=settings.out,
            max_steps=settings.steps,
            per_device_train_batch_size=settings.pool,
            per_device_eval_batch_size=settings.micro_batch or settings.keep,
            gradient_accumulation_steps=settings.accumulate,
            learning_rate=settings.learning_rate,
            lr_scheduler_type=settings.scheduler,
            warmup_steps=round(settings.warmup * settings.steps),
            logging_steps=settings.logging_steps,
            logging_first_step=True,
            eval_steps=settings.eval_steps,
            save_steps=settings.save_steps,
            save_total_limit=2,
            bf16=settings.bf16,
            **checkpointing,
            seed=settings.seed,
            logging_nan_inf_filter=False,  # it would log 0 for a loss of NaN
            report_to=trackers,
            # Without this, processes of torchrun on a machine without a GPU would not form a
            # group, and each would act as the main process.
            use_cpu=settings.device == "cpu" or not torch.accelerator.is_available(),
            dataloader_pin_memory=torch.cuda.is_available() and settings.device != "cpu",
            dataloader_drop_last=False,
            ddp_find_unused_parameters=False,
            disable_tqdm=True,
        )
        # Some schedulers need further options: fail before the model is loaded.
        transformers.get_scheduler(
            args.lr_scheduler_type,
            torch.optim.SGD([torch.zeros(1, requires_grad=True)]),
            num_warmup_steps=int(args.warmup_steps),
            num_training_steps=args.max_steps,
        )
    except (ValueError, TypeError, ImportError) as error:
        raise InvalidInputError(
            f"transformers does not accept these training arguments "
            f"({str(error).splitlines()[0]}). Correct the option it names."
        ) from error
    return args


def _require_sources(settings: FinetuneSettings, train: TokenisedRows) -> None:
    """Refuse names for `--keep-small` that no source has."""
    wanted = settings.keep_small if isinstance(settings.keep_small, tuple) else ()
    unknown = [name for name in wanted if name not in train.sources]
    if unknown:
        raise InvalidInputError(
            f"must name sources of the data, which have no {', '.join(unknown)}, but "
            f"{', '.join(sorted(train.sources))}. Correct the names, or pass a share of the data "
            "such as 0.01.",
            parameter="keep_small",
        )


def _publish(out: Path, settings: FinetuneSettings, examples: TrainingData) -> dict[str, Any]:
    """Write the curves, then result.json, which marks the run as complete."""
    from uniproto.runs.records import versions, without_infinity

    rows, train, validation = read_metrics(out), examples.train, examples.validation
    # Recognised by their keys, as a loss of NaN is written as null.
    validated = [row for row in rows if "val_loss_by_source" in row]
    trained = [row for row in rows if "kept" in row]
    result = {
        "settings": {k: v for k, v in asdict(settings).items() if k not in MAY_CHANGE},
        "train_rows": dict(train.sources.most_common()),
        "validation_rows": {} if validation is None else dict(validation.sources.most_common()),
        "too_long": examples.too_long,
        "left_out": sum(row.get("left_out", 0) for row in trained),
        "first": validated[0] if validated else None,
        "last": validated[-1] if validated else None,
        "train_loss": trained[-1]["train_loss"] if trained else None,
        "seconds": rows[-1]["seconds"] if rows else None,
        "selection_share": mean_and_spread([row.get("selection_share") for row in trained])[0],
        "versions": versions()
        | {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    result = without_infinity(result)
    if validated:
        title = f"{Path(settings.model).name}: {settings.method}, per {settings.mode}, "
        title += f"{settings.keep} of {settings.pool}"
        points = curve_points(rows)
        save_curves(out, points, lambda: curves_chart(points, rows, title, train.sources))
    write_json(out / RESULT, result)
    return result
