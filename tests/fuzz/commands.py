"""Commands, run in this process."""

from __future__ import annotations

import contextlib
import io

from uniproto.cli import main


def run_command(*arguments: str) -> tuple[int, str, str]:
    """Exit status, output and errors of a command."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = main(arguments)
    return status, out.getvalue(), errors.getvalue()
