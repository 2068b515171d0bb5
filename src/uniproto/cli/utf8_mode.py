"""Names that are not ASCII, where the locale knows nothing else."""

from __future__ import annotations

import os
import sys


def require_utf8_mode() -> None:
    """Start this command over in Python's UTF-8 mode, unless paths are UTF-8 already.

    With an odd locale (`LC_ALL=C PYTHONUTF8=0`, Latin-1) Python decodes file and column names in
    ways that Arrow, which knows UTF-8 alone, cannot undo: a file that is there is not found. What
    is printed keeps the terminal's encoding.
    """
    if sys.getfilesystemencoding() == "utf-8":
        return
    shown = getattr(sys.stdout, "encoding", None) or "utf-8"
    environment = {**os.environ, "PYTHONIOENCODING": f"{shown}:backslashreplace"}
    # An option, not PYTHONUTF8, which `python -I` would not look at, and start over for ever.
    os.execve(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]], environment)
