"""Pictures for the page: small data URIs, made from arrays without help, from files by Pillow."""

from __future__ import annotations

import base64
import io
import os
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.errors import MissingExtraError
from uniproto.features.pictures import UnreadableError, open_picture, read_picture

_SMALL = 48  # pixels a side: below this a grey picture is smallest as PNG
_QUALITY = 72
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # channels -> what PNG calls them


class PictureError(Exception):
    """A picture that cannot be shown, and why. The page names it and goes on."""


def data_uri(picture: Any, edge: int, white: float | None = None) -> str:
    """A picture, at most `edge` pixels wide and high, as a data URI.

    `picture` is an array (height, width[, channels]) with `white` as its largest value, a file's
    path or content, a `{"bytes": …, "path": …}` record, or a Pillow image.
    """
    if isinstance(picture, Mapping):
        picture = picture.get("bytes") or picture.get("path")
    if picture is None or (isinstance(picture, float) and np.isnan(picture)):
        raise PictureError("there is no picture")
    try:
        if isinstance(picture, str | os.PathLike):
            path = _local(picture)
            _require_pillow()
            return _encoded(open_picture(read_picture(path)), edge)
        if isinstance(picture, bytes | bytearray | memoryview):
            _require_pillow()
            return _encoded(open_picture(bytes(picture)), edge)
        if hasattr(picture, "convert") and hasattr(picture, "thumbnail"):  # a Pillow image
            return _encoded(picture, edge)
        pixels = as_pixels(np.asarray(picture), white)
    except (PictureError, MissingExtraError):
        raise
    except UnreadableError as error:
        raise PictureError(str(error)) from None
    except Exception as error:  # what a decoder makes of a damaged file can be anything
        raise PictureError(str(error).split("\n")[0] or type(error).__name__) from error
    if max(pixels.shape[:2]) > _SMALL or pixels.shape[2] > 1:
        try:
            from PIL import Image
        except ImportError:
            step = max(1, -(-max(pixels.shape[:2]) // edge))
            return _uri("png", png(pixels[::step, ::step]))
        flat = pixels[..., 0] if pixels.shape[2] == 1 else pixels
        return _encoded(Image.fromarray(flat), edge)
    return _uri("png", png(pixels))


def as_pixels(values: NDArray[Any], white: float | None = None) -> NDArray[np.uint8]:
    """An array of any kind of numbers as 8-bit pixels (height, width, channels).

    >>> as_pixels(np.array([[0.0, 0.5], [1.0, 2.0]]), white=1.0)[..., 0]
    array([[  0, 128],
           [255, 255]], dtype=uint8)
    """
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim == 3 and values.shape[2] not in _COLOUR_TYPES and values.shape[0] in (1, 3, 4):
        values = np.moveaxis(values, 0, 2)  # channels first, as torch has them
    if values.ndim != 3 or values.shape[2] not in _COLOUR_TYPES or 0 in values.shape:
        raise PictureError(f"an array of shape {values.shape} is no picture")
    if values.dtype == np.uint8 and white in (None, 255):
        return values
    numbers = np.nan_to_num(values.astype(np.float64))
    top = float(numbers.max() if white is None else white)
    scaled = np.rint(numbers * (255 / top if top > 0 else 0))
    return np.clip(scaled, 0, 255).astype(np.uint8)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """The PNG file of 8-bit pixels (height, width, channels)."""
    height, width, channels = pixels.shape
    lines = np.zeros((height, 1 + width * channels), np.uint8)  # each line begins: no filter
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )


def _local(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if "://" in text[:32]:
        raise PictureError("it is an address on the network, and nothing is fetched")
    return text


def _require_pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise MissingExtraError("Showing pictures from files", "images") from None


def _encoded(image: Any, edge: int) -> str:
    from PIL import Image, ImageOps, features

    width, height = image.size
    if width * height > (Image.MAX_IMAGE_PIXELS or np.inf):
        raise PictureError(f"it unfolds to {width:,} x {height:,} pixels")
    if image.format == "JPEG":
        image.draft("RGB", (2 * edge, 2 * edge))  # decode no finer than needed
    image = ImageOps.exif_transpose(image)
    has_alpha = "A" in image.getbands() or "transparency" in image.info
    image = image.convert("RGBA" if has_alpha else "RGB")
    image.thumbnail((edge, edge))
    file = io.BytesIO()
    if features.check("webp"):
        image.save(file, "WEBP", quality=_QUALITY, method=4)
        return _uri("webp", file.getvalue())
    if has_alpha:
        flat = Image.new("RGB", image.size, "white")
        flat.paste(image, mask=image.getchannel("A"))
        image = flat
    image.save(file, "JPEG", quality=_QUALITY, optimize=True)
    return _uri("jpeg", file.getvalue())


def _uri(kind: str, content: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"
