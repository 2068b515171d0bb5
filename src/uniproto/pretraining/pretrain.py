"""Pretrain a language model on chosen sequences, from a corpus to curves.

The way of the data: documents → tokens in files → pools of sequences → chosen sequences → steps.
Everything that was asked for and came out is in the folder OUT.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from uniproto.errors import InvalidInputError, MissingExtraError, OutputError, invalid
from uniproto.metrics_file import METRICS, MetricsFile
from uniproto.pretraining.architecture import ModelConfig, model_config
from uniproto.pretraining.checkpoints import CHECKPOINTS, Checkpoints
from uniproto.pretraining.flops import step_flops
from uniproto.pretraining.learning_curves import save_curves
from uniproto.pretraining.pretrain_settings import PretrainSettings
from uniproto.pretraining.run_plan import Plan
from uniproto.pretraining.sequences import Sequences
from uniproto.pretraining.step_settings import StepSettings
from uniproto.pretraining.token_files import TRAIN, VALIDATION, TokenFiles
from uniproto.pretraining.token_preparation import prepare_tokens
from uniproto.pretraining.training_loop import NAN_BATCH, train
from uniproto.same_settings import require_same

try:
    import jax
except ModuleNotFoundError as error:  # pragma: no cover
    raise MissingExtraError("Pretraining", "jax") from error

RESULT, TOKENS = "result.json", "tokens"
_ROWS_OF_VOCABULARY = 128  # a multiple of this is what matrix units work on without padding
_VALIDATED_AT_ONCE = 64
# What does not change the numbers, or is known by its content (see `_configuration`).
_MAY_CHANGE = (
    *("out", "tokens", "data", "column", "tokenizer", "vocab_size", "validation"),
    *("save_steps", "quiet", "float32"),
)


def prepare(settings: PretrainSettings, fresh: bool = False) -> TokenFiles:
    """The tokens of a run: in the folder `tokens`, or else in OUT/tokens; made if need be.

    Those in OUT are the run's own: until it has trained on them they may be made anew.
    """
    own, unused = settings.tokens is None, not (Path(settings.out) / METRICS).exists()
    folder = Path(settings.out) / TOKENS if settings.tokens is None else Path(settings.tokens)
    shown = False if settings.quiet else None
    return prepare_tokens(
        folder, settings.preparation(), settings.seed, shown, replace=own and (fresh or unused)
    )


def pretrain(settings: PretrainSettings, fresh: bool = False) -> dict[str, Any]:
    """Run, or go on with, a pretraining run; returns what stands in OUT/result.json."""
    step_settings = settings.step_settings()  # wrong options are told before anything is read
    model_config(settings.size, vocab=1, length=1)
    mesh = _mesh(settings.devices)
    tokens = prepare(settings, fresh)
    training = tokens.sequences(TRAIN, settings.length)
    validation = tokens.sequences(VALIDATION, settings.length)
    _require_enough(settings, training, validation)
    vocab = -(-tokens.vocab // _ROWS_OF_VOCABULARY) * _ROWS_OF_VOCABULARY
    config = model_config(settings.size, vocab=vocab, length=settings.length)
    configuration = _configuration(settings, step_settings, tokens)
    out = Path(settings.out)
    if fresh:
        _forget(out)
    finished = _finished(out, settings, configuration)
    if finished is not None:
        return finished
    (out / RESULT).unlink(missing_ok=True)  # of a run that now goes on for more steps
    checkpoints = Checkpoints(out)
    try:
        record = checkpoints.record()
        if record is not None:
            _require_continuing(record["configuration"], configuration, record["step"], out)
        plan = Plan(
            config=config,
            step=step_settings,
            mesh=mesh,
            training=training,
            validation=_validated(validation, settings),
            steps=settings.steps,
            seed=settings.seed,
            eval_steps=settings.eval_steps,
            save_steps=settings.save_steps,
            logging_steps=settings.logging_steps,
            shown=False if settings.quiet else None,
            configuration=configuration,
        )
        metrics = MetricsFile(out, None if record is None else record["step"])
        timing = train(plan, checkpoints, record, metrics, out)
    finally:
        checkpoints.close()
    return _publish(out, settings, step_settings, config, configuration, tokens, metrics, timing)


def _configuration(
    settings: PretrainSettings, step_settings: StepSettings, tokens: TokenFiles
) -> dict[str, Any]:
    """What must be the same for a run to go on as if it had never stopped."""
    asked = {name: value for name, value in asdict(settings).items() if name not in _MAY_CHANGE}
    asked |= {"dtype": str(step_settings.dtype), "tokens": tokens.identity()}
    return dict(json.loads(json.dumps(asked)))


def _require_continuing(
    there: Mapping[str, Any], wanted: Mapping[str, Any], done: int, out: Path
) -> None:
    """The same configuration; more steps are another one only where the schedule looks at them."""
    if wanted["schedule"] == "constant" and wanted["steps"] >= done:
        there = {**there, "steps": wanted["steps"]}
    require_same(there, wanted, out, "a run of the same configuration")


def _finished(
    out: Path, settings: PretrainSettings, configuration: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The result of a run that has ended, unless it is to go on for more steps."""
    if not (out / RESULT).exists():
        return None
    try:
        result = dict(json.loads((out / RESULT).read_text(encoding="utf-8")))
        done, there = int(result["steps"]), dict(result["configuration"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(
            f"{out / RESULT}: the file must hold the result of a pretraining run. It holds "
            f"something else ({error}). Choose another folder with --out, or start over with "
            "--fresh."
        ) from error
    _require_continuing(there, configuration, done, out)
    return result if done == settings.steps else None


def _forget(out: Path) -> None:
    """Remove an earlier run, but not its tokens."""
    if (out / CHECKPOINTS).is_dir():
        for path in (out / METRICS, out / RESULT, out / NAN_BATCH, *out.glob("curves.*")):
            path.unlink(missing_ok=True)
        shutil.rmtree(out / CHECKPOINTS)


def _mesh(devices: int) -> Any:
    there = jax.devices()
    if devices > len(there):
        raise invalid(
            "--devices",
            f"must not exceed the {len(there)} that JAX finds here ({there[0].platform})",
            devices,
            "Lower it; on a CPU, XLA_FLAGS=--xla_force_host_platform_device_count=2 makes two.",
        )
    return None if devices == 1 else jax.sharding.Mesh(np.array(there[:devices]), ("data",))


def _require_enough(settings: PretrainSettings, training: Sequences, validation: Sequences) -> None:
    if len(training) < settings.pool:
        raise invalid(
            "--data",
            f"must hold {settings.pool} training sequences of {settings.length} + 1 tokens, for "
            "one pool",
            f"{len(training)} ({len(training.tokens):,} tokens)",
            "Bring more text, or lower --pool or --length.",
        )
    if len(validation) < settings.devices:
        raise invalid(
            "--validation",
            f"must hold out a sequence of {settings.length} + 1 tokens for every device",
            f"{len(validation.tokens):,} tokens",
            "Raise it, bring more text, or lower --length.",
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
    out: Path,
    settings: PretrainSettings,
    step_settings: StepSettings,
    config: ModelConfig,
    configuration: Mapping[str, Any],
    tokens: TokenFiles,
    metrics: MetricsFile,
    timing: Mapping[str, Any],
) -> dict[str, Any]:
    """Curves first; result.json last, because it says that the run is complete."""
    from uniproto.results import versions, without_infinity

    validated = [row for row in metrics.rows if row["val_loss"] is not None]
    result = without_infinity(
        {
            "configuration": configuration,
            "steps": settings.steps,
            "parameters": config.parameters,
            "model": asdict(config),
            "train_tokens": tokens.header["train_tokens"],
            "validation_tokens": tokens.header["validation_tokens"],
            "first": validated[0],
            "last": validated[-1],
            "train_loss": metrics.rows[-1]["train_loss"],
            "seconds": metrics.rows[-1]["seconds"],
            "step_flops": step_flops(config, step_settings),
            **timing,
            "device": f"{jax.devices()[0].device_kind} × {settings.devices}",
            "versions": versions() | {"jax": jax.__version__},
        }
    )
    title = f"{settings.size}: {settings.method}, {step_settings.trained} of {settings.pool}"
    save_curves(out, metrics.rows, result, settings.method, title)
    partial = out / f".{RESULT}.partial"
    try:
        partial.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", "utf-8")
        partial.replace(out / RESULT)
    except OSError as error:
        raise OutputError(
            f"{out}: the results must go to a folder that can be written. Writing failed "
            f"({error.strerror or error}). Choose another one with --out, or free some space."
        ) from error
    return dict(result)
