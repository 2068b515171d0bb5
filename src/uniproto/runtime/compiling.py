"""Compiled loops: where machine code is cached, and a message while it is compiled."""

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

    Wrappers that are never used are not compiled: the one for C, and of `inner` functions, which
    only compiled functions call, the one for Python. Division by zero behaves as in NumPy.

    Machine code is cached next to the sources; if they are read-only, in the user's cache; if
    there is no home directory, in a private temporary folder.
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
    """A folder that only this user can write to, because the code cached there is run."""
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
    """Whether to show messages: in a terminal or a notebook, unless --quiet was given."""
    at_terminal = sys.stderr is not None and sys.stderr.isatty()
    return (at_terminal or "ipykernel" in sys.modules) and not progress.silent


def working_time() -> float:
    """A clock in seconds that stops during compilation, which no time limit should include."""
    return time.perf_counter() - _compiler.seconds


class _Compiler(event.Listener):
    """Reports once that our code is being compiled, and measures the total time it takes."""

    def __init__(self) -> None:
        self.has_reported = False
        self.seconds, self._depth, self._begun = 0.0, 0, 0.0

    def on_start(self, event: Any) -> None:
        if self._depth == 0:
            self._begun = time.perf_counter()
        self._depth += 1
        module = event.data["dispatcher"].py_func.__module__
        if _is_watched() and not self.has_reported and module.startswith("uniproto"):
            self.has_reported = True
            print(_LINE, file=sys.stderr, flush=True)

    def on_end(self, event: Any) -> None:
        self._depth -= 1  # compiling a function compiles its callees
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._begun


_compiler = _Compiler()
event.register("numba:compile", _compiler)
