"""Names that are imported on first use, and what became of names that moved."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from typing import Any

from uniproto.errors import needing

_DATA_SETS = "the experiments' support.datasets and support.draws"
_MOVED = {
    "uniproto.DensityWeights": "uniproto.Density",
    "uniproto.curate": "uniproto.lm.curate",
    "uniproto.Stochastic": "Greedy(sample=0.1)",
    "uniproto.training": "uniproto.lm",
    "uniproto.pretraining": "uniproto.lm.pretraining",
    "uniproto.judging": "uniproto.lm.judging",
    "uniproto.features.gradients": "uniproto.lm.gradients",
    "uniproto.features.hidden_states": "uniproto.lm.hidden_states",
    "uniproto.features.language": "uniproto.lm.features.language",
    "uniproto.data.datasets": _DATA_SETS,
    "uniproto.data.published": _DATA_SETS,
    "uniproto.data.longtail": _DATA_SETS,
    "uniproto.data.DATASETS": "the experiments' support.datasets",
    "uniproto.data.Dataset": "the experiments' support.published",
    "uniproto.data.load_dataset": "the experiments' support.datasets",
    "uniproto.data.balanced": "the experiments' support.draws",
    "uniproto.data.balanced_source_and_target": "the experiments' support.draws",
    "uniproto.data.long_tailed": "the experiments' support.draws",
    "uniproto.data.skewed": "the experiments' support.draws",
}


def late_names(
    package: str,
    homes: Mapping[str, str],
    modules: Mapping[str, str] | None = None,
    extra: str | None = None,
) -> Callable[[str], Any]:
    """A package's `__getattr__`: imports names from their homes, and modules, on first use.

    Several names of one home may be given as one text. `extra` installs what those homes need.
    """
    rooms = modules or {}
    home_of = {name: home for names, home in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in home_of:
            with needing(f"{package}.{name}", extra) if extra else nullcontext():
                return getattr(import_module(home_of[name]), name)
        if name in rooms:
            return import_module(rooms[name])
        unknown = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(_moved(f"{package}.{name}") or unknown)

    return find


def _moved(name: str) -> str | None:
    return f"{name} is now {_MOVED[name]}." if name in _MOVED else None


class _MovedNames:
    """The last to be asked where a module is: says where one has gone."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        if (reason := _moved(name)) is not None:
            raise ModuleNotFoundError(reason)


def explain_moved_names() -> None:
    """Let imports from places of earlier versions say where things are now."""
    sys.meta_path.append(_MovedNames())
