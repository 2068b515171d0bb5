"""Paths that no system can have are refused before anything is asked of them."""

from __future__ import annotations

import os
from pathlib import Path

from uniproto.errors import InputFileError

_LONGEST_SHOWN = 200  # characters


def possible_path(path: str | os.PathLike[str]) -> Path:
    """The path, unless the system cannot even say whether there is something.

    >>> possible_path("pool.npy").name
    'pool.npy'
    """
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # whoever opens it has the better words; it may also be a pattern
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputFileError(
            f"{os.fspath(path)[:_LONGEST_SHOWN]!r}: the input must be a path that can be looked "
            f"up. This one cannot ({reason}). Check the path."
        ) from error
    return Path(path)
