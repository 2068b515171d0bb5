"""Mini-batch selection inside a training step: which examples of a pool to learn from.

>>> import numpy as np
>>> from uniproto.training import BatchSelector
>>> gradients = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
>>> BatchSelector("uniproto", "batch", keep=2)(gradients)
array([0, 2])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniproto.training.config import SelectionConfig
    from uniproto.training.inputs import Gram
    from uniproto.training.selector import BatchRecord, BatchSelector
    from uniproto.training.trainer import SelectionMixin, SelectionTrainer, leave_together

__all__ = [
    "BatchRecord",
    "BatchSelector",
    "Gram",
    "SelectionConfig",
    "SelectionMixin",
    "SelectionTrainer",
    "leave_together",
]

_HOMES = {  # imported on first use: a BatchSelector needs arrays only, a trainer needs torch
    "BatchRecord": "uniproto.training.selector",
    "BatchSelector": "uniproto.training.selector",
    "Gram": "uniproto.training.inputs",
    "SelectionConfig": "uniproto.training.config",
    "SelectionMixin": "uniproto.training.trainer",
    "SelectionTrainer": "uniproto.training.trainer",
    "leave_together": "uniproto.training.trainer",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'uniproto.training' has no attribute {name!r}")
