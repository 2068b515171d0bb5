"""Pictures for the page: small data URIs, made from arrays directly, from files by Pillow."""

from __future__ import annotations

import base64
import io
import os
import struct
import time
import zlib
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uniproto.data.files import first_line
from uniproto.errors import MissingExtraError
from uniproto.features.pictures import UnreadableError, open_picture, read_picture, require_pillow
from uniproto.report.examples import Examples
from uniproto.report.words import counted, cut
from uniproto.runtime.threads import parallel_map

_SMALL = 48  # pixels a side: below this a grey picture is smallest as PNG
_QUALITY = 72
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}  # channels -> colour type of PNG


def data_uri(picture: Any, edge: int, white: float | None = None) -> str:
    """A picture, at most `edge` pixels wide and high, as a data URI.

    `picture` is an array (height, width[, channels]) with `white` as its largest value, a file's
    path or content, a `{"bytes": …, "path": …}` record, or a Pillow image.
    """
    if isinstance(picture, Mapping):
        picture = picture.get("bytes") or picture.get("path")
    if picture is None or (isinstance(picture, float) and np.isnan(picture)):
        raise UnreadableError("there is no picture")
    try:
        if isinstance(picture, str | os.PathLike | bytes | bytearray | memoryview):
            require_pillow("Showing pictures from files")
            return _encoded(open_picture(_content(picture)), edge)
        if hasattr(picture, "convert") and hasattr(picture, "thumbnail"):  # a Pillow image
            return _encoded(picture, edge)
        pixels = as_pixels(np.asarray(picture), white)
    except (UnreadableError, MissingExtraError):
        raise
    except Exception as error:  # decoders may raise any error of a damaged file
        raise UnreadableError(first_line(error)) from error
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
        raise UnreadableError(f"an array of shape {values.shape} is no picture")
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


def _content(picture: Any) -> bytes:
    if not isinstance(picture, str | os.PathLike):
        return bytes(picture)
    if "://" in os.fspath(picture)[:32]:
        raise UnreadableError("it is an address on the network, and nothing is fetched")
    return read_picture(os.fspath(picture))


def _encoded(image: Any, edge: int) -> str:
    from PIL import Image, ImageOps, features

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


_PROTOTYPE_BYTES = 3_000_000
_ALL_BYTES = 5_600_000
_EDGES = (256, 192, 144, 112, 88, 64, 48)  # pixels of a prototype, as many as fit
_TARGET_EDGE = 64
_HOVER_SECONDS = 20.0
_BATCH = 64
_NAMED_GAPS = 8


class Album:
    """Data URIs by row. Prototypes come as large as fits; then the targets that cards cite;
    then, while there is room and time, those that the map shows on hovering.
    """

    def __init__(self, source: Examples, target: Examples, same_set: bool) -> None:
        self.source, self.target, self.same_set = source, target, same_set
        self.uris: list[str] = []
        self._size = 0
        self._places: dict[tuple[bool, int], int] = {}
        self._broken: dict[tuple[bool, int], str] = {}
        self._without_picture = 0

    def prototypes(self, rows: NDArray[np.int64]) -> None:
        """The pictures of the prototypes, at the largest size at which all of them fit."""
        if self.source.pictures is None or not len(rows):
            return
        first = rows[:: max(1, len(rows) // 24)][:24]
        edge = _EDGES[-1]
        for edge in _EDGES:
            sizes = [len(uri) for uri in self._encode(False, first, edge).values()]
            if not sizes or np.mean(sizes) * len(rows) <= _PROTOTYPE_BYTES:
                break
        self._store(False, self._encode(False, rows, edge))

    def targets(self, rows: NDArray[np.intp], limit: float = np.inf) -> None:
        """The pictures of targets that cards show, as many as there is room and time for."""
        if self.target.pictures is None:
            return
        other = not self.same_set
        known = self._places.keys() | self._broken.keys()
        wanted = [int(row) for row in rows if (other, int(row)) not in known]
        begin = time.perf_counter()
        for start in range(0, len(wanted), _BATCH):
            if self._size > _ALL_BYTES or time.perf_counter() - begin > limit:
                self._without_picture += len(wanted) - start
                return
            some = np.array(wanted[start : start + _BATCH], np.intp)
            self._store(other, self._encode(other, some, _TARGET_EDGE))

    def hovers(self, rows: NDArray[np.intp]) -> None:
        """The pictures of targets on the map."""
        self.targets(np.random.default_rng(0).permutation(rows), _HOVER_SECONDS)

    def of_source(self, row: int) -> int | None:
        return self._places.get((False, row))

    def of_target(self, row: int) -> int | None:
        return self._places.get((not self.same_set, row))

    def reason(self, row: int) -> str:
        """Why a prototype has no picture, where it should have one."""
        return self._broken.get((False, row), "")

    def gaps(self) -> list[str]:
        """What is missing, by name."""
        found = []
        if self._broken:
            count = len(self._broken)
            found.append(f"{counted(count, 'picture')} could not be shown:")
            for (of_target, row), why in list(self._broken.items())[:_NAMED_GAPS]:
                found.append(f"{'target' if of_target else 'row'} {row}: {why}")
            if count > _NAMED_GAPS:
                reasons = set(self._broken.values())
                found.append(f"and {count - _NAMED_GAPS:,} more ({len(reasons):,} reasons)")
        if self._without_picture:
            found.append(
                f"{counted(self._without_picture, 'target')} on the map and in lists are without "
                "their picture, to keep the page small."
            )
        return found

    def _encode(self, of_target: bool, rows: NDArray[Any], edge: int) -> dict[int, str]:
        """The pictures of some rows, as far as they can be shown."""
        examples = self.target if of_target else self.source
        assert examples.pictures is not None

        def encode(row: int, picture: Any) -> str:
            try:
                return data_uri(picture, edge, examples.white)
            except UnreadableError as error:
                name = f"{cut(picture.name, 80)}: " if isinstance(picture, PurePath) else ""
                self._broken[of_target, row] = name + cut(str(error), 160)
                return ""

        pairs = zip(rows.tolist(), examples.pictures(rows), strict=True)
        found = zip(rows.tolist(), parallel_map(lambda pair: encode(*pair), pairs), strict=True)
        return {row: uri for row, uri in found if uri}

    def _store(self, of_target: bool, encoded: dict[int, str]) -> None:
        for row, uri in encoded.items():
            self._places[of_target, row] = len(self.uris)
            self.uris.append(uri)
            self._size += len(uri)
