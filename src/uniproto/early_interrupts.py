"""Ctrl-C while a command still loads its modules ends it with one line, not with a traceback.

It begins when this module is imported, which is the first thing the package does (loading the rest
takes a third of a second), and lasts until the command line calls `over`. A command that loads much
more later on does so inside `loading`. Programs that import the package are left alone.
"""

from __future__ import annotations

import os
import signal
import sys


def _is_command() -> bool:
    """Whether this process is `uniproto …` or `python -m uniproto …`."""
    arguments = getattr(sys, "argv", [])  # a program with an interpreter inside may have none
    if arguments[:1] == ["-m"]:  # so it is as long as Python looks for the module
        return sys.orig_argv[-len(arguments)] == "uniproto"
    return bool(arguments) and os.path.basename(arguments[0]) in ("uniproto", "uniproto.exe")


def _leave(number: int, frame: object) -> None:
    # An exception could be caught, or come out changed, by whatever is being loaded.
    try:
        os.write(2, b"uniproto: interrupted; nothing was written.\n")
    finally:
        os._exit(128 + number)


def _begin() -> None:
    # Where Ctrl-C is switched off (`nohup`, `&` in a script), it stays so.
    if _COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def over() -> None:
    """Ctrl-C is a KeyboardInterrupt again: who runs now can say what was written."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class loading:
    """Around the imports of a command that has done nothing yet.

    >>> with loading():
    ...     import json
    """

    def __enter__(self) -> None:
        _begin()

    def __exit__(self, *_: object) -> None:
        over()


_COMMAND = _is_command()
_begin()
