"""Compiled loops: where their machine code is cached, and a word to people who wait for it."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import event

from uniproto.runtime import progress

_LINE = "uniproto: compiling once (about 20 s); the next start is quick"


def njit(
    *, cache: bool, inner: bool = False, **options: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Numba's `njit` with a cache that works wherever the package is installed.

    What is never used is not compiled: functions that C calls, and for `inner` ones, which no
    others than compiled functions call, those that Python calls. Dividing by 0 gives what NumPy
    gives.

    Machine code is cached beside the sources, in the user's cache where those cannot be written,
    or in a private temporary folder where there is no home either.
    """

    options = {"no_cfunc_wrapper": True, "no_cpython_wrapper": inner, **options}
    options.setdefault("error_model", "numpy")

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=cache, **options)(function)
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
        if (folder := _private_folder()) is None:
            return numba.njit(**options)(function)
        numba.config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
        return numba.njit(cache=cache, **options)(function)

    return compiled


def _private_folder() -> Path | None:
    """A folder for code that nobody else can write to: what is cached there is run."""
    if not hasattr(os, "getuid"):
        return None
    folder = Path(tempfile.gettempdir(), f"uniproto-compiled-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    return folder if private and found.st_uid == os.getuid() else None


def _is_watched() -> bool:
    """Whether a person waits: at a terminal or in a notebook, and not for a quiet command."""
    at_terminal = sys.stderr is not None and sys.stderr.isatty()
    return (at_terminal or "ipykernel" in sys.modules) and not progress.silent


def working_time() -> float:
    """A clock in seconds that stands still while code is compiled: time limits are for work."""
    return time.perf_counter() - _compiler.seconds


class _Compiler(event.Listener):
    """Says once that code of ours is being compiled, and how long that took in all.

    Cached code needs no word.
    """

    def __init__(self) -> None:
        self.said = False
        self.seconds, self._depth, self._begun = 0.0, 0, 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._begun = time.perf_counter()
        self._depth += 1
        module = event.data["dispatcher"].py_func.__module__
        if _is_watched() and not self.said and module.startswith("uniproto"):
            self.said = True
            print(_LINE, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        self._depth -= 1  # one function compiles those it calls
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._begun


_compiler = _Compiler()
event.register("numba:compile", _compiler)
