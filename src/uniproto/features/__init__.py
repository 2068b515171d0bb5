"""Text and pictures as vectors, by models that run on this machine.

>>> from uniproto.features import embed_text
>>> found = embed_text(["a red apple", "a green pear", "tax law"], cache=False)
>>> found.vectors.shape
(3, 384)
>>> bool(found.vectors[0] @ found.vectors[1] > found.vectors[0] @ found.vectors[2])
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uniproto.features.embedded import Embedded
    from uniproto.features.images import embed_images
    from uniproto.features.ngrams import hashed_ngrams
    from uniproto.features.text import embed_text
    from uniproto.training.language_features import gradients, hidden_states

__all__ = [
    "Embedded",
    "embed_images",
    "embed_text",
    "gradients",
    "hashed_ngrams",
    "hidden_states",
]

_HOMES = {  # loaded on first use, so that `import uniproto` stays fast
    "Embedded": "uniproto.features.embedded",
    "embed_images": "uniproto.features.images",
    "embed_text": "uniproto.features.text",
    "hashed_ngrams": "uniproto.features.ngrams",
    # They run the code of training, which stands above this room: named here, imported on use.
    "embed_examples": "uniproto.training.language_features",
    "gradients": "uniproto.training.language_features",
    "hidden_states": "uniproto.training.language_features",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'uniproto.features' has no attribute {name!r}")
