"""Handle Ctrl-C while the command imports its modules: one line, and exit status 130.

Imported before all other modules. Programs that import the package keep their own handlers.
"""

from __future__ import annotations

import os
import sys
from itertools import pairwise
from types import TracebackType


def _one_line(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    print("uniproto: interrupted; nothing was written.", file=sys.stderr, flush=True)
    os._exit(130)


def is_command(words: list[str]) -> bool:
    """Whether this process runs the command line interface.

    >>> is_command(["python", "-m", "uniproto", "demo"]), is_command(["python", "train.py"])
    (True, False)
    >>> is_command(["/usr/bin/python3", "/usr/local/bin/uniproto", "demo"])
    True
    """
    return ("-m", "uniproto") in pairwise(words) or any(
        os.path.basename(word) == "uniproto" for word in words[:2]
    )


if is_command(sys.orig_argv):
    sys.excepthook = _one_line
