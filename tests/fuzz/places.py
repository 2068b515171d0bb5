"""Folders for the files of a case; all of them go with the process."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path


@cache
def _root() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="uniproto-fuzz-")


def new_folder() -> Path:
    """An empty folder."""
    return Path(tempfile.mkdtemp(dir=_root().name))
