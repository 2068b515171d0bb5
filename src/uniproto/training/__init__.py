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
    from uniproto.training.batch_inputs import Gram
    from uniproto.training.batch_record import BatchRecord
    from uniproto.training.batch_selector import BatchSelector
    from uniproto.training.config import SelectionConfig
    from uniproto.training.trainer import SelectionMixin, SelectionTrainer

__all__ = [
    "BatchRecord",
    "BatchSelector",
    "Gram",
    "SelectionConfig",
    "SelectionMixin",
    "SelectionTrainer",
]

_HOMES = {  # read only when asked for: what needs torch stays apart from what needs arrays alone
    "BatchRecord": "uniproto.training.batch_record",
    "BatchSelector": "uniproto.training.batch_selector",
    "Gram": "uniproto.training.batch_inputs",
    "SelectionConfig": "uniproto.training.config",
    "SelectionMixin": "uniproto.training.trainer",
    "SelectionTrainer": "uniproto.training.trainer",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'uniproto.training' has no attribute {name!r}")
