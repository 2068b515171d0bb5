"""Fine-tune a causal language model on chosen examples, from a file to curves.

The way of the data: rows of a file → training and validation rows → tokens → pools → chosen
examples → steps. Everything that was asked for and came out is in the folder OUT.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from uniproto.data.tables import file_digest
from uniproto.errors import (
    InputFileError,
    InvalidInputError,
    MissingExtraError,
    OutputError,
    invalid,
)
from uniproto.methods import UniProto
from uniproto.metrics_file import read_metrics
from uniproto.progress import Progress
from uniproto.training.config import SelectionConfig
from uniproto.training.curves import ShownProgress, StepMetrics, save_curves
from uniproto.training.presets import lora_targets
from uniproto.training.trainer import SelectionTrainer
from uniproto.training.tuning_data import (
    TEMPLATE,
    PaddingCollator,
    TunedRows,
    read_rows,
    split_rows,
    tokenise,
)
from uniproto.training.validation import log_perplexities

try:
    import torch
    import transformers
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Fine-tuning", "train") from error

SETTINGS, RESULT, MODEL = "finetune.json", "result.json", "model"
_CHECKPOINT = "checkpoint-"
_MAY_CHANGE = ("out", "quiet", "save_steps", "report_to", "device")


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


def finetune(settings: FinetuneSettings, fresh: bool = False) -> dict[str, Any]:
    """Run, or go on with, a fine-tuning run; returns what stands in OUT/result.json."""
    selection = settings.selection()  # wrong options are told before anything is loaded
    if settings.steps < 1:
        raise invalid("--steps", "must be at least 1", settings.steps, "Ask for a step or more.")
    out = Path(settings.out)
    args = training_arguments(settings)
    with args.main_process_first(desc="claiming the folder"):
        if args.process_index == 0:
            _claim(out, settings, fresh)
    if (out / RESULT).exists():
        return dict(json.loads((out / RESULT).read_text(encoding="utf-8")))
    transformers.set_seed(settings.seed)
    model, tokenizer = load_model(settings.model, settings.bf16 and settings.lora_r > 0)
    train, validation = tuning_rows(settings, tokenizer, model)
    if selection.mode == "source" and settings.source is None:
        raise invalid("--source", "must name a column with --mode source", "none", "Name one.")
    if settings.lora_r > 0:
        model = with_lora(model, settings)
    with args.main_process_first(desc="embedding"):
        embeddings = text_embeddings(settings, train)
    checkpoint = last_checkpoint(out)
    done = 0 if checkpoint is None else _step_of(checkpoint)
    args.eval_on_start = checkpoint is None and validation is not None
    args.eval_strategy = transformers.trainer_utils.IntervalStrategy(
        "no" if validation is None else "steps"
    )
    trainer = ValidatingTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=validation,
        data_collator=PaddingCollator(padding_token(tokenizer)),
        processing_class=tokenizer,
        selection=settings.selection(embeddings),
    )
    metrics = StepMetrics(out, done if checkpoint else None, writes=args.process_index == 0)
    for callback in (transformers.PrinterCallback, transformers.ProgressCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(metrics)
    shown = False if settings.quiet or args.process_index else None
    trainer.add_callback(ShownProgress(Progress(shown)))
    trainer.add_callback(ValidatesAtTheEnd())
    trainer.before_saving = metrics.flush
    if done < settings.steps:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    else:  # killed after the last step: nothing is left but to write the results
        trainer._load_from_checkpoint(str(checkpoint))
    trainer.save_model(str(out / MODEL))
    if args.process_index == 0:
        tokenizer.save_pretrained(str(out / MODEL))
        return _publish(out, settings, train, validation)
    return {}


class ValidatesAtTheEnd(transformers.TrainerCallback):
    """The last step is validated, whatever its number."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step >= state.max_steps and args.eval_strategy != "no":
            control.should_evaluate = True


