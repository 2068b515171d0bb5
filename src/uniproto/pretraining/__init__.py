"""Pretraining with batch selection: a LLaMA-3 model, and a JAX step that chooses its own batch.

From a pool of sequences to an update of the weights, in the order of the files:

- `architecture`: the model, as plain functions of its parameters;
- `token_losses`: cross-entropy by slices, so that the logits of a whole batch never exist at once;
- `gradient_sketch`: what each sequence would teach the output projection, from one forward pass;
- `batch_choice`: which sequences of the pool to keep, by every method, with fixed shapes;
- `train_step`: scoring, choosing and training as one compiled program, on one device or several;
- `flops`: what a step costs.

Needs the extra `jax`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniproto.pretraining.architecture import (
        SIZES,
        ModelConfig,
        initial_params,
        logits,
        model_config,
    )
    from uniproto.pretraining.flops import bare_products, step_flops
    from uniproto.pretraining.step_settings import StepSettings
    from uniproto.pretraining.train_step import (
        StepReport,
        TrainState,
        initial_state,
        make_step,
        make_validation,
    )

__all__ = [
    "SIZES",
    "ModelConfig",
    "StepReport",
    "StepSettings",
    "TrainState",
    "bare_products",
    "initial_params",
    "initial_state",
    "logits",
    "make_step",
    "make_validation",
    "model_config",
    "step_flops",
]

_HOMES = {  # read only when asked for: JAX takes a second to import
    "SIZES": "architecture",
    "ModelConfig": "architecture",
    "StepReport": "train_step",
    "StepSettings": "step_settings",
    "TrainState": "train_step",
    "bare_products": "flops",
    "initial_params": "architecture",
    "initial_state": "train_step",
    "logits": "architecture",
    "make_step": "train_step",
    "make_validation": "train_step",
    "model_config": "architecture",
    "step_flops": "flops",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
