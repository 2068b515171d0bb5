"""The streams a command talks through, which may be closed, full or narrow."""

from __future__ import annotations

import io
import os
import sys


def open_streams() -> None:
    """Let every command print: a closed stream swallows, an odd terminal does not spoil a result.

    A closed descriptor would otherwise be given to the next file that is opened, and what is meant
    for the terminal would end up in it.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 (open as long as we run)
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def silence_output() -> None:
    """Give up on standard output, so that Python does not try once more as it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
