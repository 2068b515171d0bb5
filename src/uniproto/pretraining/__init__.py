"""Pretraining with batch selection: a LLaMA-3 model, and a JAX step that chooses its own batch.

From a corpus to a trained model, in the order of the data:

- `corpus`, `preparation`, `tokens`: documents, made once into files of tokens, cut into sequences;
- `model`: the model, as plain functions of its parameters, and what a step of it costs;
- `gradients`: losses, and what each sequence would teach the output projection;
- `choose`: which sequences of the pool to train on, by every method, with fixed shapes;
- `in_step`: the choice alone, as a function for a step of your own;
- `step`: scoring, choosing and training as one compiled program, on one device or several;
- `train`, `checkpoints`: the loop of a run, resumed after a kill;
- `pretrain`, `pretrain_settings`, `learning_curves`: a whole run, its settings and its curves;
- `sampling`, `export`: text from the model, and the model for transformers.

Needs the extra `jax`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniproto.pretraining.in_step import choose_rows
    from uniproto.pretraining.model import (
        ModelConfig,
        bare_products,
        initial_params,
        logits,
        model_config,
        step_flops,
    )
    from uniproto.pretraining.pretrain_settings import SIZES, StepSettings
    from uniproto.pretraining.step import (
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
    "choose_rows",
    "initial_params",
    "initial_state",
    "logits",
    "make_step",
    "make_validation",
    "model_config",
    "step_flops",
]

_HOMES = {  # imported on first use: JAX takes a second
    "SIZES": "pretrain_settings",
    "ModelConfig": "model",
    "StepReport": "step",
    "StepSettings": "pretrain_settings",
    "TrainState": "step",
    "bare_products": "model",
    "choose_rows": "in_step",
    "initial_params": "model",
    "initial_state": "step",
    "logits": "model",
    "make_step": "step",
    "make_validation": "step",
    "model_config": "model",
    "step_flops": "model",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
