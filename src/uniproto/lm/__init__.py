"""Language models: choosing what to train them on, training and pretraining them, judging them.

>>> import numpy as np
>>> from uniproto.lm import BatchSelector
>>> gradients = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
>>> BatchSelector("uniproto", "batch", keep=2)(gradients)
array([0, 2])
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uniproto.runtime.late import late_names

if TYPE_CHECKING:
    from uniproto.lm.batches.config import SelectionConfig
    from uniproto.lm.batches.inputs import Gram
    from uniproto.lm.batches.selector import BatchRecord, BatchSelector
    from uniproto.lm.batches.trainer import SelectionMixin, SelectionTrainer, leave_together
    from uniproto.lm.curation.curate import curate
    from uniproto.lm.features.example_values import Gradients, HiddenStates
    from uniproto.lm.features.language_features import gradients, hidden_states

__all__ = [
    "BatchRecord",
    "BatchSelector",
    "Gradients",
    "Gram",
    "HiddenStates",
    "SelectionConfig",
    "SelectionMixin",
    "SelectionTrainer",
    "curate",
    "gradients",
    "hidden_states",
    "leave_together",
]

# Imported on first use: a BatchSelector needs arrays only, a trainer needs torch.
__getattr__ = late_names(
    __name__,
    {
        "BatchRecord BatchSelector": "uniproto.lm.batches.selector",
        "Gradients HiddenStates": "uniproto.lm.features.example_values",
        "Gram": "uniproto.lm.batches.inputs",
        "SelectionConfig": "uniproto.lm.batches.config",
        "SelectionMixin SelectionTrainer leave_together": "uniproto.lm.batches.trainer",
        "curate": "uniproto.lm.curation.curate",
        "gradients hidden_states": "uniproto.lm.features.language_features",
    },
    {name: f"{__name__}.{name}" for name in ("finetune", "judging", "pretraining")},
    extra="train",
)


def __dir__() -> list[str]:
    return sorted(__all__)
