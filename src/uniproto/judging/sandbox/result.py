"""How a program ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from uniproto.errors import UniprotoError

Status = Literal["ok", "error", "timeout", "killed"]


@dataclass(frozen=True)
class ProgramResult:
    """How a program ended, and what it printed.

    Attributes:
        status: `ok`: it came to its end by itself, with exit status 0. `error`: it ended by itself
            with another one (an exception, `sys.exit(1)`). `timeout`: its time was over.
            `killed`: a signal ended it (a crash, a limit) or it printed too much.
        output: what it wrote to standard output until its end, whatever ended it; at most 64 KiB.
        detail: why it was not ok: the end of standard error, or what ended it.

    >>> ProgramResult("ok", "42\\n").output
    '42\\n'
    """

    status: Status
    output: str
    detail: str = ""


class ContainmentError(UniprotoError, RuntimeError):
    """This system offers no way to lock a program in, or the walls could not be put up."""
