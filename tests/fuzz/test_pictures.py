"""Pictures of any format under any name, damaged or too large: decoded, or a reason."""

from __future__ import annotations

import io
import struct
import subprocess
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from uniproto.features.pictures import UnreadableError, decoded, large_pictures

from .cases import cases
from .files import DAMAGES
from .guard import deadline
from .outcomes import TALLY

_ALLOWED = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "PPM", "WEBP", "TGA", "ICO")
_OTHERS = ("EPS", "PDF", "PCX", "MSP", "XBM")


def _picture(kind: str, size: tuple[int, int], mode: str) -> bytes:
    buffer = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
    modes = {"MSP": "1", "XBM": "1", "EPS": "RGB", "PDF": "RGB", "JPEG": "RGB"}
    Image.fromarray(pixels).convert(modes.get(kind, mode)).save(buffer, kind)
    return buffer.getvalue()


def _png_of(width: int, height: int) -> bytes:
    """A PNG that declares any size, of zeros."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(min((width + 1) * height, 10**6)))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


@st.composite
def pictures(draw: st.DrawFn) -> tuple[str, bytes]:
    kind = draw(st.sampled_from([*_ALLOWED, *_OTHERS, "declared"]))
    if kind == "declared":
        sides = st.sampled_from([0, 1, 7, 4000, 20_000, 2**20, 2**31 - 1])
        content = _png_of(draw(sides), draw(sides))
    else:
        mode = draw(st.sampled_from(["RGB", "L"]))
        content = _picture(kind, draw(st.sampled_from([(1, 1), (16, 16), (40, 30)])), mode)
    if draw(st.booleans()):
        damage = draw(st.sampled_from(sorted(DAMAGES)))
        kind, content = f"{kind}, {damage}", DAMAGES[damage](draw, content)
    return kind, content


@given(pictures())
@cases(80)
def test_a_picture_or_a_reason(picture: tuple[str, bytes]) -> None:
    kind, content = picture

    def started(*_: Any, **__: Any) -> None:
        pytest.fail(f"{kind} started a program")

    with pytest.MonkeyPatch.context() as patch, deadline(picture), large_pictures():
        patch.setattr(subprocess, "Popen", started)
        image, reason = _decoded(content)
    if image is None:
        TALLY["refused"] += 1
        assert reason
        assert kind not in _ALLOWED, f"{kind}: {reason}"
        return
    TALLY["answered"] += 1
    assert image.mode == "RGB"
    assert 0 < image.width * image.height <= (Image.MAX_IMAGE_PIXELS or 0)
    assert kind.split(",")[0] not in _OTHERS


def _decoded(content: bytes) -> tuple[Any, str]:
    try:
        return decoded(content), ""
    except UnreadableError as error:
        return None, str(error)
