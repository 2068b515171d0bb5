"""Read pictures from files, bytes and arrays: upright, in RGB, or the reason why not."""

from __future__ import annotations

import hashlib
import io
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.files import first_line, is_endless
from uniproto.errors import InputFileError, needing

if TYPE_CHECKING:
    from PIL.Image import Image

# fmt: off
ENDINGS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".webp", ".bmp", ".dib", ".tif", ".tiff",
    ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif", ".heic", ".heif", ".tga", ".ico",
)
# The formats that Pillow may read. Others, such as EPS, would start external programs.
FORMATS = (
    "PNG", "JPEG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF", "ICO",
    "TGA",
)
# fmt: on
_MOST_BYTES = 2**30  # of an encoded picture
_LONGEST_REASON = 120  # characters of a decoder's message


class UnreadableError(Exception):
    """A picture that cannot be read, with the reason."""


def pictures_in(folder: Path) -> list[str]:
    """The pictures of a folder and its sub-folders, sorted, as paths relative to it."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        inside = Path(place).relative_to(folder)
        found += [
            (inside / name).as_posix()
            for name in names
            if Path(name).suffix.lower() in ENDINGS and not name.startswith(".")
        ]
    if not found:
        raise InputFileError(f"{folder} holds no pictures (.jpg, .png, .webp …). Check the path.")
    return sorted(found)


def content_of(item: Any, folder: Path | None = None) -> tuple[bytes, Any]:
    """A digest of a picture's content, and what to decode: encoded bytes, an image or an array.

    An item may be a path (relative to `folder`), encoded bytes, what the Hugging Face library
    `datasets` stores ({"bytes": …, "path": …}), a PIL image or a uint8 array of (height, width),
    (height, width, 3) or (height, width, 4).
    """
    if isinstance(item, Mapping):
        if item.get("bytes") is not None:
            return content_of(item["bytes"])
        if item.get("path") is None:
            raise UnreadableError("missing")
        item = item["path"]
    if item is None or (isinstance(item, float) and np.isnan(item)):
        raise UnreadableError("missing")
    if isinstance(item, str | os.PathLike):
        item = read_picture(os.fspath(item), folder)
    if isinstance(item, bytes | bytearray | memoryview):
        if not item:
            raise UnreadableError("an empty file")
        return hashlib.sha256(item).digest(), bytes(item)
    if hasattr(item, "getexif"):  # a PIL image, without importing PIL
        image = upright(item)
        return _pixels_digest(np.asarray(image)), image
    if isinstance(item, np.ndarray):
        pixels = _checked_pixels(item)
        return _pixels_digest(pixels), pixels
    raise UnreadableError(f"not a picture ({type(item).__name__})")


def open_picture(content: bytes) -> Image:
    """An encoded picture of a known format and allowed size; its pixels are not decoded yet.

    All pictures are opened here, because a file's name does not show its format.
    """
    from PIL import Image, UnidentifiedImageError

    Image.init()
    formats = [name for name in FORMATS if name in Image.OPEN]
    limit = Image.MAX_IMAGE_PIXELS or np.inf
    try:
        image = Image.open(io.BytesIO(content), formats=formats)
        too_large = image.width * image.height > limit
    except UnidentifiedImageError:
        raise UnreadableError("not a picture of a known format") from None
    except Image.DecompressionBombError:
        too_large = True
    if too_large:
        raise UnreadableError(f"more than {limit / 1e6:.3g} million pixels: make it smaller")
    return image


def decoded(content: Any) -> Image:
    """An upright picture in RGB."""
    from PIL import Image

    if isinstance(content, np.ndarray):
        return Image.fromarray(content)
    if not isinstance(content, bytes):
        return content  # a PIL image, already upright
    with _decoding(), open_picture(content) as image:
        return upright(image)


@contextmanager
def _decoding() -> Iterator[None]:
    """Turn any error of a decoder into a reason."""
    try:
        yield
    except UnreadableError:
        raise
    except MemoryError:
        raise UnreadableError("too large to decode") from None
    except Exception as error:
        raise UnreadableError(f"damaged ({first_line(error)[:_LONGEST_REASON]})") from None


def upright(image: Any) -> Image:
    """Rotated by its EXIF orientation, in RGB, with transparency on white."""
    from PIL import Image, ImageOps

    if 0 in image.size:
        raise UnreadableError("a picture without pixels")
    with _decoding():
        image.load()
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):  # 16 bits a pixel
            image = _eight_bits(np.asarray(image))
        if image.mode == "F":
            raise UnreadableError("floating-point pixels, whose scale is not known")
        if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
            shown = image.convert("RGBA")
            paper = Image.new("RGBA", shown.size, (255, 255, 255, 255))
            image = Image.alpha_composite(paper, shown)
        return image.convert("RGB")


def require_pillow(purpose: str) -> None:
    with needing(purpose, "images"):
        import PIL  # noqa: F401


@contextmanager
def large_pictures() -> Iterator[None]:
    """Pillow warns of pictures that are too large; `open_picture` refuses them."""
    require_pillow("Reading pictures")
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        # Warnings about metadata (odd TIFF tags, broken EXIF) do not affect the pixels.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
        yield


def read_picture(name: str, folder: Path | None = None) -> bytes:
    """The content of a picture's file, which must be regular and of a sensible size."""
    path = Path(name) if folder is None else folder / name
    try:
        if path.is_dir() or is_endless(path):
            raise UnreadableError("it is a folder, a pipe or a device")
        if path.stat().st_size > _MOST_BYTES:
            raise UnreadableError("a file of more than a gigabyte")
        return path.read_bytes()
    except FileNotFoundError:
        raise UnreadableError("there is no such file") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)[:_LONGEST_REASON]
        raise UnreadableError(f"it cannot be opened ({reason})") from None


def _checked_pixels(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    if pixels.dtype != np.uint8:
        raise UnreadableError(f"an array of {pixels.dtype}, not of uint8 from 0 to 255")
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim != 2 and not (pixels.ndim == 3 and pixels.shape[2] in (3, 4)):
        raise UnreadableError(f"an array of shape {pixels.shape}, not (height, width[, 3])")
    if 0 in pixels.shape:
        raise UnreadableError("a picture without pixels")
    from PIL import Image

    return np.asarray(upright(Image.fromarray(np.ascontiguousarray(pixels))))


def _pixels_digest(pixels: NDArray[np.uint8]) -> bytes:
    head = f"RGB {pixels.shape} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(pixels).tobytes()).digest()


def _eight_bits(pixels: NDArray[Any]) -> Image:
    """Grey values of 16 bits as 8; those stored in a wider type may be of either kind."""
    from PIL import Image

    most = int(pixels.max())
    if int(pixels.min()) < 0 or most > 65535:
        raise UnreadableError("pixels beyond 16 bits, whose scale is not known")
    wide = pixels.dtype.itemsize == 2 or most > 255
    return Image.fromarray((pixels >> 8 if wide else pixels).astype(np.uint8))
