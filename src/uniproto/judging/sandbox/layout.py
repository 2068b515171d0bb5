"""What a program sees of the file system: this Python, a few packages, the system's libraries."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

PACKAGES = ("sympy", "mpmath", "numpy", "scipy", "networkx", "pandas", "dateutil", "six", "tzdata")
"""Packages that model-written programs import, and what those need; shown where installed."""

SCRATCH = "/scratch"
"""The folder a program starts in and may write to; also called /tmp, unless Python lies there."""

_SYSTEM = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/etc/ld.so.cache",
    "/usr/share/zoneinfo",
)
_NIX = "/nix/store"  # there, a Python's libraries lie in folders of their own


class Layout(NamedTuple):
    """The parts of the root; `search` is what joins Python's module path."""

    executable: str
    links: list[tuple[str, str]]
    binds: list[str]
    masks: list[str]
    search: list[str]


@functools.cache
def layout() -> Layout:
    """The layout for this interpreter, found once."""
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    wanted = [*_SYSTEM, *(f"{os.path.realpath(sys.base_prefix)}/{name}" for name in _libraries())]
    wanted += [_NIX] if executable.startswith(f"{_NIX}/") else []
    links = [(path, os.readlink(path)) for path in wanted if os.path.islink(path)]
    folders = [path for path in wanted if os.path.exists(path) and not os.path.islink(path)]
    packages, search = _packages()
    masks = [path for path in _package_folders() if os.path.isdir(path) and _below(path, folders)]
    shown = _without_nested([*folders, executable])
    shown += [path for path in packages if not _below(path, shown) or _below(path, masks)]
    links += [] if any(path.startswith("/tmp/") for path in shown) else [("/tmp", SCRATCH)]
    return Layout(executable, list(dict.fromkeys(links)), shown, masks, search)


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
        # wheels keep the shared libraries of `numpy` in `numpy.libs` beside it
        beside = [real.with_name(f"{name}.libs")]
        found += [str(path) for path in (real, *beside) if path.exists()]
        search.append(str(real.parent))
    return found, list(dict.fromkeys(search))


def _without_nested(paths: list[str]) -> list[str]:
    """The paths that no other of them already shows."""
    unique = list(dict.fromkeys(paths))
    return [path for path in unique if not _below(path, unique)]


def _below(path: str, folders: list[str]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)
