"""Names of a package that are imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from uniproto.errors import needing


def late_names(
    package: str,
    homes: Mapping[str, str],
    modules: Mapping[str, str] | None = None,
    extra: str | None = None,
) -> Callable[[str], Any]:
    """A package's `__getattr__`, which imports names and modules on first use.

    A key of `homes` may hold several names, separated by spaces. `extra` is the optional
    dependency that the homes need.
    """
    rooms = modules or {}
    home_of = {name: home for names, home in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in home_of:
            with needing(f"{package}.{name}", extra) if extra else nullcontext():
                return getattr(import_module(home_of[name]), name)
        if name in rooms:
            return import_module(rooms[name])
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
