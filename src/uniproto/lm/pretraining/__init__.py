"""Pretraining with batch selection: a LLaMA-3 model, and a JAX step that chooses its own batch.

From a corpus to a trained model, in the order of the data:

- `corpus`, `preparation`, `tokens`: documents, made once into files of tokens, cut into sequences;
- `model`: the model, as plain functions of its parameters;
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

from typing import TYPE_CHECKING

from uniproto.runtime.late import late_names

if TYPE_CHECKING:
    from uniproto.lm.pretraining.in_step import choose_rows
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
        "SIZES": "uniproto.lm.pretraining.pretrain_settings",
        "ModelConfig": "uniproto.lm.pretraining.model",
        "StepReport": "uniproto.lm.pretraining.step",
        "StepSettings": "uniproto.lm.pretraining.pretrain_settings",
        "TrainState": "uniproto.lm.pretraining.step",
        "choose_rows": "uniproto.lm.pretraining.in_step",
        "initial_params": "uniproto.lm.pretraining.model",
        "initial_state": "uniproto.lm.pretraining.step",
        "logits": "uniproto.lm.pretraining.model",
        "make_step": "uniproto.lm.pretraining.step",
        "make_validation": "uniproto.lm.pretraining.step",
        "model_config": "uniproto.lm.pretraining.model",
    },
)
