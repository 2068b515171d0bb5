"""Pretrain a language model on chosen sequences, from a corpus to curves.

The path of the data: documents → tokens in files → pools of sequences → chosen sequences → steps.
The folder OUT holds the settings and the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from uniproto.errors import InputFileError, InvalidInputError
from uniproto.lm.pretraining.checkpoints import (
    CHECKPOINTS,
    Checkpoints,
    remove_checkpoints,
)
from uniproto.lm.pretraining.model import ModelConfig, model_config
from uniproto.lm.pretraining.preparation import prepare_tokens
from uniproto.lm.pretraining.pretrain_settings import PretrainSettings
from uniproto.lm.pretraining.tokens import (
    TRAIN,
    VALIDATION,
    Sequences,
    TokenFiles,
    load_vocabulary,
)
from uniproto.lm.pretraining.train import NAN_BATCH, RunPlan, train
from uniproto.report.charts import CURVE_FILES, curve, save_curves, small_multiples, styled
from uniproto.runs.atomic import write_json, writing
from uniproto.runs.folder import read_record, require_run_folder, require_same
from uniproto.runs.journal import METRICS, MetricsFile
from uniproto.runs.lock import locked

TOKENS, RESULT = "tokens", "result.json"
SETTINGS = "pretrain.json"  # marks the folder of a run
_RESULT_FILES = (*CURVE_FILES, NAN_BATCH, RESULT, METRICS)
_ROWS_OF_VOCABULARY = 128  # rows are padded to a multiple of this, for matrix units
_VALIDATED_AT_ONCE = 64
# Settings that do not change the numbers, or that the tokens identify (see `_configuration`).
_MAY_CHANGE = (
    *("out", "tokens", "data", "column", "tokenizer", "vocab_size", "validation"),
    *("save_steps", "quiet", "float32"),
)


def prepare(settings: PretrainSettings, fresh: bool = False) -> TokenFiles:
    """The tokens of a run: in the folder `tokens`, or else in OUT/tokens; they are made if missing.

    Tokens in OUT belong to the run, and may be replaced until it has trained on them.
    """
    own, unused = settings.tokens is None, not (Path(settings.out) / METRICS).exists()
    folder = Path(settings.out) / TOKENS if settings.tokens is None else Path(settings.tokens)
    shown = False if settings.quiet else None
    return prepare_tokens(folder, settings, settings.seed, shown, replace=own and (fresh or unused))


def pretrain(settings: PretrainSettings, fresh: bool = False) -> dict[str, Any]:
    """Start or resume a pretraining run; returns the content of OUT/result.json."""
    settings = replace(settings, dtype=_dtype(settings))
    model_config(settings.size, vocab=1, length=1)
    mesh = _mesh(settings.devices)
    out = Path(settings.out)
    require_run_folder(out, SETTINGS, _RESULT_FILES, [settings.data] if settings.data else [])
    tokens = prepare(settings, fresh)
    training = tokens.sequences(TRAIN, settings.length)
    validation = tokens.sequences(VALIDATION, settings.length)
    _require_enough(settings, tokens, training, validation)
    configuration = _configuration(settings, tokens)
    if not fresh:
        finished = finished_result(out, settings.steps, configuration)
        if finished is not None:
            return finished
    plan = RunPlan(
        config=padded_model(settings.size, tokens.vocab, settings.length),
        settings=settings,
        mesh=mesh,
        training=training,
        validation=_validated(validation, settings),
        configuration=configuration,
        vocabulary=None if settings.quiet else load_vocabulary(tokens.folder),
    )
    with locked(out):
        if fresh:
            remove_run(out)
        if not (out / SETTINGS).exists():
            write_json(out / SETTINGS, configuration)
        metrics, timing = _train(plan, out)
        return _publish(out, plan, tokens, metrics, timing)


def padded_model(size: str, vocab: int, length: int) -> ModelConfig:
    """The model for a vocabulary, rounded up to what matrix units work on."""
    rows = -(-vocab // _ROWS_OF_VOCABULARY) * _ROWS_OF_VOCABULARY
    return model_config(size, vocab=rows, length=length)


def _train(plan: RunPlan, out: Path) -> tuple[MetricsFile, dict[str, Any]]:
    """Train from the last checkpoint, where there is one, to the last step."""
    checkpoints = Checkpoints(out)
    try:
        saved = checkpoints.latest()
        if saved is None and (out / RESULT).exists():  # its results would be lost
            raise InputFileError(
                f"{out / CHECKPOINTS}: the last checkpoint is gone. Put it back, choose another "
                "folder with --out, or start over with --fresh."
            )
        if saved is not None:
            require_continuing(saved.record["configuration"], plan.configuration, saved.step, out)
        (out / RESULT).unlink(missing_ok=True)  # the run continues for more steps
        metrics = MetricsFile(out, None if saved is None else saved.step)
        return metrics, train(plan, checkpoints, saved, metrics, out)
    finally:
        checkpoints.close()


def _configuration(settings: PretrainSettings, tokens: TokenFiles) -> dict[str, Any]:
    """The settings that must be equal for a run to be resumed."""
    fixed = {name: value for name, value in asdict(settings).items() if name not in _MAY_CHANGE}
    return {**fixed, "tokens": tokens.identity()}


def _dtype(settings: PretrainSettings) -> str:
    """bfloat16 where the hardware has units for it."""
    slow = settings.float32 or jax.default_backend() == "cpu"
    return "float32" if slow else "bfloat16"


def _mesh(devices: int) -> Any:
    found = jax.devices()
    if devices > len(found):
        raise InvalidInputError(
            f"must not exceed the {len(found)} that JAX finds here "
            f"({found[0].platform}). On a CPU, "
            "XLA_FLAGS=--xla_force_host_platform_device_count=2 makes two.",
            parameter="devices",
        )
    return None if devices == 1 else jax.sharding.Mesh(np.array(found[:devices]), ("data",))


def _require_enough(
    settings: PretrainSettings, tokens: TokenFiles, training: Sequences, validation: Sequences
) -> None:
    if len(training) < settings.pool:
        raise InvalidInputError(
            f"must hold {settings.pool} training sequences of {settings.length} + 1 tokens, "
            f"not {len(training)} ({len(training.tokens):,} tokens). Bring more text, or lower "
            "--pool or --length.",
            parameter="data",
        )
    if len(validation) < settings.devices:
        held_out = tokens.header["validation_documents"]
        raise InvalidInputError(
            f"holds out {len(validation.tokens):,} tokens, of {held_out:,} of the "
            f"{held_out + tokens.header['train_documents']:,} documents: less than a sequence of "
            f"{settings.length} + 1 for every device. Raise it, bring more documents, or lower "
            "--length.",
            parameter="validation",
        )


def _validated(validation: Sequences, settings: PretrainSettings) -> np.ndarray[Any, Any]:
    """Batches of validation sequences, the same at every validation: (batches, size) numbers."""
    count = min(settings.eval_sequences, len(validation))
    size = min(count, _VALIDATED_AT_ONCE)
    size = max(1, size // settings.devices) * settings.devices
    drawn = np.random.default_rng([settings.seed, len(validation)]).permutation(len(validation))
    return validation.read(np.sort(drawn[: max(1, count // size) * size])).reshape(
        -1, size, settings.length + 1
    )


def _publish(
    out: Path, plan: RunPlan, tokens: TokenFiles, metrics: MetricsFile, timing: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the curves, then result.json, which marks the run as complete."""
    from uniproto.runs.records import versions, without_infinity

    settings = plan.settings
    validated = [row for row in metrics.rows if row["val_loss"] is not None]
    result = without_infinity(
        {
            "configuration": plan.configuration,
            "steps": settings.steps,
            "parameters": plan.config.parameters,
            "model": asdict(plan.config),
            "train_tokens": tokens.header["train_tokens"],
            "validation_tokens": tokens.header["validation_tokens"],
            "first": validated[0],
            "last": validated[-1],
            "train_loss": metrics.rows[-1]["train_loss"],
            "seconds": metrics.rows[-1]["seconds"],
            **timing,
            "device": f"{jax.devices()[0].device_kind} × {settings.devices}",
            "versions": versions() | {"jax": jax.__version__},
        }
    )
    title = f"{settings.size}: {settings.method}, {settings.trained} of {settings.pool}"
    points = curve_points(metrics.rows, method=settings.method)
    save_curves(out, points, lambda: curves_chart(points, title))
    with writing(out):
        write_json(out / RESULT, result)
    return dict(result)