class ValidatingTrainer(SelectionTrainer):
    """Evaluates by log-perplexity, overall and per source, in place of the Trainer's own loop."""

    before_saving: Any = None  # what must be on the disk before a checkpoint is

    def _save_checkpoint(self, *given: Any, **named: Any) -> None:
        if self.before_saving is not None:
            self.before_saving()
        super()._save_checkpoint(*given, **named)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        overall, by_source = log_perplexities(
            self.model,
            self.eval_dataset,
            self.data_collator,
            self.args.eval_batch_size,
            process=self.args.process_index,
            processes=self.args.world_size,
            gather=lambda sums: self.accelerator.gather(sums.to(self.args.device)),
        )
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


def load_model(name: str, half: bool = False) -> tuple[Any, Any]:
    """A model and its tokenizer: a folder, a .gguf file, or a name on the Hugging Face hub."""
    options: dict[str, Any] = {"dtype": torch.bfloat16} if half else {"dtype": torch.float32}
    place, more = name, {}
    if name.endswith(".gguf"):
        place, more = str(Path(name).parent), {"gguf_file": Path(name).name}
    transformers.utils.logging.disable_progress_bar()  # its bars are about files, not about work
    model: Any
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, **more)
        model = transformers.AutoModelForCausalLM.from_pretrained(place, **more, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = str(error).strip().split("\n")[0]
        raise InputFileError(
            f"{name}: the model must be a causal language model with its tokenizer, in a folder or "
            f"on the hub. It could not be loaded ({reason}). Check the path, or the network."
        ) from error
    if more:  # the weights are plain numbers now; marked as quantised, they could not be saved
        model.hf_quantizer, model.quantization_method, model.is_quantized = None, None, False
        del model.config.quantization_config
    model.config.use_cache = False
    return model, tokenizer


def last_checkpoint(out: Path) -> Path | None:
    """The newest complete checkpoint: its state is the last file that is written."""
    found = []
    for folder in out.glob(f"{_CHECKPOINT}*"):
        try:
            state = json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))
            if state["global_step"] == _step_of(folder):
                found.append(folder)
        except (OSError, ValueError, KeyError):
            continue
    return max(found, key=_step_of, default=None)


def _step_of(folder: Path) -> int:
    number = folder.name.removeprefix(_CHECKPOINT)
    return int(number) if number.isdigit() else -1


def training_arguments(settings: FinetuneSettings) -> Any:
    """The Trainer's arguments."""
    try:
        return transformers.TrainingArguments(
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
            gradient_checkpointing=settings.gradient_checkpointing,
            gradient_checkpointing_kwargs={"use_reentrant": False},
            seed=settings.seed,
            report_to=[] if settings.report_to == "none" else settings.report_to.split(","),
            use_cpu=settings.device == "cpu",
            dataloader_pin_memory=torch.cuda.is_available() and settings.device != "cpu",
            dataloader_drop_last=False,
            ddp_find_unused_parameters=False,
            disable_tqdm=True,
        )
    except (ValueError, ImportError) as error:
        raise InvalidInputError(
            f"The training arguments must be ones that transformers accepts. It does not accept "
            f"them ({str(error).splitlines()[0]}). Correct the option it names."
        ) from error


