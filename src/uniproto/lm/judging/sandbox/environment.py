"""What a program sees of the file system, and how much of the machine it may have."""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import resource
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

# What model-written programs import, and what those packages need; shown where installed.
PACKAGES = ("sympy", "mpmath", "numpy", "scipy", "networkx", "pandas", "dateutil", "six", "tzdata")
SCRATCH = "/scratch"  # where a program starts and may write; also /tmp, unless Python lies there
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
_NIX = "/nix/store"  # there, a Python's libraries lie in folders of their own


class SandboxLayout(NamedTuple):
    """The parts of the root; `search` is what joins Python's module path."""

    executable: str
    links: list[tuple[str, str]]
    binds: list[str]
    masks: list[str]
    packages: list[str]
    search: list[str]


@functools.cache
def layout() -> SandboxLayout:
    """The layout for this interpreter, found once."""
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    wanted = [*_SYSTEM, *(f"{os.path.realpath(sys.base_prefix)}/{name}" for name in _libraries())]
    wanted += [_NIX] if executable.startswith(f"{_NIX}/") else []
    links = [(path, os.readlink(path)) for path in wanted if os.path.islink(path)]
    folders = [path for path in wanted if os.path.exists(path) and not os.path.islink(path)]
    packages, search = _packages()
    masks = [path for path in _package_folders() if os.path.isdir(path) and _below(path, folders)]
    shown = _without_nested([*folders, executable])
    packages = [path for path in packages if not _below(path, shown) or _below(path, masks)]
    in_tmp = any(path.startswith("/tmp/") for path in (*shown, *packages))
    links += [] if in_tmp else [("/tmp", SCRATCH)]
    return SandboxLayout(executable, list(dict.fromkeys(links)), shown, masks, packages, search)


def _libraries() -> list[str]:
    """The folders of a Python's prefix that hold its library, and libraries of others (conda)."""
    return list(dict.fromkeys(("lib", sys.platlibdir)))


def _package_folders() -> list[str]:
    """Where installed packages lie; shown empty but for PACKAGES."""
    library = Path(os.path.realpath(sysconfig.get_path("stdlib")))
    places = [library / "site-packages", library / "dist-packages"]
    return [*map(str, places), "/usr/lib/python3/dist-packages"]


def _packages() -> tuple[list[str], list[str]]:
    """The files and folders of PACKAGES that are installed, and the folders to import them from."""
    found, search = [], []
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)  # finds without importing
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        place = origin.parent if spec.submodule_search_locations else origin
        real = Path(os.path.realpath(place))
        # wheels keep the shared libraries of `numpy` in `numpy.libs` next to it
        libraries = [real.with_name(f"{name}.libs")]
        found += [str(path) for path in (real, *libraries) if path.exists()]
        search.append(str(real.parent))
    return found, list(dict.fromkeys(search))


def _without_nested(paths: list[str]) -> list[str]:
    """The paths that no other of them already shows."""
    unique = list(dict.fromkeys(paths))
    return [path for path in unique if not _below(path, unique)]


def _below(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


MEMORY = 1 << 30  # bytes of address space: all its memory but its files
SCRATCH_BYTES = 64 << 20  # bytes of its temporary folder, which lies in memory
SCRATCH_FILES = 1024  # files and folders in its temporary folder
FILE_BYTES = 32 << 20  # bytes of one file
THREADS = 32  # threads, of one process
OPEN_FILES = 64  # files open at once
STACK = 8 << 20  # bytes of the stack of each thread
OUTPUT = 64 << 10  # bytes of standard output; a program that prints more is killed
ERRORS = 1 << 20  # bytes of standard error; a program that writes more is killed
DETAIL = 2000  # letters of standard error in a result, the last ones


def rlimits(timeout: float, contained: bool) -> list[tuple[int, int]]:
    """The limits that the kernel enforces, as (resource, value).

    The processor time lies above the time limit: it is there for a program whose parent stalls.
    """
    values = {
        "RLIMIT_CPU": math.ceil(timeout) + 1,
        "RLIMIT_AS": MEMORY,
        "RLIMIT_STACK": STACK,
        "RLIMIT_FSIZE": FILE_BYTES,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_SIGPENDING": 256,
        "RLIMIT_RTPRIO": 0,
        # Not 0: a core handler that is a pipe is started in spite of 0, but never for 1.
        "RLIMIT_CORE": 1,
    }
    if contained:  # elsewhere it would count everything the user runs
        values["RLIMIT_NPROC"] = THREADS + 1  # and init
    return [
        (getattr(resource, name), value)
        for name, value in values.items()
        if hasattr(resource, name)  # some are Linux's alone
    ]