def finished_result(
    out: Path, steps: int, configuration: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The result of a finished run, or None if it is to go on for more steps."""
    if not (out / RESULT).exists():
        return None
    result = read_record(out / RESULT)
    require_continuing(result["configuration"], configuration, result["steps"], out)
    return result if result["steps"] == steps else None


def require_continuing(
    before: Mapping[str, Any], now: Mapping[str, Any], done: int, out: Path
) -> None:
    """Refuse another configuration; with a constant learning rate there may be more steps."""
    if now["schedule"] == "constant" and now["steps"] >= done:
        before = {**before, "steps": now["steps"]}
    require_same(before, now, out, "a run of the same configuration")


def remove_run(out: Path) -> None:
    """Remove an earlier run, but not its tokens; the file that marks it as a run goes last."""
    if not (out / SETTINGS).is_file():
        return
    with writing(out):
        remove_checkpoints(out)
        for name in (*_RESULT_FILES, SETTINGS):
            (out / name).unlink(missing_ok=True)


# --- curves ---------------------------------------------------------------------------------------


def curve_points(rows: Sequence[Mapping[str, Any]], **run: Any) -> list[dict[str, Any]]:
    """The validated rows of a run's metrics, tidy; `run` (method, seed, …) is added to each.

    >>> rows = [{"step": 5, "seconds": 2.0, "tokens": 80, "train_loss": 3.5, "val_loss": 3.0},
    ...         {"step": 6, "seconds": 2.4, "tokens": 96, "train_loss": 3.4, "val_loss": None}]
    >>> curve_points(rows, method="full")
    [{'method': 'full', 'step': 5, 'seconds': 2.0, 'tokens': 80, 'train_loss': 3.5,
      'log_perplexity': 3.0}]
    """
    return [
        {
            **run,
            **{name: row[name] for name in ("step", "seconds", "tokens", "train_loss")},
            "log_perplexity": row["val_loss"],
        }
        for row in rows
        if row["val_loss"] is not None
    ]


def curves_chart(points: Sequence[Mapping[str, Any]], title: str) -> Any:
    """Validation against steps and against time."""
    # The untrained model is far above the rest.
    trained = [point for point in points if point["step"] > 0]
    shown = trained if len(trained) > 1 else points  # else there is no line without it
    over = {"step": ("step", "by steps"), "seconds": ("seconds of training", "by time")}
    panels = [
        curve(shown, x, words).properties(width=380, height=300, title=above)
        for x, (words, above) in over.items()
    ]
    return styled(small_multiples(panels, 2, shared=["y"]), title)