def _claim(out: Path, settings: FinetuneSettings, fresh: bool) -> None:
    """Make the folder, or find in it a run of the same settings to go on with."""
    wanted = {k: v for k, v in asdict(settings).items() if k not in _MAY_CHANGE}
    data = Path(settings.data)
    wanted["data_sha256"] = file_digest(data) if data.is_file() else None
    wanted = json.loads(json.dumps(wanted))
    try:
        if fresh and (out / SETTINGS).exists():
            for name in (RESULT, SETTINGS, "metrics.jsonl"):
                (out / name).unlink(missing_ok=True)
            for folder in out.glob(f"{_CHECKPOINT}*"):
                shutil.rmtree(folder)
        out.mkdir(parents=True, exist_ok=True)
        begun = (out / RESULT).exists() or last_checkpoint(out) is not None
        if begun and (out / SETTINGS).exists():
            there = json.loads((out / SETTINGS).read_text(encoding="utf-8"))
            if there != wanted:
                different = [
                    f"{name} = {there.get(name)!r} in the folder, {wanted.get(name)!r} now"
                    for name in {**there, **wanted}
                    if there.get(name) != wanted.get(name)
                ]
                raise InvalidInputError(
                    f"{out}: the folder must hold a run of the same settings. Got "
                    f"{'; '.join(different)} instead. Choose another folder with --out, or start "
                    "over with --fresh."
                )
            return
        partial = out / f".{SETTINGS}.partial"
        partial.write_text(json.dumps(wanted, indent=2) + "\n", encoding="utf-8")
        partial.replace(out / SETTINGS)
    except (OSError, json.JSONDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(
            f"{out}: the results must go to a folder that can be written. It cannot be used "
            f"({reason}). Choose another one with --out, or start over with --fresh."
        ) from error


def tuning_rows(
    settings: FinetuneSettings, tokenizer: Any, model: Any
) -> tuple[TunedRows, TunedRows | None]:
    """Training and validation examples as tokens."""
    rows = read_rows(
        settings.data, prompt=settings.prompt, answer=settings.answer, source=settings.source
    )
    most = getattr(model.config, "max_position_embeddings", None)
    if isinstance(most, int) and settings.max_length > most:
        raise invalid(
            "--max-length",
            f"must not exceed the model's context of {most} tokens",
            settings.max_length,
            f"Pass --max-length {most}.",
        )
    train, held = split_rows(rows, settings.validation, settings.validation_least, settings.seed)
    options = (tokenizer, settings.max_length, settings.too_long, settings.template)
    tokens = tokenise(train, *options)
    if len(tokens) < settings.pool:
        raise invalid(
            "--pool",
            f"must not exceed the {len(tokens)} training examples",
            settings.pool,
            "Lower it, or bring more data.",
        )
    return tokens, tokenise(held, *options) if held else None


def with_lora(model: Any, settings: FinetuneSettings) -> Any:
    """The model with LoRA adapters, which alone are trained."""
    try:
        import peft
    except ModuleNotFoundError as error:  # pragma: no cover
        raise MissingExtraError("LoRA", "train") from error
    return peft.get_peft_model(
        model,
        peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=settings.lora_r,
            lora_alpha=settings.lora_alpha,
            lora_dropout=settings.lora_dropout,
            target_modules=lora_targets(model, settings.lora_targets),
            fan_in_fan_out=getattr(model.config, "model_type", "") == "gpt2",
        ),
    )


def text_embeddings(settings: FinetuneSettings, train: TunedRows) -> Any:
    """Vectors of the training texts, where the method looks at those; otherwise None."""
    if settings.selection().usual_features != "embedding":
        return None
    from uniproto.features import embed_text

    options: dict[str, Any] = {}
    if settings.embedding_model is not None:
        options["model"] = settings.embedding_model
    return embed_text(train.texts, progress=False if settings.quiet else None, **options).vectors


def padding_token(tokenizer: Any) -> int:
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0


def _publish(
    out: Path, settings: FinetuneSettings, train: TunedRows, validation: TunedRows | None
) -> dict[str, Any]:
    """Curves first; result.json last, because it says that the run is complete."""
    from uniproto.results import versions, without_infinity

    rows = read_metrics(out)
    validated = [row for row in rows if row.get("val_loss") is not None]
    trained = [row for row in rows if row.get("train_loss") is not None]
    result = {
        "settings": {k: v for k, v in asdict(settings).items() if k not in _MAY_CHANGE},
        "train_rows": dict(train.sources.most_common()),
        "validation_rows": {} if validation is None else dict(validation.sources.most_common()),
        "too_long": train.truncated + (0 if validation is None else validation.truncated),
        "left_out": sum(row.get("left_out", 0) for row in trained),
        "first": validated[0] if validated else None,
        "last": validated[-1] if validated else None,
        "train_loss": trained[-1]["train_loss"] if trained else None,
        "seconds": rows[-1]["seconds"] if rows else None,
        "selection_share": _mean([row.get("selection_share") for row in trained]),
        "versions": versions()
        | {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    result = without_infinity(result)
    if validated:
        title = f"{Path(settings.model).name}: {settings.method}, per {settings.mode}, "
        title += f"{settings.keep} of {settings.pool}"
        save_curves(out, rows, result, title, train.sources)
    partial = out / f".{RESULT}.partial"
    partial.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(out / RESULT)
    return result


def _mean(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
