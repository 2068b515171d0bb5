"""What result files hold: plain JSON values, tables, versions and digests."""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from uniproto.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK = 1 << 20
_LIBRARIES = ("numpy", "scipy", "numba", "POT", "scikit-learn", "kmedoids")


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's content."""
    with path.open("rb") as file:
        return digest_of(file)


def digest_of(stream: Any) -> str:
    """The SHA-256 of the rest of a stream."""
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """A JSON value for a NumPy scalar or another simple object."""
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        return value.item()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def without_infinity(value: Any) -> Any:
    """Replace infinity and NaN, which JSON does not have, by None, and make keys strings."""
    if isinstance(value, Mapping):
        return {str(key): without_infinity(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_infinity(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def as_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A table with a column for each key, in the order of their first appearance."""
    import pyarrow as pa

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = pa.array([row.get(name) for row in rows])
        # A column without values gets a numeric type, as few tools know Arrow's null type.
        columns[name] = values.cast(pa.float64()) if pa.types.is_null(values.type) else values
    return pa.table(columns)


def versions() -> dict[str, str]:
    """The versions of Python and the libraries in use."""
    found = {"uniproto": __version__, "python": platform.python_version()}
    for library in _LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
