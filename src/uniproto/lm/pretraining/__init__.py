"""Pretraining with batch selection: a LLaMA-3 model, and a JAX step that chooses its own batch.

From a corpus to a trained model, in the order of the data:

- `preparation`, `tokens`: documents, made once into files of tokens, cut into sequences;
- `model`: the model, as plain functions of its parameters;
- `gradients`: losses, and what each sequence would teach the output projection;
- `choose`: which sequences of the pool to train on, by every method, with fixed shapes;
- `step`: scoring, choosing and training as one compiled program, on one device or several; and the
  choice alone, as a function for a step of your own;
- `train`, `checkpoints`: the loop of a run, resumed after a kill;
- `pretrain`, `pretrain_settings`: a whole run with its curves, and its settings;
- `export`: the model for transformers.

Needs the extra `jax`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uniproto.runtime.late import late_names

if TYPE_CHECKING:
    from uniproto.lm.pretraining.model import (
        ModelConfig,
        initial_params,
        logits,
        model_config,
    )
    from uniproto.lm.pretraining.pretrain_settings import SIZES, StepSettings
    from uniproto.lm.pretraining.step import (
        StepReport,
        TrainState,
        choose_rows,
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
    "choose_rows",
    "initial_params",
    "initial_state",
    "logits",
    "make_step",
    "make_validation",
    "model_config",
]

# Imported on first use: JAX takes a second.
__getattr__ = late_names(
    __name__,
    {
        "SIZES StepSettings": "uniproto.lm.pretraining.pretrain_settings",
        "ModelConfig initial_params logits model_config": "uniproto.lm.pretraining.model",
        "StepReport TrainState choose_rows": "uniproto.lm.pretraining.step",
        "initial_state make_step make_validation": "uniproto.lm.pretraining.step",
    },
    extra="jax",
)
