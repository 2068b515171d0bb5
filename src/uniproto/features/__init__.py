"""Text and pictures as vectors, by models that run on this machine.

>>> from uniproto.features import embed_text
>>> found = embed_text(["a red apple", "a green pear", "tax law"], cache=False)
>>> found.vectors.shape
(3, 384)
>>> bool(found.vectors[0] @ found.vectors[1] > found.vectors[0] @ found.vectors[2])
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uniproto.runtime.late import late_names

if TYPE_CHECKING:
    from uniproto.features.embedded import Embedded
    from uniproto.features.images import embed_images
    from uniproto.features.text import embed_text, hashed_ngrams

__all__ = [
    "Embedded",
    "embed_images",
    "embed_text",
    "hashed_ngrams",
]

# Loaded on first use, so that `import uniproto` stays fast.
__getattr__ = late_names(
    __name__,
    {
        "Embedded": "uniproto.features.embedded",
        "embed_images": "uniproto.features.images",
        "embed_text": "uniproto.features.text",
        "hashed_ngrams": "uniproto.features.text",
    },
)
