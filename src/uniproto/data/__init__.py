"""Reading what users have (arrays, tables, files), and published data sets with their long tails.

>>> from uniproto.data import load_dataset
>>> load_dataset("digits").train.shape
(1297, 64)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniproto.data.datasets import DATASETS, load_dataset
    from uniproto.data.longtail import balanced, balanced_source_and_target, long_tailed, skewed
    from uniproto.data.published import Dataset

__all__ = [
    "DATASETS",
    "Dataset",
    "balanced",
    "balanced_source_and_target",
    "load_dataset",
    "long_tailed",
    "skewed",
]

_HOMES = {  # loaded on first use, so that `import uniproto` stays fast
    "DATASETS": "uniproto.data.datasets",
    "Dataset": "uniproto.data.published",
    "balanced": "uniproto.data.longtail",
    "balanced_source_and_target": "uniproto.data.longtail",
    "load_dataset": "uniproto.data.datasets",
    "long_tailed": "uniproto.data.longtail",
    "skewed": "uniproto.data.longtail",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'uniproto.data' has no attribute {name!r}")
